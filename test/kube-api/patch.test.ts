// Patches by the examples of their specifications, and by what must hold for any document.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { jsonPatch, mergePatch, strategicMergePatch } from "./patch.ts";
import { Refusal } from "./status.ts";

const document = fc.object({
  key: fc.constantFrom("a", "b", "c", "__proto__"),
  values: [fc.nat(3), fc.constant(null)],
  maxDepth: 3,
});

describe("merge patch", () => {
  test("follows the table of RFC 7386, appendix A", () => {
    const table: [unknown, unknown, unknown][] = [
      [{ a: "b" }, { a: "c" }, { a: "c" }],
      [{ a: "b" }, { b: "c" }, { a: "b", b: "c" }],
      [{ a: "b" }, { a: null }, {}],
      [{ a: "b", b: "c" }, { a: null }, { b: "c" }],
      [{ a: ["b"] }, { a: "c" }, { a: "c" }],
      [{ a: "c" }, { a: ["b"] }, { a: ["b"] }],
      [{ a: { b: "c" } }, { a: { b: "d", c: null } }, { a: { b: "d" } }],
      [{ a: [{ b: "c" }] }, { a: [1] }, { a: [1] }],
      [
        ["a", "b"],
        ["c", "d"],
        ["c", "d"],
      ],
      [{ a: "b" }, ["c"], ["c"]],
      [{ a: "foo" }, null, null],
      [{ e: null }, { a: 1 }, { e: null, a: 1 }],
      [[1, 2], { a: "b", c: null }, { a: "b" }],
      [{}, { a: { bb: { ccc: null } } }, { a: { bb: {} } }],
    ];
    for (const [target, patch, result] of table) assert.deepEqual(mergePatch(target, patch), result);
  });

  test("applied twice is applied once, and changes neither of its inputs", () => {
    fc.assert(
      fc.property(document, document, (target, patch) => {
        const before = JSON.stringify([target, patch]);
        const once = mergePatch(target, patch);
        assert.deepEqual(mergePatch(once, patch), once);
        assert.equal(JSON.stringify([target, patch]), before);
      }),
    );
  });
});

describe("JSON patch", () => {
  test("follows the examples of RFC 6902, appendix A", () => {
    const apply = (target: unknown, ...operations: unknown[]): unknown => jsonPatch(target, operations);
    assert.deepEqual(apply({ foo: "bar" }, { op: "add", path: "/baz", value: "qux" }), { baz: "qux", foo: "bar" });
    assert.deepEqual(apply({ foo: ["bar", "baz"] }, { op: "add", path: "/foo/1", value: "qux" }), {
      foo: ["bar", "qux", "baz"],
    });
    assert.deepEqual(apply({ foo: ["bar"] }, { op: "add", path: "/foo/-", value: ["x"] }), { foo: ["bar", ["x"]] });
    assert.deepEqual(apply({ baz: "qux", foo: "bar" }, { op: "remove", path: "/baz" }), { foo: "bar" });
    assert.deepEqual(apply({ foo: ["a", "b", "c"] }, { op: "remove", path: "/foo/1" }), { foo: ["a", "c"] });
    assert.deepEqual(apply({ foo: "bar" }, { op: "replace", path: "/foo", value: 1 }), { foo: 1 });
    assert.deepEqual(apply({ foo: { a: 1 }, bar: {} }, { op: "move", from: "/foo/a", path: "/bar/b" }), {
      foo: {},
      bar: { b: 1 },
    });
    assert.deepEqual(apply({ foo: ["a", "b", "c"] }, { op: "move", from: "/foo/0", path: "/foo/2" }), {
      foo: ["b", "c", "a"],
    });
    assert.deepEqual(apply({ foo: 1 }, { op: "copy", from: "/foo", path: "/bar" }), { foo: 1, bar: 1 });
    assert.deepEqual(apply({ "/": 9, "~1": 10 }, { op: "test", path: "/~01", value: 10 }), { "/": 9, "~1": 10 });
    assert.deepEqual(apply({ a: 2n ** 60n }, { op: "test", path: "/a", value: 2n ** 60n }), { a: 2n ** 60n });
  });

  test("refuses what cannot be applied", () => {
    const target = { foo: ["a"], bar: 1 };
    for (const operation of [
      { op: "test", path: "/bar", value: "1" },
      { op: "remove", path: "/none" },
      { op: "replace", path: "/none", value: 1 },
      { op: "add", path: "/none/deep", value: 1 },
      { op: "add", path: "/foo/2", value: 1 },
      { op: "add", path: "/foo/01", value: 1 },
      { op: "move", from: "/none", path: "/bar" },
      { op: "unknown", path: "/bar" },
      { op: "add", path: "bar", value: 1 },
    ]) {
      assert.throws(
        () => jsonPatch(target, [operation]),
        (error) => error instanceof Refusal && error.code === 422,
        JSON.stringify(operation),
      );
    }
  });
});

describe("strategic merge patch", () => {
  test("merges lists of built-in types by their key, and others as a whole", () => {
    const pod = {
      spec: {
        containers: [
          { name: "a", image: "1" },
          { name: "b", image: "1" },
        ],
        args: ["x"],
      },
    };
    const patch = {
      spec: { containers: [{ name: "b", image: "2" }, { name: "c" }, { name: "a", $patch: "delete" }], args: ["y"] },
    };
    assert.deepEqual(strategicMergePatch(pod, patch), {
      spec: { containers: [{ name: "b", image: "2" }, { name: "c" }], args: ["y"] },
    });
    const finalizers = { metadata: { finalizers: ["a", "b"] } };
    assert.deepEqual(strategicMergePatch(finalizers, { metadata: { finalizers: ["c"] } }), {
      metadata: { finalizers: ["a", "b", "c"] },
    });
    const fewer = { metadata: { "$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b"] } };
    assert.deepEqual(strategicMergePatch(finalizers, fewer), { metadata: { finalizers: ["b"] } });
  });
});
