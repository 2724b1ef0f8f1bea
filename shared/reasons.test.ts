// What the error sentence promises whatever is put into it.
import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { explain, maxMessageChars, reasons, shortened } from "./reasons.ts";

test("an explanation says what, for whom, why, the reason, the request and the next step", () => {
  assert.equal(
    explain({
      what: "no address",
      object: "pod shop/cart-7d9f",
      why: "pool blue-ipv4 has 0 of 65536 addresses free",
      reason: "PoolExhausted",
      request: "7f3a91c2",
      next: "Run: kubectl cattail explain pod shop/cart-7d9f",
    }),
    "no address for pod shop/cart-7d9f: pool blue-ipv4 has 0 of 65536 addresses free (reason PoolExhausted, request 7f3a91c2). " +
      "Run: kubectl cattail explain pod shop/cart-7d9f",
  );
});

test("without object and request nothing is left of them; without a better next step there is the reason's own", () => {
  assert.equal(
    explain({ what: "cannot read", why: "403", reason: "Forbidden" }),
    "cannot read: 403 (reason Forbidden). Apply the ClusterRole of this version of the chart",
  );
});

test("every reason has a next step", () => {
  for (const reason of reasons) assert.match(explain({ what: "x", why: "y", reason }), /\)\. [A-Z]\w+ /);
});

test("a cause that is too long is shortened, and what to do still stands at the end", () => {
  const text = explain({ what: "w", object: "o", why: "y".repeat(5000), reason: "Internal", next: "Do this" });
  assert.equal(text.length, maxMessageChars);
  assert.match(text, /…\(reason Internal\)\. Do this$|… \(reason Internal\)\. Do this$/);
});

test("whatever goes in, the sentence is bounded and names reason and request", () => {
  const word = fc.string({ maxLength: 1000, unit: "binary" });
  const request = fc.stringMatching(/^[0-9a-f]{8}$/);
  fc.assert(
    fc.property(word, word, word, request, word, fc.constantFrom(...reasons), (what, object, why, id, next, reason) => {
      const text = explain({ what, object, why, reason, request: id, next });
      assert.ok(text.length <= maxMessageChars);
      assert.ok(text.includes(`(reason ${reason}, request ${id})`));
    }),
  );
});

test("a cut leaves no half of a surrogate pair", () => {
  assert.equal(shortened("ab😀cd", 4), "ab…");
  assert.equal(shortened("ab😀", 4), "ab😀");
});
