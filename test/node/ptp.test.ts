// Pods of a real kubelet under the ptp plugin, which needs a gateway per address: many at once, and through what can happen to an agent.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { CattailNode, podNames } from "./cattail-node.ts";
import { addressesOf, assertPing } from "./pods.ts";

let node: CattailNode;

before(async () => {
  node = await CattailNode.start({
    pools: ["10.90.0.0/20"],
    reserved: ["10.90.0.1/32"],
    mainPlugin: { type: "ptp" },
    ipam: { routes: [{ dst: "0.0.0.0/0" }], cattail: { gateway: "first" } },
  });
});
after(() => node?.stop());
afterEach(async (t) => {
  if (!t.passed) t.diagnostic(await node.machine.lastWords());
});

test("given 60 pods at once, then all run with addresses of their own, ping each other, and give all of them back", async (t) => {
  const names = podNames(60);
  const began = performance.now();
  await node.createPods(names);
  const running = await node.pods.running(names);
  const created = performance.now();
  await node.assertAddressed(running);
  await assertPing(node.machine, running);
  const deleted = performance.now();
  await node.pods.delete(names);
  await node.pods.gone(names);
  await node.allReturned();
  const times = [created - began, performance.now() - deleted].map((ms) => `${(ms / 1000).toFixed(1)} s`);
  t.diagnostic(`60 pods ran after ${times[0]} and were gone, addresses returned, after ${times[1]}`);
});

test("given pods that start and end, when the agent is killed, then kubelet recovers and no address is lost or held twice", async () => {
  const [first, second] = [podNames(20, "first"), podNames(40, "second")];
  await node.createPods(first);
  await node.pods.running(first);
  await Promise.all([node.pods.delete(first), node.createPods(second)]);
  await node.pods.running(second.slice(0, 1));
  await node.agent.kill("SIGKILL");
  await node.agent.start();
  const running = await node.pods.running(second);
  await node.pods.gone(first);
  await node.assertAddressed(running);
  await node.pods.delete(second);
  await node.pods.gone(second);
  await node.allReturned();
});

test("given no agent, when pods are deleted, then they are gone, and their addresses return when the agent is back", async () => {
  const names = podNames(10, "orphan");
  await node.createPods(names);
  await node.assertAddressed(await node.pods.running(names));
  await node.agent.kill("SIGTERM");
  try {
    await node.pods.delete(names);
    await node.pods.gone(names);
    // Kubelet may give up older sandboxes again meanwhile.
    const waiting = new Set(await node.spooled());
    assert.deepEqual(
      names.filter((name) => !waiting.has(name)),
      [],
    );
  } finally {
    await node.agent.start();
  }
  await node.allReturned();
  assert.deepEqual(await node.spooled(), []);
  await node.createPods(["next"]);
  assert.equal((await node.pods.running(["next"])).flatMap(addressesOf).length, 1);
  await node.pods.delete(["next"]);
  await node.pods.gone(["next"]);
});

test("given pods that start, when kubelet and containerd are killed, then all run in the end and each address has one holder", async () => {
  const [before, meanwhile] = [podNames(10, "before"), podNames(20, "meanwhile")];
  await node.createPods(before);
  const addressed = (await node.pods.running(before)).flatMap(addressesOf);
  await node.createPods(meanwhile);
  await node.pods.running(meanwhile.slice(0, 1));
  await node.restartRuntime();
  const running = await node.pods.running([...before, ...meanwhile]);
  assert.deepEqual(running.slice(0, before.length).flatMap(addressesOf), addressed);
  await node.eventuallyAddressed(running);
  await assertPing(node.machine, running);
  await node.pods.delete([...before, ...meanwhile]);
  await node.pods.gone([...before, ...meanwhile]);
  await node.allReturned();
});

test("given a container that is no pod's, then it is served as well, and its address returns", async () => {
  const said = await node.machine.runContainer("alone", ["ip", "-4", "-o", "addr", "show", "eth0"]);
  assert.match(said, / 10\.90\.\d+\.\d+\/20 /);
  await node.allReturned();
});
