// All clients of this server: tells them what has changed, gives signs of life, notices who is gone, moves everybody on at the end.
// Leaves the single client to client-shell.ts and how clients get in to listener-shell.ts.
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { ApiGroup } from "../../shared/calico/resources.ts";
import type { Instant, NodeName } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import { type ServerMessage, streamedKinds, streamProtocol } from "../../shared/protocol/stream.ts";
import type { Clock, Random } from "../../shared/world.ts";
import type { Claims } from "../commit/claims.ts";
import type { Committer } from "../commit/committer.ts";
import type { Indexer } from "../commit/indexer.ts";
import type { Recorder } from "../events/recorder.ts";
import type { Change, Store } from "../store/store.ts";
import type { ObjectReader } from "../upstream/object-reader.ts";
import { Absences } from "./absences.ts";
import { Audience } from "./audience.ts";
import { Client, type ClientParts, type CloseReason } from "./client-shell.ts";
import { frameOf, ObjectFrames } from "./frames-shell.ts";
import { closeCodes } from "./hello.ts";
import type { Identity } from "./identity.ts";
import { type LeaseParts, strangerReason, type Tenancy } from "./lease.ts";

export interface HubParts extends Omit<LeaseParts, "store"> {
  readonly store: Store;
  readonly reader: Pick<ObjectReader, "refresh">;
  readonly committer: Committer;
  readonly claims: Claims;
  readonly indexer: Pick<Indexer, "index">;
  readonly events: Pick<Recorder, "aboutNode" | "report">;
  readonly group: ApiGroup;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly metrics: MetricHandles<typeof serverMetrics>;
  readonly replica: string;
  readonly version: string;
  readonly heartbeatMs: number;
}

export interface ClientStatus {
  readonly node: string | undefined;
  readonly user: string;
  readonly version: string;
  readonly state: "hello" | "syncing" | "live" | "closing";
  readonly connectedSeconds: number;
  readonly silentSeconds: number;
  readonly behindKeys: number;
  readonly behindSeconds: number;
  readonly bufferedBytes: number;
  readonly outstanding: number;
}

/** Signs of life are spread over the interval in so many portions, so that they do not go out all at once. */
const portions = 20;
/** A client that was not heard for so many intervals is gone. */
const silentIntervals = 3;
/** Clients flushed in one go, before pings, pages and upgrades get their turn. */
const flushedAtOnce = 200;
/** Time that a new client has to say hello. */
const helloLimitMs = 10_000;
const slowAfterMs = 5_000;
/** At the end clients are moved on over this time, so that they do not storm the next server. */
const drainMs = 3_000;
/** A client that does not answer the close is cut off. */
const closeLimitMs = 2_000;

export class Hub {
  readonly #parts: HubParts;
  readonly #audience: Audience;
  readonly #frames = new ObjectFrames();
  readonly #clients = new Set<Client>();
  readonly #byNode = new Map<NodeName, Client>();
  readonly #portions: Set<Client>[] = Array.from({ length: portions }, () => new Set());
  readonly #due = new Set<Client>();
  readonly #absences = new Absences();
  readonly #clientParts: ClientParts;
  readonly #unlisten: () => void;
  #cancelTick = (): void => {};
  #flushing = false;
  #draining = false;
  #turn = 0;
  #epoch: number;
  #tickDueAt: number;
  #emptied: (() => void) | undefined;

  constructor(parts: HubParts) {
    this.#parts = parts;
    this.#audience = new Audience(parts.store);
    this.#epoch = parts.store.epoch;
    this.#tickDueAt = parts.clock.monotonic();
    this.#unlisten = parts.store.listen((change) => {
      this.#audience.tell(change);
      if (change.kind === "node") this.#tellNode(change);
    });
    this.#clientParts = this.#partsForClients();
    this.#scheduleTick();
  }

  /** Identity of the data: another cluster, or the same one set back to an older state, has another. Undefined: not known yet. */
  get lineage(): string | undefined {
    const system = this.#parts.store.get("namespace", "kube-system");
    return system === undefined ? undefined : `${system.uid}.${this.#parts.store.epoch}`;
  }

  /** Why this identity cannot be let in; rejects when that cannot be found out. */
  refusalOf(identity: Identity): Promise<string | undefined> {
    return strangerReason(this.#parts, identity);
  }

  /** The result ends the stream, when its token is good no longer. */
  accept(ws: WebSocket, socket: Duplex, identity: Identity): () => void {
    const client = new Client(this.#clientParts, ws, socket, identity);
    this.#clients.add(client);
    this.#portions[this.#parts.random.below(portions)]?.add(client);
    if (this.#draining) this.#moveOn(client);
    return () => client.bye("auth", closeCodes.credentials, "the API server takes the token no longer", 1_000);
  }

  get size(): number {
    return this.#clients.size;
  }

  status(): ClientStatus[] {
    const now = this.#parts.clock.monotonic();
    return [...this.#clients].map((client) => ({
      node: client.identity.node,
      user: client.identity.user,
      version: client.version,
      state: client.isClosing ? "closing" : client.isLive ? "live" : client.isAdmitted ? "syncing" : "hello",
      connectedSeconds: (now - client.since) / 1000,
      silentSeconds: (now - client.heardAt) / 1000,
      behindKeys: client.behind,
      behindSeconds: client.behindSince === undefined ? 0 : (now - client.behindSince) / 1000,
      bufferedBytes: client.bufferedBytes,
      outstanding: client.outstanding,
    }));
  }

  /** Sets the gauges: for just before a scrape. */
  measure(): void {
    const { metrics, clock } = this.#parts;
    metrics.streams.clear();
    const now = clock.monotonic();
    const counts = { node: { syncing: 0, live: 0, draining: 0 }, all: { syncing: 0, live: 0, draining: 0 } };
    let [dirty, buffered, slow] = [0, 0, 0];
    for (const client of this.#clients) {
      const state = client.isClosing ? "draining" : client.isLive ? "live" : "syncing";
      counts[client.identity.node === undefined ? "all" : "node"][state]++;
      dirty += client.behind;
      buffered += client.bufferedBytes;
      if (client.behindSince !== undefined && now - client.behindSince > slowAfterMs) slow++;
    }
    for (const scope of ["node", "all"] as const) {
      for (const state of ["syncing", "live", "draining"] as const)
        metrics.streams.set({ scope, state }, counts[scope][state]);
    }
    metrics.streamDirtyKeys.set(dirty);
    metrics.streamBufferedBytes.set(buffered);
    metrics.streamSlow.set(slow);
  }

  /** Moves everybody on, a few at a time, and resolves when they have gone. */
  async drain(): Promise<void> {
    this.#draining = true;
    const { clock, random } = this.#parts;
    const clients = [...this.#clients];
    const spreadMs = Math.min(drainMs, clients.length * 10);
    const timers = clients.map((client) => clock.after(random.below(spreadMs + 1), () => this.#moveOn(client)));
    const emptied = new Promise<void>((resolve) => {
      this.#emptied = resolve;
      if (this.#clients.size === 0) resolve();
    });
    const cutOff = clock.after(spreadMs + closeLimitMs, () => {
      for (const client of this.#clients) client.terminate("drain");
    });
    await emptied;
    for (const cancel of [...timers, cutOff, this.#cancelTick, this.#unlisten]) cancel();
  }

  #moveOn(client: Client): void {
    client.bye("drain", closeCodes.goingAway, "this server stops", this.#parts.random.below(500));
  }

  /** Of a Node made anew under the same name this agent has no token: it comes back with the next one the kubelet gives it. */
  #tellNode({ name, before, after }: Change<"node">): void {
    const client = this.#byNode.get(name as NodeName);
    if (client === undefined || (before !== undefined && after !== undefined)) return;
    const { nodeUid } = client.identity;
    const isAnother = after !== undefined && nodeUid !== undefined && after.uid !== nodeUid;
    client.tellStanding();
    if (isAnother) client.bye("auth", closeCodes.credentials, "the Node of this name is another one now", 1_000);
  }

  #partsForClients(): ClientParts {
    const { store, reader, committer, claims, indexer, clock, logger, metrics, events } = this.#parts;
    return {
      lease: this.#parts,
      events,
      store,
      reader,
      committer,
      claims,
      indexer,
      clock,
      logger,
      audience: this.#audience,
      frames: this.#frames,
      lineage: () => this.lineage ?? "",
      welcome: () => this.#welcome(),
      beat: (echo, tenancy) => this.#beat(echo, tenancy),
      sent: (type: "snapshot" | "update" | "ack" | "heartbeat", bytes: number) =>
        metrics.streamSentBytes.inc({ type }, bytes),
      due: (client: Client) => this.#flushSoon(client),
      admitted: (client: Client) => this.#admitted(client),
      closed: (client: Client, why: CloseReason) => this.#closed(client, why),
    };
  }

  #admitted(client: Client): void {
    this.#parts.logger.info("Took up a client", { node: client.identity.node, version: client.version });
    const { node } = client.identity;
    if (node === undefined) return;
    // Two agents of one node: the one that came later is the one that lives.
    this.#byNode.get(node)?.bye("redirect", closeCodes.superseded, "a newer connection of this node has come", 1_000);
    this.#byNode.set(node, client);
    if (this.#absences.back(node)) this.#parts.events.aboutNode("AgentBack", node, "The node's agent is back");
  }

  #closed(client: Client, why: CloseReason): void {
    this.#clients.delete(client);
    for (const portion of this.#portions) portion.delete(client);
    this.#due.delete(client);
    this.#parts.metrics.streamsClosed.inc({ reason: why });
    if (client.isAdmitted) this.#parts.logger.info("Lost a client", { node: client.identity.node, value: why });
    const { node } = client.identity;
    if (node !== undefined && this.#byNode.get(node) === client) {
      this.#byNode.delete(node);
      if (why === "timeout") this.#absences.lost(node, client.heardAt);
    }
    if (this.#clients.size === 0) this.#emptied?.();
  }

  /** After everything that is going on now: answers go out before what they make unnecessary. */
  #flushSoon(client: Client): void {
    this.#due.add(client);
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => this.#flushSome());
  }

  #flushSome(): void {
    let flushed = 0;
    for (const client of this.#due) {
      this.#due.delete(client);
      const { behindSince } = client;
      if (client.flush() && behindSince !== undefined && client.isLive) {
        this.#parts.metrics.propagation.observe((this.#parts.clock.monotonic() - behindSince) / 1000);
      }
      if (++flushed >= flushedAtOnce) break;
    }
    this.#flushing = this.#due.size > 0;
    if (this.#flushing) setImmediate(() => this.#flushSome());
  }

  #scheduleTick(): void {
    const delayMs = this.#parts.heartbeatMs / portions;
    this.#tickDueAt = this.#parts.clock.monotonic() + delayMs;
    this.#cancelTick = this.#parts.clock.after(delayMs, () => this.#tick());
  }

  #tick(): void {
    const { clock, heartbeatMs, store } = this.#parts;
    const now = clock.monotonic();
    // Our own event loop stood still: whoever was not heard meanwhile gets another round.
    const stoodStill = now - this.#tickDueAt > heartbeatMs;
    const frame = frameOf(this.#beat());
    for (const client of this.#portions[this.#turn++ % portions] ?? []) {
      const { expiresAt } = client.identity;
      if (!stoodStill && now - client.heardAt > silentIntervals * heartbeatMs) client.terminate("timeout");
      else if (!client.isAdmitted && now - client.since > helloLimitMs) {
        client.bye("protocol", closeCodes.noHello, "no hello in time", 1_000);
      } else if (expiresAt !== undefined && clock.wall() >= expiresAt) {
        client.bye("auth", closeCodes.credentials, "the token has expired", 0);
      } else client.beat(frame);
    }
    this.#tellOfAbsent(now);
    if (store.epoch !== this.#epoch) {
      this.#epoch = store.epoch;
      for (const client of this.#clients) client.bye("stale", closeCodes.goingAway, "the data was set back", 0);
    }
    this.#scheduleTick();
  }

  /** Half the time that an agent may go on without a server: late enough to be no restart, early enough to act. */
  #tellOfAbsent(now: Instant): void {
    const limitMs = this.#parts.grantMs();
    if (limitMs === undefined) return;
    const minutes = Math.round(limitMs / 60_000);
    for (const node of this.#absences.due(now, limitMs / 2)) {
      if (this.#parts.store.get("node", node) === undefined) {
        this.#absences.forget(node);
        continue;
      }
      const note = `The agent was not heard of for ${Math.round(minutes / 2)} min; after ${minutes} min without any server it gives pods no more addresses`;
      this.#parts.events.aboutNode("AgentOffline", node, note);
    }
  }

  #welcome(): Extract<ServerMessage, { type: "welcome" }> {
    const { version, replica, group, heartbeatMs } = this.#parts;
    return {
      type: "welcome",
      protocol: streamProtocol,
      version,
      replica,
      lineage: this.lineage ?? "",
      apiGroup: group,
      heartbeatMs,
      capabilities: [],
    };
  }

  #beat(echo?: number, tenancy?: Tenancy): ServerMessage {
    const freshness: Record<string, { version: string; ageMs: number }> = {};
    for (const kind of streamedKinds) {
      const { version, ageMs } = this.#parts.store.freshness(kind);
      freshness[kind] = { version, ageMs: Math.round(ageMs) };
    }
    const node = tenancy?.standing();
    // It runs from a ping: without one there is no lease to renew.
    const limitMs = echo === undefined ? undefined : tenancy?.renewal();
    return {
      type: "beat",
      ...(echo !== undefined && { echo }),
      freshness,
      ...(limitMs !== undefined && { lease: { limitMs } }),
      ...(node !== undefined && { node }),
    };
  }
}
