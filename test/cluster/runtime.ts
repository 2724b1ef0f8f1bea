// A stand-in for kubelet and its container runtime: executes the compiled CNI executable as a runtime does, real netconf on stdin.
// Knows nothing of Cattail beyond the netconf; what it remembers is what a runtime would.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";

/** One sandbox attempt of one pod: a retry after a failure is a new one with a new container id, as kubelet does it. */
export interface Sandbox {
  readonly containerId: string;
  readonly ifname: string;
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
}

export interface RuntimeOptions {
  /** Path of the executable; its base name decides whether it behaves as `calico-ipam`. */
  readonly executable: string;
  readonly socket: string;
  readonly spool: string;
  readonly nodeName: string;
  readonly network?: string;
  readonly cniVersion?: string;
  readonly ipam?: Readonly<Record<string, unknown>>;
}

export interface CniError {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
}

export type CniOutcome =
  | { readonly ok: true; readonly addresses: readonly string[]; readonly stdout: string; readonly milliseconds: number }
  | { readonly ok: false; readonly error: CniError; readonly stdout: string; readonly milliseconds: number };

export function newSandbox(namespace: string, pod: string, ifname = "eth0"): Sandbox {
  return { containerId: randomBytes(32).toString("hex"), ifname, namespace, pod, uid: randomBytes(16).toString("hex") };
}

export class Runtime {
  readonly #options: RuntimeOptions;

  constructor(options: RuntimeOptions) {
    this.#options = options;
  }

  add(sandbox: Sandbox): Promise<CniOutcome> {
    return this.#execute("ADD", sandbox);
  }

  del(sandbox: Sandbox): Promise<CniOutcome> {
    return this.#execute("DEL", sandbox);
  }

  netconf(): Record<string, unknown> {
    const { socket, spool, nodeName, ipam } = this.#options;
    return {
      cniVersion: this.#options.cniVersion ?? "1.0.0",
      name: this.#options.network ?? "k8s-pod-network",
      type: "calico",
      nodename: nodeName,
      datastore_type: "kubernetes",
      policy: { type: "k8s" },
      ipam: { type: "calico-ipam", assign_ipv4: "true", ...ipam, cattail: { socket, spool } },
    };
  }

  environment(verb: string, sandbox: Sandbox): Record<string, string> {
    const args = {
      IgnoreUnknown: "1",
      K8S_POD_NAMESPACE: sandbox.namespace,
      K8S_POD_NAME: sandbox.pod,
      K8S_POD_INFRA_CONTAINER_ID: sandbox.containerId,
      K8S_POD_UID: sandbox.uid,
    };
    return {
      CNI_COMMAND: verb,
      CNI_CONTAINERID: sandbox.containerId,
      CNI_NETNS: `/run/netns/${sandbox.containerId.slice(0, 12)}`,
      CNI_IFNAME: sandbox.ifname,
      CNI_PATH: "/opt/cni/bin",
      CNI_ARGS: Object.entries(args)
        .map(([key, value]) => `${key}=${value}`)
        .join(";"),
    };
  }

  #execute(verb: string, sandbox: Sandbox): Promise<CniOutcome> {
    const started = performance.now();
    const child = spawn(this.#options.executable, [], {
      env: this.environment(verb, sandbox),
      stdio: ["pipe", "pipe", "pipe"],
    });
    return new Promise((resolve, reject) => {
      const stdout: Buffer[] = [];
      const stderr: Buffer[] = [];
      child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
      child.stderr.on("data", (chunk: Buffer) => stderr.push(chunk));
      child.stdin.on("error", () => {}); // it may exit before it has read everything: its exit says why
      child.on("error", reject);
      child.on("close", (code, signal) => {
        const milliseconds = performance.now() - started;
        const text = Buffer.concat(stdout).toString();
        if (code === 0) return resolve({ ok: true, addresses: addressesOf(text), stdout: text, milliseconds });
        const fallback = `exit ${code ?? signal}: ${Buffer.concat(stderr).toString().slice(0, 400)}`;
        resolve({ ok: false, error: errorOf(text, fallback), stdout: text, milliseconds });
      });
      child.stdin.end(JSON.stringify(this.netconf()));
    });
  }
}

function addressesOf(stdout: string): string[] {
  if (stdout === "") return [];
  const result = JSON.parse(stdout) as { ips?: { address: string }[] };
  return (result.ips ?? []).map((ip) => ip.address.split("/")[0] ?? "");
}

function errorOf(stdout: string, fallback: string): CniError {
  try {
    return JSON.parse(stdout) as CniError;
  } catch {
    return { code: 999, msg: fallback };
  }
}
