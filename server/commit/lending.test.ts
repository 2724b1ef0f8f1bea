// Blocks that are not, or not for long, the writer's own, against the embedded API server: what is decided by the lender, by a limit, by a mark.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assign, bump, holderOf, newBlock } from "../../shared/calico/block.ts";
import { newAffinityObject, newBlockObject, readBlock } from "../../shared/calico/codec.ts";
import type { BlockState } from "../../shared/calico/resources.ts";
import type { BlockCidr, HandleId, NodeName, PoolName, Sequence, UnixMs } from "../../shared/kinds.ts";
import type { Intent } from "../../shared/protocol/stream.ts";
import { type CommitWorld, commitWorld, type Replica } from "../../test/commit-world.ts";

const apiVersion = "crd.projectcalico.org/v1";
const cidr = "10.10.0.0/29" as BlockCidr;
const sequence = 1_787_405_600_123_456_789n as Sequence;
const oneBlock = { cidr: "10.10.0.0/29", blockSize: 29 };

function pool(spec: object): unknown {
  return { apiVersion, kind: "IPPool", metadata: { name: "pool" }, spec };
}

function node(name: string, labels: object): unknown {
  return { apiVersion: "v1", kind: "Node", metadata: { name, labels } };
}

/** Of node-a unless it says otherwise, with ordinal 0 held by `who`. */
function heldBlock(who: string, change: (state: BlockState) => BlockState = (state) => state): unknown {
  const made = newBlock({ cidr, affinity: "host:node-a", now: 1_700_000_000_000 as UnixMs, sequence });
  const held = assign(made, [0], { handle: "c0" as HandleId, secondary: { node: who } });
  return newBlockObject("crd", cidr, change(held));
}

function row(state: "confirmed" | "pending"): unknown {
  return newAffinityObject("crd", { cidr, node: "node-a", state, type: "host" });
}

function commit(replica: Replica, who: string, intent: Intent) {
  return replica.committer.commit({ node: who as NodeName, block: cidr, intents: [intent], handles: "off" });
}

const releaseFirst: Intent = { ordinal: 0, expect: { handle: "c0", sequence: String(sequence) }, become: null };

function reserve(ordinal: number, who: string): Intent {
  return { ordinal, expect: null, become: { handle: `c${ordinal}`, attributes: { node: who } } };
}

function stored(world: CommitWorld): BlockState[] {
  return world.api.server.objects("ipamblocks").map((raw) => {
    const reading = readBlock(raw, "crd");
    return reading.ok ? reading.object : assert.fail(reading.problem);
  });
}

test("given a borrowed address, when it is released, then the lender's labels decide whether the block stays", async () => {
  for (const [zoneOfLender, zoneOfBorrower, left] of [
    ["in", "out", 1],
    ["out", "in", 0],
  ] as const) {
    const zones = [node("node-a", { zone: zoneOfLender }), node("node-b", { zone: zoneOfBorrower })];
    const chosen = pool({ ...oneBlock, nodeSelector: "zone == 'in'" });
    const world = commitWorld([chosen, ...zones, row("confirmed"), heldBlock("node-b")]);
    const replica = world.replica();
    await commit(replica, "node-b", releaseFirst);
    await replica.committer.idle();
    assert.equal(stored(world).length, left, `the lender is ${zoneOfLender}`);
  }
});

test("given the limit of blocks reached, or autoAllocateBlocks false, then no block is named to borrow from either", async () => {
  for (const spec of [
    { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 1 },
    { strictAffinity: false, autoAllocateBlocks: false },
  ]) {
    const config = { apiVersion, kind: "IPAMConfig", metadata: { name: "default" }, spec };
    const lent = "10.10.0.8/29" as BlockCidr;
    const other = newBlock({ cidr: lent, affinity: "host:node-b", now: 0 as UnixMs, sequence });
    const wide = pool({ cidr: "10.10.0.0/28", blockSize: 29 });
    const blocks = [heldBlock("node-a"), newBlockObject("crd", lent, other)];
    const replica = commitWorld([wide, config, row("confirmed"), ...blocks]).replica();
    const answer = await replica.claims.claim({
      node: "node-a" as NodeName,
      pools: ["pool" as PoolName],
      full: new Set([cidr]),
      borrow: true,
    });
    assert.equal(answer.kind === "problem" && answer.problem.reason, "BlockLimitReached", JSON.stringify(spec));
  }
});

test("given a block marked as deleted, then nothing is taken in it and the mark stays", async () => {
  const world = commitWorld([
    pool(oneBlock),
    row("confirmed"),
    heldBlock("node-a", (state) => ({ ...state, deleted: true })),
  ]);
  const before = stored(world);
  const answer = await commit(world.replica(), "node-a", reserve(1, "node-a"));
  assert.deepEqual(answer, { kind: "done", results: ["expectation"], block: null });
  assert.deepEqual(stored(world), before);
});

test("given nobody's block whose last address is released, then it is marked before it is deleted; whoever takes one meanwhile keeps it", async () => {
  const ownerless = ({ affinity: _, affinityClaimTime: __, ...state }: BlockState): BlockState => state;
  const world = commitWorld([pool(oneBlock), heldBlock("node-a", ownerless)]);
  world.api.before = (request) => {
    if (request.startsWith("delete ipamblocks")) assert.equal(stored(world)[0]?.deleted, true);
  };
  await commit(world.replica(), "node-a", releaseFirst);
  assert.deepEqual(world.api.requests, ["patch ipamblocks/10-10-0-0-29", "delete ipamblocks/10-10-0-0-29"]);
  assert.deepEqual(stored(world), []);

  const raced = commitWorld([pool(oneBlock), heldBlock("node-a", ownerless)]);
  raced.api.before = (request) => {
    if (!request.startsWith("patch ipamblocks")) return;
    raced.api.before = () => {};
    const rival = { handle: "rival" as HandleId, secondary: { node: "node-b" } };
    raced.api.server.seed([heldBlock("node-a", (state) => ownerless(bump(assign(state, [1], rival))))]);
  };
  await commit(raced.replica(), "node-a", releaseFirst);
  const [block] = stored(raced);
  assert.ok(block);
  assert.deepEqual([holderOf(block, 0), holderOf(block, 1)?.handle], [undefined, "rival"]);
});
