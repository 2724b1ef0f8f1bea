// Blocks in order against a plain sorted list.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cidrAround, cidrOf } from "../../shared/ip/cidr.ts";
import type { BlockCidr, CidrText } from "../../shared/kinds.ts";
import { OrderedBlocks } from "./ordered-blocks.ts";

const pool = "10.0.0.0/16" as CidrText;
const base = cidrOf(pool).base;

function block(index: number, prefix = 28): BlockCidr {
  return cidrAround({ family: 4, value: base + BigInt(index) * 16n }, prefix).text as BlockCidr;
}

function ascending(a: BlockCidr, b: BlockCidr): number {
  const [left, right] = [cidrOf(a), cidrOf(b)];
  return left.base === right.base ? left.prefix - right.prefix : left.base < right.base ? -1 : 1;
}

test("whatever is added and removed, a round passes what is left in order, from where it begins", () => {
  const change = fc.record({ index: fc.nat(4095), prefix: fc.constantFrom(27, 28), add: fc.boolean() });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 2500, size: "max" }), fc.nat(5000), (changes, from) => {
      const blocks = new OrderedBlocks();
      const model = new Set<BlockCidr>();
      for (const { index, prefix, add } of changes) {
        const cidr = block(index, prefix);
        if (add) blocks.add(cidr);
        else blocks.remove(cidr);
        if (add) model.add(cidr);
        else model.delete(cidr);
      }
      const start = base + BigInt(from) * 16n;
      const sorted = [...model].sort(ascending);
      const expected = [
        ...sorted.filter((cidr) => cidrOf(cidr).base >= start),
        ...sorted.filter((cidr) => cidrOf(cidr).base < start),
      ];
      assert.deepEqual([...blocks.around(pool, start)], expected);
    }),
    { numRuns: 60 },
  );
});

test("a round keeps to its range and family", () => {
  const blocks = new OrderedBlocks();
  for (const cidr of ["9.255.255.240/28", "10.0.0.0/28", "10.1.0.0/28", "fd00::/122"]) blocks.add(cidr as BlockCidr);
  assert.deepEqual([...blocks.around(pool, base)], ["10.0.0.0/28"]);
  assert.deepEqual([...blocks.around("fd00::/64" as CidrText, 0n)], ["fd00::/122"]);
});
