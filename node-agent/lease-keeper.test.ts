import assert from "node:assert/strict";
import { test } from "node:test";
import type { UnixMs } from "../shared/kinds.ts";
import { manualClock } from "../test/manual-world.ts";
import { keptMs, LeaseKeeper, leaseLeftMs, leaseToMeta, pingMs } from "./lease-keeper.ts";
import type { LedgerEvent } from "./ledger/ledger.ts";

function bench(ownLimitMs?: number) {
  const clock = manualClock();
  const [pings, told, kept]: [number[], LedgerEvent[], number[]] = [[], [], []];
  const keeper = new LeaseKeeper({
    now: clock.monotonic,
    after: clock.after,
    ping: (sent) => pings.push(sent),
    limitMs: () => ownLimitMs,
    timestamp: () => "now",
    tell: (event) => told.push(event),
    keep: (leftMs) => kept.push(leftMs),
  });
  const beat = (echo: number, limitMs?: number): void =>
    keeper.heard({ type: "beat", echo, freshness: {}, ...(limitMs !== undefined && { lease: { limitMs } }) });
  return { clock, keeper, pings, told, kept, beat };
}

test("a lease runs from when its question was sent, for the shorter of both limits", () => {
  const { clock, keeper, pings, told, beat } = bench(30_000);
  clock.advance(1_000);
  keeper.online();
  clock.advance(700);
  beat(pings[0] ?? -1, 45_000);
  assert.deepEqual(told, [{ kind: "leased", until: 31_000, limitMs: 45_000, timestamp: "now" }]);
});

test("an answer to a question of an earlier connection, or to none, or without a lease, renews nothing", () => {
  const { clock, keeper, pings, told, beat } = bench();
  keeper.online();
  const [earlier = -1] = pings;
  keeper.offline();
  clock.advance(10);
  keeper.online();
  beat(earlier, 45_000);
  beat(5, 45_000);
  beat(pings[1] ?? -1);
  assert.deepEqual(told, []);
});

test("a server that knows the Node to be gone is believed", () => {
  const { keeper, told } = bench();
  keeper.heard({ type: "beat", freshness: {}, node: "gone" });
  assert.deepEqual(told, [{ kind: "node-gone" }]);
});

test("while connected it asks again and again, and keeps what it has once a minute", () => {
  const { clock, keeper, pings, kept, beat } = bench();
  keeper.online();
  for (let passed = 0; passed <= 2 * keptMs; passed += pingMs) {
    beat(pings.at(-1) ?? -1, 45_000);
    clock.advance(pingMs);
  }
  assert.equal(pings.length, 2 + (2 * keptMs) / pingMs);
  assert.deepEqual(kept, [45_000, 45_000, 45_000]);
});

test("a restart goes on with what is left; a reboot ends it; a wall clock set forward shortens it, one set back does not lengthen it", () => {
  const wall = 5_000_000 as UnixMs;
  const meta = { bootId: "b", ...leaseToMeta(40_000, 100_000, wall) };
  assert.equal(leaseLeftMs({}, "b", 0, wall), undefined);
  assert.equal(leaseLeftMs(meta, "b", 110_000, (wall + 10_000) as UnixMs), 30_000);
  assert.equal(leaseLeftMs(meta, "b", 110_000, (wall + 25_000) as UnixMs), 15_000);
  assert.equal(leaseLeftMs(meta, "b", 110_000, (wall - 99_000) as UnixMs), 30_000);
  assert.equal(leaseLeftMs(meta, "c", 110_000, wall), 0);
  assert.equal(leaseLeftMs(meta, "", 110_000, wall), 0);
  assert.equal(leaseLeftMs(meta, "b", 900_000, wall), 0);
});
