// Where the API server is and how we prove who we are: in a pod, by a kubeconfig, or by plain URL. Follows files as they are rotated.
// Leaves requests to http-shell.ts. @kubernetes/client-node only reads kubeconfigs here; loading it costs 0.4 s, so it is loaded on demand.
import { readFile } from "node:fs/promises";
import type { RequestOptions } from "node:https";
import { Failure, type Instant } from "../kinds.ts";
import type { Clock } from "../world.ts";

/** The same object as long as nothing in it changed: sockets are shared by it. */
export interface Identity {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly serverName?: string | undefined;
  readonly insecure?: boolean | undefined;
}

export interface Credentials {
  readonly authorization?: string | undefined;
  readonly tls: Identity;
}

export interface Connection {
  readonly server: URL;
  /** As last read; read again when that is long ago. */
  credentials(): Promise<Credentials>;
  /** Reads them again: the API server has refused the ones we have. False = they are the same. */
  refresh(): Promise<boolean>;
}

const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";
/** Files are rotated long before they end (kube-watch 11): a minute less ten seconds, as client-go. */
const rereadMs = 50_000;

/** In a pod, from its environment and its mounted service account. */
export function connectInCluster(
  env: Readonly<Record<string, string | undefined>>,
  clock: Clock,
  folder = accountFolder,
): Connection {
  const host = env.KUBERNETES_SERVICE_HOST;
  const port = env.KUBERNETES_SERVICE_PORT ?? "443";
  if (!host) throw new Failure("bad-config", "not in a pod: KUBERNETES_SERVICE_HOST is not set");
  const server = new URL(`https://${host.includes(":") ? `[${host}]` : host}:${port}`);
  return connection(server, clock, async (before) => {
    const token = await text(`${folder}/token`);
    const ca = await text(`${folder}/ca.crt`);
    // A file that is missing or empty is being written: the old content is as good as any.
    const authorization = token ? `Bearer ${token}` : before?.authorization;
    if (authorization === undefined) throw new Failure("bad-config", `cannot read the token at ${folder}/token`);
    return { authorization, tls: { ca: ca || before?.tls.ca } };
  });
}

/** A URL and what goes with it, all of it fixed. Plain HTTP is meant for API servers on this machine. */
export function connectTo(url: string, options: { readonly token?: string; readonly ca?: string } = {}): Connection {
  const { token, ca } = options;
  const credentials: Credentials = { authorization: token === undefined ? undefined : `Bearer ${token}`, tls: { ca } };
  return { server: new URL(url), credentials: async () => credentials, refresh: async () => false };
}

/** Without a file it is looked for as kubectl does: KUBECONFIG, the home directory, the pod's account. */
export async function connectByKubeconfig(
  file: string | undefined,
  clock: Clock,
  context?: string,
): Promise<Connection> {
  const { KubeConfig } = await import("@kubernetes/client-node");
  const what = file === undefined ? "the kubeconfig" : `the kubeconfig ${file}`;
  const load = () => {
    const config = new KubeConfig();
    try {
      if (file === undefined) config.loadFromDefault();
      else config.loadFromFile(file);
    } catch (cause) {
      throw new Failure("bad-config", `cannot read ${what}`, { cause });
    }
    if (context !== undefined) config.setCurrentContext(context);
    const cluster = config.getCurrentCluster();
    if (cluster === null) throw new Failure("bad-config", `${what} names no cluster to use`);
    if (cluster.proxyUrl) throw new Failure("bad-config", `${what} asks for a proxy, which is not supported`);
    return { config, cluster };
  };
  return connection(new URL(load().cluster.server), clock, async () => {
    // Afresh each time: certificates and tokens in the file may have been replaced.
    const { config, cluster } = load();
    // client-node applies nothing to plain HTTP unless verification, which there is none of, is off.
    if (cluster.server.startsWith("http:")) config.clusters = [{ ...cluster, skipTLSVerify: true }];
    const options: RequestOptions = {};
    await config.applyToHTTPSOptions(options);
    const headers = new Headers(options.headers as Record<string, string>);
    return {
      authorization: headers.get("authorization") ?? undefined,
      tls: {
        ca: pem(options.ca),
        cert: pem(options.cert),
        key: pem(options.key),
        serverName: cluster.tlsServerName,
        insecure: cluster.skipTLSVerify,
      },
    };
  });
}

function connection(
  server: URL,
  clock: Clock,
  read: (before: Credentials | undefined) => Promise<Credentials>,
): Connection {
  let current: Credentials | undefined;
  let readAt = clock.monotonic();
  let reading: Promise<Credentials> | undefined;
  const reread = async (): Promise<Credentials> => {
    const next = await read(current);
    const tls = current && sameIdentity(current.tls, next.tls) ? current.tls : next.tls;
    current = { ...next, tls };
    readAt = clock.monotonic();
    return current;
  };
  const once = (): Promise<Credentials> => {
    reading ??= reread().finally(() => {
      reading = undefined;
    });
    return reading;
  };
  return {
    server,
    credentials: async () => {
      if (current === undefined) return once();
      return isOld(readAt, clock) ? once().catch(() => current ?? once()) : current;
    },
    refresh: async () => {
      const before = current;
      const after = await once();
      return after.authorization !== before?.authorization || after.tls !== before?.tls;
    },
  };
}

function isOld(readAt: Instant, clock: Clock): boolean {
  return clock.monotonic() - readAt > rereadMs;
}

function sameIdentity(a: Identity, b: Identity): boolean {
  const parts = ["ca", "cert", "key", "serverName", "insecure"] as const;
  return parts.every((part) => a[part] === b[part]);
}

async function text(file: string): Promise<string> {
  return (await readFile(file, "utf8").catch(() => "")).trim();
}

/** What client-node read from the kubeconfig: text or bytes. */
function pem(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  return Array.isArray(value) ? value.map(String).join("\n") : String(value);
}
