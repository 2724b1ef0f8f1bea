// The request log: what was asked, by whom, with which outcome. Counts everything, remembers the newest entries.
// A mark and what came after it is how a test says "an ADD makes no request".
import type { UnixMs } from "../../shared/kinds.ts";
import type { Target } from "./request.ts";

export interface LogEntry {
  /** Position in the log, from 1; also a mark. */
  readonly seq: number;
  readonly at: UnixMs;
  readonly verb: string;
  /** `pods`, `serviceaccounts/token`, or the path of a request that is not about a resource. */
  readonly resource: string;
  readonly group: string;
  readonly namespace: string;
  readonly name: string;
  /** User-Agent header. */
  readonly client: string;
  readonly user: string;
  /** 0: no answer was sent. A watch counts when it starts. */
  readonly code: number;
  readonly query: string;
  readonly target: Target;
}

export type Counted = "verb" | "resource" | "group" | "namespace" | "name" | "client" | "user" | "code";

/** Entries remembered; counts go on beyond it. */
const entryLimit = 100_000;

export class RequestLog {
  #entries: LogEntry[] = [];
  #seq = 0;
  readonly #listeners = new Set<(entry: LogEntry) => void>();

  get total(): number {
    return this.#seq;
  }

  add(entry: Omit<LogEntry, "seq">): void {
    this.#seq += 1;
    const full = { seq: this.#seq, ...entry };
    this.#entries.push(full);
    if (this.#entries.length >= 2 * entryLimit) this.#entries = this.#entries.slice(-entryLimit);
    for (const listener of this.#listeners) listener(full);
  }

  /** Where the log is now. */
  mark(): number {
    return this.#seq;
  }

  since(mark = 0): LogView {
    const first = this.#entries[0]?.seq ?? 1;
    return new LogView(this.#entries.slice(Math.max(0, mark + 1 - first)));
  }

  /** Told of every request as it is answered; the result stops that. */
  listen(listener: (entry: LogEntry) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export class LogView {
  readonly entries: readonly LogEntry[];

  constructor(entries: readonly LogEntry[]) {
    this.entries = entries;
  }

  get total(): number {
    return this.entries.length;
  }

  where(match: Partial<Pick<LogEntry, Counted>>): LogView {
    const wanted = Object.entries(match);
    return new LogView(this.entries.filter((entry) => wanted.every(([key, value]) => entry[key as Counted] === value)));
  }

  count(match: Partial<Pick<LogEntry, Counted>> = {}): number {
    return this.where(match).total;
  }

  /** `by("verb", "resource")` → `{"create pods": 3, …}`, largest first. */
  by(...keys: readonly Counted[]): Record<string, number> {
    const counts = new Map<string, number>();
    for (const entry of this.entries) {
      const key = keys.map((name) => entry[name]).join(" ");
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    return Object.fromEntries([...counts].sort(([, one], [, other]) => other - one));
  }
}
