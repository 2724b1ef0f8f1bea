import assert from "node:assert/strict";
import { isIPv4, isIPv6 } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalAddress, parseAddress, printAddress, unmapped } from "./address.ts";

/** As Go's netip.ParseAddr and Addr.String have it; undefined: refused. */
const vectors: readonly (readonly [text: string, canonical: string | undefined])[] = [
  ["10.244.0.7", "10.244.0.7"],
  ["0.0.0.0", "0.0.0.0"],
  ["255.255.255.255", "255.255.255.255"],
  ["::", "::"],
  ["::1", "::1"],
  ["1::", "1::"],
  ["FD00:10:244:0:0:0:0:40", "fd00:10:244::40"],
  ["2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"],
  ["2001:0:0:1:0:0:0:1", "2001:0:0:1::1"],
  ["2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"],
  ["1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"],
  ["::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"],
  ["::ffff:10.0.0.7", "::ffff:10.0.0.7"],
  ["::ffff:a00:7", "::ffff:10.0.0.7"],
  ["::1.2.3.4", "::102:304"],
  ["1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"],
  ["", undefined],
  ["10.0.0", undefined],
  ["10.0.0.0.0", undefined],
  ["10.0.0.256", undefined],
  ["10.0.0.07", undefined],
  ["10.0.0.+7", undefined],
  [" 10.0.0.7", undefined],
  ["10.0.0.7\n", undefined],
  ["10.0.0.7/32", undefined],
  ["fe80::1%eth0", undefined],
  ["1::2::3", undefined],
  ["1:2:3:4:5:6:7::8", undefined],
  ["1:2:3:4:5:6:7:8:9", undefined],
  [":1", undefined],
  ["1:", undefined],
  [":::", undefined],
  ["00001::", undefined],
  ["g::", undefined],
  ["::ffff:10.0.0.07", undefined],
];

for (const [text, canonical] of vectors) {
  test(`${JSON.stringify(text)} is ${canonical ?? "refused"}`, () => assert.equal(canonicalAddress(text), canonical));
}

test("an IPv4-mapped address can be taken for the IPv4 address it means", () => {
  assert.deepEqual(unmapped({ family: 6, value: 0xffff_0a00_0007n }), { family: 4, value: 0x0a00_0007n });
  assert.deepEqual(unmapped({ family: 6, value: 7n }), { family: 6, value: 7n });
  assert.deepEqual(unmapped({ family: 4, value: 7n }), { family: 4, value: 7n });
});

/** Sparse values, so that runs of zeros of every length and place occur. */
const hextet = fc.oneof(fc.constant(0n), fc.bigInt({ min: 0n, max: 0xffffn }));
const value6 = fc
  .array(hextet, { minLength: 8, maxLength: 8 })
  .map((parts) => parts.reduce((value, part) => (value << 16n) | part, 0n));

test("property: printing and reading are each other's inverse", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 2n ** 32n - 1n }), (value) => {
      assert.deepEqual(parseAddress(printAddress(4, value)), { family: 4, value });
    }),
  );
  fc.assert(
    fc.property(value6, (value) => {
      const text = printAddress(6, value);
      assert.deepEqual(parseAddress(text), { family: 6, value });
      assert.equal(canonicalAddress(text.toUpperCase()), text);
    }),
  );
});

test("property: a text is accepted exactly if it is an address without zone", () => {
  const nearly = fc
    .array(fc.constantFrom(":", "::", ".", "0", "00", "1", "ffff", "255", "256", "g", "%1", " "), { maxLength: 18 })
    .map((parts) => parts.join(""));
  fc.assert(
    fc.property(fc.oneof(nearly, fc.ipV4(), fc.ipV6(), fc.string()), (text) => {
      const expected = (isIPv4(text) || isIPv6(text)) && !text.includes("%");
      assert.equal(parseAddress(text) !== undefined, expected);
    }),
    { numRuns: 2000 },
  );
});
