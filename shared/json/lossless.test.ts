import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isRawNumber, parseLossless, printLossless } from "./lossless.ts";

test("safe integers stay numbers, larger ones become bigint", () => {
  assert.deepEqual(parseLossless("[0,-1,9007199254740991]"), [0, -1, 9007199254740991]);
  assert.deepEqual(parseLossless("[9007199254740992,1787405600123456789]"), [9007199254740992n, 1787405600123456789n]);
  assert.deepEqual(parseLossless("-9223372036854775808"), -9223372036854775808n);
});

for (const text of ["1.0", "-0", "1e400", "1E5", "0.1000000000000000055", "123456789012345678901234567890"]) {
  test(`${text} is kept as it is written`, () => {
    const value = parseLossless(text);
    assert(isRawNumber(value));
    assert.equal(value.rawJSON, text);
    assert.equal(printLossless({ value }), `{"value":${text}}`);
  });
}

test("the key __proto__ is a key like any other", () => {
  const text = '{"__proto__":{"a":1.50},"a":null}';
  const value = parseLossless(text);
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(printLossless(value), text);
});

test("of a key that occurs twice the last value counts, with its own number", () => {
  assert.equal(printLossless(parseLossless('{"a":1.0,"a":2.00}')), '{"a":2.00}');
  assert.equal(printLossless(parseLossless('{"a":[1.0],"a":{"b":1.0}}')), '{"a":{"b":1.0}}');
});

test("what is no JSON is a SyntaxError", () => {
  for (const text of ["", "{", "01", "1.", "[1,]", "NaN"]) assert.throws(() => parseLossless(text), SyntaxError);
});

/** Documents as text, printed the way JSON.stringify would: only then can texts be compared. */
const integer = fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }).map(String);
const decimal = fc
  .tuple(integer, fc.stringMatching(/^[0-9]{0,25}$/), fc.option(fc.integer({ min: -500, max: 500 })))
  .map(([whole, part, exponent]) => `${whole}${part && `.${part}`}${exponent === null ? "" : `e${exponent}`}`);
const scalar = fc.oneof(
  integer,
  decimal,
  fc.string({ unit: "binary" }).map((text) => JSON.stringify(text)),
  fc.constantFrom("null", "true", "false", "-0"),
);
/** Keys that look like indexes would be moved to the front. */
const key = fc
  .oneof(fc.string(), fc.constantFrom("__proto__", "constructor", "toJSON"))
  .filter((text) => !/^[0-9]/.test(text));
const { document } = fc.letrec<{ document: string }>((tie) => ({
  document: fc.oneof(
    { maxDepth: 5 },
    scalar,
    fc.array(tie("document"), { maxLength: 5 }).map((items) => `[${items.join(",")}]`),
    fc
      .uniqueArray(fc.tuple(key, tie("document")), { maxLength: 5, selector: ([name]) => name })
      .map((entries) => `{${entries.map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`),
  ),
}));

test("property: any document is printed as it was read", () => {
  fc.assert(fc.property(document, (text) => assert.equal(printLossless(parseLossless(text)), text)));
});

test("property: reading what was printed gives the same value", () => {
  fc.assert(
    fc.property(document, (text) => {
      const value = parseLossless(text);
      assert.deepEqual(parseLossless(printLossless(value)), value);
    }),
  );
});
