// What a choice costs: blocks that are looked at, among ten thousand and in pools of any size.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { assign, newBlock } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import type { Block, Pool } from "../../shared/calico/resources.ts";
import { blockAtIndex } from "../../shared/calico/walk.ts";
import type { HandleId, NodeName, ResourceVersion, Sequence, Uid, UnixMs } from "../../shared/kinds.ts";
import { commitWorld } from "../../test/commit-world.ts";
import { seededRandom } from "../../test/manual-world.ts";
import { Candidates } from "./candidates.ts";

const anyTime = 0 as UnixMs;

/** The pool's first blocks, all of one node, with so many addresses used in each. */
function blocksOf(pool: Pool, count: number, used: number, affinityClaimTime = "2026-01-02T03:04:05Z"): Block[] {
  const ordinals = Array.from({ length: used }, (_, ordinal) => ordinal);
  return Array.from({ length: count }, (_, index) => {
    const cidr = blockAtIndex(pool, BigInt(index));
    const made = newBlock({ cidr, affinity: "host:node-b", now: anyTime, sequence: 1n as Sequence });
    const state = assign(made, ordinals, { handle: "c" as HandleId, secondary: { node: "node-b" } });
    const name = blockName(cidr);
    return { name, uid: name as Uid, resourceVersion: "1" as ResourceVersion, cidr, ...state, affinityClaimTime };
  });
}

/** Asks for a choice among these blocks, and counts the blocks that were looked at for it. */
function choice(cidr: string, blockSize: number, blocks: (pool: Pool) => Block[]) {
  const spec = { cidr, blockSize };
  const object = { apiVersion: "crd.projectcalico.org/v1", kind: "IPPool", metadata: { name: "pool" }, spec };
  const { desk, store } = commitWorld([object]).replica();
  const pool = store.get("pool", "pool");
  assert.ok(pool);
  store.replace("block", blocks(pool), "1000" as ResourceVersion);
  const looked = mock.method(store, "blockAt");
  const free = mock.method(store, "nextFreeBlock");
  const ask = <T>(choose: (candidates: Candidates) => T): { found: T; looks: number } => {
    const before = looked.mock.callCount() + free.mock.callCount();
    const found = choose(new Candidates(desk, seededRandom(1), "node-a" as NodeName, [pool]));
    return { found, looks: looked.mock.callCount() + free.mock.callCount() - before };
  };
  return { pool, ask };
}

const full = 64;
const many = 10_000;

for (const [cidr, blockSize] of [
  ["10.64.0.0/10", 26],
  ["fd00:10:10::/48", 122],
] as const) {
  test(`in ${cidr}, one block or ten thousand in use, an unclaimed one is found at the first look`, () => {
    for (const count of [1, many]) {
      const { ask } = choice(cidr, blockSize, (pool) => blocksOf(pool, count, full));
      const { found, looks } = ask((candidates) => candidates.unclaimed());
      assert.ok(found !== undefined);
      assert.equal(looks, 1);
    }
  });

  test(`in ${cidr}, the one block of ten thousand that is idle, or that has room, is found at the first look`, () => {
    for (const used of [0, full - 1]) {
      const { pool, ask } = choice(cidr, blockSize, (pool) => {
        const [special] = blocksOf(pool, many, used).slice(many / 2);
        return blocksOf(pool, many, full).with(many / 2, special ?? assert.fail());
      });
      const expected = blockAtIndex(pool, BigInt(many / 2));
      const idle = ask((candidates) => candidates.idle());
      const lender = ask((candidates) => candidates.lender(new Set()));
      assert.deepEqual([idle.found?.cidr, idle.looks], used === 0 ? [expected, 1] : [undefined, 0]);
      assert.deepEqual([lender.found?.cidr, lender.looks], [expected, 1]);
    }
  });
}

test("what only a look can tell is passed over within a bound", () => {
  const { ask } = choice("10.64.0.0/10", 26, (pool) => blocksOf(pool, 5000, 0, "2030-01-01T13:59:50Z"));
  const { found, looks } = ask((candidates) => candidates.idle());
  assert.deepEqual([found, looks], [undefined, 4096]);
});
