// A real etcd and kube-apiserver on loopback with RBAC on, in a temporary folder that goes away with them.
// Where the executables come from is left to parts.ts; what tests ask of an API server stands in test/cluster/api.ts.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ApiClient, type RequestMark, type SeenRequest, type TestApi, until } from "../cluster/api.ts";
import { type Daemon, freePort, startDaemon, temporaryFolder } from "../cluster/daemon.ts";
import { AuditLog } from "./audit-log.ts";
import { realPart } from "./parts.ts";

export async function startControlPlane(): Promise<ControlPlane> {
  const executables = { etcd: await realPart("etcd"), apiServer: await realPart("kube-apiserver") };
  const folder = await temporaryFolder("cattail-control-plane");
  await writeCredentials(folder);
  const etcdUrl = `http://127.0.0.1:${await freePort()}`;
  const etcdFlags = flagsOfEtcd(folder, etcdUrl, `http://127.0.0.1:${await freePort()}`);
  const etcd = startDaemon(executables.etcd, etcdFlags, join(folder, "etcd.log"));
  const port = await freePort();
  const flags = flagsOfApiServer(folder, etcdUrl, port);
  const launch = () => launchApiServer(executables.apiServer, flags, folder, `https://127.0.0.1:${port}`);
  try {
    return new ControlPlane(folder, etcd, launch, await launch());
  } catch (cause) {
    await etcd.kill("SIGKILL");
    throw new Error(`the control plane did not start. ${await etcd.lastWords()}`, { cause });
  }
}

export class ControlPlane implements TestApi {
  readonly url: string;
  readonly ca: string;
  readonly admin: ApiClient;
  readonly #folder: string;
  readonly #etcd: Daemon;
  readonly #launch: () => Promise<ApiServer>;
  #apiServer: ApiServer | undefined;
  /** What earlier runs of the API server saw. */
  #earlier: readonly SeenRequest[] = [];

  constructor(folder: string, etcd: Daemon, launch: () => Promise<ApiServer>, apiServer: ApiServer) {
    this.url = apiServer.url;
    this.ca = apiServer.ca;
    this.admin = new ApiClient(this.url, this.ca, adminToken);
    this.#folder = folder;
    this.#etcd = etcd;
    this.#launch = launch;
    this.#apiServer = apiServer;
  }

  async mark(): Promise<RequestMark> {
    return (await this.requests()).length;
  }

  async requests(since: RequestMark = 0): Promise<readonly SeenRequest[]> {
    const now = this.#apiServer === undefined ? [] : await seenBy(this.#apiServer);
    return [...this.#earlier, ...now].slice(since);
  }

  /** Without a word to anybody unless another signal is asked for; etcd stays, so what was acknowledged is there again after `startApiServer`. */
  async stopApiServer(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const stopped = this.#apiServer;
    if (stopped === undefined) return;
    this.#apiServer = undefined;
    await stopped.daemon.kill(signal);
    this.#earlier = [...this.#earlier, ...withoutOurs(await stopped.audit.close())];
  }

  /** At the same address, with the same certificate and keys. */
  async startApiServer(): Promise<void> {
    this.#apiServer ??= await this.#launch();
  }

  async stop(): Promise<void> {
    await this.stopApiServer();
    await this.#etcd.kill("SIGKILL");
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** One run of it. */
interface ApiServer {
  readonly url: string;
  readonly ca: string;
  readonly daemon: Daemon;
  readonly audit: AuditLog;
}

async function launchApiServer(
  executable: string,
  flags: readonly string[],
  folder: string,
  url: string,
): Promise<ApiServer> {
  // A file of its own: the last line of a killed run may be half a line.
  const auditPath = join(folder, `audit-${randomUUID()}.log`);
  const audit = await AuditLog.open(auditPath);
  const daemon = startDaemon(
    executable,
    [...flags, `--audit-log-path=${auditPath}`],
    join(folder, "kube-apiserver.log"),
  );
  try {
    return { url, ca: await ready(daemon, folder, url), daemon, audit };
  } catch (cause) {
    await daemon.kill("SIGKILL");
    throw new Error(`kube-apiserver did not start. ${await daemon.lastWords()}`, { cause });
  }
}

/** Resolves with the certificate authority, which the first run makes together with its certificate. */
async function ready(daemon: Daemon, folder: string, url: string): Promise<string> {
  let ca = "";
  await until(
    "kube-apiserver is ready",
    async () => {
      if (!daemon.running()) throw new Error("it ended by itself");
      ca = await readFile(join(folder, "apiserver.crt"), "utf8").catch(() => "");
      const answer = await new ApiClient(url, ca, ownToken).call("GET", "/readyz").catch(() => undefined);
      return answer?.status === 200;
    },
    startLimitMs,
  );
  return ca;
}

/** It takes 4 s on an idle machine with two cores. */
const startLimitMs = 120_000;

async function seenBy({ url, ca, audit }: ApiServer): Promise<readonly SeenRequest[]> {
  const last = `/version?last=${randomUUID()}`;
  await new ApiClient(url, ca, ownToken).must("GET", last);
  return withoutOurs(await audit.until(last));
}

function withoutOurs(requests: readonly SeenRequest[]): readonly SeenRequest[] {
  return requests.filter((request) => request.user !== ownUser);
}

const adminToken = randomUUID();
/** For the requests that the harness makes on its own account, which the record leaves out. */
const ownToken = randomUUID();
const ownUser = "cattail-test-harness";

async function writeCredentials(folder: string): Promise<void> {
  const keys = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    privateKeyEncoding: { type: "pkcs1", format: "pem" },
    publicKeyEncoding: { type: "spki", format: "pem" },
  });
  await writeFile(join(folder, "sa.key"), keys.privateKey, { mode: 0o600 });
  await writeFile(join(folder, "sa.pub"), keys.publicKey);
  const users = [`${adminToken},admin,1,system:masters`, `${ownToken},${ownUser},2,system:masters`];
  await writeFile(join(folder, "tokens.csv"), users.join("\n"), { mode: 0o600 });
  await writeFile(join(folder, "audit-policy.yaml"), auditPolicy);
}

/** The stage RequestReceived tells the reader of the log what is still to come. The API server's requests to itself are nobody's load. */
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  users: ["system:apiserver"]
- level: Metadata
`;

function flagsOfEtcd(folder: string, clientUrl: string, peerUrl: string): string[] {
  return [
    `--data-dir=${join(folder, "etcd")}`,
    `--listen-client-urls=${clientUrl}`,
    `--advertise-client-urls=${clientUrl}`,
    `--listen-peer-urls=${peerUrl}`,
    `--initial-advertise-peer-urls=${peerUrl}`,
    `--initial-cluster=default=${peerUrl}`,
    "--log-level=warn",
    "--unsafe-no-fsync", // survives kill -9; no test cuts the machine's power
  ];
}

function flagsOfApiServer(folder: string, etcdUrl: string, port: number): string[] {
  return [
    `--etcd-servers=${etcdUrl}`,
    "--bind-address=127.0.0.1",
    `--secure-port=${port}`,
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none", // the Service "kubernetes" may not point to a loopback address
    `--cert-dir=${folder}`,
    "--service-cluster-ip-range=10.96.0.0/16",
    "--authorization-mode=Node,RBAC",
    `--token-auth-file=${join(folder, "tokens.csv")}`,
    "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    `--service-account-signing-key-file=${join(folder, "sa.key")}`,
    `--service-account-key-file=${join(folder, "sa.pub")}`,
    "--disable-admission-plugins=ServiceAccount", // no controller makes the ServiceAccount "default" that it would ask for
    `--audit-policy-file=${join(folder, "audit-policy.yaml")}`,
    "--audit-log-mode=blocking",
    "--audit-log-maxsize=10000", // MB: the log must not be rotated away under its reader
  ];
}
