// The real clock and the real randomness. Leaves to others: everything that depends on them.
import { randomBytes, randomInt } from "node:crypto";
import { type Instant, invariant, type UnixMs } from "../kinds.ts";
import type { Clock, Random } from "../world.ts";

/** Node wakes at once when asked to wait longer than this. */
const maxTimerMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  monotonic: () => performance.now() as Instant,
  wall: () => Date.now() as UnixMs,
  // The wall clock has milliseconds only; the rest, from another clock, keeps two readings of one millisecond apart.
  wallNanos: () => BigInt(Date.now()) * 1_000_000n + (process.hrtime.bigint() % 1_000_000n),
  after: (delayMs, wake) => {
    invariant(delayMs <= maxTimerMs, `no timer waits ${delayMs} ms`);
    const timer = setTimeout(wake, delayMs);
    return () => clearTimeout(timer);
  },
};

export const systemRandom: Random = {
  below: (limit) => randomInt(limit),
  hex: (bytes) => randomBytes(bytes).toString("hex"),
};
