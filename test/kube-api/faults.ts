// Faults on demand: which requests go wrong, how, and how often. Decides only; whoever carries requests makes the fault happen.
// Rules are asked in the order they were added, and the first that matches is used up by one.
import type { Target } from "./request.ts";

export interface FaultMatch {
  readonly verb?: string | readonly string[];
  readonly resource?: string | readonly string[];
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string | RegExp;
  readonly path?: string | RegExp;
  readonly userAgent?: string | RegExp;
}

export type FaultEffect =
  /** Answered late. */
  | { readonly kind: "delay"; readonly delayMs: number; readonly before?: boolean }
  /** Refused without effect: 409, 410, 429, 500, 503 … */
  | {
      readonly kind: "status";
      readonly code: number;
      readonly reason?: string;
      readonly message?: string;
      readonly retryAfterSeconds?: number;
      readonly text?: string;
    }
  /** Connection reset: before the request takes effect, or after it did. */
  | { readonly kind: "drop"; readonly when: "before" | "after" }
  /** The answer stops half way, as if it were complete (`clean`) or with a reset. */
  | { readonly kind: "truncate"; readonly afterBytes: number; readonly clean?: boolean }
  /** Accepted, then silence. A watch gets its headers and no event. */
  | { readonly kind: "black-hole" }
  /** A watch answers 200 and one ERROR event. */
  | { readonly kind: "error-event"; readonly code: number; readonly reason: string; readonly message?: string }
  /** A watch ends cleanly, or breaks, after so many lines. */
  | { readonly kind: "cut-watch"; readonly afterLines: number; readonly reset?: boolean };

export interface FaultRule {
  readonly match: FaultMatch;
  readonly effect: FaultEffect;
  /** How often; unlimited when absent. */
  readonly times?: number;
  /** Let so many matching requests pass first. */
  readonly skip?: number;
}

interface ActiveRule {
  readonly rule: FaultRule;
  left: number;
  skip: number;
  used: number;
}

export class Faults {
  #rules: ActiveRule[] = [];

  /** The result takes the rule away again and says how often it was used. */
  add(rule: FaultRule): { remove(): number; readonly used: number } {
    const active: ActiveRule = { rule, left: rule.times ?? Number.POSITIVE_INFINITY, skip: rule.skip ?? 0, used: 0 };
    this.#rules.push(active);
    return {
      remove: () => {
        this.#rules = this.#rules.filter((other) => other !== active);
        return active.used;
      },
      get used() {
        return active.used;
      },
    };
  }

  clear(): void {
    this.#rules = [];
  }

  /** The effect for this request, if any; counts as used. */
  take(target: Target, userAgent: string): FaultEffect | undefined {
    for (const active of this.#rules) {
      if (active.left <= 0 || !matches(active.rule.match, target, userAgent)) continue;
      if (active.skip > 0) {
        active.skip -= 1;
        continue;
      }
      active.left -= 1;
      active.used += 1;
      return active.rule.effect;
    }
    return undefined;
  }
}

function matches(match: FaultMatch, target: Target, userAgent: string): boolean {
  if (!isOneOf(match.verb, target.verb) || !fits(match.userAgent, userAgent)) return false;
  if (target.kind === "path")
    return match.resource === undefined && match.name === undefined && fits(match.path, target.path);
  return (
    match.path === undefined &&
    isOneOf(match.resource, target.resource) &&
    (match.subresource === undefined || match.subresource === target.subresource) &&
    (match.namespace === undefined || match.namespace === target.namespace) &&
    fits(match.name, target.name)
  );
}

function isOneOf(wanted: string | readonly string[] | undefined, word: string): boolean {
  return wanted === undefined || (typeof wanted === "string" ? wanted === word : wanted.includes(word));
}

function fits(wanted: string | RegExp | undefined, text: string): boolean {
  return wanted === undefined || (typeof wanted === "string" ? wanted === text : wanted.test(text));
}
