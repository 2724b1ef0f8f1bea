// The store against a model that keeps a full copy of every version.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { BrokenInvariant } from "../../shared/kinds.ts";
import { type Entry, Store, type StoreEvent } from "./store.ts";

interface Item extends Entry {
  readonly value: number;
}

type Step = { readonly key: string; readonly value: number | undefined };

const key = fc.constantFrom("a", "b", "c/d", "c-d", "e");
const steps = fc.array(fc.record({ key, value: fc.option(fc.nat(9), { nil: undefined }) }), { maxLength: 60 });

/** Applies a write; a value of undefined deletes. Nothing to delete is no write. */
function apply(store: Store<Item>, step: Step): void {
  const items = store.collection("items");
  if (step.value !== undefined) items.put({ key: step.key, value: step.value, version: store.next() });
  else {
    const before = items.get(step.key);
    if (before !== undefined) items.remove({ ...before, version: store.next() });
  }
}

function contents(items: readonly Item[]): string[] {
  return items.map((item) => `${item.key}=${item.value}@${item.version}`);
}

/** The store after some steps, and what its list said at every version. */
function played(history: readonly Step[], historyLimit?: number): { store: Store<Item>; lists: Map<number, string[]> } {
  const store = new Store<Item>(historyLimit);
  const lists = new Map([[0, contents(store.collection("items").list())]]);
  for (const step of history) {
    apply(store, step);
    lists.set(store.version, contents(store.collection("items").list()));
  }
  return { store, lists };
}

describe("store", () => {
  test("lists every earlier version as it was, in order of keys", () => {
    fc.assert(
      fc.property(steps, (history) => {
        const { store, lists } = played(history);
        for (const [version, expected] of lists) {
          const found = store.collection("items").listAt(version);
          assert.ok(!("expired" in found));
          assert.deepEqual(contents(found), expected);
          assert.deepEqual(
            expected,
            expected.toSorted((one, other) => ((one.split("=")[0] ?? "") < (other.split("=")[0] ?? "") ? -1 : 1)),
          );
        }
      }),
    );
  });

  test("tells from any version on exactly what leads from there to now", () => {
    fc.assert(
      fc.property(steps, fc.nat(60), (history, from) => {
        const { store } = played(history);
        const items = store.collection("items");
        const start = items.listAt(Math.min(from, store.version));
        const events = items.since(Math.min(from, store.version));
        assert.ok(!("expired" in start) && !("expired" in events));
        const replayed = new Map(start.map((item) => [item.key, item]));
        for (const event of events) {
          assert.equal(event.type === "ADDED", !replayed.has(event.entry.key));
          if (event.type === "DELETED") replayed.delete(event.entry.key);
          else replayed.set(event.entry.key, event.entry);
        }
        assert.deepEqual(contents([...replayed.values()]).sort(), contents(items.list()).sort());
      }),
    );
  });

  test("set back to a version, it is as it was then, tells its watchers to go, and counts on from there", () => {
    fc.assert(
      fc.property(steps, fc.nat(60), steps, (history, back, later) => {
        const { store, lists } = played(history);
        const version = Math.min(back, store.version);
        let ended = 0;
        const stop = store
          .collection("items")
          .watch({ event: () => assert.fail("a restore is no event"), end: () => (ended += 1) });
        store.restoreTo(version);
        stop();
        assert.deepEqual(
          [contents(store.collection("items").list()), store.version, ended],
          [lists.get(version), version, 1],
        );
        const other = played([]).store;
        for (const item of store.collection("items").list()) other.collection("items").put(item);
        for (const step of later) {
          apply(store, step);
          apply(other, step);
        }
        const values = (of: Store<Item>): string[] =>
          of
            .collection("items")
            .list()
            .map((item) => `${item.key}=${item.value}`);
        assert.deepEqual(values(store), values(other));
      }),
    );
  });

  test("forgets what was compacted, and nothing else", () => {
    const { store, lists } = played(["a", "b", "a", "e"].map((name, value) => ({ key: name, value })));
    store.compact(2);
    const items = store.collection("items");
    assert.deepEqual(items.since(1), { expired: true, oldest: 2 });
    assert.deepEqual(items.listAt(1), { expired: true, oldest: 2 });
    const then = items.listAt(2);
    assert.ok(!("expired" in then));
    assert.deepEqual(contents(then), lists.get(2));
    assert.throws(() => store.restoreTo(1), BrokenInvariant);
  });

  test("keeps at least the agreed number of events, and at most twice as many", () => {
    const { store } = played(
      Array.from({ length: 55 }, (_, value) => ({ key: "a", value })),
      10,
    );
    const items = store.collection("items");
    const kept = items.since(store.version - 10);
    assert.ok(!("expired" in kept));
    assert.equal(kept.length, 10);
    assert.ok("expired" in items.since(store.version - 21));
  });

  test("a page goes on with the state it began with, although history was lost meanwhile", () => {
    const { store, lists } = played([{ key: "a", value: 1 }]);
    const items = store.collection("items");
    items.pin(1);
    for (let value = 0; value < 5; value += 1) apply(store, { key: "b", value });
    const then = items.listAt(1);
    assert.ok(!("expired" in then));
    assert.deepEqual(contents(then), lists.get(1));
  });

  test("hands each write to every watcher until that one leaves", () => {
    const store = new Store<Item>();
    const items = store.collection("items");
    const seen: StoreEvent<Item>[] = [];
    const stop = items.watch({ event: (event) => seen.push(event), end: () => assert.fail("nobody ended it") });
    apply(store, { key: "a", value: 1 });
    apply(store, { key: "a", value: 2 });
    apply(store, { key: "a", value: undefined });
    stop();
    apply(store, { key: "b", value: 1 });
    assert.deepEqual(
      seen.map(({ type, entry, before }) => [type, entry.version, before?.version]),
      [
        ["ADDED", 1, undefined],
        ["MODIFIED", 2, 1],
        ["DELETED", 3, 2],
      ],
    );
  });
});
