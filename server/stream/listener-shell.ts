// The stream's port: TLS, who may come in, and a readable answer for whoever may not. Hands admitted sockets to the hub.
// Leaves to identity.ts whom a token belongs to; nothing is read from a client before that is known.
import { createServer, type IncomingMessage, type Server, STATUS_CODES } from "node:http";
import { createServer as createTlsServer, type Server as TlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { Failure } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Certificate, Rotating } from "../../shared/process/files.ts";
import { maxClientFrameBytes, streamPath, subProtocol } from "../../shared/protocol/stream.ts";
import type { Random } from "../../shared/world.ts";
import type { Hub } from "./hub-shell.ts";
import type { Verifier } from "./identity.ts";

export interface Door {
  readonly hub: Hub;
  readonly verifier: Verifier;
}

export interface ListenerParts {
  /** Undefined: all addresses. */
  readonly host: string | undefined;
  /** 0: any free one. */
  readonly port: number;
  /** Without any the port is open to this machine only; as long as the one to come is not there, nobody gets in. */
  readonly certificate: Pick<Rotating<Certificate | undefined>, "current" | "onChange"> | undefined;
  /** A string: why nobody can be let in now. */
  readonly door: () => Door | string;
  readonly random: Random;
  readonly logger: Logger;
  readonly metrics: MetricHandles<typeof serverMetrics>;
}

export interface StreamListener {
  readonly url: string;
  readonly listen: string;
  close(): Promise<void>;
}

const headersLimitMs = 10_000;
const backlog = 4096;
/** Tokens being looked at: as many as the API server should be asked about at a time. */
const maxHandshakes = 200;
/** Clients that are turned away come back after 1 s to so many more. */
const retrySpreadSeconds = 4;

export async function listenStream(parts: ListenerParts): Promise<StreamListener> {
  const { certificate } = parts;
  const isPlain = certificate === undefined;
  const host = isPlain && !isLoopback(parts.host) ? "127.0.0.1" : parts.host;
  if (isPlain) {
    parts.logger.warn("Listens on this machine only, as the stream has no certificate", { option: "tls.certFile" });
  }
  const server = isPlain ? createServer(plainAnswer) : createTlsServer(tlsOptions(certificate.current()), plainAnswer);
  certificate?.onChange((pair) => (server as TlsServer).setSecureContext(tlsOptions(pair)));
  server.headersTimeout = headersLimitMs;
  server.requestTimeout = headersLimitMs;
  const sockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    clientTracking: false,
    maxPayload: maxClientFrameBytes,
    handleProtocols: () => subProtocol,
  });
  let handshakes = 0;
  server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // Until `ws` has its own, an error without a listener would end the process.
    socket.on("error", () => {});
    handshakes++;
    judge(request, parts, handshakes)
      .then((verdict) => {
        if (socket.destroyed) return;
        if (verdict.kind === "refused") return refuse(socket, verdict, parts);
        const { door, identity, token } = verdict;
        sockets.handleUpgrade(request, socket, head, (ws) => {
          const unfollow = door.verifier.follow(token, door.hub.accept(ws, socket, identity));
          ws.once("close", unfollow);
        });
      })
      .catch((err: unknown) => {
        parts.logger.error("Could not let a client in", { reason: "Internal", err });
        socket.destroy();
      })
      .finally(() => {
        handshakes--;
      });
  });
  await open(server, host, parts.port);
  const { address, family, port } = server.address() as AddressInfo;
  const shown = family === "IPv6" ? `[${address}]` : address;
  parts.logger.info("Opened the port for streams", { listen: `${shown}:${port}` });
  return {
    url: `${isPlain ? "ws" : "wss"}://${isWildcard(address) ? "127.0.0.1" : shown}:${port}${streamPath}`,
    listen: `${shown}:${port}`,
    close: () =>
      new Promise((closed) => {
        server.close(() => closed());
        server.closeAllConnections();
      }),
  };
}

type Refusal = {
  readonly status: number;
  readonly message: string;
  readonly counted: "auth" | "identity" | "rate" | "version";
};
type Judgement =
  | ({ readonly kind: "refused" } & Refusal)
  | {
      readonly kind: "admitted";
      readonly door: Door;
      readonly identity: Parameters<Hub["accept"]>[2];
      readonly token: string;
    };

async function judge(request: IncomingMessage, parts: ListenerParts, handshakes: number): Promise<Judgement> {
  const [path] = (request.url ?? "").split("?", 1);
  if (path !== streamPath) return refused(404, `the stream is at ${streamPath}`, "version");
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  if (!offered.includes(subProtocol)) return refused(426, `this server speaks ${subProtocol}`, "version");
  const door = parts.door();
  if (typeof door === "string") return refused(503, door, "rate");
  if (handshakes > maxHandshakes) return refused(503, `${maxHandshakes} clients are coming in already`, "rate");
  const [, token] = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "") ?? [];
  if (token === undefined) return refused(401, "a ServiceAccount token is needed (Authorization: Bearer)", "auth");
  try {
    const verdict = await door.verifier.verify(token);
    if (verdict.kind === "known") {
      const reason = await door.hub.refusalOf(verdict.identity);
      if (reason !== undefined) return refused(403, reason, "identity");
      return { kind: "admitted", door, identity: verdict.identity, token };
    }
    return refused(verdict.status, verdict.message, verdict.status === 401 ? "auth" : "identity");
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    parts.logger.warn("Could not ask the API server about a token", { err: error });
    return refused(503, `the API server could not be asked about the token: ${error.message}`, "auth");
  }
}

function refused(status: number, message: string, counted: Refusal["counted"]): Judgement {
  return { kind: "refused", status, message, counted };
}

function refuse(
  socket: Duplex,
  { status, message, counted }: Refusal,
  { random, metrics, logger }: ListenerParts,
): void {
  metrics.handshakesRefused.inc({ reason: counted });
  logger.warn("Refused a client", { code: status, err: message }); // the log sums what a whole cluster does wrong
  const body = `${message}\n`;
  const headers = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "Connection: close",
    ...(status === 401 ? ["WWW-Authenticate: Bearer"] : []),
    ...(status === 426 ? ["Upgrade: websocket", `Sec-WebSocket-Protocol: ${subProtocol}`] : []),
    ...(status === 503 ? [`Retry-After: ${1 + random.below(retrySpreadSeconds)}`] : []),
  ];
  socket.end(`${headers.join("\r\n")}\r\n\r\n${body}`, () => socket.destroy());
}

const plainAnswer: Parameters<typeof createServer>[1] = (request, response) => {
  request.resume();
  response.writeHead(426, { "content-type": "text/plain; charset=utf-8", upgrade: "websocket", connection: "close" });
  response.end(`this port speaks WebSocket at ${streamPath}\n`);
};

function tlsOptions(pair: Certificate | undefined) {
  return { ...(pair && { cert: pair.cert, key: pair.key }), minVersion: "TLSv1.3" } as const;
}

function isLoopback(host: string | undefined): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d+){3}$/.test(host ?? "");
}

function isWildcard(address: string): boolean {
  return address === "::" || address === "0.0.0.0";
}

function open(server: Server, host: string | undefined, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new Failure("bad-config", `cannot listen on port ${port}`, { cause })));
    server.listen({ port, host, backlog }, resolve);
  });
}
