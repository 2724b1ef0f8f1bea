import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LineSplitter } from "./line-splitter.ts";

function splitAll(splitter: LineSplitter, chunks: readonly Uint8Array[]): string[] {
  return chunks.flatMap((chunk) => splitter.push(chunk).lines.map((line) => Buffer.from(line).toString()));
}

test("property: however a text is cut into chunks, its lines are the same, and an unfinished one is not among them", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 60 }), fc.array(fc.nat({ max: 60 })), (text, cuts) => {
      const bytes = Buffer.from(text);
      const places = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
      const chunks = places.slice(1).map((end, i) => bytes.subarray(places[i], end));
      assert.deepEqual(splitAll(new LineSplitter(), chunks), bytes.toString().split("\n").slice(0, -1));
    }),
  );
});

test("a line of exactly the limit is a line, one byte more is too long, finished or not", () => {
  const line = (length: number, end = "\n") => Buffer.from("x".repeat(length) + end);
  assert.deepEqual(new LineSplitter(4).push(line(4)), { lines: [line(4, "")], tooLong: false });
  assert.equal(new LineSplitter(4).push(line(5)).tooLong, true);
  assert.equal(new LineSplitter(4).push(line(5, "")).tooLong, true);
  const splitter = new LineSplitter(4);
  assert.equal(splitter.push(line(3, "")).tooLong, false);
  assert.equal(splitter.push(line(2, "")).tooLong, true);
});

test("lines before one that is too long are given out", () => {
  const { lines, tooLong } = new LineSplitter(4).push(Buffer.from("ok\ntoo long\n"));
  assert.deepEqual([lines.length, tooLong], [1, true]);
});
