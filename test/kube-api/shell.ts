// Starts the embedded Kubernetes API server: a real HTTP(S) server that kubectl can talk to, with nothing but Node behind it.
// Ties the pure parts to sockets, clock, randomness and keys; used by tests, the demo and main.ts.
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { systemClock, systemRandom } from "../../shared/process/world.ts";
import type { Clock, Random } from "../../shared/world.ts";
import { ApiServer } from "./api-server.ts";
import { type Certificate, loopbackCertificate } from "./certificate-shell.ts";
import { Faults } from "./faults.ts";
import { requestListener } from "./http-shell.ts";
import type { JsonObject } from "./json.ts";
import { RequestLog } from "./log.ts";
import { mastersGroup } from "./rbac.ts";
import type { User } from "./request.ts";
import { defaultHistoryLimit } from "./store.ts";
import { tokenSigner } from "./tokens-shell.ts";

export interface KubeApiOptions {
  /** 0 or absent: any free port. */
  readonly port?: number;
  readonly host?: string;
  /** HTTPS with this certificate, or with one made for loopback. kubectl sends its token over HTTPS only. */
  readonly tls?: boolean | Certificate;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly rbac?: boolean;
  readonly anonymous?: boolean;
  /** Fixed tokens besides the administrator's. */
  readonly tokens?: ReadonlyMap<string, User>;
  readonly adminToken?: string;
  readonly bookmarkEveryMs?: number;
  readonly historyLimit?: number;
  /** Objects to begin with, such as the definitions of custom resources. */
  readonly seed?: readonly unknown[];
}

export interface KubeApi {
  readonly url: string;
  readonly adminToken: string;
  /** PEM of what its certificate is to be checked with; absent: plain HTTP. */
  readonly ca: string | undefined;
  readonly faults: Faults;
  readonly log: RequestLog;
  /** The decision core, for what has no name here. */
  readonly server: ApiServer;
  /** Writes a kubeconfig for this server; the administrator's token unless another is given. */
  kubeconfig(file: string, token?: string): Promise<string>;
  objects(plural: string, group?: string): JsonObject[];
  seed(objects: readonly unknown[]): void;
  /** The newest resourceVersion. */
  version(): number;
  /** Forgets history: older watches and pages get 410. */
  compact(version?: number): void;
  /** Sets the whole state back, as an etcd restored from a backup. */
  restoreTo(version: number): void;
  /** Cuts every connection; clients come back. */
  disconnectAll(): void;
  stop(): Promise<void>;
}

/** The issuer that kubeadm clusters have. */
const issuer = "https://kubernetes.default.svc.cluster.local";

export async function startKubeApi(options: KubeApiOptions = {}): Promise<KubeApi> {
  const clock = options.clock ?? systemClock;
  let url = "";
  const adminToken = options.adminToken ?? randomBytes(16).toString("hex");
  const admin: User = { username: "kubernetes-admin", groups: [mastersGroup] };
  const server = new ApiServer({
    clock,
    random: options.random ?? systemRandom,
    signer: tokenSigner(),
    issuer,
    address: () => url,
    tokens: new Map([[adminToken, admin], ...(options.tokens ?? [])]),
    rbac: options.rbac ?? false,
    anonymous: options.anonymous ?? false,
    bookmarkEveryMs: options.bookmarkEveryMs ?? 60_000,
    historyLimit: options.historyLimit ?? defaultHistoryLimit,
  });
  server.seed(options.seed ?? []);
  const faults = new Faults();
  const log = new RequestLog();
  const listener = requestListener({ server, faults, log, clock });
  const certificate = options.tls === true ? loopbackCertificate() : options.tls || undefined;
  const http = certificate === undefined ? createServer(listener) : createTlsServer(certificate, listener);
  // A watch may be silent for minutes; clients end connections, not the server.
  http.requestTimeout = 0;
  http.keepAliveTimeout = idleConnectionMs;
  http.timeout = 0;
  const host = options.host ?? "127.0.0.1";
  await listen(http, options.port ?? 0, host);
  const { port } = http.address() as AddressInfo;
  url = `${certificate === undefined ? "http" : "https"}://${host.includes(":") ? `[${host}]` : host}:${port}`;
  const ca = certificate?.cert;
  return {
    url,
    adminToken,
    ca,
    faults,
    log,
    server,
    kubeconfig: async (file, token = adminToken) => {
      await writeFile(file, kubeconfigText(url, token, ca), { mode: 0o600 });
      return file;
    },
    objects: (plural, group) => server.objects(plural, group),
    seed: (objects) => server.seed(objects),
    version: () => server.store.version,
    compact: (version) => server.store.compact(version),
    restoreTo: (version) => server.restoreTo(version),
    disconnectAll: () => http.closeAllConnections(),
    stop: () => close(http),
  };
}

function listen(http: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen(port, host, resolve);
  });
}

function close(http: Server): Promise<void> {
  return new Promise((resolve) => {
    http.close(() => resolve());
    http.closeAllConnections();
  });
}

/** As the real server has it; Node's own 5 s would meet clients just as they send their next request. */
const idleConnectionMs = 90_000;

/** JSON is YAML too. */
function kubeconfigText(url: string, token: string, ca: string | undefined): string {
  const authority = ca === undefined ? {} : { "certificate-authority-data": Buffer.from(ca).toString("base64") };
  return `${JSON.stringify(
    {
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "embedded", cluster: { server: url, ...authority } }],
      users: [{ name: "user", user: { token } }],
      contexts: [{ name: "embedded", context: { cluster: "embedded", user: "user" } }],
      "current-context": "embedded",
    },
    undefined,
    2,
  )}\n`;
}
