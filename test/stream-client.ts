// A client of the stream as small as can be: keeps what it is told, checks every message against the protocol, waits for what comes.
// Leaves reconnecting, deciding and keeping anything to the real agent.
import type { IncomingMessage } from "node:http";
import * as v from "valibot";
import { WebSocket } from "ws";
import type { Block, Kind } from "../shared/calico/resources.ts";
import { parseLossless } from "../shared/json/lossless.ts";
import {
  type Ack,
  blockFromWire,
  type Claimed,
  type ClientMessage,
  type Hello,
  type Intent,
  type ServerMessage,
  serverMessage,
  streamPath,
  streamProtocol,
  subProtocol,
  type Welcome,
  type WireBlock,
} from "../shared/protocol/stream.ts";

export interface ClientOptions {
  /** With or without the path. */
  readonly url: string;
  readonly token?: string;
  readonly ca?: string;
  readonly protocol?: string;
}

export class Refused extends Error {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  constructor(status: number, text: string, headers: IncomingMessage["headers"]) {
    super(text);
    this.status = status;
    this.headers = headers;
  }
}

type Held = { readonly name: string; readonly resourceVersion: string };

export class StreamClient {
  readonly ws: WebSocket;
  /** Everything received, in order. */
  readonly messages: ServerMessage[] = [];
  /** What the client holds: "block/10-0-0-0-26". */
  readonly holds = new Map<string, Held>();
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>;
  readonly #waiting = new Set<() => void>();
  #nextId = 1;

  private constructor(ws: WebSocket) {
    this.ws = ws;
    ws.on("message", (data) => this.#receive(String(data)));
    this.closed = new Promise((resolve) => {
      ws.once("close", (code, reason) => {
        resolve({ code, reason: String(reason) });
        for (const look of this.#waiting) look();
      });
    });
  }

  /** Resolves once the stream is open; rejects with Refused when the server answers otherwise. */
  static connect({ url, token, ca, protocol = subProtocol }: ClientOptions): Promise<StreamClient> {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const full = new URL(url).pathname === "/" ? new URL(streamPath, url) : new URL(url);
    const ws = new WebSocket(full, protocol, { headers, ca, perMessageDeflate: false });
    const client = new StreamClient(ws);
    return new Promise((resolve, reject) => {
      ws.once("open", () => resolve(client));
      ws.on("error", reject);
      ws.once("unexpected-response", async (_, response) => {
        const body = Buffer.concat(await response.toArray()).toString();
        reject(new Refused(response.statusCode ?? 0, body, response.headers));
      });
    });
  }

  send(message: ClientMessage): void {
    this.ws.send(JSON.stringify(message));
  }

  /** Resolves with the welcome; `have` is what the client holds from before. */
  async hello(node: string | undefined, more: Partial<Hello> = {}): Promise<Welcome> {
    for (const [kind, name, resourceVersion] of more.have ?? [])
      this.holds.set(`${kind}/${name}`, { name, resourceVersion });
    const scope = node === undefined ? "all" : "node";
    const whose = node === undefined ? {} : { node };
    const head = { type: "hello", protocol: streamProtocol, version: "test", scope } as const;
    this.send({ ...head, have: [], capabilities: [], ...whose, ...more });
    return this.next("welcome");
  }

  async commit(block: string, intents: Intent[], handles: "eager" | "off" = "eager"): Promise<Ack> {
    const id = this.#nextId++;
    this.send({ type: "commit", id, block, intents, handles });
    return this.until(() => this.messages.find((message) => message.type === "ack" && message.id === id) as Ack);
  }

  async claim(pools: string[], full: string[] = []): Promise<Claimed> {
    const id = this.#nextId++;
    this.send({ type: "claim", id, pools, full });
    return this.until(
      () => this.messages.find((message) => message.type === "claimed" && message.id === id) as Claimed,
    );
  }

  /** The first message of this type, received already or still to come. */
  next<T extends ServerMessage["type"]>(type: T): Promise<Extract<ServerMessage, { type: T }>> {
    return this.until(
      () => this.messages.find((message) => message.type === type) as Extract<ServerMessage, { type: T }> | undefined,
    );
  }

  /** What `find` finds after some message; rejects when the stream ends first. */
  until<T>(find: () => T | undefined | false): Promise<T> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        const found = find();
        if (found !== undefined && found !== false) resolve(found);
        else if (this.ws.readyState === WebSocket.CLOSED) reject(new Error("the stream ended first"));
        else return;
        this.#waiting.delete(look);
      };
      this.#waiting.add(look);
      look();
    });
  }

  block(name: string): Block | undefined {
    const held = this.holds.get(`block/${name}`);
    return held === undefined ? undefined : blockFromWire(held as unknown as WireBlock);
  }

  close(): Promise<unknown> {
    this.ws.close();
    return this.closed;
  }

  #receive(text: string): void {
    const parsed = v.parse(serverMessage, parseLossless(text));
    this.messages.push(parsed);
    if (parsed.type === "reset") this.holds.clear();
    if (parsed.type === "put") this.#hold(parsed.kind, parsed.object);
    if (parsed.type === "gone") this.holds.delete(`${parsed.kind}/${parsed.name}`);
    if ((parsed.type === "ack" || parsed.type === "claimed") && parsed.block) this.#hold("block", parsed.block);
    for (const look of this.#waiting) look();
  }

  #hold(kind: Kind, object: Held): void {
    this.holds.set(`${kind}/${object.name}`, object);
  }
}
