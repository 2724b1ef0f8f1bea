// The API server's data is set back to an older state while no server runs: agents know more than the new server is told, and go on.
// On the embedded API server, since no other can be set back.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { apiPath } from "../../shared/calico/names.ts";
import { allocations } from "./allocations.ts";
import { Cluster, type ClusterOptions, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { type EmbeddedApi, startEmbedded } from "./embedded.ts";
import { newSandbox } from "./runtime.ts";
import { settled } from "./settled.ts";

const namespace = "demo";
/** Whatever is acknowledged where, and soon in either case. */
const modes = [
  ["--commit", "sync"],
  ["--commit", "async", "--flush-delay", "100ms"],
];
const ways = ["while no server runs", "and written on while no server runs", "under a running server"] as const;

for (const mode of modes) {
  describe(`data set back, agents with ${mode.join(" ")}`, () => {
    let api: EmbeddedApi;
    let cluster: Cluster;

    before(async () => {
      api = await startEmbedded({ bookmarkEveryMs: 200 });
      const pools = [ipPool("pool-v4", "10.10.0.0/24", { blockSize: 29 })];
      const nodes = ["node-a", "node-b"];
      const folder = await temporaryFolder("ct");
      const options: ClusterOptions = { api, folder, nodes, pools, namespace, agentFlags: mode };
      await prepare(options);
      cluster = await Cluster.start(options);
    });

    after(async () => {
      await cluster?.stop();
      await api?.stop();
    });

    /** The address, and the handle under which it is held. */
    async function add(node: string, pod: string): Promise<readonly [string, string]> {
      const sandbox = newSandbox(namespace, pod);
      const outcome = await cluster.agent(node).runtime({}).add(sandbox);
      assert.ok(outcome.ok, JSON.stringify(outcome));
      return [String(outcome.addresses[0]), `k8s-pod-network.${sandbox.containerId}`];
    }

    async function owners(): Promise<ReadonlyMap<string, string>> {
      return (await allocations(api.admin)).owners;
    }

    for (const way of ways) {
      test(`given data set back ${way}, then agents go on and assert what their pods hold`, async () => {
        const held = new Map([await add("node-a", "a"), await add("node-b", "b")]);
        await settled(async () => assert.deepEqual(await missing(held), []));
        const version = api.kube.version();
        for (let pod = 0; pod < 10; pod++) {
          const [address, handle] = await add("node-b", `later-${pod}`);
          assert.ok(!held.has(address), `${address} is held twice`);
          held.set(address, handle);
        }
        await settled(async () => assert.deepEqual(await missing(held), []));
        const newest = api.kube.version();
        if (way !== "under a running server") await cluster.server.kill("SIGTERM");
        api.kube.restoreTo(version);
        if (way === "and written on while no server runs") await writeUpTo(newest);
        if (way !== "under a running server") await cluster.server.start();

        await Promise.all([...cluster.agents.values()].map((agent) => agent.ready()));
        await settled(async () => assert.deepEqual(await missing(held), []));
        for (const node of ["node-a", "node-b"]) {
          const [address, handle] = await add(node, "after");
          assert.ok(!held.has(address), `${address} is held twice`);
          held.set(address, handle);
        }
        await settled(async () => assert.deepEqual(await missing(held), []));
        await settled(() => cluster.agreesWithApi());
      });
    }

    async function missing(held: ReadonlyMap<string, string>): Promise<string[]> {
      const seen = await owners();
      return [...held].flatMap(([address, handle]) =>
        seen.get(address) === handle ? [] : [`${address} is ${seen.get(address)}'s`],
      );
    }

    async function writeUpTo(version: number): Promise<void> {
      const path = apiPath("crd", "namespace", namespace);
      for (let count = 0; api.kube.version() <= version; count++) {
        await api.admin.must("PATCH", path, { metadata: { annotations: { count: String(count) } } });
      }
    }
  });
}
