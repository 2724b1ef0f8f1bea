// Since when a Node is missing: never longer than this server has seen it missing.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeName, ResourceVersion, Uid } from "../../shared/kinds.ts";
import { manualClock } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { Vanished } from "./vanished.ts";

const gone = "gone" as NodeName;

function world() {
  const clock = manualClock();
  const store = new Store(clock);
  clock.advance(1000);
  const vanished = new Vanished(store, clock);
  let version = 1;
  const meta = (name = "gone") => ({
    name: name as NodeName,
    uid: "u" as Uid,
    resourceVersion: String(++version) as ResourceVersion,
  });
  store.opened("node");
  const list = (): void => store.replace("node", [], meta().resourceVersion);
  const create = (name?: string): void => void store.put("node", { ...meta(name), labels: {} });
  const remove = (name = "gone"): void => void store.remove("node", name, meta(name));
  return { clock, store, vanished, meta, list, create, remove, since: () => vanished.missingSince(gone) };
}

test("given a Node that was never there, then it is missing since everything was listed", () => {
  const { clock, list, since } = world();
  assert.equal(since(), undefined, "nothing was listed yet");
  list();
  clock.advance(5000);
  assert.equal(since(), 1000);
  list();
  assert.equal(since(), 6000);
});

test("given a Node that is deleted, then it is missing since then; one that is there again is not", () => {
  const { clock, list, create, remove, since } = world();
  list();
  create();
  assert.equal(since(), undefined);
  clock.advance(5000);
  remove();
  clock.advance(5000);
  assert.equal(since(), 6000);
  create();
  assert.equal(since(), undefined);
  clock.advance(1000);
  remove();
  assert.equal(since(), 12_000);
});

test("given a stale view, or a Node that cannot be read, then it is not missing", () => {
  const { clock, store, meta, list, since } = world();
  list();
  store.hold("node", { ...meta(), problem: "labels are numbers" });
  assert.equal(since(), undefined);
  store.remove("node", "gone", meta());
  assert.equal(since(), 1000);
  store.closed("node", clock.monotonic());
  clock.advance(15_001);
  assert.equal(since(), undefined);
});

test("given more deletions than are remembered, then the forgotten ones count from later, not from earlier", () => {
  const { clock, list, create, remove, since } = world();
  list();
  create();
  remove();
  clock.advance(5000);
  for (let index = 0; index < 16_384; index++) {
    create(`node-${index}`);
    remove(`node-${index}`);
  }
  assert.equal(since(), 1000);
  clock.advance(5000);
  create("one-more");
  remove("one-more");
  assert.equal(since(), 6000);
});
