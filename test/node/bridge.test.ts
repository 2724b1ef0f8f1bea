// Pods of a real kubelet under the bridge plugin, with addresses of both families and no gateway.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CattailNode, podNames } from "./cattail-node.ts";
import { addressesOf, assertPing } from "./pods.ts";

let node: CattailNode;

before(async () => {
  node = await CattailNode.start({
    pools: ["10.90.0.0/20", "fd00:90::/112"],
    reserved: [],
    mainPlugin: { type: "bridge", bridge: "pods0" },
    ipam: { assign_ipv6: true },
  });
});
after(() => node?.stop());

test("given pods of both families, then each has two addresses, they ping each other, and give all of them back", async () => {
  const names = podNames(30);
  await node.createPods(names);
  const running = await node.pods.running(names);
  for (const pod of running) {
    const [four, six, ...others] = addressesOf(pod);
    assert.ok(four?.startsWith("10.90.") && six?.startsWith("fd00:90::"), `${four} ${six}`);
    assert.deepEqual(others, []);
  }
  await node.assertAddressed(running);
  await assertPing(node.machine, running);
  await node.pods.delete(names);
  await node.pods.gone(names);
  await node.allReturned();
});
