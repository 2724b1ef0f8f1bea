// Where commands get what they show: the API server by the person's own kubeconfig, a server's and agents' admin ports by URL or port-forward.
// Leaves to others: what it means.
import * as v from "valibot";
import { readers } from "../shared/calico/codec.ts";
import { isFields } from "../shared/calico/fields.ts";
import { apiPath } from "../shared/calico/names.ts";
import type { ApiGroup, Kind, Objects } from "../shared/calico/resources.ts";
import type { Config } from "../shared/config/catalogue.ts";
import { Failure } from "../shared/kinds.ts";
import type { Api } from "../shared/kube/api.ts";
import { createApi } from "../shared/kube/client-shell.ts";
import { connectByKubeconfig } from "../shared/kube/connection-shell.ts";
import { discoverGroup } from "../shared/kube/discovery.ts";
import { Http } from "../shared/kube/http-shell.ts";
import { messageOf } from "../shared/log.ts";
import { systemClock } from "../shared/process/world.ts";
import { type NodeState, nodeState, nodeStatePath } from "../shared/protocol/node-state.ts";
import { fromPlain } from "../shared/protocol/objects.ts";
import type { Agents, Found, Sources, Unread } from "./command.ts";
import { type Pod, readPod } from "./pods.ts";

export interface OpenSources extends Sources {
  close(): void;
}

/** As kubectl asks for long lists. */
const pageSize = 500;
/** Of a large cluster's blocks, over a port-forward. */
const pageDeadlineMs = 60_000;

export function openSources(config: Config<"cli">, userAgent: string, say: (line: string) => void): OpenSources {
  const closers: (() => void)[] = [];
  const api = once(async (): Promise<{ api: Api; group: ApiGroup }> => {
    const connection = await connectByKubeconfig(config.kubeconfig, systemClock, config.context);
    const http = new Http({ connection, clock: systemClock, userAgent });
    closers.push(() => http.stop());
    const client = createApi(http);
    return { api: client, group: config.apiGroup === "auto" ? await discoverGroup(client) : config.apiGroup };
  });
  const serverUrl = once(async (): Promise<string | undefined> => (config.direct ? undefined : config.server));
  const server = async (path: string): Promise<unknown> => {
    const url = await serverUrl();
    return url === undefined ? undefined : page(url, path);
  };

  const fresh = async <K extends Kind>(kind: K): Promise<Found<Objects[K]>> => {
    const { api: client, group } = await api();
    const objects: Objects[K][] = [];
    const unread: Unread[] = [];
    for await (const raw of listed(client, apiPath(group, kind))) {
      const read = readers[kind](raw, group);
      if (read.ok) objects.push(read.object);
      else unread.push({ name: nameOf(raw), problem: read.problem });
    }
    return { objects, unread };
  };
  return {
    api,
    fresh,
    server,
    async objects(kind) {
      const held = await server(`/api/v1/objects?kind=${kind}`);
      if (held === undefined) return fresh(kind);
      if (!isFields(held)) throw new Failure("bad-message", `the server's ${kind}s cannot be read`);
      return { objects: Object.values(held).map((object) => fromPlain(kind, object)), unread: [] };
    },
    async pods() {
      const { api: client } = await api();
      const pods: Pod[] = [];
      for await (const raw of listed(client, "/api/v1/pods")) {
        const read = readPod(raw);
        if (read.ok) pods.push(read.object);
        else say(`pod ${nameOf(raw)} cannot be read and is left out: ${read.problem}`);
      }
      return pods;
    },
    async tunnels() {
      const { api: client } = await api();
      const found = new Map<string, readonly string[]>();
      for await (const raw of listed(client, "/api/v1/nodes")) found.set(nameOf(raw), tunnelsOf(raw));
      return found;
    },
    async agents(nodes) {
      const states = new Map<string, NodeState>();
      const silent = new Map<string, string>();
      if (config.direct) return { states, silent };
      for (const url of config.agent ?? []) {
        try {
          const state = v.parse(nodeState, await page(url, nodeStatePath));
          if (nodes === undefined || nodes.includes(state.node)) states.set(state.node, state);
        } catch (error) {
          silent.set(url, messageOf(error));
        }
      }
      return { states, silent } satisfies Agents;
    },
    close: () => {
      for (const close of closers.splice(0)) close();
    },
  };
}

async function* listed(api: Api, path: string): AsyncGenerator<unknown> {
  let next = "";
  do {
    const from = next === "" ? "" : `&continue=${encodeURIComponent(next)}`;
    const answer = await api.get(`${path}?limit=${pageSize}${from}`);
    if (!isFields(answer)) throw new Failure("bad-message", `the API server's answer to GET ${path} is no list`);
    yield* Array.isArray(answer.items) ? answer.items : [];
    const { metadata } = answer;
    next = isFields(metadata) && typeof metadata.continue === "string" ? metadata.continue : "";
  } while (next !== "");
}

async function page(url: string, path: string): Promise<unknown> {
  const where = `${url.replace(/\/$/, "")}${path}`;
  try {
    const response = await fetch(where, { signal: AbortSignal.timeout(pageDeadlineMs) });
    if (response.status === 200) return await response.json();
    throw new Error(`it answered ${response.status}: ${(await response.text()).trim().slice(0, 200)}`);
  } catch (cause) {
    const why = cause instanceof Error && cause.cause instanceof Error ? messageOf(cause.cause) : messageOf(cause);
    throw new Failure("server-unreachable", `cannot read ${where}: ${why}`, { cause });
  }
}

/** Spec 3.9: IPIP and VXLAN tunnels by family, and what WireGuard's interfaces have. */
const tunnelAnnotation = /^projectcalico\.org\/IPv[46](?:IPIPTunnel|VXLANTunnel|WireguardInterface)Addr$/;

function tunnelsOf(raw: unknown): string[] {
  const metadata = isFields(raw) ? raw.metadata : undefined;
  const annotations = isFields(metadata) && isFields(metadata.annotations) ? metadata.annotations : {};
  return Object.entries(annotations).flatMap(([key, value]) => (tunnelAnnotation.test(key) ? [String(value)] : []));
}

function nameOf(raw: unknown): string {
  const metadata = isFields(raw) ? raw.metadata : undefined;
  return isFields(metadata) && typeof metadata.name === "string" ? metadata.name : "without a name";
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
