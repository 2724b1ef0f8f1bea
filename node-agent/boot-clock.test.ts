import assert from "node:assert/strict";
import { test } from "node:test";
import type { Instant, UnixMs } from "../shared/kinds.ts";
import { bootClock } from "./boot-clock.ts";

function clocks() {
  const at = { monotonic: 5_000, uptime: 90_000, wall: 1_000_000 };
  const now = bootClock({ monotonic: () => at.monotonic as Instant, wall: () => at.wall as UnixMs }, () => at.uptime);
  const pass = (ms: number): void => {
    at.monotonic += ms;
    at.uptime += ms;
    at.wall += ms;
  };
  return { at, now, pass };
}

test("a machine that sleeps does not stop this clock", () => {
  const { at, now, pass } = clocks();
  pass(100);
  at.uptime += 3_600_000;
  assert.equal(now(), 3_605_100);
  pass(100);
  assert.equal(now(), 3_605_200);
});

test("a wall clock set forward moves it, one set back does not, and the same hour counts once", () => {
  const { at, now } = clocks();
  at.wall += 3_600_000;
  assert.equal(now(), 3_605_000);
  at.wall -= 3_600_000;
  assert.equal(now(), 3_605_000);
  at.wall += 3_600_000;
  assert.equal(now(), 3_605_000);
});

test("what clocks differ by from one reading to the next is no time passed", () => {
  const { at, now } = clocks();
  at.uptime += 40;
  assert.equal(now(), 5_000);
});
