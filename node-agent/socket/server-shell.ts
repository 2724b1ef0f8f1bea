// The agent's Unix socket: one request and one reply per connection, bounded in size, time and number; notices a caller that is gone.
// Leaves to others what a request means (ipam/verbs.ts), what a lost caller means (the ledger) and the file's place (place-shell.ts).
import { createServer, type Server, type Socket } from "node:net";
import * as v from "valibot";
import type { Logger } from "../../shared/log.ts";
import { type AgentReply, type AgentRequest, agentRequest, maxRequestBytes } from "../../shared/protocol/socket.ts";
import { explain } from "../../shared/reasons.ts";
import type { Clock } from "../../shared/world.ts";
import { type CniCode, cniCode } from "../trouble.ts";
import { keepPlace } from "./place-shell.ts";

export interface Connection {
  /** `undelivered` is called if the caller cannot have it. At most once. */
  reply(reply: AgentReply, undelivered?: () => void): void;
  /** Called if the caller hangs up before it was answered. */
  onGone(gone: () => void): void;
}

export interface SocketOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly take: (request: AgentRequest, connection: Connection) => void;
}

export interface AgentSocket {
  /** Why no executable can reach it now. */
  readonly problem: string | undefined;
  /** Nobody new is let in; who is in is answered. */
  stopListening(): Promise<void>;
  /** Cuts off whoever is left. */
  close(): void;
}

/** A rebooted node starts all its pods at once, and each may try twice; beyond this a call is told to come back. */
export const maxCalls = 1024;
/** The executable sends its request at once. */
const requestLimitMs = 5_000;

export async function listenSocket(options: SocketOptions): Promise<AgentSocket> {
  const open = new Set<Socket>();
  const place = await keepPlace({ ...options, create: createListener });
  return {
    get problem() {
      return place.problem;
    },
    stopListening: () => place.leave(),
    close: () => {
      for (const socket of open) socket.destroy();
    },
  };

  function createListener(): Server {
    return createServer((socket) => {
      open.add(socket);
      socket.on("close", () => open.delete(socket));
      converse(socket, open.size > maxCalls, options);
    });
  }
}

function converse(socket: Socket, isTooMany: boolean, { logger, take }: SocketOptions): void {
  let received: Buffer[] = [];
  let sizeBytes = 0;
  const late = setTimeout(() => socket.destroy(), requestLimitMs);
  const finish = (): void => {
    clearTimeout(late);
    received = [];
    socket.removeListener("data", collect);
    socket.resume(); // its end must still be heard
  };
  const collect = (chunk: Buffer): void => {
    received.push(chunk);
    sizeBytes += chunk.length;
    if (sizeBytes > maxRequestBytes) {
      finish();
      return send(socket, refused(cniCode.decoding, `the request has more than ${maxRequestBytes} bytes`));
    }
    if (!chunk.includes(newline)) return;
    const text = Buffer.concat(received).toString();
    finish();
    if (isTooMany)
      return send(socket, refused(cniCode.tryLater, `${maxCalls} calls are under way on this node already`));
    const request = parse(text.slice(0, text.indexOf("\n")));
    if (typeof request === "string") return send(socket, refused(cniCode.decoding, request));
    take(request, connectionOf(socket));
  };
  socket.on("data", collect);
  socket.on("error", (err) => logger.debug("Lost a caller", { err })); // followed by a close
  socket.on("close", () => clearTimeout(late));
}

const newline = 0x0a;

function connectionOf(socket: Socket): Connection {
  let isAnswered = false;
  return {
    reply(reply, undelivered) {
      isAnswered = true;
      send(socket, reply, undelivered);
    },
    onGone(gone) {
      const tell = (): void => {
        if (isAnswered) return;
        isAnswered = true;
        gone();
      };
      // An executable never ends its side before it has its answer: an end is its death.
      socket.once("end", tell);
      socket.once("close", tell);
      if (socket.destroyed) tell();
    },
  };
}

function send(socket: Socket, reply: AgentReply, undelivered: () => void = () => {}): void {
  if (socket.destroyed || !socket.writable) return undelivered();
  socket.end(`${JSON.stringify(reply)}\n`, () => {});
  let isWritten = false;
  socket.once("finish", () => {
    isWritten = true;
  });
  socket.once("close", () => {
    if (!isWritten) undelivered();
  });
}

function refused(code: CniCode, why: string): AgentReply {
  return { ok: false, code, msg: explain({ what: "request refused", why, reason: "BadRequest" }) };
}

function parse(text: string): AgentRequest | string {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    return "the request is no JSON";
  }
  const parsed = v.safeParse(agentRequest, raw, { abortEarly: true });
  if (parsed.success) return parsed.output;
  const [issue] = parsed.issues;
  return `the request is wrong at ${v.getDotPath(issue) ?? "its root"}: ${issue.message}`;
}
