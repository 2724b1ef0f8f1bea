// A real node that Cattail serves: control plane, server and agent as processes, and a machine whose pods get their addresses from the agent.
// Leaves to the suites what is done on it.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { allocations } from "../cluster/allocations.ts";
import { type Manifest, until } from "../cluster/api.ts";
import {
  type AgentProcess,
  Cluster,
  type ClusterOptions,
  calicosDurability,
  ipPool,
  prepare,
} from "../cluster/cluster.ts";
import { temporaryFolder } from "../cluster/daemon.ts";
import { type ControlPlane, startControlPlane } from "../real/control-plane.ts";
import { Machine } from "./machine.ts";
import { addressesOf, type Pod, Pods } from "./pods.ts";

const nodeName = "node-a";
const namespace = "demo";
const network = "k8s-pod-network";

export interface NodeOptions {
  /** IPv4 first. */
  readonly pools: readonly string[];
  /** Addresses that no pod may get. */
  readonly reserved: readonly string[];
  /** As an operator has them in the network's configuration before the agent comes: the main plugin, and its section `ipam` but for the type. */
  readonly mainPlugin: Readonly<Record<string, unknown>>;
  readonly ipam: Readonly<Record<string, unknown>>;
}

export class CattailNode {
  readonly api: ControlPlane;
  readonly machine: Machine;
  readonly pods: Pods;
  readonly agent: AgentProcess;
  readonly #parts: AsyncDisposableStack;

  private constructor(
    api: ControlPlane,
    machine: Machine,
    pods: Pods,
    agent: AgentProcess,
    parts: AsyncDisposableStack,
  ) {
    this.api = api;
    this.machine = machine;
    this.pods = pods;
    this.agent = agent;
    this.#parts = parts;
  }

  /** Returns once kubelet says that the node is ready. */
  static async start(options: NodeOptions): Promise<CattailNode> {
    await using parts = new AsyncDisposableStack();
    const machine = parts.adopt(await Machine.start(), (started) => started.stop());
    const ipam = { type: "host-local", ...options.ipam };
    await machine.setNetwork({ cniVersion: "1.0.0", name: network, plugins: [{ ...options.mainPlugin, ipam }] });
    const api = parts.adopt(await startControlPlane(), (started) => started.stop());
    const clusterOptions = await clusterOptionsOf(options, api, machine);
    await prepare(clusterOptions);
    if (options.reserved.length > 0) await api.admin.create(ipReservation(options.reserved));
    const cluster = parts.adopt(await Cluster.start(clusterOptions), (started) => started.stop());
    await until("the agent has installed everything", async () => (await machine.network()).includes("cattail-ipam"));
    const pods = parts.adopt(await Pods.watch(api.admin, namespace), async (started) => started.close());
    await machine.startKubelet(api, nodeName);
    return new CattailNode(api, machine, pods, cluster.agent(nodeName), parts.move());
  }

  /** kubelet and containerd end without a word and come back; containers live on. */
  async restartRuntime(): Promise<void> {
    await this.machine.killKubelet();
    await this.machine.killContainerd();
    await this.machine.startContainerd();
    await this.machine.startKubelet(this.api, nodeName);
  }

  createPods(names: readonly string[]): Promise<void> {
    return this.pods.create(nodeName, names);
  }

  /** Fails unless these pods, and nobody else, have addresses, each its own and the one that Calico's blocks say. */
  async assertAddressed(pods: readonly Pod[]): Promise<void> {
    const addresses = pods.flatMap(addressesOf);
    assert.equal(new Set(addresses).size, addresses.length, "an address is held twice");
    assert.deepEqual(await this.#owned(), addresses.sort());
  }

  /** The same, once what a runtime had begun and given up has been taken back. */
  async eventuallyAddressed(pods: readonly Pod[]): Promise<void> {
    await until("only running pods have addresses", async () => (await this.#owned()).length === pods.length, 90_000);
    await this.assertAddressed(pods);
  }

  /** What is written after the answer to a DEL has until then to arrive. */
  async allReturned(): Promise<void> {
    await until("all addresses have returned", async () => (await this.#owned()).length === 0);
  }

  /** Names of the pods whose release waits on disk for the agent; of some twice, since a runtime may repeat a DEL. */
  async spooled(): Promise<readonly string[]> {
    const files = (await readdir(this.agent.spool)).filter((file) => file.endsWith(".json"));
    const records = files.map(async (file) => JSON.parse(await readFile(join(this.agent.spool, file), "utf8")));
    return (await Promise.all(records)).map(({ podName }) => podName);
  }

  /** By attachments; addresses that wait for one are nobody's yet. */
  async #owned(): Promise<string[]> {
    const { owners } = await allocations(this.api.admin);
    return [...owners].flatMap(([address, handle]) => (handle.startsWith(`${network}.`) ? [address] : [])).sort();
  }

  stop(): Promise<void> {
    return this.#parts.disposeAsync();
  }
}

async function clusterOptionsOf(options: NodeOptions, api: ControlPlane, machine: Machine): Promise<ClusterOptions> {
  const pools = options.pools.map((cidr, index) => ipPool(`pool-${index}`, cidr));
  // Only the agent installs: the executable, and its name and places in the network's configuration.
  const agentFlags = [...calicosDurability, "--install-enabled", "--install-name", "cattail-ipam"];
  agentFlags.push("--install-patch-conflist", machine.conflist);
  return { api, folder: await temporaryFolder("ct"), nodes: [nodeName], pools, namespace, agentFlags };
}

function ipReservation(addresses: readonly string[]): Manifest {
  const spec = { reservedCIDRs: addresses };
  return { apiVersion: "crd.projectcalico.org/v1", kind: "IPReservation", metadata: { name: "gateways" }, spec };
}

export function podNames(count: number, prefix = "pod"): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}
