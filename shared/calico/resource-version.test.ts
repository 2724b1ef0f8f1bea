import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ResourceVersion } from "../kinds.ts";
import { compareVersions } from "./resource-version.ts";

const compare = (a: string, b: string) => compareVersions(a as ResourceVersion, b as ResourceVersion);

test("a longer version is newer, equal lengths compare digit by digit", () => {
  assert.equal(compare("9", "10"), -1);
  assert.equal(compare("1000", "999"), 1);
  assert.equal(compare("0", "1"), -1);
  assert.equal(compare("340282366920938463463374607431768211455", "340282366920938463463374607431768211454"), 1);
});

test("what is malformed equals itself and is otherwise unordered", () => {
  for (const odd of ["", "01", "1a", "-1", " 1", "1".repeat(40)]) {
    assert.equal(compare(odd, "5"), undefined, odd);
    assert.equal(compare("5", odd), undefined, odd);
    assert.equal(compare(odd, odd), 0, odd);
  }
});

test("property: the order is that of the numbers", () => {
  const version = fc.bigInt({ min: 0n, max: 2n ** 128n - 1n });
  fc.assert(
    fc.property(version, version, (a, b) => {
      assert.equal(compare(String(a), String(b)), a < b ? -1 : a > b ? 1 : 0);
    }),
  );
});
