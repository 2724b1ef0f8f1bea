// libcni's result cache as a container runtime leaves it on the node (spec/cni.md 5): written after an ADD, removed after a DEL.
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

export interface Attached {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
  readonly namespace: string;
  readonly pod: string;
}

export class LibcniCache {
  /** What the agent's `cni.cacheDirs` names. */
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  async put(attached: Attached, addresses: readonly string[]): Promise<void> {
    const { network: networkName, containerId, ifname: ifName, namespace, pod } = attached;
    const cniArgs = [
      ["IgnoreUnknown", "1"],
      ["K8S_POD_NAMESPACE", namespace],
      ["K8S_POD_NAME", pod],
    ];
    const result = { cniVersion: "1.0.0", ips: addresses.map((address) => ({ address })), dns: {} };
    const entry = { kind: "cniCacheV1", containerId, config: "e30=", ifName, networkName, cniArgs, result };
    await mkdir(join(this.directory, "results"), { recursive: true, mode: 0o700 });
    await writeFile(this.#path(attached), JSON.stringify(entry), { mode: 0o600 });
  }

  async drop(attached: Attached): Promise<void> {
    await rm(this.#path(attached), { force: true });
  }

  #path({ network, containerId, ifname }: Attached): string {
    return join(this.directory, "results", `${network}-${containerId}-${ifname}`);
  }
}
