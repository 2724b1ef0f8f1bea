// A small cluster with pods that come and go, and a real Prometheus that scrapes it: what rules and dashboards are tried on.
// Leaves to the tests what is asked.
import { join } from "node:path";
import { Cluster, ipPool, prepare } from "../cluster/cluster.ts";
import { temporaryFolder } from "../cluster/daemon.ts";
import { type EmbeddedApi, startEmbedded } from "../cluster/embedded.ts";
import { newSandbox } from "../cluster/runtime.ts";
import { type Prometheus, startPrometheus } from "./tools.ts";

const namespace = "shop";
const nodes = ["node-a", "node-b"];

export interface Live {
  readonly api: EmbeddedApi;
  readonly cluster: Cluster;
  /** Adds and deletes this many pods, half of them on each node. */
  churn(pods: number): Promise<void>;
  prometheus(rules: readonly string[]): Promise<Prometheus>;
  stop(): Promise<void>;
}

export async function startLive(): Promise<Live> {
  const api = await startEmbedded();
  const folder = await temporaryFolder("ct");
  const pools = [ipPool("blue-ipv4", "10.30.0.0/22"), ipPool("blue-ipv6", "fd00:10:30::/112")];
  const options = { api, folder, nodes, pools, namespace };
  await prepare(options);
  const cluster = await Cluster.start(options);
  const agents = [...cluster.agents.values()];
  let prometheus: Prometheus | undefined;
  return {
    api,
    cluster,
    async churn(pods) {
      for (let index = 0; index < pods; index++) {
        const runtime = agents[index % agents.length]?.runtime({ assign_ipv4: "true", assign_ipv6: "true" });
        const sandbox = newSandbox(namespace, `pod-${index}`);
        await runtime?.add(sandbox);
        if (index % 2 === 0) await runtime?.del(sandbox);
      }
    },
    async prometheus(rules) {
      const target = (job: string, url: string) => ({ job, address: new URL(url).host });
      const targets = [
        target("cattail-server", cluster.server.url),
        ...agents.map(({ url, node }) => target(`cattail-agent-${node}`, url)),
      ];
      prometheus = await startPrometheus(join(folder, "prometheus"), targets, rules);
      return prometheus;
    },
    async stop() {
      await prometheus?.stop();
      await cluster.stop();
      await api.stop();
    },
  };
}
