// A cache server reduced to its stream: what it says and writes is exact, when and whether is for the test to decide.
// The blocks and what intents do to them are calico-api.ts's.
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import type { Block, Objects } from "../../shared/calico/resources.ts";
import type { BlockCidr, NodeName } from "../../shared/kinds.ts";
import {
  blockToWire,
  type Claim,
  type ClientMessage,
  type Commit,
  type ServerMessage,
  type StreamedKind,
  subProtocol,
  toWire,
} from "../../shared/protocol/stream.ts";
import type { CalicoApi } from "./calico-api.ts";

export type Fault =
  | "none"
  /** What is asked is done, and the connection is gone before it is told. */
  | "done-not-told"
  /** What is asked is never done, and the connection is gone. */
  | "lost"
  /** What is asked waits until the fault is lifted. */
  | "stuck";

export class StreamServer {
  fault: Fault = "none";
  readonly port: number;
  readonly #api: CalicoApi;
  readonly #objects: readonly (readonly [StreamedKind, Objects[StreamedKind]])[];
  readonly #server: WebSocketServer;
  readonly #stuck: (() => void)[] = [];
  readonly #asked: ((type: string) => void)[] = [];

  private constructor(api: CalicoApi, objects: StreamServer["objects"], server: WebSocketServer) {
    this.#api = api;
    this.#objects = objects;
    this.#server = server;
    this.port = (server.address() as AddressInfo).port;
    server.on("connection", (socket) => this.#serve(socket));
  }

  static async start(api: CalicoApi, objects: StreamServer["objects"], port = 0): Promise<StreamServer> {
    const server = new WebSocketServer({
      host: "127.0.0.1",
      port,
      handleProtocols: () => subProtocol,
      perMessageDeflate: false,
    });
    await once(server, "listening");
    return new StreamServer(api, objects, server);
  }

  get objects(): readonly (readonly [StreamedKind, Objects[StreamedKind]])[] {
    return this.#objects;
  }

  get url(): string {
    return `ws://127.0.0.1:${this.port}`;
  }

  /** Resolves with the next message of this type that comes in. */
  asked(wanted: ClientMessage["type"]): Promise<void> {
    return new Promise((resolve) => {
      const heard = (type: string): void => {
        if (type !== wanted) return;
        this.#asked.splice(this.#asked.indexOf(heard), 1);
        resolve();
      };
      this.#asked.push(heard);
    });
  }

  lift(): void {
    this.fault = "none";
    for (const go of this.#stuck.splice(0)) go();
  }

  async stop(): Promise<void> {
    if (this.#server.address() === null) return; // stopped before
    for (const client of this.#server.clients) client.terminate();
    this.#server.close();
    await once(this.#server, "close");
  }

  #serve(socket: WebSocket): void {
    let node = "" as NodeName;
    socket.on("error", () => {});
    socket.on("message", (data) => {
      const message = JSON.parse(String(data)) as ClientMessage;
      if (message.type === "hello") {
        node = message.node as NodeName;
        this.#greet(socket, node, message.have.length > 0);
      } else if (message.type === "commit" || message.type === "claim") this.#ask(socket, node, message);
      else if (message.type === "ping") {
        say(socket, { type: "beat", echo: message.sent, freshness: {}, lease: { limitMs: leaseMs }, node: "present" });
      } else if (message.type === "index") say(socket, { type: "indexed", id: message.id });
      for (const heard of [...this.#asked]) heard(message.type);
    });
  }

  #greet(socket: WebSocket, node: NodeName, knowsUs: boolean): void {
    const about = { protocol: 1, version: "test", replica: "model", lineage: "l", apiGroup: "crd" } as const;
    say(socket, { type: "welcome", ...about, heartbeatMs: 60_000, capabilities: [] });
    if (!knowsUs)
      for (const [kind, object] of this.#objects) say(socket, { type: "put", kind, object: toWire(kind, object) });
    for (const block of this.#api.blocks.values()) {
      if (block.affinity === `host:${node}`) say(socket, putOf(block));
    }
    say(socket, { type: "synced" });
  }

  #ask(socket: WebSocket, node: NodeName, message: Commit | Claim): void {
    switch (this.fault) {
      case "none":
        return say(socket, this.#answer(node, message));
      case "done-not-told":
        this.#answer(node, message);
        return socket.terminate();
      case "lost":
        return socket.terminate();
      case "stuck":
        this.#stuck.push(() => say(socket, this.#answer(node, message)));
    }
  }

  #answer(node: NodeName, message: Commit | Claim): ServerMessage {
    if (message.type === "claim") {
      const block = this.#api.claim(node, message.pools[0] ?? "");
      if (block) return { type: "claimed", id: message.id, block: blockToWire(block) };
      return {
        type: "claimed",
        id: message.id,
        problem: { reason: "PoolExhausted", message: "every block belongs to a node" },
      };
    }
    const { results, block } = this.#api.commit(node, message.block as BlockCidr, message.intents);
    return { type: "ack", id: message.id, results, block: block && blockToWire(block) };
  }
}

const leaseMs = 600_000;

function putOf(block: Block): ServerMessage {
  return { type: "put", kind: "block", object: blockToWire(block) };
}

function say(socket: WebSocket, message: ServerMessage): void {
  socket.send(JSON.stringify(message), () => {});
}
