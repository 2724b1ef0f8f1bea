// Virtual time and seeded chance for a whole cluster in one process: one event after the other, each with all that follows from it at once.
// Leaves to others what happens. Nothing here depends on the machine, so a seed is a history.
import type { Instant, UnixMs } from "../../shared/kinds.ts";
import type { Clock, Random } from "../../shared/world.ts";
import { seededRandom } from "../manual-world.ts";

interface Timer {
  readonly due: number;
  readonly order: number;
  act: (() => void) | undefined;
}

const wallAtStart = Date.parse("2030-01-01T14:00:00Z");

export class World {
  now = 0;
  readonly random: Random;
  readonly history: string[] = [];
  readonly counts = new Map<string, number>();
  readonly violations: string[] = [];
  readonly #heap: Timer[] = [];
  #order = 0;

  constructor(seed: number) {
    this.random = seededRandom(seed);
  }

  /** The result calls it off. */
  after(delayMs: number, act: () => void): () => void {
    this.#order += 1;
    const timer: Timer = { due: this.now + Math.max(0, delayMs), order: this.#order, act };
    this.#push(timer);
    return () => {
      timer.act = undefined;
    };
  }

  /** Until the virtual time has come; each event with the promises that it settles. */
  async runUntil(until: number): Promise<void> {
    for (let next = this.#heap[0]; next !== undefined && next.due <= until; next = this.#heap[0]) {
      this.#pop();
      const { act } = next;
      if (act === undefined) continue;
      this.now = next.due;
      act();
      await new Promise<void>((done) => setImmediate(done));
    }
    this.now = until;
  }

  between(least: number, most: number): number {
    return least + this.random.below(most - least + 1);
  }

  happens(perMille: number): boolean {
    return this.random.below(1000) < perMille;
  }

  note(what: string, more = ""): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
    this.history.push(`${this.now} ${what}${more === "" ? "" : ` ${more}`}`);
  }

  violated(promise: string): void {
    this.note("VIOLATION", promise);
    this.violations.push(`${this.now} ms: ${promise}`);
  }

  #push(timer: Timer): void {
    const heap = this.#heap;
    let at = heap.push(timer) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || isBefore(above, timer)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = timer;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      const [left, right] = [heap[child], heap[child + 1]];
      if (left === undefined) break;
      let smaller = left;
      if (right !== undefined && isBefore(right, left)) {
        smaller = right;
        child += 1;
      }
      if (isBefore(last, smaller)) break;
      heap[at] = smaller;
      at = child;
    }
    heap[at] = last;
  }
}

function isBefore(one: Timer, other: Timer): boolean {
  return one.due < other.due || (one.due === other.due && one.order < other.order);
}

/** One process of the cluster: after its end nothing of it happens any more. */
export class Process {
  isAlive = true;
  readonly clock: Clock;

  constructor(world: World) {
    const bornAt = world.now;
    let reading = 0n;
    this.clock = {
      monotonic: () => (world.now - bornAt) as Instant,
      wall: () => (wallAtStart + world.now) as UnixMs,
      wallNanos: () => {
        const now = BigInt(wallAtStart + world.now) * 1_000_000n;
        reading = now > reading ? now : reading + 1n;
        return reading;
      },
      after: (delayMs, wake) =>
        world.after(Math.ceil(delayMs), () => {
          if (this.isAlive) wake();
        }),
    };
  }
}
