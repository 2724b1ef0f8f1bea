// A pod's address through the whole chain: executable, agent, server, API server. Declared for any API server (api.ts).
// Holds the promises that a user of the product would check first; faults of the network and the disk are left to others.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Allocations, allocations } from "./allocations.ts";
import type { TestApi } from "./api.ts";
import { Cluster, calicosDurability, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { inParallel } from "./pool-of-work.ts";
import { type CniOutcome, newSandbox, type Runtime, type Sandbox } from "./runtime.ts";
import { settled } from "./settled.ts";

const namespace = "demo";
const nodes = ["node-a", "node-b", "node-c"];
const dualStack = { assign_ipv4: "true", assign_ipv6: "true" };
/** Executables at a time: more would measure the machine. */
const atATime = 12;

interface Pod {
  readonly runtime: Runtime;
  sandbox: Sandbox;
}

export function chainTests(start: () => Promise<TestApi>): void {
  describe("the whole chain", { timeout: 280_000 }, () => {
    let api: TestApi;
    let cluster: Cluster;

    before(async () => {
      api = await start();
      const pools = [ipPool("pool-v4", "10.10.0.0/16"), ipPool("pool-v6", "fd00:10:10::/48")];
      const agentFlags = calicosDurability;
      const options = { api, folder: await temporaryFolder("ct"), nodes, pools, namespace, agentFlags };
      await prepare(options);
      cluster = await Cluster.start(options);
    });

    after(async () => {
      await cluster?.stop();
      await api?.stop();
    });

    function podsOn(node: string, count: number, ipam = dualStack): Pod[] {
      const runtime = cluster.agent(node).runtime(ipam);
      return Array.from({ length: count }, (_, index) => ({
        runtime,
        sandbox: newSandbox(namespace, `${node}-${index}`),
      }));
    }

    async function addAll(pods: readonly Pod[]): Promise<string[]> {
      const outcomes = await inParallel(pods, atATime, ({ runtime, sandbox }) => runtime.add(sandbox));
      return outcomes.flatMap(addressesOf);
    }

    async function deleteAll(pods: readonly Pod[]): Promise<void> {
      for (const outcome of await inParallel(pods, atATime, ({ runtime, sandbox }) => runtime.del(sandbox)))
        addressesOf(outcome);
    }

    function seen(): Promise<Allocations> {
      return allocations(api.admin);
    }

    test("given 200 pods on each of 3 nodes, then addresses are distinct while held, no ADD reads the API, and DEL returns all", async () => {
      // Every node has claimed its first blocks before: what an ADD costs then is the write of its block and its handle.
      const first = nodes.flatMap((node) => podsOn(node, 1));
      await addAll(first);
      const mark = await api.mark();
      const pods = nodes.flatMap((node) => podsOn(node, 200));
      const addresses = await addAll(pods);
      assert.equal(addresses.length, 2 * pods.length);
      assert.equal(new Set(addresses).size, addresses.length);
      const requests = (await api.requests(mark)).filter(({ client }) => client.startsWith("cattail-"));
      const reads = requests.filter(
        ({ verb, client }) => (verb === "get" || verb === "list") && !client.startsWith("cattail-test"),
      );
      assert.deepEqual(reads, []);
      const held = await seen();
      for (const address of addresses) assert.ok(held.owners.has(address), address);

      await deleteAll([...pods, ...first]);
      await settled(async () => assert.deepEqual(await seen(), { owners: new Map(), handles: [] }));
    });

    test("given 100 ADDs under way, when the agent is killed and kubelet retries, then no address is held twice and none is left", async () => {
      const agent = cluster.agent("node-a");
      const pods = podsOn("node-a", 100);
      const attempts = inParallel(pods, 100, ({ runtime, sandbox }) => runtime.add(sandbox));
      await api.mark();
      await someAllocated(seen, 10);
      await agent.kill("SIGKILL");
      await agent.start();
      const outcomes = await attempts;
      const held = new Map<string, Pod>();
      await inParallel([...pods.entries()], atATime, async ([index, pod]) => {
        const outcome = outcomes[index];
        assert.ok(outcome);
        for (const address of await retryAsKubelet(pod, outcome)) {
          assert.ok(!held.has(address), `${address} is held twice`);
          held.set(address, pod);
        }
      });
      assert.equal(held.size, 200);
      const { owners } = await seen();
      for (const [address, { sandbox }] of held)
        assert.equal(owners.get(address), `k8s-pod-network.${sandbox.containerId}`);

      await deleteAll(pods);
      await settled(async () => assert.deepEqual(await seen(), { owners: new Map(), handles: [] }));
    });

    test("given churn on three nodes, when the server is killed and comes back, then everybody reconnects and agrees with the API", async () => {
      const pods = nodes.flatMap((node) => podsOn(node, 40));
      const kept = pods.filter((_, index) => index % 2 === 0);
      const churn = inParallel(pods, atATime, async (pod) => {
        const addresses = await retryAsKubelet(pod, await pod.runtime.add(pod.sandbox));
        if (kept.includes(pod)) return addresses;
        addressesOf(await pod.runtime.del(pod.sandbox));
        return [];
      });
      await someAllocated(seen, 10);
      await cluster.server.kill("SIGKILL");
      await cluster.server.start();
      const live = (await churn).flat();
      await settled(async () => {
        const { owners } = await seen();
        assert.deepEqual([...owners.keys()].sort(), [...live].sort());
        for (const node of nodes) await cluster.agent(node).ready();
        await cluster.agreesWithApi();
      });

      await deleteAll(kept);
      await settled(async () => assert.deepEqual(await seen(), { owners: new Map(), handles: [] }));
    });
  });
}

function addressesOf(outcome: CniOutcome): readonly string[] {
  assert.ok(outcome.ok, JSON.stringify(outcome));
  return outcome.addresses;
}

/** After a failed ADD kubelet's runtime gives up the sandbox (DEL) and makes a new one under a new id. */
async function retryAsKubelet(pod: Pod, first: CniOutcome): Promise<readonly string[]> {
  let outcome = first;
  for (let tries = 0; tries < 10 && !outcome.ok; tries++) {
    addressesOf(await pod.runtime.del(pod.sandbox));
    pod.sandbox = newSandbox(pod.sandbox.namespace, pod.sandbox.pod);
    outcome = await pod.runtime.add(pod.sandbox);
  }
  return addressesOf(outcome);
}

async function someAllocated(seen: () => Promise<Allocations>, count: number): Promise<void> {
  while ((await seen()).owners.size < count);
}
