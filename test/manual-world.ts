// A clock that moves only when told, and randomness from a seed: the world of unit tests.
// Leaves to others: whole systems under simulated time.
import { type Instant, invariant, type UnixMs } from "../shared/kinds.ts";
import type { Clock, Random } from "../shared/world.ts";

export interface ManualClock extends Clock {
  /** Moves time on and wakes what is due on the way, in order of time. */
  advance(ms: number): void;
  /** Timers that have not fired or been cancelled. */
  pending(): number;
}

export function manualClock(startWall = "2030-01-01T14:00:00Z"): ManualClock {
  const origin = Date.parse(startWall);
  const timers = new Map<number, { due: number; wake: () => void }>();
  let now = 0;
  let made = 0;
  const nextDue = (): [number, { due: number; wake: () => void }] | undefined =>
    [...timers].sort(([a, left], [b, right]) => left.due - right.due || a - b)[0];
  return {
    monotonic: () => now as Instant,
    wall: () => (origin + now) as UnixMs,
    wallNanos: () => BigInt(origin + now) * 1_000_000n,
    after: (delayMs, wake) => {
      made += 1;
      const id = made;
      timers.set(id, { due: now + Math.max(0, delayMs), wake });
      return () => void timers.delete(id);
    },
    advance: (ms) => {
      const until = now + ms;
      for (let next = nextDue(); next !== undefined && next[1].due <= until; next = nextDue()) {
        timers.delete(next[0]);
        now = next[1].due;
        next[1].wake();
      }
      now = until;
    },
    pending: () => timers.size,
  };
}

/** mulberry32: good enough to choose, and the same everywhere. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  return {
    below: (limit) => {
      invariant(Number.isInteger(limit) && limit > 0, `a positive limit, not ${limit}`);
      return Math.floor((next() / 2 ** 32) * limit);
    },
    hex: (bytes) => Array.from({ length: bytes }, () => (next() >>> 24).toString(16).padStart(2, "0")).join(""),
  };
}
