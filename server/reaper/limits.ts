// How long a lease may run and how long the reaper must wait for it, when servers disagree because their configuration is just changing.
// A raised limit reaches the reaper before any agent, a lowered one after the last lease of the old length. Decides only; the Lease
// (election.ts) carries the leader's word to the other servers.
import type { Instant } from "../../shared/kinds.ts";

/** The leader's word: agents may be granted `grantMs`; leases of `owedMs` may still be running. */
export interface Terms {
  readonly grantMs: number;
  readonly owedMs: number;
}

/** Word of the leader that is older binds nobody: without one, no server renews a lease. Servers look every 15 s or so. */
const wordLimitMs = 300_000;

/**
 * Twice, so that a whole limit is left for what two servers may see differently: a Node's deletion reaches one of them up to 90 s later
 * (a watch may be silent for 75 s, and 15 s pass until its silence counts), and clocks do not run alike.
 */
export const reapAfterLimits = 2;

export class Limits {
  #configuredMs: number;
  #afterMs: number | undefined;
  #word: { readonly grantMs: number; readonly at: Instant } | undefined;
  /** Limits that somebody may have granted, and when last. */
  readonly #granted = new Map<number, Instant>();

  constructor(configuredMs: number, afterMs: number | undefined) {
    this.#configuredMs = configuredMs;
    this.#afterMs = afterMs;
  }

  configure(configuredMs: number, afterMs: number | undefined): void {
    this.#configuredMs = configuredMs;
    this.#afterMs = afterMs;
  }

  /** Another server is the leader and says so. */
  told({ grantMs, owedMs }: Terms, now: Instant): void {
    this.#granted.set(owedMs, now);
    this.said({ grantMs, owedMs }, now);
  }

  /** These terms of this server are being written: others may have read them before it is known that they were. */
  offers({ grantMs }: Terms, now: Instant): void {
    this.#granted.set(grantMs, now);
  }

  /** They are what the others read from now on. */
  said(terms: Terms, now: Instant): void {
    this.offers(terms, now);
    this.#word = { grantMs: terms.grantMs, at: now };
  }

  /** What the leader is to say. */
  terms(now: Instant): Terms {
    return { grantMs: this.#configuredMs, owedMs: this.#longest(now) };
  }

  /** How long an agent may go on from now; undefined: no lease may be renewed. */
  grant(now: Instant): number | undefined {
    if (this.#word === undefined || now - this.#word.at > wordLimitMs) return undefined;
    return Math.min(this.#configuredMs, this.#word.grantMs);
  }

  /** How long a Node must be missing before its warm addresses are nobody's. */
  reapAfter(now: Instant): number {
    return Math.max(this.#afterMs ?? 0, reapAfterLimits * this.#longest(now));
  }

  #longest(now: Instant): number {
    for (const [limitMs, at] of this.#granted) {
      // Granted last when the word was as old as may be, of a Node that another server still saw.
      if (now > at + wordLimitMs + reapAfterLimits * limitMs) this.#granted.delete(limitMs);
    }
    return Math.max(this.#configuredMs, ...this.#granted.keys());
  }
}
