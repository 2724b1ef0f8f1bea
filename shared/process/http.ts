// Small HTTP pages: a listener with limits, and the pages that every daemon has on its HTTP port (ux 7).
// Leaves to others: what the answers say (health, metrics), the pages of the admin port (admin.ts).
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { kinds } from "../calico/resources.ts";
import type { Version } from "../config/report.ts";
import type { Health, Probe } from "../health.ts";
import { Failure } from "../kinds.ts";
import type { Logger } from "../log.ts";
import { type Holdings, printObjects } from "../protocol/objects.ts";
import type { Metrics } from "./metrics.ts";

export interface PageRequest {
  readonly query: URLSearchParams;
  readonly accept: string;
}
export interface PageAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}
export type Answer = (request: PageRequest) => PageAnswer | Promise<PageAnswer>;
export interface Page {
  readonly get: Answer;
  readonly post?: Answer;
}
/** By path. */
export type Pages = ReadonlyMap<string, Page>;

export interface Listener {
  /** "127.0.0.1:4483", as it really is when any free port was asked for. */
  readonly listen: string;
  readonly port: number;
  close(): Promise<void>;
}

export interface ListenOptions {
  /** Undefined = all addresses. */
  readonly host: string | undefined;
  /** 0 = any free one: that 0 switches a port off is decided by whoever reads the configuration. */
  readonly port: number;
  readonly logger: Logger;
  /** An answer here keeps the request from its page. */
  readonly guard?: (request: IncomingMessage) => PageAnswer | undefined;
}

/** Scrapers, probes and a few people. */
const maxConnections = 256;
const requestTimeoutMs = 10_000;
const maxHeaderBytes = 8192;

export function listenPages(pages: Pages, options: ListenOptions): Promise<Listener> {
  const server = createServer(
    { requestTimeout: requestTimeoutMs, headersTimeout: requestTimeoutMs, maxHeaderSize: maxHeaderBytes },
    (request, response) => {
      answer(pages, request, options)
        .catch((err: unknown) => {
          options.logger.error("Could not answer a page", { path: request.url, err });
          return text(500, "this page is broken, see the log\n");
        })
        .then((reply) => send(response, reply));
    },
  );
  server.maxConnections = maxConnections;
  return listen(server, options);
}

function listen(server: Server, { host, port }: ListenOptions): Promise<Listener> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => {
      const where = host === undefined ? `port ${port}` : `${host} port ${port}`;
      reject(new Failure("bad-config", `cannot listen on ${where}`, { cause }));
    });
    server.listen({ port, host }, () => {
      const at = server.address();
      if (at === null || typeof at === "string") return;
      resolve({
        listen: at.family === "IPv6" ? `[${at.address}]:${at.port}` : `${at.address}:${at.port}`,
        port: at.port,
        close: () =>
          new Promise((closed) => {
            server.close(() => closed());
            server.closeAllConnections();
          }),
      });
    });
  });
}

async function answer(pages: Pages, request: IncomingMessage, { guard }: ListenOptions): Promise<PageAnswer> {
  const refused = guard?.(request);
  if (refused !== undefined) return refused;
  // No URL(): it throws on what a scanner sends.
  const [path = "/", query = ""] = (request.url ?? "/").split("?", 2);
  const page = pages.get(path);
  if (page === undefined) return text(404, `no such page; there are ${[...pages.keys()].join(" ")}\n`);
  const isRead = request.method === "GET" || request.method === "HEAD";
  const give = isRead ? page.get : request.method === "POST" ? page.post : undefined;
  if (give === undefined) return text(405, `${request.method} is not for this page\n`);
  return give({ query: new URLSearchParams(query), accept: request.headers.accept ?? "" });
}

function send(response: ServerResponse, { status, contentType, body }: PageAnswer): void {
  response.writeHead(status, {
    "content-type": contentType,
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  response.end(body);
}

export function text(status: number, body: string): PageAnswer {
  return { status, contentType: "text/plain; charset=utf-8", body };
}

export function json(status: number, value: unknown): PageAnswer {
  return { status, contentType: "application/json", body: `${JSON.stringify(value)}\n` };
}

/** `/api/v1/objects?kind=block`: what this process holds, by name, as on the stream. */
export function objectsPage(held: Holdings): Page {
  return {
    get({ query }) {
      const kind = query.get("kind") ?? "";
      const body = printObjects(kind, held);
      if (body === undefined) return text(400, `kind is "${kind}"; it must be one of ${kinds.join(", ")}\n`);
      return { status: 200, contentType: "application/json", body: `${body}\n` };
    },
  };
}

/** What is on the network port: counts and words, no address, pod or node (ux 0.7). */
export function networkPages(parts: {
  readonly health: Health;
  readonly metrics: Metrics;
  readonly version: Version;
}): Pages {
  const probe = (which: Probe): Page => ({
    get: ({ query }) => {
      const report = parts.health.report(which, { verbose: query.has("verbose"), exclude: query.getAll("exclude") });
      return text(report.ok ? 200 : 503, report.text);
    },
  });
  return new Map([
    ["/livez", probe("live")],
    ["/healthz", probe("live")],
    ["/readyz", probe("ready")],
    ["/version", { get: () => json(200, parts.version) }],
    ["/metrics", { get: async ({ accept }) => ({ status: 200, ...(await parts.metrics.render(accept)) }) }],
  ]);
}
