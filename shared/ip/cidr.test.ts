import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Address, CidrText } from "../kinds.ts";
import { bitsOf } from "./address.ts";
import {
  addressAt,
  blockOf,
  canonicalCidr,
  cidrAround,
  cidrOf,
  contains,
  familyOf,
  ordinalOf,
  overlaps,
  parseCidr,
  sizeOf,
} from "./cidr.ts";

const cidr = (text: string): CidrText => {
  const canonical = canonicalCidr(text);
  assert(canonical !== undefined, text);
  return canonical;
};

test("host bits are masked away and the text becomes canonical", () => {
  assert.deepEqual(parseCidr("10.244.0.77/26"), { family: 4, base: 0x0af4_0040n, prefix: 26, text: "10.244.0.64/26" });
  assert.equal(canonicalCidr("FD00:10:244:0::40/122"), "fd00:10:244::40/122");
  assert.equal(canonicalCidr("10.1.2.3/0"), "0.0.0.0/0");
  assert.equal(canonicalCidr("ffff::1/128"), "ffff::1/128");
});

test("what is no CIDR is refused", () => {
  for (const text of [
    "",
    "/",
    "10.0.0.0",
    "10.0.0.0/",
    "10.0.0.0/33",
    "10.0.0.0/026",
    "10.0.0.0/+8",
    "10.0.0.0/8 ",
    "10.0.0/8",
    "::/129",
    "fe80::%1/64",
    "10.0.0.0/8/8",
  ]) {
    assert.equal(parseCidr(text), undefined, text);
  }
});

test("containment is of one family, and a range contains itself", () => {
  assert(contains(cidr("10.0.0.0/8"), cidr("10.1.0.0/16")));
  assert(contains(cidr("10.0.0.0/8"), cidr("10.0.0.0/8")));
  assert(!contains(cidr("10.1.0.0/16"), cidr("10.0.0.0/8")));
  assert(!contains(cidr("0.0.0.0/0"), cidr("::/0")));
  assert(contains(cidr("fd00::/64"), "fd00::7" as Address));
  assert(!contains(cidr("fd00::/64"), "fd00:0:0:1::" as Address));
  assert(overlaps(cidr("10.1.0.0/16"), cidr("10.0.0.0/8")));
  assert(!overlaps(cidr("10.1.0.0/16"), cidr("10.2.0.0/16")));
});

test("addresses and ordinals of a block, network and broadcast address included", () => {
  const block = cidr("10.244.0.8/29");
  assert.equal(addressAt(block, 0), "10.244.0.8");
  assert.equal(addressAt(block, 7), "10.244.0.15");
  assert.equal(ordinalOf(block, "10.244.0.15" as Address), 7);
  assert.equal(ordinalOf(block, "10.244.0.16" as Address), undefined);
  assert.equal(ordinalOf(block, "10.244.0.7" as Address), undefined);
  assert.equal(ordinalOf(block, "::10" as Address), undefined);
  assert.throws(() => addressAt(block, 8), /no ordinal 8/);
  assert.throws(() => addressAt(block, -1), /no ordinal -1/);
});

test("the last block of the address space has all its addresses", () => {
  const block = cidr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122");
  assert.equal(addressAt(block, 63), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
  assert.equal(sizeOf(cidrOf(block)), 64n);
});

test("a text that was never checked is our mistake", () => {
  assert.throws(() => cidrOf("10.0.0.0" as CidrText), /is no CIDR/);
  assert.throws(() => blockOf("10.0.0" as Address, 26), /is no address/);
});

const anyAddress = fc.oneof(
  fc.bigInt({ min: 0n, max: 2n ** 32n - 1n }).map((value) => ({ family: 4 as const, value })),
  fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }).map((value) => ({ family: 6 as const, value })),
);

test("property: an address lies in its block, at the ordinal that gives it back", () => {
  fc.assert(
    fc.property(anyAddress, fc.nat(12), (address, hostBits) => {
      const text = addressAt(cidrAround(address, bitsOf(address.family)).text, 0);
      const block = blockOf(text, bitsOf(address.family) - hostBits);
      assert(contains(block, text));
      assert.equal(familyOf(block), address.family);
      const ordinal = ordinalOf(block, text);
      assert(ordinal !== undefined && ordinal < 2 ** hostBits);
      assert.equal(addressAt(block, ordinal), text);
    }),
  );
});

test("property: a range contains another exactly if it contains the other's first and last address", () => {
  const range = fc
    .tuple(fc.bigInt({ min: 0n, max: 255n }), fc.nat(8))
    .map(([value, bits]) => cidrAround({ family: 4, value }, 32 - bits).text);
  fc.assert(
    fc.property(range, range, (outer, inner) => {
      const ends = [0, Number(sizeOf(cidrOf(inner))) - 1].map((ordinal) => addressAt(inner, ordinal));
      assert.equal(
        contains(outer, inner),
        ends.every((address) => contains(outer, address)),
      );
      assert.equal(
        overlaps(outer, inner),
        ends.some((address) => contains(outer, address)) || contains(inner, addressAt(outer, 0)),
      );
    }),
  );
});
