// The real clock and the real randomness. Leaves to others: everything that depends on them.
import { randomBytes, randomInt } from "node:crypto";
import { type Instant, invariant, type UnixMs } from "../kinds.ts";
import type { Clock, Random } from "../world.ts";

/** Node wakes at once when asked to wait longer than this. */
const maxTimerMs = 2 ** 31 - 1;
const nanosPerMs = 1_000_000n;

export const systemClock: Clock = {
  monotonic: () => performance.now() as Instant,
  wall: () => Date.now() as UnixMs,
  wallNanos: nanosOf(
    () => Date.now(),
    () => process.hrtime.bigint(),
  ),
  after: (delayMs, wake) => {
    invariant(delayMs <= maxTimerMs, `no timer waits ${delayMs} ms`);
    const timer = setTimeout(wake, delayMs);
    return () => clearTimeout(timer);
  },
};

/**
 * The wall clock has milliseconds only; the rest is another clock's, and begins its milliseconds at another time. Two readings are never
 * the same, and go back only with the wall clock itself.
 */
export function nanosOf(wallMs: () => number, ticksNs: () => bigint): () => bigint {
  let last = 0n;
  return () => {
    const now = BigInt(wallMs()) * nanosPerMs + (ticksNs() % nanosPerMs);
    last = now <= last && last - now < nanosPerMs ? last + 1n : now;
    return last;
  };
}

export const systemRandom: Random = {
  below: (limit) => randomInt(limit),
  hex: (bytes) => randomBytes(bytes).toString("hex"),
};
