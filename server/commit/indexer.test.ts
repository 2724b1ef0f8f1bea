// Handles written late: from the blocks, once, few at a time, and never for what is gone by then.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assign, newBlock } from "../../shared/calico/block.ts";
import { newBlockObject, newHandleObject } from "../../shared/calico/codec.ts";
import { apiPath } from "../../shared/calico/names.ts";
import type { BlockCidr, HandleId, NodeName, Sequence, UnixMs } from "../../shared/kinds.ts";
import { commitWorld, silent } from "../../test/commit-world.ts";
import { Handles } from "./handles.ts";
import { Indexer } from "./indexer.ts";

const node = "node-a" as NodeName;
const [first, second] = ["10.0.0.0/29", "10.0.0.8/29"] as [BlockCidr, BlockCidr];

/** Each handle with so many addresses in this block. */
function block(cidr: BlockCidr, handles: Readonly<Record<string, number>>, owner = node): unknown {
  let state = newBlock({ cidr, affinity: `host:${owner}`, now: 0 as UnixMs, sequence: 1n as Sequence });
  for (const [handle, count] of Object.entries(handles)) {
    const ordinals = state.unallocated.slice(0, count);
    state = assign(state, ordinals, { handle: handle as HandleId, secondary: { node: owner } });
  }
  return newBlockObject("crd", cidr, state);
}

function world(...seed: unknown[]) {
  const made = commitWorld(seed);
  const { desk } = made.replica();
  const indexer = new Indexer(desk, new Handles(desk), silent);
  const index = (...handles: string[]) => indexer.index(node, handles as HandleId[]);
  const counts = (): Record<string, unknown> =>
    Object.fromEntries(
      made.api.server.objects("ipamhandles").map(({ spec }) => [Object(spec).handleID, Object(spec).block]),
    );
  return { ...made, indexer, index, counts };
}

test("given handles of a node's addresses, then they say what its blocks say, in one write per block and no read", async () => {
  const { api, index, counts } = world(block(first, { "net.A": 2, "net.b": 1 }), block(second, { "net.A": 1 }));
  assert.equal(await index("net.A", "net.b"), undefined);
  assert.deepEqual(counts(), { "net.A": { [first]: 2, [second]: 1 }, "net.b": { [first]: 1 } });
  assert.deepEqual(api.requests.toSorted(), [
    "create ipamhandles/net.a",
    "create ipamhandles/net.b",
    "patch ipamhandles/net.a",
  ]);
  api.requests.length = 0;
  assert.equal(await index("net.A", "net.b"), undefined);
  assert.deepEqual(api.requests, [], "said again, it is said already");
});

test("given a pod that is gone, a warm address or another node's, then nothing is written", async () => {
  const { api, index } = world(
    block(first, { "cattail-warm-node-a": 2 }),
    block(second, { "net.c": 1 }, "node-b" as NodeName),
  );
  assert.equal(await index("net.gone", "cattail-warm-node-a", "net.c"), undefined);
  assert.deepEqual(api.requests, []);
});

test("given an object that says something else, then it is set right, and what it says of other blocks stays", async () => {
  const wrong = newHandleObject(
    "crd",
    "net.a" as HandleId,
    new Map([
      [first, 5],
      [second, 1],
    ]),
  );
  const { index, counts } = world(block(first, { "net.a": 1 }), wrong);
  assert.equal(await index("net.a"), undefined);
  assert.deepEqual(counts(), { "net.a": { [first]: 1, [second]: 1 } });
});

test("given a write that is refused, then the others are done and the agent learns of it", async () => {
  const { api, index, counts } = world(block(first, { "net.a": 1, "net.b": 1 }));
  api.faults.add({
    match: { verb: "create", resource: "ipamhandles" },
    effect: { kind: "status", code: 403, reason: "Forbidden" },
    times: 1,
  });
  assert.equal((await index("net.a", "net.b"))?.reason, "Forbidden");
  assert.equal(Object.keys(counts()).length, 1);
  assert.equal(await index("net.a", "net.b"), undefined);
  assert.equal(Object.keys(counts()).length, 2);
});

test("given a locked datastore, then nothing is written and the agent is told why", async () => {
  const { api, index, replica } = world(block(first, { "net.a": 1 }));
  await api.patch(apiPath("crd", "cluster", "default"), { spec: { datastoreReady: false } });
  const { desk } = replica();
  assert.equal(
    (await new Indexer(desk, new Handles(desk), silent).index(node, ["net.a" as HandleId]))?.reason,
    "DatastoreLocked",
  );
  assert.ok(index);
});
