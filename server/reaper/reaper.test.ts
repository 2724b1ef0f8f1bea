// What the leader removes, when, and what it leaves alone; against the embedded API server, the watches played by hand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assign, newBlock, retag } from "../../shared/calico/block.ts";
import { newAffinityObject, newBlockObject, newHandleObject } from "../../shared/calico/codec.ts";
import { apiPath, blockName, warmHandle } from "../../shared/calico/names.ts";
import type { AffinityState, BlockState } from "../../shared/calico/resources.ts";
import { printLossless } from "../../shared/json/lossless.ts";
import type { BlockCidr, HandleId, NodeName, Sequence, UnixMs } from "../../shared/kinds.ts";
import { commitWorld, silent } from "../../test/commit-world.ts";
import { seededRandom } from "../../test/manual-world.ts";
import { ObjectReader } from "../upstream/object-reader.ts";
import { Reaper } from "./reaper.ts";

const minute = 60_000;
const limitMinutes = 90;
const blockOfGone = "10.0.0.0/29" as BlockCidr;
const blockOfHere = "10.0.0.8/29" as BlockCidr;
const [gone, here] = ["gone", "here"] as [NodeName, NodeName];

function emptyBlock(cidr: BlockCidr, node: string): BlockState {
  return newBlock({ cidr, affinity: `host:${node}`, now: 0 as UnixMs, sequence: 100n as Sequence });
}

const warmOf = (node: NodeName) => ({
  handle: warmHandle(node),
  secondary: { node, type: "cattail-warm", "cattail.io/incarnation": "i1" },
});
const podOf = (node: NodeName) => ({ handle: "net.c1" as HandleId, secondary: { node, pod: "p", namespace: "n" } });
const secondaryOf = (node: NodeName) => ({
  handle: "net2.c1" as HandleId,
  secondary: { node, type: "cattailSecondaryInterface", "cattail.io/interface": "net1" },
});

/** Ordinals 0 and 1 warm, 2 a pod's, 3 a secondary interface's, the rest free. */
function usedBlock(cidr: BlockCidr, node: NodeName): unknown {
  const warm = assign(emptyBlock(cidr, node), [0, 1], warmOf(node));
  return newBlockObject("crd", cidr, assign(assign(warm, [2], podOf(node)), [3], secondaryOf(node)));
}

function row(cidr: BlockCidr, node: string, state: AffinityState = "confirmed"): unknown {
  return newAffinityObject("crd", { cidr, node, state, type: "host" });
}

function handle(id: string, ...cidrs: BlockCidr[]): unknown {
  return newHandleObject("crd", id as HandleId, new Map(cidrs.map((cidr) => [cidr, 1])));
}

const nodeObject = (name: string): unknown => ({ apiVersion: "v1", kind: "Node", metadata: { name } });

function world(...seed: unknown[]) {
  const { api, clock, replica } = commitWorld([nodeObject(here), ...seed]);
  const server = replica();
  const { store, desk, committer, affinities } = server;
  server.watch();
  const told: string[] = [];
  const reaped: Record<string, number> = {};
  const state = { leads: true };
  const reader = new ObjectReader({ api, group: "crd", store, clock });
  const reaper = new Reaper({
    desk,
    committer,
    affinities,
    events: { aboutNode: (reason, node, note) => void told.push(`${reason} ${node}: ${note}`) },
    leads: () => state.leads,
    reapAfterMs: () => limitMinutes * minute,
    refresh: (node) => reader.refreshNode(node),
    random: seededRandom(1),
    logger: silent,
    metrics: {
      reaped: { inc: ({ kind }, by = 1) => void Object.assign(reaped, { [kind]: (reaped[kind] ?? 0) + by }) },
    },
  });
  /** A pass a minute, the watches sound; without `watching`, the store stays as it is but for the bookmarks. */
  const pass = async (minutes: number, watching = true): Promise<void> => {
    for (let passed = 0; passed < minutes; passed++) {
      clock.advance(minute);
      if (watching) server.watch();
      else
        for (const kind of ["node", "block", "affinity", "handle"] as const)
          store.bookmark(kind, store.freshness(kind).version);
      await reaper.pass();
      await committer.idle();
    }
  };
  const owners = (cidr: BlockCidr): (string | undefined)[] => {
    const block = server.store.blockAt(cidr);
    server.watch("block");
    const now = server.store.blockAt(cidr) ?? block;
    return (now?.allocations ?? []).map((index) => (index === null ? undefined : now?.attributes[index]?.handle_id));
  };
  const writes = (): string[] =>
    api.requests.filter((request) => !request.startsWith("list") && !request.startsWith("get"));
  return { api, clock, server, store, reaper, state, told, reaped, pass, owners, writes };
}

const all = ["cattail-warm-gone", "cattail-warm-gone", "net.c1", "net2.c1", undefined, undefined, undefined, undefined];
const reapedOnes = [undefined, undefined, "net.c1", undefined, undefined, undefined, undefined, undefined];

test("given a vanished node, then its warm and secondary addresses are freed after the limit and not before, its pods' are left", async () => {
  const { pass, owners, writes, told, reaped } = world(usedBlock(blockOfGone, gone), usedBlock(blockOfHere, here));
  await pass(limitMinutes - 1);
  assert.deepEqual([writes(), owners(blockOfGone)], [[], all]);
  await pass(3);
  assert.deepEqual(owners(blockOfGone), reapedOnes);
  assert.deepEqual(owners(blockOfHere).slice(0, 2), ["cattail-warm-here", "cattail-warm-here"]);
  assert.deepEqual(writes(), [`patch ipamblocks/${blockName(blockOfGone)}`]);
  assert.deepEqual(reaped, { warm: 3 });
  assert.deepEqual(told, [
    "NodeAddressesReleased gone: 3 addresses that nobody uses were released, as the Node has been missing for 90 min",
  ]);
});

test("given a Node that is deleted, then the limit runs from when this server saw it", async () => {
  const { api, pass, owners } = world(nodeObject(gone), usedBlock(blockOfGone, gone));
  await pass(200);
  await api.remove("/api/v1/nodes/gone", { uid: uidOf(api, gone) });
  await pass(limitMinutes);
  assert.deepEqual(owners(blockOfGone), all);
  await pass(3);
  assert.deepEqual(owners(blockOfGone), reapedOnes);
});

test("given a list made afresh, then what came and went before it was not seen, and the limit runs again", async () => {
  const { server, pass, owners } = world(usedBlock(blockOfGone, gone));
  await pass(limitMinutes - 2);
  server.sync();
  await pass(limitMinutes - 1);
  assert.deepEqual(owners(blockOfGone), all);
  await pass(3);
  assert.deepEqual(owners(blockOfGone), reapedOnes);
});

test("given a stale view, another leader or a locked datastore, then nothing is done", async () => {
  const { api, store, clock, state, reaper, pass, owners } = world(usedBlock(blockOfGone, gone));
  state.leads = false;
  await pass(limitMinutes * 2);
  state.leads = true;
  await api.patch(apiPath("crd", "cluster", "default"), {
    spec: { datastoreReady: false },
  });
  await pass(10);
  await api.patch(apiPath("crd", "cluster", "default"), { spec: { datastoreReady: true } });
  await pass(1);
  for (const kind of ["node", "block"] as const) {
    store.closed(kind, clock.monotonic());
    clock.advance(16_000);
    for (let passes = 0; passes < 5; passes++) await reaper.pass();
    store.opened(kind);
  }
  assert.deepEqual(owners(blockOfGone), all);
});

test("given a Node that comes back, then nothing of it is released, even before the watch tells", async () => {
  const { api, pass, owners, writes } = world(usedBlock(blockOfGone, gone));
  await pass(limitMinutes - 1);
  await api.create("/api/v1/nodes", nodeObject(gone));
  await pass(5, false);
  await pass(limitMinutes * 2);
  assert.deepEqual(owners(blockOfGone), all);
  assert.deepEqual(writes(), ["create nodes/gone"]);
});

test("given an address allocated after the Node came and went unseen, then it is not taken for one from before", async () => {
  const { api, pass, server, owners } = world(usedBlock(blockOfGone, gone));
  await pass(limitMinutes - 1);
  // The blocks' watch is ahead of the nodes': another incarnation's addresses are seen before their Node is.
  const block = server.store.blockAt(blockOfGone);
  assert.ok(block);
  const renewed = { ...warmOf(gone), secondary: { ...warmOf(gone).secondary, "cattail.io/incarnation": "i2" } };
  await server.committer.commit({
    node: gone,
    block: blockOfGone,
    intents: [0, 1].map((ordinal) => ({
      ordinal,
      expect: { handle: renewed.handle, sequence: String(block.sequenceNumberForAllocation.get(ordinal)) },
      become: { handle: renewed.handle, attributes: renewed.secondary },
    })),
    handles: "off",
  });
  await pass(2, false);
  assert.deepEqual(owners(blockOfGone).slice(0, 2), ["cattail-warm-gone", "cattail-warm-gone"]);
  await api.create("/api/v1/nodes", nodeObject(gone));
  await pass(limitMinutes * 2);
  assert.deepEqual(owners(blockOfGone).slice(0, 2), ["cattail-warm-gone", "cattail-warm-gone"]);
});

test("given an address that changes hands before the release is carried out, then it stays with whom it went to", async () => {
  const { api, pass, owners } = world(usedBlock(blockOfGone, gone));
  await pass(limitMinutes - 1);
  const path = apiPath("crd", "block", blockName(blockOfGone));
  let isDone = false;
  api.before = (request) => {
    if (isDone || request !== `patch ipamblocks/${blockName(blockOfGone)}`) return;
    isDone = true;
    const state = assign(assign(emptyBlock(blockOfGone, gone), [0, 1], warmOf(gone)), [2], podOf(gone));
    const next = retag({ ...state, sequenceNumber: 200n as Sequence }, 0, {
      handle: "net.c9" as HandleId,
      secondary: { node: gone },
    });
    const { spec } = newBlockObject("crd", blockOfGone, next) as { spec: object };
    patchNow(api, path, { spec });
  };
  await pass(4);
  assert.ok(isDone);
  assert.deepEqual(owners(blockOfGone).slice(0, 3), ["net.c9", undefined, "net.c1"]);
});

test("given a write that fails, then the others are done all the same, and it later", async () => {
  const other = "10.0.0.16/29" as BlockCidr;
  const { api, pass, owners } = world(usedBlock(blockOfGone, gone), usedBlock(other, "gone-too" as NodeName));
  const fault = api.faults.add({
    match: { verb: "patch", name: blockName(blockOfGone) },
    effect: { kind: "status", code: 403, reason: "Forbidden" },
  });
  await pass(limitMinutes + 3);
  assert.deepEqual(owners(other), reapedOnes);
  assert.deepEqual(owners(blockOfGone), all);
  fault.remove();
  await pass(1);
  assert.deepEqual(owners(blockOfGone), reapedOnes);
});

test("given half-made claims of a vanished node, then they are undone; used blocks and claims of living nodes stay", async () => {
  const [bare, own, foreign, living] = ["10.1.0.0/29", "10.1.0.8/29", "10.1.0.16/29", "10.1.0.24/29"] as BlockCidr[];
  assert.ok(bare && own && foreign && living);
  const { api, pass, reaped } = world(
    row(bare, gone, "pending"),
    row(own, gone, "pending"),
    newBlockObject("crd", own, emptyBlock(own, gone)),
    row(foreign, gone, "pending"),
    usedBlock(foreign, here),
    row(blockOfGone, gone, "pending"),
    newBlockObject("crd", blockOfGone, assign(emptyBlock(blockOfGone, gone), [0], podOf(gone))),
    row(living, here, "pending"),
  );
  const left = (): unknown[] => [
    api.server.objects("blockaffinities").map(({ metadata }) => Object(metadata).name),
    api.server.objects("ipamblocks").map(({ metadata }) => Object(metadata).name),
  ];
  const before = left();
  await pass(limitMinutes - 1);
  assert.deepEqual(left(), before);
  await pass(3);
  assert.deepEqual(left(), [
    ["gone-10-0-0-0-29", "here-10-1-0-24-29"],
    ["10-0-0-0-29", "10-1-0-16-29"],
  ]);
  assert.deepEqual(reaped, { claim: 3 });
});

test("given handles without an address, then those of CNI executables are deleted after a quarter of an hour, unchanged", async () => {
  const { api, pass, reaped } = world(
    usedBlock(blockOfHere, here),
    handle("net.c1", blockOfHere),
    handle("net.orphan", blockOfHere),
    handle("net.nowhere"),
    handle("net.busy", blockOfHere),
    handle("vxlan-tunnel-addr-x", blockOfHere),
  );
  const left = (): unknown[] => api.server.objects("ipamhandles").map(({ metadata }) => Object(metadata).name);
  await pass(14);
  assert.equal(left().length, 5);
  await api.patch(apiPath("crd", "handle", "net.busy"), { spec: { block: { [blockOfHere]: 2 } } });
  await pass(2);
  assert.deepEqual(left(), ["net.busy", "net.c1", "vxlan-tunnel-addr-x"]);
  await pass(15);
  assert.deepEqual(left(), ["net.c1", "vxlan-tunnel-addr-x"]);
  assert.deepEqual(reaped, { handle: 3 });
});

test("given a handle that is used just before it would be deleted, then it stays", async () => {
  const { api, pass } = world(handle("net.orphan", blockOfHere));
  await pass(14);
  let isDone = false;
  api.before = (request) => {
    if (isDone || request !== "delete ipamhandles/net.orphan") return;
    isDone = true;
    patchNow(api, apiPath("crd", "handle", "net.orphan"), { spec: { block: { [blockOfHere]: 2 } } });
  };
  await pass(3);
  assert.ok(isDone);
  assert.equal(api.server.objects("ipamhandles").length, 1);
});

test("given very many orphans, then no more than three hundred go in a minute", async () => {
  const { api, pass } = world(...Array.from({ length: 700 }, (_, index) => handle(`net.c${index}`, blockOfHere)));
  await pass(15);
  const left = (): number => api.server.objects("ipamhandles").length;
  const counts: number[] = [];
  for (let minutes = 0; minutes < 4; minutes++) {
    await pass(1);
    counts.push(left());
  }
  assert.deepEqual(counts, [400, 100, 0, 0]);
});

test("given a block that cannot be read, then no handle is taken for an orphan", async () => {
  const { api, store, pass } = world(handle("net.orphan", blockOfHere));
  const meta = { name: "10-9-0-0-29", uid: "u", resourceVersion: "1" } as Parameters<typeof store.hold>[1];
  store.hold("block", { ...meta, problem: "a block of another kind" });
  await pass(60);
  assert.equal(api.server.objects("ipamhandles").length, 1);
});

function uidOf(api: ReturnType<typeof world>["api"], name: string): string {
  const node = api.server.objects("nodes").find(({ metadata }) => Object(metadata).name === name);
  return String(Object(node?.metadata).uid);
}

/** Somebody else, between our decision and our write. */
function patchNow(api: ReturnType<typeof world>["api"], path: string, body: unknown): void {
  const { answer } = api.server.handle({
    method: "PATCH",
    path,
    query: new Map(),
    accept: "application/json",
    contentType: "application/merge-patch+json",
    userAgent: "test",
    token: "test",
    body: printLossless(body),
  });
  assert.ok(answer.kind === "body" && answer.code === 200);
}
