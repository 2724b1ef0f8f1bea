// The agent's Unix socket: one request and one reply per connection, bounded in size, time and number; notices a caller that is gone.
// Leaves to others what a request means (ipam/verbs.ts) and what a lost caller means (the ledger).
import { chmod, lstat, mkdir, rename, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { dirname } from "node:path";
import * as v from "valibot";
import { Failure } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import { type AgentReply, type AgentRequest, agentRequest, maxRequestBytes } from "../../shared/protocol/socket.ts";
import { explain } from "../../shared/reasons.ts";
import { type CniCode, cniCode } from "../trouble.ts";

export interface Connection {
  /** `undelivered` is called if the caller cannot have it. At most once. */
  reply(reply: AgentReply, undelivered?: () => void): void;
  /** Called if the caller hangs up before it was answered. */
  onGone(gone: () => void): void;
}

export interface SocketOptions {
  readonly path: string;
  readonly logger: Logger;
  readonly take: (request: AgentRequest, connection: Connection) => void;
}

export interface AgentSocket {
  /** Nobody new is let in; who is in is answered. */
  stopListening(): Promise<void>;
  /** Cuts off whoever is left. */
  close(): void;
}

/** A rebooted node starts all its pods at once, and each may try twice; beyond this a call is told to come back. */
export const maxCalls = 1024;
/** The executable sends its request at once. */
const requestLimitMs = 5_000;
/** What the kernel's sun_path holds, less its terminating zero, less the mark of a socket not yet in place. */
const maxPathBytes = 106;

export async function listenSocket(options: SocketOptions): Promise<AgentSocket> {
  const { path } = options;
  if (Buffer.byteLength(path) > maxPathBytes) {
    throw new Failure("bad-config", `the path of the socket has more than ${maxPathBytes} bytes: ${path}`);
  }
  const directory = dirname(path);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await makeRoom(path);
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on("close", () => open.delete(socket));
    converse(socket, open.size > maxCalls, options);
  });
  // Bound under another name, so that nobody connects before its mode is set, and a stale one gives way in one step.
  const temporary = `${path}~`;
  await rm(temporary, { force: true });
  await listening(server, temporary);
  await chmod(temporary, 0o600);
  await rename(temporary, path);
  return {
    async stopListening() {
      await rm(path, { force: true });
      server.close();
    },
    close: () => {
      for (const socket of open) socket.destroy();
    },
  };
}

function listening(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new Failure("bad-config", `cannot listen on ${path}`, { cause })));
    // All pods of a node may ask at once; a full backlog refuses them.
    server.listen({ path, backlog: maxCalls }, () => resolve());
  });
}

/** A socket that nobody answers is left from a crash; a living one is not ours to take, and anything else is somebody's file. */
async function makeRoom(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return;
  if (!found.isSocket())
    throw new Failure("bad-config", `${path} is there and is no socket: remove it or set another path`);
  if (await answers(path))
    throw new Failure("bad-config", `another agent answers on ${path}; there must be one per node`);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
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
