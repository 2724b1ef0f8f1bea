import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalCidr, cidrAround, cidrOf, overlaps } from "../../shared/ip/cidr.ts";
import type { CidrText } from "../../shared/kinds.ts";
import { FreeSpace } from "./free-space.ts";

function cidr(text: string): CidrText {
  const canonical = canonicalCidr(text);
  assert.equal(canonical, text, `${text} is canonical`);
  return canonical as CidrText;
}

test("given an empty pool, when a block is looked for from an index, then it is the one at that index", () => {
  const space = new FreeSpace();
  assert.deepEqual(space.firstFree(cidr("10.0.0.0/24"), 26, 2n), { cidr: "10.0.0.128/26", index: 2n });
  assert.deepEqual(space.firstFree(cidr("fd00::/64"), 122, 1n << 57n), {
    cidr: "fd00::8000:0:0:0/122",
    index: 1n << 57n,
  });
});

test("given the last block taken, when looking from there, then the search goes around", () => {
  const space = new FreeSpace();
  space.add(cidr("10.0.0.192/26"));
  assert.equal(space.firstFree(cidr("10.0.0.0/24"), 26, 3n)?.cidr, "10.0.0.0/26");
});

test("given every block taken, then there is none; when one is removed, then it is found from anywhere", () => {
  const space = new FreeSpace();
  for (const last of [0, 64, 128, 192]) space.add(cidr(`10.0.0.${last}/26`));
  assert.equal(space.firstFree(cidr("10.0.0.0/24"), 26, 0n), undefined);
  space.remove(cidr("10.0.0.64/26"));
  assert.equal(space.firstFree(cidr("10.0.0.0/24"), 26, 3n)?.cidr, "10.0.0.64/26");
});

test("given blocks of other sizes, then a block that overlaps one of them is not free", () => {
  const space = new FreeSpace();
  space.add(cidr("10.0.0.3/32"));
  space.add(cidr("10.0.0.128/25"));
  assert.equal(space.firstFree(cidr("10.0.0.0/24"), 26, 0n)?.cidr, "10.0.0.64/26");
  assert.equal(space.firstFree(cidr("10.0.0.160/27"), 28, 0n), undefined);
});

test("property: the block found is the first one that overlaps nothing, for any ranges of any sizes added and removed", () => {
  const range = fc
    .record({ value: fc.integer({ min: 0, max: 255 }), prefix: fc.integer({ min: 23, max: 32 }) })
    .map(({ value, prefix }) => cidrAround({ family: 4, value: 0x0a000000n + BigInt(value) }, prefix).text);
  const input = fc.record({
    added: fc.array(range, { maxLength: 40 }),
    removed: fc.array(fc.nat(), { maxLength: 20 }),
    poolPrefix: fc.integer({ min: 22, max: 28 }),
    size: fc.integer({ min: 28, max: 32 }),
    from: fc.nat(),
  });
  fc.assert(
    fc.property(input, ({ added, removed, poolPrefix, size, from }) => {
      const space = new FreeSpace();
      const taken = [...added];
      for (const one of added) space.add(one);
      for (const index of removed) {
        const [one] = taken.splice(index % Math.max(taken.length, 1), 1);
        if (one !== undefined) space.remove(one);
      }
      const count = 1 << (size - poolPrefix);
      const start = from % count;
      const candidates = Array.from({ length: count }, (_, i) => BigInt((start + i) % count)).map((index) => ({
        index,
        cidr: cidrAround({ family: 4, value: 0x0a000000n + (index << BigInt(32 - size)) }, size).text,
      }));
      const expected = candidates.find((candidate) => !taken.some((one) => overlaps(one, candidate.cidr)));
      assert.deepEqual(space.firstFree(cidr(`10.0.0.0/${poolPrefix}`), size, BigInt(start)), expected);
    }),
  );
});

test("a search in a full pool of 65,536 blocks with one hole takes a walk, not a scan", () => {
  const space = new FreeSpace();
  const pool = cidr("10.0.0.0/10");
  const block = (index: number) => cidrAround({ family: 4, value: cidrOf(pool).base + BigInt(index * 64) }, 26).text;
  for (let index = 0; index < 65_536; index++) if (index !== 40_000) space.add(block(index));
  for (let i = 0; i < 1000; i++) {
    const before = space.steps;
    assert.equal(space.firstFree(pool, 26, BigInt(i * 50 + 1))?.index, 40_000n);
    assert.ok(space.steps - before <= 4 * 32, `${space.steps - before} steps`);
  }
});

test("blocks scattered over an IPv6 pool cost a few steps each, and no more to find a free one when there are ten thousand", () => {
  const pool = cidr("2001:db8:1::/48");
  const step = 0x9e3779b97f4a7c15n; // spread evenly, with no pattern that a prefix could share
  const block = (index: number) => {
    const offset = ((BigInt(index + 1) * step) & ((1n << 74n) - 1n)) << 6n;
    return cidrAround({ family: 6, value: cidrOf(pool).base + offset }, 122).text;
  };
  const costs = [1, 10_000].map((count) => {
    const space = new FreeSpace();
    for (let index = 0; index < count; index++) space.add(block(index));
    const adding = space.steps / count;
    assert.equal(space.firstFree(pool, 122, 0n)?.index, 0n);
    return { adding, finding: space.steps - adding * count };
  });
  const [one, many] = costs;
  assert.ok((many?.adding ?? 0) <= 3 * 14 + 4, `${many?.adding} steps to add one of 10,000`);
  assert.ok(
    (many?.finding ?? 0) <= (one?.finding ?? 0) + 16,
    `${one?.finding} steps in 1 block, ${many?.finding} in 10,000`,
  );
});
