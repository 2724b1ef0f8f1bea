// Whatever happens to a cluster, each pool's states are disjoint and sum to its size, and what was kept up equals what a new count finds.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { newBlock } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import type { Affinity, Block, BlockAttribute, Handle, Kind, Objects, Pool } from "../../shared/calico/resources.ts";
import type {
  BlockCidr,
  CidrText,
  HandleId,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import { type ManualClock, manualClock } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { Census } from "./census.ts";
import { addressStates } from "./tally.ts";

interface World {
  readonly store: Store;
  readonly clock: ManualClock;
  readonly census: Census;
  put<K extends Kind>(kind: K, object: Omit<Objects[K], "uid" | "resourceVersion">): void;
  remove(kind: Kind, name: string): void;
  settle(): void;
}

function world(): World {
  const clock = manualClock();
  const store = new Store(clock, (error) => {
    throw error;
  });
  let version = 1;
  const next = (): ResourceVersion => String(version++) as ResourceVersion;
  for (const kind of ["node", "block", "handle", "affinity", "pool", "reservation"] as const)
    store.replace(kind, [], next());
  return {
    store,
    clock,
    census: new Census(store, clock),
    put: (kind, object) =>
      void store.put(kind, { ...object, uid: `uid of ${object.name}` as Uid, resourceVersion: next() } as never),
    remove: (kind, name) => void store.remove(kind, name),
    settle: () => clock.advance(1000),
  };
}

const pool = (name: string, cidr: string, blockSize: number): Omit<Pool, "uid" | "resourceVersion"> => ({
  name: name as PoolName,
  cidr: cidr as CidrText,
  blockSize,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: ["Workload"],
  assignmentMode: "Automatic",
});

/** What each ordinal is: an attribute, or free. */
function block(cidr: string, affinity: string | undefined, holders: readonly (BlockAttribute | null)[]) {
  const { affinity: _owner, ...empty } = newBlock({
    cidr: cidr as BlockCidr,
    affinity: affinity ?? "",
    now: 0 as UnixMs,
    sequence: 1n as Sequence,
  });
  const taken = holders.flatMap((holder) => (holder === null ? [] : [holder]));
  let index = 0;
  const allocations = empty.allocations.map((_, ordinal) => ((holders[ordinal] ?? null) === null ? null : index++));
  return {
    ...empty,
    ...(affinity !== undefined && { affinity }),
    name: blockName(cidr as BlockCidr),
    cidr: cidr as BlockCidr,
    allocations,
    unallocated: allocations.flatMap((holder, ordinal) => (holder === null ? [ordinal] : [])),
    attributes: taken,
  } satisfies Omit<Block, "uid" | "resourceVersion">;
}

const ofPod = (node: string, id: string): BlockAttribute => ({
  handle_id: `k8s-pod-network.${id}`,
  secondary: { node, pod: id, namespace: "shop" },
});
const warm = (node: string): BlockAttribute => ({ handle_id: `cattail-warm-${node}`, secondary: { node } });
const cooling: BlockAttribute = { releasedAt: "2030-01-01T00:00:00Z" };
const tunnel = (node: string): BlockAttribute => ({
  handle_id: `vxlan-tunnel-addr-${node}`,
  secondary: { node, type: "vxlanTunnelAddress" },
});
const foreign: BlockAttribute = { handle_id: "by-hand", secondary: {} };
const windows: BlockAttribute = { handle_id: "windows-reserved-ipam-handle", secondary: {} };

test("each address counts once: for its holder, else as reserved, else as free", () => {
  const { put, settle, census } = world();
  put("node", { name: "n-1" as NodeName, labels: {} });
  put("pool", pool("blue", "10.0.0.0/28", 29));
  put("reservation", { name: "r", cidrs: ["10.0.0.0/31", "10.0.0.12/30"] as CidrText[] });
  put(
    "block",
    block("10.0.0.0/29", "host:n-1", [ofPod("n-1", "a"), null, warm("n-1"), cooling, tunnel("n-1"), foreign, windows]),
  );
  settle();
  const [blue] = census.pools();
  // 10.0.0.1 and the four of .12/30 are reserved and free, .6 is kept by Windows; .0 is a pod's although it is reserved.
  assert.deepEqual(blue?.states, { owned: 1, warm: 1, cooling: 1, tunnel: 1, foreign: 1, reserved: 6, free: 5 });
  assert.deepEqual(blue?.blocks, { affine: 1, ownerless: 0, unclaimed: 1 });
});

test("what lies on Nodes that do not exist is a suspect until they are there", () => {
  const { put, settle, census, remove } = world();
  put("pool", pool("blue", "10.0.0.0/28", 29));
  put("block", block("10.0.0.0/29", "host:n-1", [ofPod("gone", "a"), warm("gone"), ofPod("n-1", "b")]));
  put("node", { name: "n-1" as NodeName, labels: {} });
  settle();
  assert.deepEqual([census.pools()[0]?.suspects, census.pools()[0]?.borrowed], [1, 1]);
  assert.equal(census.findings().AddressLeaked, 1);
  assert.equal(census.findings().WarmStale, 1);
  put("node", { name: "gone" as NodeName, labels: {} });
  assert.equal(census.findings().AddressLeaked, 0);
  remove("block", "10-0-0-0-29");
  settle();
  assert.deepEqual(census.node("gone" as NodeName), { owned: 0, warm: 0, blocks: 0, free: 0, cooling: 0 });
});

test("free addresses in others' blocks are stranded once nobody may borrow and no block is left to claim", () => {
  const { put, settle, census } = world();
  put("pool", pool("blue", "10.0.0.0/28", 29));
  put("block", block("10.0.0.0/29", "host:n-1", [ofPod("n-1", "a")]));
  const config = {
    autoAllocateBlocks: true,
    maxBlocksPerHost: 0,
    kubeVirtVMAddressPersistence: "Enabled",
    ipCooldownSeconds: 0,
  } as const;
  put("config", { name: "default", ...config, strictAffinity: true });
  settle();
  assert.equal(census.pools()[0]?.stranded, 0);
  put("block", block("10.0.0.8/29", "host:n-2", []));
  settle();
  assert.equal(census.pools()[0]?.stranded, 15);
  put("config", { name: "default", ...config, strictAffinity: false });
  assert.equal(census.pools()[0]?.stranded, 0);
});

test("a handle that no block names is an orphan, whichever of the two comes first", () => {
  const { put, settle, census, remove } = world();
  const handle = {
    name: "k8s-pod-network.a",
    handleId: "k8s-pod-network.a" as HandleId,
    block: new Map(),
    deleted: false,
  };
  put("handle", handle);
  assert.deepEqual(census.handles(), { used: 0, orphan: 1 });
  put("block", block("10.0.0.0/29", "host:n-1", [ofPod("n-1", "a")]));
  settle();
  assert.deepEqual(census.handles(), { used: 1, orphan: 0 });
  remove("block", "10-0-0-0-29");
  settle();
  assert.deepEqual(census.handles(), { used: 0, orphan: 1 });
  remove("handle", handle.name);
  assert.deepEqual(census.handles(), { used: 0, orphan: 0 });
});

test("property: whatever comes and goes, states sum to the pool's size, and the kept-up sums are those of a new count", () => {
  const holder = fc.constantFrom(
    null,
    null,
    ofPod("n-1", "a"),
    ofPod("n-2", "b"),
    warm("n-1"),
    cooling,
    tunnel("n-1"),
    foreign,
    windows,
  );
  const cidrs = ["10.0.0.0/29", "10.0.0.8/29", "10.0.0.16/29", "10.0.1.0/29", "10.0.0.0/28"];
  const step = fc.oneof(
    fc.record({
      kind: fc.constant("block" as const),
      cidr: fc.constantFrom(...cidrs.slice(0, 4)),
      owner: fc.constantFrom("host:n-1", "host:n-2", "virtual:load-balancer", undefined),
      holders: fc.array(holder, { minLength: 8, maxLength: 8 }),
    }),
    fc.record({ kind: fc.constant("no block" as const), cidr: fc.constantFrom(...cidrs) }),
    fc.record({ kind: fc.constant("pool" as const), there: fc.boolean(), size: fc.constantFrom(29, 30) }),
    fc.record({
      kind: fc.constant("reservation" as const),
      cidrs: fc.subarray(["10.0.0.3/32", "10.0.0.0/30", "10.0.0.16/28"]),
    }),
    fc.record({ kind: fc.constant("node" as const), name: fc.constantFrom("n-1", "n-2"), there: fc.boolean() }),
    fc.record({ kind: fc.constant("handle" as const), name: fc.constantFrom("a", "b"), there: fc.boolean() }),
    fc.record({
      kind: fc.constant("row" as const),
      there: fc.boolean(),
      state: fc.constantFrom("confirmed", "pending"),
    }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const { store, clock, census, put, remove, settle } = world();
      for (const each of steps) {
        if (each.kind === "block") put("block", block(each.cidr, each.owner, each.holders));
        else if (each.kind === "no block") remove("block", blockName(each.cidr as BlockCidr));
        else if (each.kind === "pool" && each.there) put("pool", pool("blue", "10.0.0.0/27", each.size));
        else if (each.kind === "pool") remove("pool", "blue");
        else if (each.kind === "reservation") put("reservation", { name: "r", cidrs: each.cidrs as CidrText[] });
        else if (each.kind === "node" && each.there) put("node", { name: each.name as NodeName, labels: {} });
        else if (each.kind === "node") remove("node", each.name);
        else if (each.kind === "handle") {
          const name = `k8s-pod-network.${each.name}`;
          if (each.there)
            put("handle", { name, handleId: name as HandleId, block: new Map(), deleted: false } as Omit<
              Handle,
              "uid" | "resourceVersion"
            >);
          else remove("handle", name);
        } else if (each.there) {
          const row = {
            name: "n-1-x",
            cidr: "10.0.0.0/29" as BlockCidr,
            node: "n-1",
            type: "host",
            deleted: false,
            labelled: true,
          } as const;
          put("affinity", { ...row, state: each.state } as Omit<Affinity, "uid" | "resourceVersion">);
        } else remove("affinity", "n-1-x");
      }
      settle();
      const fresh = new Census(store, clock);
      settle();
      assert.deepEqual(census.pools(), fresh.pools());
      assert.deepEqual(census.findings(), fresh.findings());
      assert.deepEqual(census.handles(), fresh.handles());
      assert.deepEqual(new Map([...census.nodes()].sort()), new Map([...fresh.nodes()].sort()));
      for (const { states, size } of census.pools()) {
        assert.equal(
          addressStates.reduce((sum, state) => sum + states[state], 0),
          size,
        );
        for (const state of addressStates) assert.ok(states[state] >= 0, `${state} ${states[state]}`);
      }
    }),
    { numRuns: 300 },
  );
});
