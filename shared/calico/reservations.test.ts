import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { addressAt, cidrAround, cidrOf, sizeOf } from "../ip/cidr.ts";
import type { Address, BlockCidr, CidrText } from "../kinds.ts";
import { reservationFilter } from "./reservations.ts";

const reserving = (...cidrs: string[]) => reservationFilter(cidrs.map((cidr) => ({ cidrs: [cidr as CidrText] })));
const block = "10.244.0.8/29" as BlockCidr;

test("without reservations nothing is reserved", () => {
  const filter = reserving();
  assert(!filter.reserves("10.244.0.8" as Address));
  assert(!filter.reservesAllOf(block));
});

test("an address inside any reservation is reserved, at its ordinal too", () => {
  const filter = reserving("10.244.0.10/31", "10.244.0.15/32", "fd00::/126");
  const isReserved = filter.ordinalsOf(block);
  assert.deepEqual([0, 1, 2, 3, 4, 5, 6, 7].filter(isReserved), [2, 3, 7]);
  assert(filter.reserves("fd00::3" as Address));
  assert(!filter.reserves("fd00::4" as Address));
  assert(!filter.reservesAllOf(block));
});

test("a block is wholly reserved by one larger range or by parts that add up", () => {
  assert(reserving("10.0.0.0/8").reservesAllOf(block));
  assert(reserving("10.244.0.8/29").reservesAllOf(block));
  assert(reserving("10.244.0.12/30", "10.244.0.8/30", "10.244.0.9/32").reservesAllOf(block));
  assert(!reserving("10.244.0.12/30", "10.244.0.8/31", "10.244.0.9/32").reservesAllOf(block));
  assert(!reserving("::/0").reservesAllOf(block));
});

/** Small ranges in one /24, so that they nest and touch. */
const range = fc
  .tuple(fc.nat(255), fc.nat(5))
  .map(([last, hostBits]) => cidrAround({ family: 4, value: 0x0af4_0000n + BigInt(last) }, 32 - hostBits).text);

test("property: every answer is what asking each address would give", () => {
  fc.assert(
    fc.property(fc.array(range, { maxLength: 12 }), range, (cidrs, candidate) => {
      const filter = reserving(...cidrs);
      const asked = candidate as BlockCidr;
      const isReserved = filter.ordinalsOf(asked);
      const inside = Array.from({ length: Number(sizeOf(cidrOf(candidate))) }, (_, ordinal) => {
        const value = cidrOf(candidate).base + BigInt(ordinal);
        const expected = cidrs
          .map(cidrOf)
          .some(({ base, prefix }) => value >> BigInt(32 - prefix) === base >> BigInt(32 - prefix));
        assert.equal(isReserved(ordinal), expected);
        assert.equal(filter.reserves(addressAt(candidate, ordinal)), expected);
        return expected;
      });
      assert.equal(filter.reservesAllOf(asked), inside.every(Boolean));
    }),
  );
});
