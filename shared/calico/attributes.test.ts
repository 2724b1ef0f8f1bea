import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeName, UnixMs } from "../kinds.ts";
import { legacyPodHandle, podAttributes, podHandle } from "./attributes.ts";
import { goTimeText, secondsText } from "./timestamps.ts";

const node = "worker-1" as NodeName;

test("a pod's allocation names pod and namespace, any other only node and time", () => {
  const nanos = 1_787_405_600_123_456_789n;
  assert.deepEqual(podAttributes({ node, nanos, podName: "web-0", podNamespace: "shop" }), {
    namespace: "shop",
    node: "worker-1",
    pod: "web-0",
    timestamp: "2026-08-22 13:33:20.123456789 +0000 UTC",
  });
  const bare = { node: "worker-1", timestamp: "2026-08-22 13:33:20.123456789 +0000 UTC" };
  assert.deepEqual(podAttributes({ node, nanos, podName: "", podNamespace: "shop" }), bare);
  assert.deepEqual(podAttributes({ node, nanos, podName: "web-0", podNamespace: "" }), bare);
});

for (const [nanos, text] of [
  [1_787_405_600_000_000_000n, "2026-08-22 13:33:20 +0000 UTC"],
  [1_787_405_600_500_000_000n, "2026-08-22 13:33:20.5 +0000 UTC"],
  [1_787_405_600_000_000_001n, "2026-08-22 13:33:20.000000001 +0000 UTC"],
  [1_787_405_600_120_030_000n, "2026-08-22 13:33:20.12003 +0000 UTC"],
] as const) {
  test(`Go prints ${text}`, () => assert.equal(goTimeText(nanos), text));
}

test("times in objects have whole seconds", () => {
  assert.equal(secondsText(1_787_405_600_999 as UnixMs), "2026-08-22T13:33:20Z");
});

test("handles of a sandbox", () => {
  assert.equal(podHandle("k8s-pod-network", "5f0c"), "k8s-pod-network.5f0c");
  assert.equal(legacyPodHandle("shop", "web-0", "5f0c"), "shop.web-0");
  assert.equal(legacyPodHandle("", "", "5f0c"), "5f0c");
});
