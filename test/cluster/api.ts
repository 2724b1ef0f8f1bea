// A Kubernetes API server as tests see it, embedded or real, and a plain client of it.
// Leaves to test/kube-api and test/real/control-plane.ts how such a server comes to be; nothing here knows which of them it talks to.
import { readFile } from "node:fs/promises";
import * as http from "node:http";
import * as https from "node:https";
import { parseAllDocuments, stringify } from "yaml";
import { parseLossless, printLossless } from "../../shared/json/lossless.ts";
import type { Counted, LogEntry } from "../kube-api/log.ts";

/** One request as the API server saw it. `resource` includes the subresource (`pods/status`); a create has no name. */
export type SeenRequest = Pick<LogEntry, Counted>;

/** A position in the list of requests seen. */
export type RequestMark = number;

export interface TestApi {
  readonly url: string;
  /** PEM of what signed its certificate; undefined on plain HTTP. */
  readonly ca: string | undefined;
  /** Allowed everything. */
  readonly admin: ApiClient;
  mark(): Promise<RequestMark>;
  /** Every request that was answered and every watch that began before this call, first come first; all of them or those since a mark. */
  requests(since?: RequestMark): Promise<readonly SeenRequest[]>;
  stop(): Promise<void>;
}

export interface Answer {
  readonly status: number;
  /** Parsed losslessly; text when it is no JSON. */
  readonly body: unknown;
}

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly [key: string]: unknown };
  readonly [key: string]: unknown;
}

export interface TokenWish {
  /** Default: the API server's own. */
  readonly audiences?: readonly string[];
  readonly boundObject?: {
    readonly apiVersion: string;
    readonly kind: string;
    readonly name: string;
    readonly uid: string;
  };
  /** At least 600. */
  readonly seconds?: number;
}

/** A client certificate and its key, PEM. */
export interface ClientIdentity {
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

/** User-Agent of test and demo, which tells their requests from Cattail's. */
export const clientName = "cattail-test";

export class ApiClient {
  readonly url: string;
  readonly ca: string | undefined;
  readonly token: string | undefined;
  readonly #agent: http.Agent;

  constructor(url: string, ca: string | undefined, token: string | undefined, identity?: ClientIdentity) {
    this.url = url;
    this.ca = ca;
    this.token = token;
    this.#agent = url.startsWith("https:")
      ? new https.Agent({ ca, ...identity, keepAlive: true })
      : new http.Agent({ keepAlive: true });
  }

  /** The same server under another token. */
  as(token: string): ApiClient {
    return new ApiClient(this.url, this.ca, token);
  }

  /** Any request, any outcome; rejects only when no answer came. A PATCH is a JSON merge patch unless `contentType` says otherwise. */
  async call(
    method: string,
    path: string,
    body?: unknown,
    contentType = mediaTypes[method] ?? "application/json",
  ): Promise<Answer> {
    const response = await this.#send(method, path, body === undefined ? undefined : printLossless(body), contentType);
    const chunks = await response.toArray();
    const text = Buffer.concat(chunks).toString();
    const isJson = response.headers["content-type"]?.startsWith("application/json");
    return { status: response.statusCode ?? 0, body: isJson ? parseLossless(text) : text };
  }

  /** A watch: its answer as it comes, for whoever reads it; ends when that one destroys it. */
  async open(path: string): Promise<http.IncomingMessage> {
    const response = await this.#send("GET", path, undefined, "application/json");
    if (response.statusCode === 200) return response;
    throw new Error(`GET ${path} was answered ${response.statusCode}: ${(await response.toArray()).join("")}`);
  }

  /** As `call`, for requests that are meant to succeed. */
  async must(method: string, path: string, body?: unknown): Promise<unknown> {
    const answer = await this.call(method, path, body);
    if (answer.status < 300) return answer.body;
    throw new Error(`${method} ${path} was answered ${answer.status}: ${JSON.stringify(answer.body)}`);
  }

  /** Resolves with the object as stored. */
  async create(manifest: Manifest): Promise<Manifest> {
    return (await this.must("POST", collectionPath(manifest), manifest)) as Manifest;
  }

  /** Creates it unless there is one of that name. */
  async ensure(manifest: Manifest): Promise<void> {
    const answer = await this.call("POST", collectionPath(manifest), manifest);
    if (answer.status < 300 || (answer.body as { reason?: string }).reason === "AlreadyExists") return;
    throw new Error(
      `${manifest.kind} ${manifest.metadata.name} was answered ${answer.status}: ${JSON.stringify(answer.body)}`,
    );
  }

  /** Ensures every document of the YAML files, in order. */
  async ensureFrom(...files: readonly string[]): Promise<void> {
    for (const file of files) for (const manifest of await readManifests(file)) await this.ensure(manifest);
  }

  async createToken(namespace: string, serviceAccount: string, wish: TokenWish = {}): Promise<string> {
    const { audiences, boundObject: boundObjectRef, seconds: expirationSeconds = 3600 } = wish;
    const path = `/api/v1/namespaces/${namespace}/serviceaccounts/${serviceAccount}/token`;
    const request = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest" };
    const answer = await this.must("POST", path, {
      ...request,
      spec: { audiences, boundObjectRef, expirationSeconds },
    });
    return (answer as { status: { token: string } }).status.token;
  }

  /** Text of a kubeconfig file with this client's token. */
  kubeconfig(): string {
    const data = this.ca === undefined ? {} : { "certificate-authority-data": Buffer.from(this.ca).toString("base64") };
    return stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "test", cluster: { server: this.url, ...data } }],
      users: [{ name: "test", user: { token: this.token } }],
      contexts: [{ name: "test", context: { cluster: "test", user: "test" } }],
      "current-context": "test",
    });
  }

  #send(method: string, path: string, body: string | undefined, contentType: string): Promise<http.IncomingMessage> {
    const headers = {
      ...(this.token === undefined ? {} : { authorization: `Bearer ${this.token}` }),
      accept: "application/json",
      "user-agent": clientName,
      ...(body === undefined ? {} : { "content-type": contentType, "content-length": Buffer.byteLength(body) }),
    };
    const { request } = this.url.startsWith("https:") ? https : http;
    return new Promise((resolve, reject) => {
      const sent = request(`${this.url}${path}`, { method, headers, agent: this.#agent }, resolve);
      sent.on("error", reject);
      sent.end(body);
    });
  }
}

const mediaTypes: Readonly<Record<string, string>> = { PATCH: "application/merge-patch+json" };

/**
 * Asks until the answer is yes. For what an API server does behind its answers and tells nobody (a new kind being served, a role binding
 * being in force); whatever has an event is waited for by its event.
 */
export async function until(what: string, holds: () => Promise<boolean>, limitMs = 30_000): Promise<void> {
  const deadline = performance.now() + limitMs;
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`waited ${limitMs} ms in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function readManifests(file: string): Promise<readonly Manifest[]> {
  const documents = parseAllDocuments(await readFile(file, "utf8"));
  return documents.map((document) => document.toJS() as Manifest).filter((manifest) => manifest !== null);
}

export function collectionPath({ apiVersion, kind, metadata }: Manifest): string {
  const root = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const scope = metadata.namespace === undefined ? "" : `/namespaces/${metadata.namespace}`;
  return `${root}${scope}/${plural(kind)}`;
}

/** True for every kind that we use. */
function plural(kind: string): string {
  return `${kind.toLowerCase()}s`.replace(/ys$/, "ies");
}
