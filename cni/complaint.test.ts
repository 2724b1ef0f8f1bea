// The error object: bounded, one document, and never in words that containerd takes for success.
import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { maxDetailsChars, maxMessageChars } from "../shared/reasons.ts";
import { complaint, errorDocument, refusalOf } from "./complaint.ts";

const subject = {
  command: "ADD",
  podNamespace: "shop",
  podName: "cart",
  containerId: "c0ffee0123456789",
  request: "7f3a91c2",
};

test("the sentence names the pod, or else the container, and the request", () => {
  const found = complaint(4, "BadRequest", "CNI_PATH not set", { next: "Set it" });
  const tail = "CNI_PATH not set (reason BadRequest, request 7f3a91c2). Set it";
  assert.equal(refusalOf(found, subject).msg, `no address for pod shop/cart: ${tail}`);
  assert.equal(refusalOf(found, { ...subject, podName: "" }).msg, `no address for container c0ffee012345: ${tail}`);
  assert.equal(
    refusalOf(found, { ...subject, command: "GC", podName: "", containerId: "" }).msg,
    `nothing collected: ${tail}`,
  );
});

test("whatever the agent says, the object is one, bounded, and free of what would end a DEL's retries", () => {
  const phrase = fc.constantFrom("not found", "Not Found", "no such file or directory", "", "x".repeat(700));
  const text = fc.tuple(fc.string({ unit: "binary" }), phrase, fc.string()).map((parts) => parts.join(" "));
  fc.assert(
    fc.property(text, text, fc.integer({ min: 1, max: 999 }), (msg, details, code) => {
      const printed = errorDocument("1.0.0", { ok: false, code, msg, details });
      const error = JSON.parse(printed);
      assert.ok(error.code === code && error.msg.length <= maxMessageChars);
      assert.ok((error.details ?? "").length <= maxDetailsChars);
      assert.doesNotMatch(printed, /not found|no such file or directory/i);
    }),
  );
});

test("the object is indented as Calico's, and empty details are left out", () => {
  assert.equal(
    errorDocument("1.0.0", { ok: false, code: 11, msg: "m", details: "" }),
    '{\n    "cniVersion": "1.0.0",\n    "code": 11,\n    "msg": "m"\n}',
  );
});
