// A client of the stream that costs as little as can be, so that thousands of them leave a server its core: frames are taken apart, not
// parsed, beyond what is asked. When and where it connects is the real agent's own rule (node-agent/sync/client.ts).
import { randomBytes } from "node:crypto";
import { connect as connectPlain, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import {
  type Client,
  type ClientEffect,
  type ClientEvent,
  createClient,
  nextTick,
  stepClient,
} from "../../node-agent/sync/client.ts";
import type { Instant } from "../../shared/kinds.ts";
import { systemClock, systemRandom } from "../../shared/process/world.ts";
import {
  type Hello,
  type ServerMessage,
  streamPath,
  streamProtocol,
  subProtocol,
} from "../../shared/protocol/stream.ts";

export interface ThinOptions {
  readonly urls: readonly string[];
  readonly token: string;
  readonly ca: string | undefined;
  /** Undefined: an observer, which sees everything. */
  readonly node: string | undefined;
  /** Remembers names and versions, so that a new connection resumes. */
  readonly remembers: boolean;
  readonly put: (payload: Buffer) => void;
  readonly synced: () => void;
  readonly lost: () => void;
}

type Have = Hello["have"][number];

export class ThinClient {
  readonly #options: ThinOptions;
  readonly #client: Client;
  readonly #have = new Map<string, Have>();
  #lineage: string | undefined;
  #socket: Socket | undefined;
  #cancelTick = (): void => {};
  /** Until the upgrade is through. */
  #isOpen = false;
  #rest: Buffer | undefined;
  receivedBytes = 0;
  isSynced = false;

  constructor(options: ThinOptions) {
    this.#options = options;
    this.#client = createClient(options.urls, systemRandom, systemClock.monotonic());
    this.#handle({ kind: "tick" });
  }

  stop(): void {
    this.#handle({ kind: "stop" });
  }

  stall(): void {
    this.#socket?.pause();
  }

  read(): void {
    this.#socket?.resume();
  }

  #handle(event: ClientEvent): void {
    const now = systemClock.monotonic();
    for (const effect of stepClient(this.#client, event, now)) this.#perform(effect);
    this.#cancelTick();
    const due = nextTick(this.#client);
    this.#cancelTick =
      due === undefined ? () => {} : systemClock.after(wait(due), () => this.#handle({ kind: "tick" }));
  }

  #perform(effect: ClientEffect): void {
    switch (effect.kind) {
      case "open":
        return this.#dial(new URL(effect.url));
      case "greet":
        return this.#send(opcodes.text, Buffer.from(JSON.stringify(this.#hello())));
      case "probe":
        return this.#send(opcodes.ping, Buffer.alloc(0));
      case "end":
        this.#socket?.destroy();
        this.#socket = undefined;
        return;
      case "offline":
        this.#socket = undefined;
        this.isSynced = false;
        return this.#options.lost();
      case "online":
        this.isSynced = true;
        return this.#options.synced();
      case "deliver":
        return;
    }
  }

  #hello(): Hello {
    const { node } = this.#options;
    const scope = node === undefined ? { scope: "all" as const } : { scope: "node" as const, node };
    const lineage = this.#lineage === undefined ? {} : { lineage: this.#lineage };
    const have = [...this.#have.values()];
    return { type: "hello", protocol: streamProtocol, version: "bench", ...scope, ...lineage, have, capabilities: [] };
  }

  #dial(url: URL): void {
    const { hostname: host, port } = url;
    const { ca, token } = this.#options;
    const to = { host, port: Number(port) };
    const socket = url.protocol === "wss:" ? connectTls({ ...to, ca, servername: "localhost" }) : connectPlain(to);
    this.#socket = socket;
    this.#isOpen = false;
    this.#rest = undefined;
    socket.setNoDelay(true);
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => socket === this.#socket && this.#receive(chunk));
    socket.on("close", () => socket === this.#socket && this.#handle({ kind: "ended", reason: "closed" }));
    const head = [
      `GET ${streamPath} HTTP/1.1`,
      `Host: ${host}`,
      "Upgrade: websocket",
      "Connection: Upgrade",
      `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}`,
      "Sec-WebSocket-Version: 13",
      `Sec-WebSocket-Protocol: ${subProtocol}`,
      `Authorization: Bearer ${token}`,
    ];
    socket.write(`${head.join("\r\n")}\r\n\r\n`);
  }

  #receive(chunk: Buffer): void {
    this.receivedBytes += chunk.length;
    let data = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#rest = undefined;
    if (!this.#isOpen) {
      const end = data.indexOf("\r\n\r\n");
      if (end < 0) {
        this.#rest = data;
        return;
      }
      if (!data.toString("latin1", 0, 16).startsWith("HTTP/1.1 101")) {
        const [, seconds] = /retry-after: (\d+)/i.exec(data.toString("latin1", 0, end)) ?? [];
        const retryAfterMs = seconds === undefined ? undefined : Number(seconds) * 1000;
        this.#socket?.destroy();
        return this.#handle({ kind: "ended", reason: "refused", retryAfterMs });
      }
      this.#isOpen = true;
      this.#handle({ kind: "opened" });
      data = data.subarray(end + 4);
    }
    let at = 0;
    for (;;) {
      const header = headerAt(data, at);
      if (header === undefined || at + header.bytes + header.length > data.length) break;
      const payload = data.subarray(at + header.bytes, at + header.bytes + header.length);
      at += header.bytes + header.length;
      this.#take(header.opcode, payload);
      if (this.#socket === undefined) return;
    }
    // A copy: what is left would keep the whole chunk alive.
    if (at < data.length) this.#rest = Buffer.from(data.subarray(at));
  }

  #take(opcode: number, payload: Buffer): void {
    if (opcode === opcodes.ping) return this.#send(opcodes.pong, payload);
    if (opcode === opcodes.close) return void this.#socket?.end();
    if (opcode !== opcodes.binary && opcode !== opcodes.text) return;
    // Every message begins with its type.
    if (payload[typeAt] === letterP) {
      if (this.#options.remembers) this.#remember(payload);
      return this.#options.put(payload);
    }
    const message = JSON.parse(payload.toString()) as ServerMessage;
    if (message.type === "welcome") this.#lineage = message.lineage;
    if (message.type === "reset") this.#have.clear();
    if (message.type === "gone") this.#have.delete(`${message.kind}/${message.name}`);
    this.#handle({ kind: "message", message });
  }

  #remember(payload: Buffer): void {
    const [, kind, name, version] = putHead.exec(payload.toString("latin1", 0, headBytes)) ?? [];
    if (kind === undefined || name === undefined || version === undefined) return;
    this.#have.set(`${kind}/${name}`, [kind as Have[0], name, version]);
  }

  #send(opcode: number, payload: Buffer): void {
    const { length } = payload;
    const size = length < 126 ? [0x80 | length] : length < 65_536 ? [0xfe, length >> 8, length & 255] : undefined;
    const long = Buffer.alloc(9);
    if (size === undefined) {
      long[0] = 0xff;
      long.writeBigUInt64BE(BigInt(length), 1);
    }
    // A mask of zeros is one, and leaves the payload as it is.
    this.#socket?.write(
      Buffer.concat([
        Buffer.from([0x80 | opcode]),
        size === undefined ? long : Buffer.from(size),
        Buffer.alloc(4),
        payload,
      ]),
    );
  }
}

const opcodes = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
/** In `{"type":"put",…`. */
const typeAt = 9;
const letterP = "p".charCodeAt(0);
const headBytes = 400;
const putHead = /^\{"type":"put","kind":"(\w+)","object":\{"name":"([^"]+)","uid":"[^"]*","resourceVersion":"([^"]+)"/;

interface Header {
  readonly opcode: number;
  readonly bytes: number;
  readonly length: number;
}

function headerAt(data: Buffer, at: number): Header | undefined {
  if (at + 2 > data.length) return undefined;
  const opcode = (data[at] ?? 0) & 15;
  const length = (data[at + 1] ?? 0) & 127;
  if (length < 126) return { opcode, bytes: 2, length };
  const bytes = length === 126 ? 4 : 10;
  if (at + bytes > data.length) return undefined;
  return { opcode, bytes, length: length === 126 ? data.readUInt16BE(at + 2) : Number(data.readBigUInt64BE(at + 2)) };
}

function wait(due: Instant): number {
  return Math.max(0, due - systemClock.monotonic());
}
