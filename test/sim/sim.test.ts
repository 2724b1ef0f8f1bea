// The promises over lifetimes of whole clusters, and that a seed is a history. More seeds by hand: npm run sim.
import assert from "node:assert/strict";
import { test } from "node:test";
import { live } from "./lifetime.ts";

const seeds = Array.from({ length: 20 }, (_, index) => index + 1);
/** What must have happened for this to show anything. */
const events = [
  "ADD answered",
  "ADD refused",
  "DEL answered",
  "DEL overtakes ADD",
  "agent crashed",
  "server crashed",
  "journal failed",
  "stranger took",
  "stranger gave back",
  "answer of a write lost",
  "conflict of a write",
];

test("whatever fails in between, no address has two owners, nothing answered is forgotten, and the API ends with what lives", async () => {
  const counts = new Map<string, number>();
  for (const seed of seeds) {
    const lifetime = await live(seed);
    assert.deepEqual(lifetime.violations, [], `npm run sim -- --seeds 1 --seed ${seed} --history`);
    for (const [what, count] of lifetime.counts) counts.set(what, (counts.get(what) ?? 0) + count);
  }
  assert.deepEqual(
    events.filter((what) => !counts.has(what)),
    [],
    "never happened",
  );
});

test("the same seed gives the same history", async () => {
  assert.deepEqual((await live(7)).history, (await live(7)).history);
});
