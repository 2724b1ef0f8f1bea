// Whose turn it is: never more under way than the limit, nodes in turn, nothing while the API server has asked for a pause.
import assert from "node:assert/strict";
import { test } from "node:test";
import { manualClock } from "../../test/manual-world.ts";
import { FairLimiter } from "./fair-limiter.ts";

function world(limit: number) {
  const clock = manualClock();
  const limiter = new FairLimiter(limit, clock);
  const started: string[] = [];
  const finish = new Map<string, () => void>();
  const ask = (node: string, name: string): Promise<void> =>
    limiter.run(node, () => {
      started.push(name);
      return new Promise((resolve) => finish.set(name, resolve));
    });
  const done = async (name: string): Promise<void> => {
    finish.get(name)?.();
    await new Promise(setImmediate);
  };
  return { clock, limiter, started, ask, done };
}

test("nodes take turns, however much one of them asks for", async () => {
  const { started, ask, done, limiter } = world(1);
  for (const name of ["a1", "a2", "a3", "a4"]) void ask("a", name);
  for (const name of ["b1", "b2"]) void ask("b", name);
  void ask("c", "c1");
  assert.deepEqual([limiter.inFlight, limiter.queued], [1, 6]);
  for (let turn = 0; turn < 7; turn++) {
    await new Promise(setImmediate);
    await done(started.at(-1) ?? "");
  }
  assert.deepEqual(started, ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]);
  assert.deepEqual([limiter.inFlight, limiter.queued], [0, 0]);
});

test("a higher limit starts what waits, a lower one lets what runs run", async () => {
  const { started, ask, done, limiter } = world(1);
  for (const name of ["a1", "a2", "a3", "a4"]) void ask("a", name);
  limiter.limit = 3;
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1", "a2", "a3"]);
  limiter.limit = 1;
  await done("a1");
  await done("a2");
  assert.equal(started.length, 3);
  await done("a3");
  assert.equal(started.length, 4);
});

test("during a pause nothing starts, and of two pauses the longer one counts", async () => {
  const { started, ask, clock, limiter } = world(2);
  limiter.pause(1000);
  limiter.pause(3000);
  limiter.pause(10);
  void ask("a", "a1");
  clock.advance(2999);
  await new Promise(setImmediate);
  assert.deepEqual(started, []);
  clock.advance(1);
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1"]);
});

test("a request that fails makes room like any other", async () => {
  const { limiter, ask, started } = world(1);
  await assert.rejects(limiter.run("a", () => Promise.reject(new Error("no"))));
  void ask("a", "a1");
  await new Promise(setImmediate);
  assert.deepEqual(started, ["a1"]);
});
