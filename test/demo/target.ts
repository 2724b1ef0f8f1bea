// The API server that the demo runs on: the embedded one, or one that a kubeconfig names; and the count of what it was asked.
import { readFile } from "node:fs/promises";
import { KubeConfig } from "@kubernetes/client-node";
import { ApiClient, clientName, type TestApi } from "../cluster/api.ts";
import type { Cluster } from "../cluster/cluster.ts";
import { startEmbedded } from "../cluster/embedded.ts";

/** Requests of Cattail by verb and resource, such as `patch ipamblocks`. */
export type Counts = ReadonlyMap<string, number>;

export interface Target {
  readonly api: Pick<TestApi, "url" | "ca" | "admin">;
  readonly isOurs: boolean;
  /** Since Cattail was started. */
  counts(cluster: Cluster): Promise<Counts>;
  stop(): Promise<void>;
}

export async function embedded(): Promise<Target> {
  const api = await startEmbedded();
  return {
    api,
    isOurs: true,
    async counts() {
      const counts = new Map<string, number>();
      for (const { verb, resource, client } of await api.requests()) {
        if (client === clientName) continue;
        const what = `${verb} ${resource}`;
        counts.set(what, (counts.get(what) ?? 0) + 1);
      }
      return counts;
    },
    stop: () => api.stop(),
  };
}

/** A real API server does not tell whom it answered: there the server's own metrics count. */
export async function fromKubeconfig(file: string): Promise<Target> {
  const config = new KubeConfig();
  config.loadFromString(await readFile(file, "utf8"));
  const [cluster, user] = [config.getCurrentCluster(), config.getCurrentUser()];
  if (cluster === null) throw new Error(`${file} has no current context with a cluster: set current-context`);
  const ca = await pem(cluster.caData, cluster.caFile);
  const identity = { cert: await pem(user?.certData, user?.certFile), key: await pem(user?.keyData, user?.keyFile) };
  const admin = new ApiClient(cluster.server, ca, user?.token, identity);
  return {
    api: { url: cluster.server, ca, admin },
    isOurs: false,
    counts: ({ server }) => countsFromMetrics(`${server.url}/metrics`),
    stop: async () => {},
  };
}

async function pem(data: string | undefined, file: string | undefined): Promise<string | undefined> {
  if (data !== undefined) return Buffer.from(data, "base64").toString();
  return file === undefined ? undefined : readFile(file, "utf8");
}

async function countsFromMetrics(url: string): Promise<Counts> {
  const text = await (await fetch(url)).text();
  const counts = new Map<string, number>();
  for (const [, labels = "", value] of text.matchAll(/^cattail_server_api_requests_total\{(.*)\} (\S+)$/gm)) {
    const what = `${label(labels, "verb")} ${label(labels, "resource")}`;
    counts.set(what, (counts.get(what) ?? 0) + Number(value));
  }
  return counts;
}

function label(labels: string, name: string): string {
  return new RegExp(`\\b${name}="([^"]*)"`).exec(labels)?.[1] ?? "";
}
