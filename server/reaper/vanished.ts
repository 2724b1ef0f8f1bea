// Since when a Node is missing, as this server has seen it with its own eyes: what it may have missed does not count.
// Leaves to reaper.ts what follows, and how long is long enough to limits.ts.
import type { Instant, NodeName } from "../../shared/kinds.ts";
import type { Clock } from "../../shared/world.ts";
import type { Change, Store } from "../store/store.ts";

/** A view that may have been behind for longer says of no Node that it is missing. */
const viewLimitMs = 15_000;
/** Deletions remembered. Beyond: the oldest count as if they had been as late as the oldest that is still known. */
const maxRemembered = 16_384;

export class Vanished {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #deletedAt = new Map<string, Instant>();
  #forgottenUntil: Instant;
  readonly #unlisten: () => void;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    this.#forgottenUntil = clock.monotonic();
    this.#unlisten = store.listen((change) => {
      if (change.kind === "node") this.#see(change);
    });
  }

  /** Undefined: it is there, or nobody can tell. */
  missingSince(node: NodeName): Instant | undefined {
    const { synced, ageMs, wholeSince } = this.#store.freshness("node");
    if (!synced || ageMs > viewLimitMs) return undefined;
    // One that cannot be read is there all the same.
    if (this.#store.get("node", node) !== undefined || this.#store.unread("node").has(node)) return undefined;
    return Math.max(wholeSince, this.#deletedAt.get(node) ?? this.#forgottenUntil) as Instant;
  }

  stop(): void {
    this.#unlisten();
  }

  #see({ name, after }: Change<"node">): void {
    this.#deletedAt.delete(name);
    if (after !== undefined) return;
    this.#deletedAt.set(name, this.#clock.monotonic());
    if (this.#deletedAt.size <= maxRemembered) return;
    for (const [oldest, at] of this.#deletedAt) {
      this.#deletedAt.delete(oldest);
      this.#forgottenUntil = at;
      return;
    }
  }
}
