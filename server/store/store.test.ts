import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { blockName } from "../../shared/calico/names.ts";
import {
  type Affinity,
  type Block,
  type Handle,
  type Kind,
  kinds,
  type Node,
  type Pool,
} from "../../shared/calico/resources.ts";
import { overlaps } from "../../shared/ip/cidr.ts";
import type {
  BlockCidr,
  HandleId,
  Instant,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import type { Clock } from "../../shared/world.ts";
import { type Change, Store, type Unread } from "./store.ts";

class HandClock implements Clock {
  now = 0;
  monotonic(): Instant {
    return this.now as Instant;
  }
  wall(): UnixMs {
    return this.now as UnixMs;
  }
  wallNanos(): bigint {
    return BigInt(this.now) * 1_000_000n;
  }
  after(): () => void {
    throw new Error("a store sets no timer");
  }
}

const version = (n: number): ResourceVersion => String(n) as ResourceVersion;
const meta = (name: string, rv: number, uid = `uid of ${name}`) => ({
  name,
  uid: uid as Uid,
  resourceVersion: version(rv),
});

function node(name: string, rv: number, options: { uid?: string; labels?: Record<string, string> } = {}): Node {
  return { ...meta(name, rv, options.uid), name: name as NodeName, labels: options.labels ?? {} };
}

interface BlockOptions {
  readonly uid?: string;
  readonly affinity?: string;
  /** Nodes that hold an address in it. */
  readonly holders?: readonly string[];
  readonly deleted?: boolean;
  readonly isCooling?: boolean;
  readonly hasRoom?: boolean;
}
function block(cidr: string, rv: number, options: BlockOptions = {}): Block {
  const holders = options.holders ?? [];
  return {
    ...meta(blockName(cidr as BlockCidr), rv, options.uid),
    cidr: cidr as BlockCidr,
    ...(options.affinity !== undefined && { affinity: options.affinity }),
    allocations: [
      ...holders.keys(),
      ...(options.isCooling ? [holders.length] : []),
      ...(options.hasRoom ? [null] : []),
    ],
    unallocated: options.hasRoom ? [holders.length + (options.isCooling ? 1 : 0)] : [],
    attributes: [
      ...holders.map((holder) => ({ secondary: { node: holder } })),
      ...(options.isCooling ? [{ releasedAt: "2030-01-01T00:00:00Z" }] : []),
    ],
    sequenceNumber: 1n as Sequence,
    sequenceNumberForAllocation: new Map(holders.map((_, i) => [i, BigInt(i) as Sequence])),
    deleted: options.deleted ?? false,
  };
}

function affinity(name: string, rv: number, owner: string): Affinity {
  return {
    ...meta(name, rv),
    cidr: "10.0.0.0/26" as BlockCidr,
    node: owner,
    type: "host",
    state: "confirmed",
    deleted: false,
    labelled: true,
  };
}

const pool: Pool = {
  ...meta("pool", 1),
  name: "pool" as PoolName,
  cidr: "10.0.0.0/24" as Pool["cidr"],
  blockSize: 26,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: [],
  assignmentMode: "Automatic",
};

/** A store and what its listener was told, as "+name", "~name", "-name". */
function watched(clock: Clock = new HandClock()): { store: Store; told: string[] } {
  const store = new Store(clock);
  const told: string[] = [];
  store.listen(({ name, before, after }) => told.push(`${before ? (after ? "~" : "-") : "+"}${name}`));
  return { store, told };
}

test("an own write is told once: the watch's event of the same version changes nothing", () => {
  const { store, told } = watched();
  assert.equal(store.put("node", node("a", 5)), true);
  assert.equal(store.put("node", node("a", 5)), false);
  assert.deepEqual(told, ["+a"]);
});

test("an older version never replaces a newer one, in whatever order they arrive", () => {
  const { store, told } = watched();
  store.put("node", node("a", 10, { labels: { is: "new" } }));
  store.put("node", node("a", 9, { labels: { is: "old" } }));
  assert.deepEqual(store.get("node", "a")?.labels, { is: "new" });
  assert.deepEqual(told, ["+a"]);
});

test("a change of nothing we keep moves the version and is not told", () => {
  const { store, told } = watched();
  store.put("node", node("a", 5, { labels: { zone: "1" } }));
  assert.equal(store.put("node", node("a", 6, { labels: { zone: "1" } })), false);
  assert.equal(store.get("node", "a")?.resourceVersion, "6");
  assert.deepEqual(told, ["+a"]);
});

test("another uid under the same name is told as gone, then new", () => {
  const { store, told } = watched();
  store.put("node", node("a", 5, { uid: "first" }));
  store.put("node", node("a", 9, { uid: "second" }));
  assert.deepEqual(told, ["+a", "-a", "+a"]);
});

test("the late answer to an own write does not bring back what has been deleted since", () => {
  const { store, told } = watched();
  store.put("node", node("a", 5));
  store.remove("node", "a", { uid: "uid of a" as Uid, resourceVersion: version(12) });
  assert.equal(store.put("node", node("a", 10)), false);
  assert.equal(store.get("node", "a"), undefined);
  assert.deepEqual(told, ["+a", "-a"]);
});

test("a list made before an own removal does not bring the object back; a new object of that name appears", () => {
  const { store, told } = watched();
  store.put("node", node("a", 5));
  store.remove("node", "a", { uid: "uid of a" as Uid, resourceVersion: version(5) });
  store.replace("node", [node("a", 5)], version(8));
  assert.equal(store.get("node", "a"), undefined);
  store.replace("node", [node("a", 9, { uid: "another" })], version(9));
  assert.equal(store.get("node", "a")?.uid, "another");
  assert.deepEqual(told, ["+a", "-a", "+a"]);
});

test("an object that a finalizer kept alive after our removal comes back with its next version", () => {
  const { store } = watched();
  store.put("node", node("a", 5));
  store.remove("node", "a", { uid: "uid of a" as Uid, resourceVersion: version(5) });
  assert.equal(store.put("node", node("a", 6)), true);
});

test("a deletion that the watch tells late does not remove what we have created anew since", () => {
  const { store, told } = watched();
  store.put("node", node("a", 5, { uid: "first" }));
  store.put("node", node("a", 12, { uid: "second" }));
  assert.equal(store.remove("node", "a", { uid: "first" as Uid, resourceVersion: version(11) }), false);
  assert.equal(store.get("node", "a")?.uid, "second");
  assert.deepEqual(told, ["+a", "-a", "+a"]);
});

test("a list tells the difference only: what is gone first, then the rest, all of it already in the store", () => {
  const clock = new HandClock();
  const store = new Store(clock);
  store.replace("node", [node("a", 1), node("b", 2), node("c", 3, { uid: "first" })], version(3));
  const told: string[] = [];
  store.listen(({ name, before, after }) => {
    told.push(`${before ? (after ? "~" : "-") : "+"}${name}`);
    assert.deepEqual([...store.all("node").keys()].sort(), ["b", "c", "d"]);
  });
  store.replace(
    "node",
    [node("d", 9), node("b", 8, { labels: { x: "y" } }), node("c", 7, { uid: "second" })],
    version(9),
  );
  assert.deepEqual(told, ["-a", "-c", "+d", "~b", "+c"]);
});

test("a list does not undo an own write that is newer than it", () => {
  const { store, told } = watched();
  store.put("node", node("created", 12));
  store.replace("node", [node("old", 3)], version(10));
  assert.deepEqual(told, ["+created", "+old"]);
});

test("when the API server went back in time, then the list counts as it is and a new epoch begins", () => {
  const { store, told } = watched();
  store.replace("node", [node("a", 50, { labels: { at: "50" } }), node("b", 60)], version(60));
  store.replace("node", [node("a", 20, { labels: { at: "20" } })], version(30));
  assert.equal(store.epoch, 1);
  assert.deepEqual(store.get("node", "a")?.labels, { at: "20" });
  assert.deepEqual(told, ["+a", "+b", "-b", "~a"]);
  assert.equal(store.freshness("node").version, "30");
});

test("a listener that throws is counted, and the others hear what follows in order", () => {
  const failures: unknown[] = [];
  const store = new Store(new HandClock(), (error) => failures.push(error));
  const told: string[] = [];
  store.listen(() => {
    throw new Error("broken");
  });
  store.listen((change) => {
    told.push(change.name);
    if (change.name === "a") store.put("node", node("caused by a", 2));
  });
  store.listen((change) => told.push(change.name));
  store.put("node", node("a", 1));
  assert.deepEqual(told, ["a", "a", "caused by a", "caused by a"]);
  assert.equal(store.listenerFailures, 2);
  assert.equal(failures.length, 2);
});

test("objects are sorted by name bytewise, as the API server lists them", () => {
  const store = new Store(new HandClock());
  store.replace("node", [node("b", 1), node("a-2", 1), node("a.10", 1), node("a", 1)], version(1));
  const names = () => store.sorted("node").map(({ name }) => name);
  assert.deepEqual(names(), ["a", "a-2", "a.10", "b"]);
  store.put("node", node("a-1", 2));
  store.remove("node", "b");
  assert.deepEqual(names(), ["a", "a-1", "a-2", "a.10"]);
});

test("a handle is found by its id, whose case counts although its name has none", () => {
  const store = new Store(new HandClock());
  const handle: Handle = { ...meta("net.abc", 1), handleId: "net.ABC" as HandleId, block: new Map(), deleted: false };
  store.put("handle", handle);
  assert.equal(store.handleById("net.ABC" as HandleId), handle);
  assert.equal(store.handleById("net.abc" as HandleId), undefined);
});

test("a soft-deleted block still takes its addresses", () => {
  const store = new Store(new HandClock());
  store.put("block", block("10.0.0.0/26", 1, { deleted: true }));
  assert.equal(store.nextFreeBlock(pool, 0n), "10.0.0.64/26");
});

test("an unread block is never free: by its CIDR, by its name alone, and no more when it is gone", () => {
  const store = new Store(new HandClock());
  const unread = (cidr: string, rv: number): Unread => ({
    ...meta(blockName(cidr as BlockCidr), rv),
    problem: "spec is missing",
  });
  store.hold("block", { ...unread("10.0.0.0/26", 1), cidr: "10.0.0.0/26" as BlockCidr });
  store.hold("block", unread("10.0.0.64/26", 2));
  store.hold("block", unread("10.0.0.128/26", 3));
  assert.equal(store.nextFreeBlock(pool, 0n), "10.0.0.192/26");
  store.put("block", block("10.0.0.192/26", 4));
  assert.equal(store.nextFreeBlock(pool, 1n), undefined);
  store.remove("block", "10-0-0-64-26", { uid: "uid of 10-0-0-64-26" as Uid, resourceVersion: version(5) });
  assert.equal(store.nextFreeBlock(pool, 0n), "10.0.0.64/26");
  store.put("block", block("10.0.0.0/26", 6));
  store.remove("block", "10-0-0-0-26");
  assert.equal(store.nextFreeBlock(pool, 0n), "10.0.0.0/26");
});

test("an object that became illegible keeps its last legible version until it is gone or another object", () => {
  const { store, told } = watched();
  store.put("node", node("a", 1));
  const problem = "labels are not strings";
  assert.equal(store.hold("node", { ...meta("a", 2), problem }), true);
  assert.equal(store.hold("node", { ...meta("a", 3), problem }), false, "the same problem is news once");
  assert.equal(store.get("node", "a")?.resourceVersion, "1");
  store.put("node", node("a", 2));
  assert.equal(store.unread("node").size, 1, "an older legible version is no cure");
  store.put("node", node("a", 4));
  assert.equal(store.unread("node").size, 0);
  store.hold("node", { ...meta("a", 5, "another"), problem });
  assert.deepEqual(told, ["+a", "-a"]);
});

test("a view is current while its watch speaks, ages when it falls silent and from when it has ended", () => {
  const clock = new HandClock();
  const store = new Store(clock);
  const age = () => store.freshness("node").ageMs;
  assert.equal(store.freshness("node").synced, false);
  store.replace("node", [], version(1));
  store.opened("node");
  clock.now = 70_000;
  assert.equal(age(), 0);
  clock.now = 80_000;
  assert.equal(age(), 80_000);
  store.bookmark("node", version(7));
  assert.deepEqual(store.freshness("node"), { version: "7", ageMs: 0, synced: true, wholeSince: 0 });
  clock.now = 90_000;
  store.closed("node", 90_000 as Instant);
  clock.now = 92_000;
  assert.equal(age(), 2_000);
});

test("the store is synced once every kind has been listed", () => {
  const store = new Store(new HandClock());
  for (const kind of kinds) {
    assert.equal(store.synced(), false);
    store.replace(kind, [], version(1));
  }
  assert.equal(store.synced(), true);
});

/** What happens to a small cluster: few names and versions, so that histories collide. */
const cidrs = ["10.0.0.0/26", "10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26", "10.0.0.0/28", "10.0.0.128/25"];
const owners = [undefined, "host:a", "host:b", "virtual:load-balancer"];
const anyBlock = fc
  .record({
    cidr: fc.constantFrom(...cidrs),
    rv: fc.integer({ min: 1, max: 40 }),
    uid: fc.constantFrom("1", "2"),
    owner: fc.constantFrom(...owners),
    holders: fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 3 }),
    isCooling: fc.boolean(),
    hasRoom: fc.boolean(),
    deleted: fc.boolean(),
  })
  .map(({ cidr, rv, uid, owner, ...more }) =>
    block(cidr, rv, { uid, ...more, ...(owner !== undefined && { affinity: owner }) }),
  );
const anyAffinity = fc
  .tuple(fc.constantFrom("x", "y", "z"), fc.integer({ min: 1, max: 40 }), fc.constantFrom("a", "b"))
  .map(([name, rv, owner]) => affinity(name, rv, owner));
const anyUnread = anyBlock.chain(({ name, uid, resourceVersion, cidr }) =>
  fc.constantFrom<Unread>(
    { name, uid, resourceVersion, problem: "?" },
    { name, uid, resourceVersion, problem: "?", cidr },
  ),
);
const distinct = <T extends { name: string }>(items: fc.Arbitrary<T>) =>
  fc.uniqueArray(items, { selector: ({ name }) => name, maxLength: 5 });
type Act =
  | { readonly kind: "put"; readonly block: Block }
  | { readonly kind: "put-affinity"; readonly affinity: Affinity }
  | { readonly kind: "hold"; readonly unread: Unread }
  | { readonly kind: "remove"; readonly block: Block; readonly dated: boolean }
  | { readonly kind: "remove-affinity"; readonly affinity: Affinity }
  | {
      readonly kind: "replace";
      readonly blocks: readonly Block[];
      readonly unread: readonly Unread[];
      readonly rv: number;
    }
  | { readonly kind: "replace-affinities"; readonly affinities: readonly Affinity[]; readonly rv: number };
const kindOf = <K extends Act["kind"]>(kind: K) => fc.constant(kind);
const anyVersion = fc.integer({ min: 1, max: 50 });
const anyAct: fc.Arbitrary<Act> = fc.oneof(
  fc.record({ kind: kindOf("put"), block: anyBlock }),
  fc.record({ kind: kindOf("put-affinity"), affinity: anyAffinity }),
  fc.record({ kind: kindOf("hold"), unread: anyUnread }),
  fc.record({ kind: kindOf("remove"), block: anyBlock, dated: fc.boolean() }),
  fc.record({ kind: kindOf("remove-affinity"), affinity: anyAffinity }),
  fc.record({ kind: kindOf("replace"), blocks: distinct(anyBlock), unread: distinct(anyUnread), rv: anyVersion }),
  fc.record({ kind: kindOf("replace-affinities"), affinities: distinct(anyAffinity), rv: anyVersion }),
);

function perform(store: Store, act: Act): void {
  /** A list holds nothing newer than itself. */
  const upTo = <T extends { resourceVersion: ResourceVersion }>(items: readonly T[], rv: number): T[] =>
    items.map((item) => ({ ...item, resourceVersion: version(Math.min(Number(item.resourceVersion), rv)) }));
  switch (act.kind) {
    case "put":
      store.put("block", act.block);
      break;
    case "put-affinity":
      store.put("affinity", act.affinity);
      break;
    case "hold":
      store.hold("block", act.unread);
      break;
    case "remove":
      store.remove("block", act.block.name, act.dated ? act.block : undefined);
      break;
    case "remove-affinity":
      store.remove("affinity", act.affinity.name, act.affinity);
      break;
    case "replace": {
      const names = new Set(act.blocks.map(({ name }) => name));
      const unread = act.unread.filter(({ name }) => !names.has(name));
      store.replace("block", upTo(act.blocks, act.rv), version(act.rv), upTo(unread, act.rv));
      break;
    }
    case "replace-affinities":
      store.replace("affinity", upTo(act.affinities, act.rv), version(act.rv));
      break;
  }
}

test("property: after any history every index is what it would be if computed afresh", () => {
  fc.assert(
    fc.property(fc.array(anyAct, { maxLength: 40 }), fc.integer({ min: 0, max: 3 }), (acts, from) => {
      const store = new Store(new HandClock());
      for (const act of acts) perform(store, act);
      const blocks = [...store.all("block").values()];
      const cidrsOf = (match: (one: Block) => boolean) => new Set(blocks.filter(match).map(({ cidr }) => cidr));
      for (const name of ["a", "b", "c"]) {
        const stake = (one: Block) =>
          one.affinity === `host:${name}` || one.attributes.some(({ secondary }) => secondary?.node === name);
        assert.deepEqual(new Set(store.blocksWithStake(name as NodeName)), cidrsOf(stake));
        const theirs = [...store.all("affinity").values()].filter((one) => one.node === name);
        assert.deepEqual(new Set(store.affinitiesOf(name)), new Set(theirs.map((one) => one.name)));
      }
      for (const owner of owners) {
        if (owner !== undefined) {
          assert.deepEqual(
            new Set(store.blocksOwnedBy(owner)),
            cidrsOf((one) => one.affinity === owner),
          );
        }
      }
      for (const one of blocks) assert.equal(store.blockAt(one.cidr), one);
      assert.deepEqual(
        store.sorted("block").map(({ name }) => name),
        blocks.map(({ name }) => name).sort(),
      );

      const unread = [...store.unread("block").values()];
      const taken = (cidr: BlockCidr) =>
        blocks.some((one) => overlaps(one.cidr, cidr)) ||
        unread.some((one) => one.name === blockName(cidr) || (one.cidr !== undefined && overlaps(one.cidr, cidr)));
      const candidates = [0, 1, 2, 3].map((i) => `10.0.0.${((from + i) % 4) * 64}/26` as BlockCidr);
      assert.equal(
        store.nextFreeBlock(pool, BigInt(from)),
        candidates.find((cidr) => !taken(cidr)),
      );

      const cidrsIn = (found: Iterable<Block>) => [...found].map(({ cidr }) => cidr);
      const inOrder = (match: (one: Block) => boolean) => candidates.filter((cidr) => cidrsOf(match).has(cidr));
      assert.deepEqual(
        cidrsIn(store.blocksWithRoom(pool, BigInt(from))),
        inOrder(
          ({ deleted, affinity, unallocated, attributes }) =>
            !deleted &&
            affinity !== "virtual:load-balancer" &&
            (unallocated.length > 0 || attributes.some(({ releasedAt }) => releasedAt !== undefined)),
        ),
      );
      assert.deepEqual(
        cidrsIn(store.idleBlocks(pool, BigInt(from))),
        inOrder(
          ({ deleted, affinity, attributes }) =>
            !deleted && affinity?.startsWith("host:") === true && attributes.every(({ secondary }) => !secondary),
        ),
      );
      assert.deepEqual(
        new Set(cidrsIn(store.markedBlocks(pool))),
        cidrsOf(({ deleted }) => deleted),
      );
    }),
  );
});

test("property: whoever applies what the listener hears has exactly what the store has, but for versions", () => {
  fc.assert(
    fc.property(fc.array(anyAct, { maxLength: 40 }), (acts) => {
      const store = new Store(new HandClock());
      const copy = new Map<Kind, Map<string, unknown>>(kinds.map((kind) => [kind, new Map()]));
      store.listen(({ kind, name, before, after }: Change) => {
        const objects = copy.get(kind);
        assert.deepEqual(withoutVersion(objects?.get(name)), withoutVersion(before));
        assert.notDeepEqual(withoutVersion(before), withoutVersion(after), "a change changes something");
        if (before && after) assert.equal(before.uid, after.uid);
        if (after === undefined) objects?.delete(name);
        else objects?.set(name, after);
      });
      for (const act of acts) perform(store, act);
      for (const kind of kinds) {
        const told = [...(copy.get(kind) ?? [])].map(([name, object]) => [name, withoutVersion(object)]);
        const stored = [...store.all(kind)].map(([name, object]) => [name, withoutVersion(object)]);
        assert.deepEqual(new Map(told as [string, unknown][]), new Map(stored as [string, unknown][]));
      }
    }),
  );
});

test("property: with or without a list, one object's version never goes back within an epoch", () => {
  fc.assert(
    fc.property(fc.array(anyAct, { maxLength: 40 }), (acts) => {
      const store = new Store(new HandClock());
      for (const act of acts) {
        const { epoch } = store;
        const before = new Map(store.all("block"));
        perform(store, act);
        if (store.epoch !== epoch) continue;
        for (const [name, { resourceVersion, uid }] of before) {
          const after = store.get("block", name);
          if (after?.uid === uid) assert.ok(Number(after.resourceVersion) >= Number(resourceVersion), name);
        }
      }
    }),
  );
});

function withoutVersion(object: unknown): unknown {
  return object === undefined ? undefined : { ...(object as object), resourceVersion: "" };
}
