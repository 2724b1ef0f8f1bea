// Runs the container of a pod that the chart has rendered, as kubelet would and without its image: the same command, arguments and
// environment, its volumes where it mounts them, all else read-only, no capability. Leaves to the tests what becomes of it.
import { mkdir, writeFile } from "node:fs/promises";
import * as http from "node:http";
import { dirname, join, resolve } from "node:path";
import manifest from "../../package.json" with { type: "json" };
import { type ApiClient, type Manifest, until } from "../cluster/api.ts";
import { agentToken } from "../cluster/cluster.ts";
import { type Daemon, startDaemon } from "../cluster/daemon.ts";
import { namespace } from "./helm.ts";

const root = resolve(import.meta.dirname, "../..");
/** The names under which the image has our executables. */
const executables: Readonly<Record<string, string>> = manifest.bin;

export interface PodOptions {
  readonly admin: ApiClient;
  readonly ca: string;
  /** The Deployment or DaemonSet, as the API server has it. */
  readonly workload: Manifest;
  /** Where its files go, those of the host included. */
  readonly folder: string;
  readonly node: string;
  readonly hostIp: string;
  /** What kubelet adds of Services. */
  readonly services: Readonly<Record<string, string>>;
}

interface Container {
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly value?: string;
    readonly valueFrom?: { readonly fieldRef: { readonly fieldPath: string } };
  }[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
  readonly readinessProbe: { readonly httpGet: { readonly path: string } };
}

interface Volume {
  readonly name: string;
  readonly configMap?: { readonly name: string; readonly items?: readonly { readonly key: string }[] };
  readonly projected?: unknown;
  readonly hostPath?: { readonly path: string; readonly type: string };
}

interface PodSpec {
  readonly serviceAccountName: string;
  readonly automountServiceAccountToken?: boolean;
  readonly containers: readonly [Container];
  readonly volumes: readonly Volume[];
}

export class Pod {
  readonly #options: PodOptions;
  readonly #spec: PodSpec;
  #daemon: Daemon | undefined;

  constructor(options: PodOptions) {
    this.#options = options;
    this.#spec = (options.workload.spec as { template: { spec: PodSpec } }).template.spec;
  }

  /** A path of the host, where it really is. */
  hostPath(path: string): string {
    return join(this.#options.folder, "host", path);
  }

  async start(): Promise<void> {
    const { folder } = this.#options;
    const [container] = this.#spec.containers;
    const mounts: string[] = [];
    for (const { name, mountPath } of container.volumeMounts) {
      const volume = this.#spec.volumes.find((each) => each.name === name);
      if (volume === undefined) throw new Error(`no volume ${name}`);
      mounts.push(await this.#source(volume), mountPath);
    }
    if (this.#spec.automountServiceAccountToken !== false)
      mounts.push(await this.#accountFolder(), "/var/run/secrets/kubernetes.io/serviceaccount");
    const [name = "", ...args] = [...container.command, ...container.args];
    const script = executables[name];
    if (script === undefined) throw new Error(`the image has no ${name}`);
    const environment = Object.entries(this.#environment(container)).map(([key, value]) => `${key}=${value}`);
    const inside = [...environment, process.execPath, join(root, script), ...args];
    const outside = ["--map-root-user", "--mount", "sh", "-euc", enter, "sh", await this.#fresh("root"), root];
    const flags = [...outside, String(mounts.length / 2), ...mounts, ...inside];
    this.#daemon = startDaemon("unshare", flags, join(folder, "log"));
  }

  /** What its readiness probe asks. */
  async ready(): Promise<void> {
    const [{ ports = [], readinessProbe }] = this.#spec.containers;
    const port = ports.find(({ name }) => name === "http")?.containerPort;
    const url = `http://${this.#options.hostIp}:${port}${readinessProbe.httpGet.path}`;
    await until(`the pod on ${this.#options.node} is ready`, async () => {
      if (this.#daemon?.running() !== true) throw new Error(`it ended. ${await this.#daemon?.lastWords()}`);
      return (await statusOf(url)) === 200;
    }).catch(async (cause: unknown) => {
      throw new Error(`${url} did not become ready. ${await this.#daemon?.lastWords()}`, { cause });
    });
  }

  async stop(): Promise<void> {
    await this.#daemon?.kill("SIGTERM");
    this.#daemon = undefined;
  }

  #environment({ env = [] }: Container): Record<string, string> {
    const { node, hostIp, services } = this.#options;
    const fields: Readonly<Record<string, string>> = { "spec.nodeName": node, "status.hostIP": hostIp };
    const known: Record<string, string> = { PATH: process.env.PATH ?? "", ...services };
    for (const { name, value = "", valueFrom } of env) {
      const text = valueFrom === undefined ? value : (fields[valueFrom.fieldRef.fieldPath] ?? "");
      known[name] = text.replace(/\$\((\w+)\)/g, (whole, other: string) => known[other] ?? whole);
    }
    return known;
  }

  async #source({ name, configMap, projected, hostPath }: Volume): Promise<string> {
    if (hostPath !== undefined) {
      const path = this.hostPath(hostPath.path);
      await mkdir(hostPath.type === "File" ? dirname(path) : path, { recursive: true });
      if (hostPath.type === "File") await writeFile(path, `${this.#options.node}\n`);
      return path;
    }
    const folder = await this.#fresh(name);
    if (projected !== undefined)
      await writeFile(join(folder, "token"), await agentToken(this.#options.admin, this.#options.node));
    else if (configMap !== undefined) {
      let data: Readonly<Record<string, string>> = {};
      await until(`the ConfigMap ${configMap.name} has what the pod mounts`, async () => {
        const path = `/api/v1/namespaces/${namespace}/configmaps/${configMap.name}`;
        data = ((await this.#options.admin.must("GET", path)) as { data?: typeof data }).data ?? {};
        return (configMap.items ?? []).every(({ key }) => key in data);
      });
      for (const [key, text] of Object.entries(data)) await writeFile(join(folder, key), text);
    } else throw new Error(`the volume ${name} is of a kind that is not known here`);
    return folder;
  }

  async #accountFolder(): Promise<string> {
    const { admin, ca } = this.#options;
    const folder = await this.#fresh("account");
    await writeFile(join(folder, "token"), await admin.createToken(namespace, this.#spec.serviceAccountName));
    await writeFile(join(folder, "ca.crt"), ca);
    return folder;
  }

  async #fresh(name: string): Promise<string> {
    const folder = join(this.#options.folder, name);
    await mkdir(folder, { recursive: true });
    return folder;
  }
}

/** Arguments: the new root, the repository, how many mounts, source and target of each, the command with its environment before it. */
const enter = `
root=$1 repository=$2 count=$3; shift 3
mount -t tmpfs tmpfs "$root"
for name in bin lib lib64 sbin; do [ ! -L /$name ] || cp -P /$name "$root/"; done
for path in /usr /proc /dev "$repository"; do mkdir -p "$root$path"; mount --rbind "$path" "$root$path"; done
while [ "$count" -gt 0 ]; do
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; : > "$root$2"; fi
  mount --bind "$1" "$root$2"
  shift 2; count=$((count - 1))
done
mount -o remount,ro "$root"
exec chroot "$root" env -i -C / setpriv --pdeathsig KILL --bounding-set=-all --no-new-privs env "$@"`;

/** 0: no answer. */
function statusOf(url: string): Promise<number> {
  return new Promise((answered) => {
    const request = http.get(url, (response) => {
      response.resume();
      response.on("end", () => answered(response.statusCode ?? 0));
    });
    request.on("error", () => answered(0));
  });
}
