import assert from "node:assert/strict";
import { test } from "node:test";
import { nanosOf } from "./world.ts";

test("given a millisecond in which the finer clock begins anew, then the time in nanoseconds goes on", () => {
  const ticks = [999_998n, 1_000_001n, 1_000_001n, 1_000_900n];
  const nanos = nanosOf(
    () => 7,
    () => ticks.shift() ?? 0n,
  );
  assert.deepEqual([nanos(), nanos(), nanos(), nanos()], [7_999_998n, 7_999_999n, 8_000_000n, 8_000_001n]);
});

test("given a wall clock that is set back, then the time in nanoseconds follows it", () => {
  const wall = [7_000, 5_000];
  const nanos = nanosOf(
    () => wall.shift() ?? 0,
    () => 3n,
  );
  assert.deepEqual([nanos(), nanos()], [7_000_000_003n, 5_000_000_003n]);
});
