// The states of a pool's addresses are disjoint and sum to its size, whatever lies in it.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { BlockCidr, CidrText, HandleId, PoolName, ResourceVersion, Sequence, Uid, UnixMs } from "../kinds.ts";
import { assign, newBlock, release } from "./block.ts";
import { blocksOfPool, censusOfPool } from "./census.ts";
import type { Block, Pool } from "./resources.ts";

const meta = { uid: "u" as Uid, resourceVersion: "1" as ResourceVersion };
const now = 1_900_000_000_000 as UnixMs;
const pool: Pool = {
  ...meta,
  name: "p" as PoolName,
  cidr: "10.0.0.0/24" as CidrText,
  blockSize: 28,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: ["Workload"],
  assignmentMode: "Automatic",
};

function block(cidr: string): Block {
  const state = newBlock({ cidr: cidr as BlockCidr, affinity: "host:n", now, sequence: 1n as Sequence });
  return { ...meta, name: cidr.replaceAll(/[./]/g, "-"), cidr: cidr as BlockCidr, ...state };
}

const owners = {
  owned: { handle: "net.c" as HandleId, secondary: { node: "n", pod: "p", namespace: "s" } },
  warm: { handle: "cattail-warm-n" as HandleId, secondary: { node: "n", type: "cattail-warm" } },
  tunnel: { handle: "vxlan-tunnel-addr-n" as HandleId, secondary: { node: "n", type: "vxlanTunnelAddress" } },
  foreign: { handle: "x" as HandleId, secondary: { node: "n" } },
};

test("each state is counted once, in the order of precedence", () => {
  let one = block("10.0.0.16/28");
  one = { ...one, ...assign(one, [0, 1, 2], owners.owned) };
  one = { ...one, ...assign(one, [3], owners.warm) };
  one = { ...one, ...assign(one, [4], owners.tunnel) };
  one = { ...one, ...assign(one, [5], owners.foreign) };
  one = { ...one, ...release(one, [0], { now, cooldownSeconds: 60 }) };
  const reservations = ["10.0.0.16/30", "10.0.0.17/32", "10.1.0.0/16", "10.0.0.128/25"] as CidrText[];
  assert.deepEqual(censusOfPool(pool, [one], reservations), {
    owned: 2n,
    warm: 1n,
    cooling: 1n,
    tunnel: 1n,
    foreign: 1n,
    reserved: 128n, // of the first four all are taken
    free: 122n,
  });
  assert.deepEqual(blocksOfPool(pool, [one]), { affine: 1, ownerless: 0, unclaimed: 15n });
});

test("they sum to the pool's size", () => {
  const taken = fc.array(fc.tuple(fc.nat(15), fc.nat(15), fc.constantFrom(...Object.values(owners))), {
    maxLength: 60,
  });
  const range = fc.tuple(fc.nat(255), fc.integer({ min: 20, max: 32 }));
  fc.assert(
    fc.property(taken, fc.array(range), (places, ranges) => {
      const blocks = new Map<number, Block>();
      for (const [index, ordinal, owner] of places) {
        const found = blocks.get(index) ?? block(`10.0.0.${index * 16}/28`);
        if (found.allocations[ordinal] === null) blocks.set(index, { ...found, ...assign(found, [ordinal], owner) });
      }
      const reservations = ranges.map(([last, prefix]) => {
        const size = 2 ** (32 - Math.max(prefix, 24));
        return (prefix < 24 ? `10.0.0.0/${prefix}` : `10.0.0.${last - (last % size)}/${prefix}`) as CidrText;
      });
      const census = censusOfPool(pool, [...blocks.values()], reservations);
      assert.equal(
        Object.values(census).reduce((sum, count) => sum + count, 0n),
        256n,
      );
      assert.ok(Object.values(census).every((count) => count >= 0n));
    }),
  );
});
