// A real node that Cattail serves: control plane, server and agent as processes, and a machine whose pods get their addresses from the agent.
// Leaves to the suites what is done on it.
import assert from "node:assert/strict";
import { readdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { allocations } from "../cluster/allocations.ts";
import { type Manifest, until } from "../cluster/api.ts";
import { type AgentProcess, Cluster, cniExecutable, ipPool, prepare } from "../cluster/cluster.ts";
import { temporaryFolder } from "../cluster/daemon.ts";
import { type ControlPlane, startControlPlane } from "../real/control-plane.ts";
import { cniBin, Machine } from "./machine.ts";
import { addressesOf, type Pod, Pods } from "./pods.ts";

const nodeName = "node-a";
const namespace = "demo";
export const network = "k8s-pod-network";

export interface NodeOptions {
  /** IPv4 first. */
  readonly pools: readonly string[];
  /** Addresses that no pod may get. */
  readonly reserved: readonly string[];
  /** The main plugin's part of the configuration, and what goes beside socket and spool into ours. */
  readonly mainPlugin: Readonly<Record<string, unknown>>;
  readonly ipam?: Readonly<Record<string, unknown>>;
  readonly cattail?: Readonly<Record<string, unknown>>;
}

export class CattailNode {
  readonly api: ControlPlane;
  readonly machine: Machine;
  readonly pods: Pods;
  readonly #cluster: Cluster;

  private constructor(api: ControlPlane, machine: Machine, pods: Pods, cluster: Cluster) {
    this.api = api;
    this.machine = machine;
    this.pods = pods;
    this.#cluster = cluster;
  }

  /** Returns once kubelet says that the node is ready. */
  static async start(options: NodeOptions): Promise<CattailNode> {
    const machine = await Machine.start();
    const api = await startControlPlane();
    const pools = options.pools.map((cidr, index) => ipPool(`pool-${index}`, cidr));
    const rest = { nodes: [nodeName], pools, namespace };
    const clusterOptions = { api, folder: await temporaryFolder("ct"), ...rest };
    await prepare(clusterOptions);
    if (options.reserved.length > 0) await api.admin.create(ipReservation(options.reserved));
    const cluster = await Cluster.start(clusterOptions);
    const node = new CattailNode(api, machine, await Pods.watch(api.admin, namespace), cluster);
    await symlink(cniExecutable, join(cniBin, "cattail-ipam"));
    await machine.setNetwork({ cniVersion: "1.0.0", name: network, plugins: [node.#plugin(options)] });
    await node.startKubelet();
    return node;
  }

  #plugin({ mainPlugin, ipam, cattail }: NodeOptions): Readonly<Record<string, unknown>> {
    const { socket, spool } = this.agent;
    return { ...mainPlugin, ipam: { type: "cattail-ipam", ...ipam, cattail: { socket, spool, ...cattail } } };
  }

  get agent(): AgentProcess {
    return this.#cluster.agent(nodeName);
  }

  startKubelet(): Promise<void> {
    return this.machine.startKubelet(this.api, nodeName);
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

  /** What is written after the answer to a DEL has until then to arrive. */
  async allReturned(): Promise<void> {
    await until("all addresses have returned", async () => (await this.#owned()).length === 0);
  }

  async spooled(): Promise<readonly string[]> {
    return (await readdir(this.agent.spool)).filter((name) => name.endsWith(".json"));
  }

  async #owned(): Promise<string[]> {
    return [...(await allocations(this.api.admin)).owners.keys()].sort();
  }

  async stop(): Promise<void> {
    this.pods.close();
    await this.machine.stop();
    await this.#cluster.stop();
    await this.api.stop();
  }
}

function ipReservation(addresses: readonly string[]): Manifest {
  const spec = { reservedCIDRs: addresses };
  return { apiVersion: "crd.projectcalico.org/v1", kind: "IPReservation", metadata: { name: "gateways" }, spec };
}

export function podNames(count: number, prefix = "pod"): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
}
