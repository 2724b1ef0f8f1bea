// The agent's measure of time: it runs on while the machine sleeps, and a wall clock that is set forward moves it as well. Never back.
// By it a lease ends no later here than for those who wait for its end. Leaves to others what time is used for.
import type { Instant } from "../shared/kinds.ts";
import type { Clock } from "../shared/world.ts";

/** Clocks that are read one after the other differ by a little. */
const toleranceMs = 1_000;

/** `uptimeMs` counts from the machine's start, sleep included (/proc/uptime). */
export function bootClock(clock: Pick<Clock, "monotonic" | "wall">, uptimeMs: () => number): () => Instant {
  const [monotonic, uptime, wall] = [clock.monotonic(), uptimeMs(), clock.wall()];
  let aheadMs = 0;
  return () => {
    const now = clock.monotonic();
    const ran = now - monotonic;
    const mostMs = Math.max(uptimeMs() - uptime, clock.wall() - wall) - ran;
    if (mostMs > aheadMs + toleranceMs) aheadMs = mostMs;
    return (now + aheadMs) as Instant;
  };
}
