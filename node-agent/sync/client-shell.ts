// Carries out the stream client's effects: one WebSocket at a time, token and authorities as they are at each attempt.
// Leaves when and where to client.ts, and what a refusal means to its reader to refusals.ts.
import type { IncomingMessage } from "node:http";
import * as v from "valibot";
import { WebSocket } from "ws";
import { type Logger, messageOf } from "../../shared/log.ts";
import {
  type ClientMessage,
  type Hello,
  maxServerFrameBytes,
  type ServerMessage,
  serverMessage,
  streamPath,
  subProtocol,
} from "../../shared/protocol/stream.ts";
import type { Clock, Random } from "../../shared/world.ts";
import {
  type ClientEffect,
  type ClientEvent,
  createClient,
  type EndReason,
  isLive,
  nextTick,
  openingMs,
  stepClient,
} from "./client.ts";
import { closingRefusal, handshakeRefusal, maxRefusalBytes, tidy } from "./refusals.ts";

export interface StreamOptions {
  /** With or without the path. */
  readonly urls: readonly string[];
  readonly token: () => string | undefined;
  readonly authorities: () => string | undefined;
  /** Undefined: the host of the URL. */
  readonly serverName: string | undefined;
  readonly hello: () => Hello;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly deliver: (message: ServerMessage) => void;
  readonly online: () => void;
  readonly offline: (reason: EndReason) => void;
}

export interface Stream {
  /** Goes nowhere when no server is connected: what was sent is then unsettled, which the ledger knows. */
  send(message: ClientMessage): void;
  distrust(): void;
  stop(): void;
  readonly status: () => StreamStatus;
}

export interface StreamStatus {
  readonly live: boolean;
  /** Since something was heard of a server; undefined: never. */
  readonly silentMs: number | undefined;
  /** Why the last attempt came to nothing, in a sentence; undefined: it did not. */
  readonly refusal: string | undefined;
}

export function openStream(options: StreamOptions): Stream {
  const { clock, logger } = options;
  const client = createClient(options.urls.map(withPath), options.random, clock.monotonic());
  let socket: WebSocket | undefined;
  let cancel = (): void => {};
  let refusal: string | undefined;
  /** What the server gave as the reason for its good-bye. */
  let farewell: string | undefined;

  function handle(event: ClientEvent): void {
    for (const effect of stepClient(client, event, clock.monotonic())) perform(effect);
    cancel();
    const due = nextTick(client);
    if (due !== undefined) cancel = clock.after(Math.max(0, due - clock.monotonic()), () => handle({ kind: "tick" }));
  }

  function perform(effect: ClientEffect): void {
    switch (effect.kind) {
      case "open":
        farewell = undefined;
        socket = dial(effect.url, options, {
          happened: (from, event) => {
            if (from === socket) handle(event);
          },
          isGivenUp: (from) => from !== socket,
          refused: (why) => {
            refusal = why;
          },
        });
        return;
      case "probe":
        return socket?.ping();
      case "greet":
        return send(options.hello());
      case "deliver":
        if (effect.message.type === "bye") farewell = tidy(effect.message.reason);
        return options.deliver(effect.message);
      case "end":
        socket?.terminate();
        socket = undefined;
        return;
      case "online":
        refusal = undefined;
        logger.info("Connected to a server", { replica: client.replica, url: client.urls[client.turn] });
        return options.online();
      case "offline":
        socket = undefined;
        if (effect.reason === "timeout") refusal = "the server did not answer in time";
        logger.info("Lost the server", { replica: client.replica, value: effect.reason, err: farewell ?? refusal });
        client.replica = undefined;
        return options.offline(effect.reason);
    }
  }

  function send(message: ClientMessage): void {
    if (socket?.readyState !== WebSocket.OPEN) return;
    socket.send(JSON.stringify(message), () => {}); // a failure closes it, which is told
    if (isQuestion(message)) handle({ kind: "asked" });
  }

  handle({ kind: "tick" });
  return {
    send,
    distrust: () => handle({ kind: "distrust" }),
    stop: () => handle({ kind: "stop" }),
    status: () => ({
      live: isLive(client),
      silentMs: client.heardAt === undefined ? undefined : clock.monotonic() - client.heardAt,
      refusal,
    }),
  };
}

/** What somebody waits for. A ping for the lease is not: nobody is worse off if it goes unanswered for a while. */
function isQuestion({ type }: ClientMessage): boolean {
  return type === "commit" || type === "claim" || type === "claim-block" || type === "index";
}

function withPath(url: string): string {
  const parsed = new URL(url);
  if (parsed.pathname === "/") parsed.pathname = streamPath;
  return parsed.href;
}

interface Listener {
  happened(from: WebSocket, event: ClientEvent): void;
  /** What a connection says that we have ended ourselves is no news of the server. */
  isGivenUp(from: WebSocket): boolean;
  refused(why: string): void;
}

function dial(url: string, options: StreamOptions, listener: Listener): WebSocket {
  const tell = (from: WebSocket, event: ClientEvent): void => listener.happened(from, event);
  const { logger } = options;
  const token = options.token();
  const ca = options.authorities();
  const socket = new WebSocket(url, subProtocol, {
    perMessageDeflate: false,
    maxPayload: maxServerFrameBytes,
    handshakeTimeout: openingMs,
    followRedirects: false,
    ...(token !== undefined && { headers: { authorization: `Bearer ${token}` } }),
    ...(ca !== undefined && { ca }),
    ...(options.serverName !== undefined && { servername: options.serverName }),
  });
  let reason: EndReason = "closed";
  let retryAfterMs: number | undefined;
  socket.on("open", () => tell(socket, { kind: "opened" }));
  socket.on("message", (data) => tell(socket, eventOf(String(data), logger)));
  socket.on("ping", () => tell(socket, { kind: "heard" }));
  socket.on("pong", () => tell(socket, { kind: "heard" }));
  socket.on("unexpected-response", (request, response) => {
    const { statusCode: code = 0, headers } = response;
    reason = "refused";
    retryAfterMs = retryAfter(headers["retry-after"]);
    firstBytesOf(response).then((body) => {
      if (listener.isGivenUp(socket)) return;
      const err = handshakeRefusal(code, body, token !== undefined);
      listener.refused(err);
      logger.warn("Was refused by a server", { url, code, err });
      request.destroy();
      tell(socket, { kind: "ended", reason, retryAfterMs });
    });
  });
  socket.on("error", (err) => {
    if (reason === "refused" || listener.isGivenUp(socket)) return; // our own doing
    reason = isTls(err) ? "tls" : "refused";
    listener.refused(`${url}: ${messageOf(err)}`);
    logger.warn("Could not reach a server", { url, err });
  });
  socket.on("close", (code, said) => {
    const err = closingRefusal(code, String(said));
    if (err !== undefined && !listener.isGivenUp(socket)) {
      listener.refused(err);
      logger.warn("Was turned away by a server", { url, code, err });
    }
    tell(socket, { kind: "ended", reason, retryAfterMs });
  });
  return socket;
}

/** Until its end, its bound or the end of the attempt, whichever comes first. */
async function firstBytesOf(response: IncomingMessage): Promise<string> {
  const received: Buffer[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      received.push(chunk);
      sizeBytes += chunk.length;
      if (sizeBytes >= maxRefusalBytes) break;
    }
  } catch {
    // It was cut off: what there is has to do.
  }
  return Buffer.concat(received).subarray(0, maxRefusalBytes).toString();
}

/** Seconds only; a date needs a clock that agrees with the server's. */
function retryAfter(header: string | undefined): number | undefined {
  return header !== undefined && /^\d{1,6}$/.test(header) ? Number(header) * 1000 : undefined;
}

function isTls(error: Error): boolean {
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  return /^(ERR_TLS|ERR_SSL|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)/.test(code);
}

const knownTypes: ReadonlySet<unknown> = new Set(serverMessage.options.map(({ entries }) => entries.type.literal));

/** What cannot be understood of a known type ends the connection: to go on would be to miss something. */
function eventOf(text: string, logger: Logger): ClientEvent {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch (err) {
    logger.warn("Could not read a message", { err });
    return { kind: "distrust" };
  }
  const type = typeof raw === "object" && raw !== null && "type" in raw ? raw.type : undefined;
  if (!knownTypes.has(type)) return { kind: "heard" };
  const parsed = v.safeParse(serverMessage, raw, { abortEarly: true });
  if (parsed.success) return { kind: "message", message: parsed.output };
  const [issue] = parsed.issues;
  logger.warn("Could not read a message", {
    value: String(type),
    err: `${v.getDotPath(issue) ?? ""} ${issue.message}`,
  });
  return { kind: "distrust" };
}
