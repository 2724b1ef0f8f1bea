// A machine of its own for a test of a node: containerd with runc, CNI plugins, and kubelet when asked for, all private to it.
// Runs only inside the namespaces that main.ts makes, in which whatever is left of it ends; what runs on it is left to the tests.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { stringify } from "yaml";
import { type TestApi, until } from "../cluster/api.ts";
import { type Daemon, freePort, startDaemon } from "../cluster/daemon.ts";
import { realPart } from "../real/parts.ts";
import { criAnswers } from "./cri.ts";
import { imageArchive, imageName } from "./image.ts";
import { insideMark, machineAddress } from "./inside.ts";

const run = promisify(execFile);

/** Where every runtime looks unless told otherwise; empty on each machine. */
const cniBin = "/opt/cni/bin";
const cniConf = "/etc/cni/net.d";
/** Where Debian's containernetworking-plugins puts them. */
const mainPlugins = "/usr/lib/cni";

export class Machine {
  /** Goes away with the machine: there are mounts below it until then. */
  readonly folder: string;
  readonly conflist = join(cniConf, "10-test.conflist");
  readonly #socket: string;
  #containerd: Daemon | undefined;
  #kubelet: Daemon | undefined;

  private constructor(folder: string) {
    this.folder = folder;
    this.#socket = join(folder, "containerd.sock");
  }

  /** Returns once containerd answers and has the image. */
  static async start(): Promise<Machine> {
    if (!existsSync(insideMark)) throw new Error("this test wants a machine of its own: npm run test:node makes one");
    const machine = new Machine(await mkdtemp(join(tmpdir(), "node-")));
    await machine.#prepare();
    try {
      await machine.startContainerd();
      const archive = join(machine.folder, "image.tar");
      await writeFile(archive, await imageArchive("/bin/busybox"));
      await machine.ctr("images", "import", "--snapshotter", "native", archive);
      return machine;
    } catch (cause) {
      const words = await machine.#containerd?.lastWords();
      await machine.stop();
      throw new Error(`containerd did not start. ${words}`, { cause });
    }
  }

  async #prepare(): Promise<void> {
    await mkdir(cniBin);
    await mkdir(cniConf);
    for (const plugin of await readdir(mainPlugins)) await symlink(join(mainPlugins, plugin), join(cniBin, plugin));
    await writeFile(join(this.folder, "containerd.toml"), this.#containerdConfig());
  }

  async startContainerd(): Promise<void> {
    const log = join(this.folder, "containerd.log");
    this.#containerd = startDaemon("containerd", ["--config", join(this.folder, "containerd.toml")], log);
    await until("containerd serves the CRI", () => criAnswers(this.#socket));
  }

  async killContainerd(): Promise<void> {
    await this.#containerd?.kill("SIGKILL");
    this.#containerd = undefined;
  }

  /** Replaces the configuration of the network that pods are given; containerd notices by itself. */
  async setNetwork(configuration: NetworkConfiguration): Promise<void> {
    await writeFile(this.conflist, JSON.stringify(configuration));
  }

  network(): Promise<string> {
    return readFile(this.conflist, "utf8");
  }

  /** Returns once the node is ready, as the API server knows it. */
  async startKubelet(api: Pick<TestApi, "admin">, nodeName: string): Promise<void> {
    const config = join(this.folder, "kubelet.yaml");
    const kubeconfig = join(this.folder, "kubeconfig");
    const healthPort = await freePort();
    await writeFile(config, stringify(await this.#kubeletConfig(healthPort)));
    await writeFile(kubeconfig, api.admin.kubeconfig(), { mode: 0o600 });
    const flags = [
      ["config", config],
      ["kubeconfig", kubeconfig],
      ["root-dir", join(this.folder, "kubelet")],
      ["cert-dir", join(this.folder, "kubelet-pki")],
      ["hostname-override", nodeName],
      ["node-ip", machineAddress],
    ];
    this.#kubelet = startDaemon(
      await realPart("kubelet"),
      flags.map(([name, value]) => `--${name}=${value}`),
      join(this.folder, "kubelet.log"),
    );
    await until(`kubelet has made ${nodeName} ready`, async () => {
      if (this.#kubelet?.running() !== true) throw new Error(`kubelet ended. ${await this.#kubelet?.lastWords()}`);
      // The API server also remembers an earlier kubelet's word.
      if (!(await isHealthy(healthPort))) return false;
      return isReady((await api.admin.call("GET", `/api/v1/nodes/${nodeName}`)).body);
    }).catch(async (cause: unknown) => {
      throw new Error(`kubelet did not get ready. ${await this.#kubelet?.lastWords()}`, { cause });
    });
  }

  async killKubelet(): Promise<void> {
    await this.#kubelet?.kill("SIGKILL");
    this.#kubelet = undefined;
  }

  /** containerd's own client, in the namespace that its CRI plugin uses; resolves with what it said on stdout. */
  async ctr(...args: readonly string[]): Promise<string> {
    const { stdout } = await run("ctr", ["--address", this.#socket, "--namespace", "k8s.io", ...args]);
    return stdout;
  }

  /** A container without kubelet, on the network of `setNetwork`, for as long as a command takes; resolves with what that said. */
  runContainer(id: string, command: readonly string[]): Promise<string> {
    return this.ctr("run", "--rm", "--cni", "--snapshotter", "native", imageName, id, ...command);
  }

  /** Runs a command in a container that runs; rejects if it fails. */
  execute(containerId: string, command: readonly string[]): Promise<string> {
    return this.ctr("tasks", "exec", "--exec-id", `exec-${++this.#executions}`, containerId, ...command);
  }
  #executions = 0;

  async stop(): Promise<void> {
    await this.killKubelet();
    await this.killContainerd();
  }

  /** The last lines of containerd and kubelet. */
  async lastWords(): Promise<string> {
    return `${await this.#containerd?.lastWords()}\n${await this.#kubelet?.lastWords()}`;
  }

  #containerdConfig(): string {
    return `
version = 2
root = "${join(this.folder, "containerd")}"
state = "${join(this.folder, "containerd-state")}"
[debug]
  level = "warn"
[grpc]
  address = "${this.#socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "${join(this.folder, "containerd-opt")}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${imageName}"
  # Without it runc ends with "can't get final child's PID from pipe: EOF" where CAP_SYS_RESOURCE is missing.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "${cniBin}"
  conf_dir = "${cniConf}"
`;
  }

  /** Everything that needs a distribution around it is off: systemd, cgroup v2, swap, eviction, the node's own limits. */
  async #kubeletConfig(healthzPort: number): Promise<object> {
    const endpoint = `unix://${this.#socket}`;
    const never = "0%";
    return {
      apiVersion: "kubelet.config.k8s.io/v1beta1",
      kind: "KubeletConfiguration",
      containerRuntimeEndpoint: endpoint,
      imageServiceEndpoint: endpoint,
      port: await freePort(),
      healthzPort,
      authentication: { anonymous: { enabled: false }, webhook: { enabled: false } },
      authorization: { mode: "AlwaysAllow" },
      cgroupDriver: "cgroupfs",
      cgroupsPerQOS: false,
      enforceNodeAllocatable: [],
      failCgroupV1: false,
      failSwapOn: false,
      localStorageCapacityIsolation: false,
      evictionHard: { "memory.available": never, "nodefs.available": never, "imagefs.available": never },
      imageGCHighThresholdPercent: 100,
      podLogsDir: join(this.folder, "pod-logs"),
      resolvConf: "",
      maxPods: 250,
    };
  }
}

export interface NetworkConfiguration {
  readonly cniVersion: string;
  readonly name: string;
  readonly plugins: readonly Readonly<Record<string, unknown>>[];
}

function isHealthy(port: number): Promise<boolean> {
  return fetch(`http://127.0.0.1:${port}/healthz`).then(
    (response) => response.ok,
    () => false,
  );
}

function isReady(node: unknown): boolean {
  const { status } = node as { status?: { conditions?: { type: string; status: string }[] } };
  return status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
}
