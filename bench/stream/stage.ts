// What the stream's benchmarks run on: the embedded API server in this process, the real server executable in processes of its own, and
// blocks whose every write carries its time. Leaves the clients to crowd.ts and what is measured to the benchmarks.
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { apiPath, blockName } from "../../shared/calico/names.ts";
import type { NodeName } from "../../shared/kinds.ts";
import { agentToken, ipPool, prepare, ServerProcess, tokenAudience } from "../../test/cluster/cluster.ts";
import { temporaryFolder } from "../../test/cluster/daemon.ts";
import { type EmbeddedApi, startEmbedded } from "../../test/cluster/embedded.ts";
import { loopbackCertificate } from "../../test/kube-api/certificate-shell.ts";
import { nowUs, sleep } from "../machine.ts";
import { apiObject, type BenchBlock, benchBlock, stampPatch } from "./blocks.ts";
import { Crowd } from "./crowd.ts";

export interface StageOptions {
  readonly nodes: number;
  /** Shared out among the nodes in turn. */
  readonly blocks: number;
  readonly servers: number;
  readonly tls: boolean;
}

const observer = { namespace: "cattail-system", name: "cattail-observer" };

export class Stage {
  readonly api: EmbeddedApi;
  readonly servers: readonly ServerProcess[];
  readonly blocks: readonly BenchBlock[];
  readonly nodes: readonly NodeName[];
  readonly #ca: string | undefined;
  #written = 0;

  private constructor(
    api: EmbeddedApi,
    servers: Stage["servers"],
    blocks: Stage["blocks"],
    nodes: Stage["nodes"],
    ca: string | undefined,
  ) {
    this.api = api;
    this.servers = servers;
    this.blocks = blocks;
    this.nodes = nodes;
    this.#ca = ca;
  }

  /** Returns once every server is ready. */
  static async open({ nodes: nodeCount, blocks: blockCount, servers: serverCount, tls }: StageOptions): Promise<Stage> {
    const folder = await temporaryFolder("bench");
    const api = await startEmbedded();
    const options = { api, folder, nodes: [], pools: [ipPool("pool", "10.0.0.0/8")], namespace: "shop" };
    await prepare(options);
    await api.admin.ensure({ apiVersion: "v1", kind: "ServiceAccount", metadata: observer });
    const nodes = Array.from({ length: nodeCount }, (_, index) => `node-${index}` as NodeName);
    api.kube.seed(nodes.map((name) => ({ apiVersion: "v1", kind: "Node", metadata: { name } })));
    const blocks = Array.from({ length: blockCount }, (_, index) =>
      benchBlock(index, nodes[index % nodeCount] ?? ("" as NodeName)),
    );
    api.kube.seed(blocks.map(apiObject));
    const { flags, ca } = tls ? await certificateIn(folder) : { flags: [], ca: undefined };
    const serverFlags = [...flags, "--auth-observers", `${observer.namespace}/${observer.name}`];
    const servers = await Promise.all(
      Array.from({ length: serverCount }, async (_, index) => {
        const own = join(folder, `server-${index}`);
        await mkdir(own);
        return ServerProcess.create({ api, folder: own, serverFlags });
      }),
    );
    await Promise.all(servers.map((server) => server.start()));
    return new Stage(api, servers, blocks, nodes, ca);
  }

  /** Clients that see everything. */
  async observers(count: number): Promise<Crowd> {
    const token = await this.api.admin.createToken(observer.namespace, observer.name, { audiences: [tokenAudience] });
    return this.#crowd(
      Array.from({ length: count }, () => ({ node: undefined, token })),
      false,
    );
  }

  /** One client for each node. They resume. */
  async agents(): Promise<Crowd> {
    const clients: { node: string; token: string }[] = [];
    for (const node of this.nodes) clients.push({ node, token: await agentToken(this.api.admin, node) });
    return this.#crowd(clients, true);
  }

  #crowd(clients: readonly { node: string | undefined; token: string }[], remembers: boolean): Crowd {
    const urls = this.servers.map(({ streamUrl }) => streamUrl);
    return Crowd.connect({ server: { urls, ca: this.#ca }, remembers, clients });
  }

  /** Changes one block after the other, each write with its time in it. */
  async write(perSecond: number, seconds: number): Promise<number> {
    const began = performance.now();
    const count = Math.round(perSecond * seconds);
    const under: Promise<unknown>[] = [];
    for (let index = 0; index < count; index++) {
      const waitMs = began + (index * 1000) / perSecond - performance.now();
      if (waitMs > 1) await sleep(waitMs);
      under.push(this.writeOne());
    }
    await Promise.all(under);
    return count;
  }

  async writeOne(): Promise<void> {
    const block = this.blocks[this.#written++ % this.blocks.length];
    if (block === undefined) return;
    await this.api.admin.must("PATCH", apiPath("crd", "block", blockName(block.cidr)), stampPatch(block, nowUs()));
  }

  async close(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.kill("SIGTERM")));
    await this.api.stop();
  }
}

async function certificateIn(folder: string): Promise<{ readonly flags: readonly string[]; readonly ca: string }> {
  const { cert, key } = loopbackCertificate();
  const [certFile, keyFile] = [join(folder, "tls.crt"), join(folder, "tls.key")];
  await writeFile(certFile, cert);
  await writeFile(keyFile, key, { mode: 0o600 });
  return { flags: ["--tls-cert-file", certFile, "--tls-key-file", keyFile], ca: cert };
}
