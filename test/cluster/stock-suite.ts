// Pods that are answered from a node's stock: what that costs the API server, and that nobody else is needed. For any API server.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { allocations } from "./allocations.ts";
import type { TestApi } from "./api.ts";
import { Cluster, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { inParallel } from "./pool-of-work.ts";
import { newSandbox, type Sandbox } from "./runtime.ts";
import { settled } from "./settled.ts";

const namespace = "demo";
const node = "node-a";
const stock = `cattail-warm-${node}`;
const floor = 32;
/** Executables at a time: more would measure the machine. */
const atATime = 8;
/** What allocation is written to. */
const ipam = new Set(["ipamblocks", "blockaffinities", "ipamhandles"]);
const agentFlags = ["--commit", "async", "--handles", "lazy", "--flush-delay", "2s", "--warm-floor", String(floor)];

export function stockTests(start: () => Promise<TestApi>): void {
  describe("a node's stock", { timeout: 120_000 }, () => {
    let api: TestApi;
    let cluster: Cluster;

    before(async () => {
      api = await start();
      const pools = [ipPool("pool-v4", "10.10.0.0/16")];
      const options = { api, folder: await temporaryFolder("ct"), nodes: [node], pools, namespace, agentFlags };
      await prepare(options);
      cluster = await Cluster.start(options);
      await settled(async () => assert.equal(await held(stock), floor));
      // What is known of its acknowledgement is on disk a moment later.
      await settled(async () => assert.match(await metrics(), new RegExp(`state="warm"} ${floor}\\n`)));
    });

    after(async () => {
      await cluster?.stop();
      await api?.stop();
    });

    async function held(handle: string): Promise<number> {
      const { owners } = await allocations(api.admin);
      return [...owners.values()].filter((owner) => owner === handle).length;
    }

    async function metrics(): Promise<string> {
      return (await fetch(`${cluster.agent(node).url}/metrics`)).text();
    }

    async function add(sandboxes: readonly Sandbox[]): Promise<string[]> {
      const runtime = cluster.agent(node).runtime();
      const outcomes = await inParallel(sandboxes, atATime, (sandbox) => runtime.add(sandbox));
      return outcomes.flatMap((outcome) => {
        assert.ok(outcome.ok, JSON.stringify(outcome));
        return outcome.addresses;
      });
    }

    async function del(sandboxes: readonly Sandbox[]): Promise<void> {
      const runtime = cluster.agent(node).runtime();
      for (const outcome of await inParallel(sandboxes, atATime, (sandbox) => runtime.del(sandbox)))
        assert.ok(outcome.ok, JSON.stringify(outcome));
    }

    /** The API shows what lives, and the floor in stock. */
    async function endsWith(sandboxes: readonly Sandbox[], addresses: readonly string[]): Promise<void> {
      await settled(async () => {
        const { owners } = await allocations(api.admin);
        const pods = [...owners].filter(([, owner]) => owner !== stock);
        const expected = sandboxes.map(({ containerId }, index) => [
          addresses[index],
          `k8s-pod-network.${containerId}`,
        ]);
        assert.deepEqual(pods.sort(), expected.sort());
      });
    }

    test("pods that die young cost the API server nothing at all, and those that live a fraction of a write", async () => {
      const young = sandboxes("young", 10);
      const mark = await api.mark();
      await add(young);
      await del(young);
      const living = sandboxes("living", 10);
      const addresses = await add(living);
      assert.equal(new Set(addresses).size, 10);
      await endsWith(living, addresses);
      const requests = (await api.requests(mark)).filter(({ resource }) => ipam.has(resource));
      const writes = requests.filter(({ verb }) => verb !== "get" && verb !== "list" && verb !== "watch");
      assert.ok(writes.length <= 4, `${writes.length} writes for 20 pods`);
      await del(living);
      await endsWith([], []);
    });

    test("with the server away pods come and go, and after its return the API server shows what lives", async () => {
      await cluster.server.kill("SIGKILL");
      const pods = sandboxes("alone", 12);
      const addresses = await add(pods);
      assert.equal(new Set(addresses).size, pods.length);
      await del(pods.slice(0, 4));
      await cluster.agent(node).kill("SIGKILL");
      await cluster.agent(node).start();
      await add(pods.slice(4, 6));
      await cluster.server.start();
      await endsWith(pods.slice(4), addresses.slice(4));
      await del(pods.slice(4));
      await endsWith([], []);
    });
  });
}

function sandboxes(name: string, count: number): Sandbox[] {
  return Array.from({ length: count }, (_, index) => newSandbox(namespace, `${name}-${index}`));
}
