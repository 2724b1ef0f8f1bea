// The whole system on one machine: the executables of server and agents as processes, an API server, a runtime per node.
// Works on any API server (api.ts); what it is used for is left to the tests beside it and to the demo.
import assert from "node:assert/strict";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import * as http from "node:http";
import { join, resolve } from "node:path";
import { type Kind, kinds } from "../../shared/calico/resources.ts";
import { concerning, objectsOf } from "./agreement.ts";
import { type ApiClient, type Manifest, type TestApi, until } from "./api.ts";
import { type Daemon, freePort, startDaemon } from "./daemon.ts";
import { agentAccount, installAccess, installCrds, serverAccount } from "./install.ts";
import { Runtime } from "./runtime.ts";

const root = resolve(import.meta.dirname, "../..");
export const cniExecutable = join(root, "dist/cattail-ipam");
export const tokenAudience = "cattail-server";
const crd = "crd.projectcalico.org/v1";

export interface ClusterOptions {
  readonly api: Pick<TestApi, "url" | "ca" | "admin">;
  /** Where states, sockets, tokens and logs go; short, because a socket's path has 107 bytes at most. */
  readonly folder: string;
  readonly nodes: readonly string[];
  /** Of the nodes; what pools may select by. */
  readonly labels?: Readonly<Record<string, string>>;
  readonly pools: readonly Manifest[];
  /** Of the pods. */
  readonly namespace: string;
  /** Beside those that every agent has here. */
  readonly agentFlags?: readonly string[];
  readonly serverFlags?: readonly string[];
}

/** Every object is written before the answer, and nothing is kept in stock: for tests that compare objects as soon as they are answered. */
export const calicosDurability = ["--commit", "sync", "--handles", "eager"];

/** What an operator has in the cluster before Cattail: kinds, access rules, pools, nodes. */
export async function prepare(options: ClusterOptions): Promise<void> {
  const { admin } = options.api;
  await installCrds(admin, "crd");
  await installAccess(admin);
  await admin.ensure({
    apiVersion: crd,
    kind: "ClusterInformation",
    metadata: { name: "default" },
    spec: { clusterGUID: "a44cf4ff6a8b4d8f9a4d4d9a3a5c2f1e", datastoreReady: true },
  });
  await admin.ensure({ apiVersion: "v1", kind: "Namespace", metadata: { name: options.namespace } });
  for (const pool of options.pools) await admin.create(pool);
  const { labels } = options;
  for (const name of options.nodes) await admin.create({ apiVersion: "v1", kind: "Node", metadata: { name, labels } });
}

export function ipPool(name: string, cidr: string, spec: Readonly<Record<string, unknown>> = {}): Manifest {
  return { apiVersion: crd, kind: "IPPool", metadata: { name }, spec: { cidr, nodeSelector: "all()", ...spec } };
}

export class Cluster {
  readonly options: ClusterOptions;
  readonly server: ServerProcess;
  readonly agents: ReadonlyMap<string, AgentProcess>;

  private constructor(options: ClusterOptions, server: ServerProcess, agents: ReadonlyMap<string, AgentProcess>) {
    this.options = options;
    this.server = server;
    this.agents = agents;
  }

  /** Returns once the server and every agent say that they are ready. */
  static async start(options: ClusterOptions): Promise<Cluster> {
    const server = await ServerProcess.create(options);
    const agents = new Map<string, AgentProcess>();
    const cluster = new Cluster(options, server, agents);
    try {
      await server.start();
      for (const node of options.nodes) agents.set(node, await AgentProcess.create(options, node, server.streamUrl));
      await Promise.all([...agents.values()].map((agent) => agent.start()));
    } catch (cause) {
      await cluster.stop();
      throw cause;
    }
    return cluster;
  }

  agent(node: string): AgentProcess {
    const agent = this.agents.get(node);
    if (agent === undefined) throw new Error(`no agent on ${node}`);
    return agent;
  }

  /** Fails unless server and agents hold exactly what the API server has, object by object. */
  async agreesWithApi(): Promise<void> {
    const { admin } = this.options.api;
    for (const kind of kinds) {
      const objects = await objectsOf(admin, kind);
      assert.deepEqual(await this.server.objects(kind), objects, `the server's ${kind}s`);
      for (const [node, agent] of this.agents) {
        assert.deepEqual(await agent.objects(kind), concerning(node, kind, objects), `${kind}s on ${node}`);
      }
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.agents.values()].map((agent) => agent.kill("SIGTERM")));
    await this.server.kill("SIGTERM");
  }
}

interface Ports {
  readonly http: number;
  readonly admin: number;
}

async function freePorts(): Promise<Ports> {
  return { http: await freePort(), admin: await freePort() };
}

/** One executable with its health page; it can be killed and started again with the same flags. */
abstract class Executable {
  readonly url: string;
  readonly adminUrl: string;
  readonly #script: string;
  readonly #flags: readonly string[];
  readonly #logFile: string;
  #daemon: Daemon | undefined;

  protected constructor(script: string, flags: readonly string[], logFile: string, ports: Ports) {
    this.#script = join(root, script);
    const own = [
      "--ports-http",
      String(ports.http),
      "--ports-admin",
      String(ports.admin),
      "--listen-http",
      "127.0.0.1",
    ];
    this.#flags = [...flags, ...own, "--log-format", "json"];
    this.#logFile = logFile;
    this.url = `http://127.0.0.1:${ports.http}`;
    this.adminUrl = `http://127.0.0.1:${ports.admin}`;
  }

  /** What it holds of one kind, by name. */
  async objects(kind: Kind): Promise<Record<string, unknown>> {
    return (await (await fetch(`${this.adminUrl}/api/v1/objects?kind=${kind}`)).json()) as Record<string, unknown>;
  }

  /** 0: it does not run. */
  get pid(): number {
    return this.#daemon?.pid ?? 0;
  }

  async start(): Promise<void> {
    this.launch();
    await this.ready();
  }

  launch(): void {
    this.#daemon = startDaemon(process.execPath, [this.#script, ...this.#flags], this.#logFile);
  }

  /** What a readiness probe asks. */
  async ready(): Promise<void> {
    await until(`${this.#script} is ready`, async () => {
      if (this.#daemon?.running() !== true) throw new Error(`it ended. ${await this.#daemon?.lastWords()}`);
      return (await statusOf(`${this.url}/readyz`)) === 200;
    }).catch(async (cause: unknown) => {
      throw new Error(`${this.#script} did not become ready. ${await this.#daemon?.lastWords()}`, { cause });
    });
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    await this.#daemon?.kill(signal);
    this.#daemon = undefined;
  }
}

export class ServerProcess extends Executable {
  readonly streamUrl: string;

  private constructor(flags: readonly string[], logFile: string, ports: Ports, stream: number) {
    super("server/main.ts", flags, logFile, ports);
    const scheme = flags.includes("--tls-cert-file") ? "wss" : "ws";
    this.streamUrl = `${scheme}://127.0.0.1:${stream}`;
  }

  static async create({
    api,
    folder,
    serverFlags = [],
  }: Omit<ClusterOptions, "nodes" | "pools" | "namespace">): Promise<ServerProcess> {
    const token = await api.admin.createToken(serverAccount.namespace, serverAccount.name);
    const kubeconfig = join(folder, "server.kubeconfig");
    await writeFile(kubeconfig, api.admin.as(token).kubeconfig(), { mode: 0o600 });
    const stream = await freePort();
    const own = ["--kubeconfig", kubeconfig, "--ports-stream", String(stream), "--listen-stream", "127.0.0.1"];
    const flags = [...own, ...serverFlags];
    return new ServerProcess(flags, join(folder, "server.log"), await freePorts(), stream);
  }
}

export class AgentProcess extends Executable {
  readonly node: string;
  readonly stateFolder: string;
  readonly socket: string;
  readonly spool: string;

  private constructor(node: string, folder: string, flags: readonly string[], ports: Ports) {
    super("node-agent/main.ts", flags, join(folder, "agent.log"), ports);
    this.node = node;
    this.stateFolder = join(folder, "state");
    this.socket = join(folder, "agent.sock");
    this.spool = join(this.stateFolder, "spool");
  }

  static async create({ api, folder, ...rest }: ClusterOptions, node: string, stream: string): Promise<AgentProcess> {
    const own = join(folder, node);
    await mkdir(join(own, "state", "spool"), { recursive: true });
    await mkdir(join(own, "bin"), { recursive: true });
    await symlink(cniExecutable, join(own, "bin", "calico-ipam"));
    const tokenFile = join(own, "token");
    await writeFile(tokenFile, await agentToken({ api, folder, ...rest }.api.admin, node), { mode: 0o600 });
    const paths = ["--state-dir", join(own, "state"), "--socket", join(own, "agent.sock"), "--token-file", tokenFile];
    const flags = ["--node-name", node, "--server", stream, ...paths, ...(rest.agentFlags ?? [])];
    return new AgentProcess(node, own, flags, await freePorts());
  }

  runtime(ipam: Readonly<Record<string, unknown>> = {}): Runtime {
    const executable = join(this.stateFolder, "..", "bin", "calico-ipam");
    return new Runtime({ executable, socket: this.socket, spool: this.spool, nodeName: this.node, ipam });
  }
}

/** As kubelet projects it into the agent's pod: bound to that pod, which is on this node. A real kubelet may see the pod, and finds no image. */
export async function agentToken(admin: ApiClient, node: string): Promise<string> {
  const { namespace, name: serviceAccountName } = agentAccount;
  const name = `cattail-agent-${node}`;
  const pod = (await admin.must("POST", `/api/v1/namespaces/${namespace}/pods`, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace },
    spec: {
      nodeName: node,
      serviceAccountName,
      hostNetwork: true,
      containers: [{ name: "agent", image: "cattail", imagePullPolicy: "Never" }],
    },
  })) as { metadata: { uid: string } };
  const boundObject = { apiVersion: "v1", kind: "Pod", name, uid: pod.metadata.uid };
  return admin.createToken(namespace, serviceAccountName, { audiences: [tokenAudience], boundObject });
}

/** 0: no answer. */
function statusOf(url: string): Promise<number> {
  return new Promise((resolve) => {
    const request = http.get(url, (response) => {
      response.resume();
      response.on("end", () => resolve(response.statusCode ?? 0));
    });
    request.on("error", () => resolve(0));
  });
}
