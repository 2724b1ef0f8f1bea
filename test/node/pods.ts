// Pods of one namespace as the API server tells of them: created, watched, deleted, and what tests ask of them.
// Leaves to others: who gives them addresses.
import { once } from "node:events";
import * as https from "node:https";
import { createInterface } from "node:readline";
import type { ApiClient, Manifest } from "../cluster/api.ts";
import { imageName } from "./image.ts";
import type { Machine } from "./machine.ts";

/** What tests read of a pod. */
export interface Pod {
  readonly metadata: { readonly name: string; readonly uid: string; readonly resourceVersion: string };
  readonly status: {
    readonly phase?: string;
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly containerStatuses?: readonly {
      readonly containerID?: string;
      readonly ready: boolean;
      readonly restartCount: number;
    }[];
  };
}

/** On the node itself: no scheduler runs here. Ends at once on SIGTERM. */
export function podManifest(namespace: string, name: string, nodeName: string): Manifest {
  const command = ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace },
    spec: {
      nodeName,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      dnsPolicy: "Default",
      terminationGracePeriodSeconds: 5,
      containers: [{ name: "main", image: imageName, imagePullPolicy: "Never", command }],
    },
  };
}

export class Pods {
  readonly #admin: ApiClient;
  readonly #path: string;
  readonly #namespace: string;
  readonly #now = new Map<string, Pod>();
  #changed = Promise.withResolvers<void>();
  #close = (): void => {};

  private constructor(admin: ApiClient, namespace: string) {
    this.#admin = admin;
    this.#namespace = namespace;
    this.#path = `/api/v1/namespaces/${namespace}/pods`;
  }

  static async watch(admin: ApiClient, namespace: string): Promise<Pods> {
    const pods = new Pods(admin, namespace);
    await pods.#open();
    return pods;
  }

  /** Resolves once the API server has them all. */
  async create(nodeName: string, names: readonly string[]): Promise<void> {
    await Promise.all(names.map((name) => this.#admin.create(podManifest(this.#namespace, name, nodeName))));
  }

  /** As kubectl does it: they are gone when kubelet has said so. */
  async delete(names: readonly string[]): Promise<void> {
    await Promise.all(names.map((name) => this.#admin.must("DELETE", `${this.#path}/${name}`)));
  }

  /** Resolves with all of them once each runs and is ready. */
  running(names: readonly string[]): Promise<readonly Pod[]> {
    return this.#when(`${names.length} pods run`, () => {
      const pods = names.flatMap((name) => this.#now.get(name) ?? []);
      return pods.length === names.length && pods.every(isRunning) ? pods : undefined;
    });
  }

  gone(names: readonly string[]): Promise<true> {
    return this.#when(`${names.length} pods are gone`, () =>
      names.some((name) => this.#now.has(name)) ? undefined : true,
    );
  }

  async #when<T>(what: string, look: () => T | undefined): Promise<T> {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#changed.resolve();
    }, waitLimitMs);
    try {
      for (;;) {
        const found = look();
        if (found !== undefined) return found;
        if (isLate)
          throw new Error(`waited ${waitLimitMs / 1000} s in vain until ${what}; there are:\n${this.#list()}`);
        await this.#changed.promise;
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #list(): string {
    const lines = [...this.#now.values()].map(({ metadata, status }) => `${metadata.name} ${JSON.stringify(status)}`);
    return lines.slice(0, 5).join("\n");
  }

  async #open(): Promise<void> {
    const { url, ca, token } = this.#admin;
    const request = https.get(`${url}${this.#path}?watch=true`, {
      ca,
      headers: { authorization: `Bearer ${token}` },
      agent: false,
    });
    const [response] = await once(request, "response");
    if (response.statusCode !== 200) throw new Error(`the watch of ${this.#path} was answered ${response.statusCode}`);
    const lines = createInterface({ input: response }).on("line", (line) => this.#take(JSON.parse(line)));
    lines.on("error", () => {}); // its end by `close`; one that comes by itself shows as a wait in vain
    this.#close = () => request.destroy();
  }

  #take(event: { type: string; object: Pod }): void {
    const { name } = event.object.metadata;
    if (event.type === "DELETED") this.#now.delete(name);
    else this.#now.set(name, event.object);
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  close(): void {
    this.#close();
  }
}

/** Sixty pods at once take 15 s on two cores; a restart of kubelet in between costs it up to a minute of back-off. */
const waitLimitMs = 180_000;

function isRunning({ status }: Pod): boolean {
  const { phase, podIPs = [], containerStatuses = [] } = status;
  return phase === "Running" && podIPs.length > 0 && containerStatuses.every(({ ready }) => ready);
}

export function addressesOf(pod: Pod): readonly string[] {
  return (pod.status.podIPs ?? []).map(({ ip }) => ip);
}

/** From the first to every address of the second. */
export async function assertPing(machine: Machine, [from, to]: readonly Pod[]): Promise<void> {
  const addresses = to === undefined ? [] : addressesOf(to);
  if (from === undefined || addresses.length === 0) throw new Error("a ping needs two pods");
  for (const address of addresses) await machine.execute(containerOf(from), ["ping", "-c", "1", "-W", "5", address]);
}

/** As containerd knows it. */
function containerOf(pod: Pod): string {
  return pod.status.containerStatuses?.[0]?.containerID?.replace("containerd://", "") ?? "";
}
