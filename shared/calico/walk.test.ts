import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalCidr } from "../ip/cidr.ts";
import type { BlockCidr, CidrText } from "../kinds.ts";
import type { Random } from "../world.ts";
import { goRandom } from "./go-rand.ts";
import { blockAtIndex, blockCount, candidateBlocks, indexOfBlock, type PoolRange, startIndex } from "./walk.ts";

const pool = (cidr: string, blockSize: number): PoolRange => ({ cidr: cidr as CidrText, blockSize });
const unused: Random = {
  below: () => assert.fail("the host's name decides"),
  hex: () => assert.fail("the host's name decides"),
};
const drawing = (...values: number[]): Random => ({
  ...unused,
  below: () => values.shift() ?? assert.fail("drawn too often"),
});

test("the generator gives what Go's gives", () => {
  const draw = (seed: number): number[] => {
    const source = goRandom(seed);
    return Array.from({ length: 4 }, () => source.uint32());
  };
  assert.deepEqual(draw(1), [2596996162, 4039455774, 2854263694, 1879968118]);
  assert.deepEqual(draw(568266999), [1549122234, 1132198735, 1704301745, 1885019871]);
});

for (const [host, middle, small, v6, v6Block] of [
  ["node-a", 698n, 2n, 251070522519304890n, "fd00:10:244:0:defe:d3d7:156e:ae80/122"],
  ["node-b", 873n, 1n, 172678466908774047n, "fd00:10:244:0:995e:89a6:1d37:a7c0/122"],
  ["node1", 666n, 2n, 13588661266676378n, "fd00:10:244:0:c11:b42f:f17e:a680/122"],
  ["worker-1", 905n, 1n, 172288799401768940n, "fd00:10:244:0:9905:f003:c7bd:fb00/122"],
  ["ip-10-0-1-23.ec2.internal", 33n, 1n, 276599505086793138n, "fd00:10:244:0:f5ab:7233:6fd1:6c80/122"],
  ["kind-worker", 650n, 2n, 99559753673736842n, "fd00:10:244:0:586d:4461:e980:a280/122"],
] as const) {
  test(`${host} begins where Calico lets it begin`, () => {
    assert.equal(startIndex(host, pool("10.244.0.0/16", 26), unused), middle);
    assert.equal(startIndex(host, pool("10.10.0.0/24", 26), unused), small);
    assert.equal(startIndex(host, pool("fd00:10:244::/64", 122), unused), v6);
    assert.equal(candidateBlocks(pool("fd00:10:244::/64", 122), host, unused).next().value, v6Block);
  });
}

test("a number of blocks of more than 64 bits takes two words", () => {
  const wide = pool("fd00:10:244::/48", 122);
  assert.equal(startIndex("node-a", wide, unused), 8048964676600792667650n);
  assert.equal(candidateBlocks(wide, "node-a", unused).next().value, "fd00:10:244:6d15:74ba:80e:4835:8080/122");
});

test("all blocks are tried once, from the start to the end and on from the beginning", () => {
  assert.deepEqual(
    [...candidateBlocks(pool("10.10.0.0/24", 26), "node-a", unused)],
    ["10.10.0.128/26", "10.10.0.192/26", "10.10.0.0/26", "10.10.0.64/26"],
  );
});

test("a pool of one block starts there, a pool smaller than a block has none", () => {
  assert.deepEqual([...candidateBlocks(pool("10.10.0.0/26", 26), "node-a", unused)], ["10.10.0.0/26"]);
  assert.deepEqual([...candidateBlocks(pool("10.10.0.0/28", 26), "node-a", unused)], []);
});

test("blocks of one address begin where chance has it; a draw beyond the last block is repeated", () => {
  const [tooHigh, second] = [7, 2];
  assert.deepEqual(
    [...candidateBlocks(pool("10.10.0.0/30", 32), "node-a", drawing(tooHigh, 0, second, 0))],
    ["10.10.0.2/32", "10.10.0.3/32", "10.10.0.0/32", "10.10.0.1/32"],
  );
});

test("places of blocks in a pool", () => {
  const ours = pool("10.244.0.0/16", 26);
  assert.equal(blockAtIndex(ours, 698n), "10.244.174.128/26");
  assert.equal(indexOfBlock(ours, "10.244.174.128/26" as BlockCidr), 698n);
  for (const other of ["10.244.174.128/27", "10.245.0.0/26", "10.243.255.192/26", "fd00::/122"]) {
    assert.equal(indexOfBlock(ours, other as BlockCidr), undefined, other);
  }
});

test("property: a walk visits every block of a pool exactly once", () => {
  fc.assert(
    fc.property(fc.string(), fc.nat(6), (host, bits) => {
      const ours = pool(canonicalCidr(`10.10.0.0/${26 - bits}`) ?? "", 26);
      const seen = [...candidateBlocks(ours, host, unused)].map((block) => indexOfBlock(ours, block));
      assert.equal(seen.length, Number(blockCount(ours)));
      assert.equal(new Set(seen).size, seen.length);
    }),
  );
});
