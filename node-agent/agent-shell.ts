// The node agent put together: journal, ledger, stream, spool, socket. main.ts runs it; the demo and tests start it in their process.
// Leaves to others: where options come from, and when the process ends (shared/process).
import { readFileSync, statSync } from "node:fs";
import { uptime } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { goTimeText } from "../shared/calico/timestamps.ts";
import type { AgentConfig } from "../shared/config/catalogue.ts";
import { type Instant, impossible, type NodeName } from "../shared/kinds.ts";
import { agentMetrics } from "../shared/metrics.ts";
import type { Running } from "../shared/process/daemon.ts";
import type { Frame } from "../shared/process/frame.ts";
import { objectsPage } from "../shared/process/http.ts";
import { type ServerMessage, type StreamedKind, streamedKinds, streamProtocol } from "../shared/protocol/stream.ts";
import { bootClock } from "./boot-clock.ts";
import { Calls } from "./calls-shell.ts";
import { follow, recall } from "./follow.ts";
import { type Installer, installOptionsOf, startInstaller } from "./install/installer-shell.ts";
import { ViewPlacement } from "./ipam/placement.ts";
import { type Circumstances, decide, delEvent, evidenceEvent } from "./ipam/verbs.ts";
import { LeaseKeeper, leaseLeftMs, leaseToMeta } from "./lease-keeper.ts";
import { type Journal, type Meta, openJournal } from "./ledger/journal-shell.ts";
import { resumeLease } from "./ledger/lease.ts";
import { type LedgerEvent, nextWake, replay, step } from "./ledger/ledger.ts";
import {
  type CallId,
  type Closed,
  createLedger,
  type Incarnation,
  type Ledger,
  type WarmPolicy,
} from "./ledger/state.ts";
import { pick } from "./ledger/stock.ts";
import type { Effect } from "./ledger/turn.ts";
import { measureLedger } from "./measures.ts";
import { readLibcniCaches } from "./runtime/libcni-cache-shell.ts";
import { type AgentSocket, listenSocket } from "./socket/server-shell.ts";
import { openSpool, type Spool } from "./socket/spool-shell.ts";
import type { EndReason } from "./sync/client.ts";
import { openStream, type Stream } from "./sync/client-shell.ts";
import { View } from "./sync/view.ts";
import { ViewFile } from "./sync/view-file-shell.ts";
import { trouble } from "./trouble.ts";

export interface RunningAgent extends Running {
  readonly socketPath: string;
  /** Resolves when an ADD could be answered for the first time. */
  readonly ready: Promise<void>;
  /** Resolves when nothing that its calls have begun is under way. */
  idle(): Promise<void>;
}

/** At the end, for calls that are being answered; whoever is left asks the next agent. */
const lastAnswersMs = 5_000;

/** Returns once the socket is there; what it still waits for is told by its checks of readiness. */
export async function startAgent(frame: Frame<"agent">): Promise<RunningAgent> {
  const config = frame.config();
  const agent = new Agent(frame);
  const journal = await openJournal({
    directory: config.stateDir,
    meta: identityOf(config.nodeName),
    clock: frame.clock,
    logger: frame.logger,
    written: (upTo, tookMs) => agent.written(upTo, tookMs),
    failed: (upTo, failure) => agent.failed(upTo, failure),
    busy: () => frame.health.check("ready", "journal", () => "another agent holds it, and there must be one per node"),
  });
  try {
    await agent.start(journal);
  } catch (error) {
    await agent.stop();
    throw error;
  }
  return {
    socketPath: config.socket,
    ready: agent.ready,
    idle: () => agent.idle(),
    stop: () => agent.stop(),
  };
}

/** What tells this journal from another node's, and this boot from the last one. Empty: not known here. */
function identityOf(node: string): Meta {
  return { node, machineId: textOf("/etc/machine-id"), bootId: textOf(bootIdPath) };
}

const bootIdPath = "/proc/sys/kernel/random/boot_id";

/** Sleep included: /proc/uptime. */
function uptimeMs(): number {
  return uptime() * 1000;
}

function warmPolicyOf({ commit, warm, flushDelayMs }: AgentConfig): WarmPolicy | undefined {
  return commit === "sync" ? undefined : { floor: warm.floor, ceiling: warm.ceiling, flushDelayMs };
}

const incarnationMeta = v.object({ journal: v.string(), number: v.number(), timestamp: v.string() });

function incarnationFrom(text: string | undefined): Incarnation | undefined {
  return text === undefined ? undefined : v.parse(incarnationMeta, JSON.parse(text));
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}

class Agent {
  readonly #frame: Frame<"agent">;
  readonly #node: NodeName;
  readonly #metrics;
  readonly #view = new View();
  readonly #placement: ViewPlacement;
  readonly #calls: Calls;
  /** When each commit was sent. */
  readonly #sentAt = new Map<number, Instant>();
  readonly #freshness = new Map<string, { readonly ageMs: number; readonly at: Instant }>();
  readonly #becameReady = Promise.withResolvers<void>();
  readonly #whenSettled: (() => void)[] = [];
  readonly #now: () => Instant;
  readonly #lease: LeaseKeeper;
  readonly #viewFile: ViewFile;
  #warm: WarmPolicy | undefined;
  #ledger: Ledger;
  #nodeUid: string | undefined;
  #journal: Journal | undefined;
  #stream: Stream | undefined;
  #spool: Spool | undefined;
  #socket: AgentSocket | undefined;
  #installer: Installer | undefined;
  #cancelWake = (): void => {};

  constructor(frame: Frame<"agent">) {
    const { clock, logger } = frame;
    this.#frame = frame;
    this.#now = bootClock(clock, uptimeMs);
    this.#warm = warmPolicyOf(frame.config());
    frame.onReload(() => {
      this.#warm = warmPolicyOf(frame.config());
      this.#handle({ kind: "tick" });
    });
    this.#node = frame.config().nodeName as NodeName;
    this.#metrics = frame.metrics.create(agentMetrics);
    this.#placement = new ViewPlacement(this.#view, this.#node, () => clock.wall());
    const handle = (event: LedgerEvent): void => this.#handle(event);
    this.#calls = new Calls({ clock, logger, metrics: this.#metrics, placement: this.#placement, handle });
    this.#ledger = this.#createLedger(undefined);
    const directory = frame.config().stateDir;
    this.#viewFile = new ViewFile({ directory, node: this.#node, view: this.#view, clock, logger });
    this.#lease = new LeaseKeeper({
      now: this.#now,
      after: clock.after,
      ping: (sent) => this.#stream?.send({ type: "ping", sent }),
      limitMs: () => frame.config().offlineLimitMs,
      timestamp: () => goTimeText(clock.wallNanos()),
      tell: (event) => this.#handle(event),
      keep: (leftMs) => this.#journal?.putMeta(leaseToMeta(leftMs, uptimeMs(), clock.wall())),
    });
  }

  get ready(): Promise<void> {
    return this.#becameReady.promise;
  }

  async start(journal: Journal): Promise<void> {
    const { clock, logger } = this.#frame;
    this.#journal = journal;
    const closed = unknownPast(journal.meta);
    if (closed?.isLoss)
      logger.warn("Lost the journal: found out anew what runs here before the next ADD", { err: closed.trouble.why });
    this.#ledger = this.#createLedger(closed);
    this.#ledger.boot = { id: textOf(bootIdPath), graceMs: this.#frame.config().rebootGraceMs };
    replay(this.#ledger, journal.records, this.#now(), clock.wall());
    this.#resume(journal.meta);
    logger.info("Opened the journal", {
      count: journal.records.attachments.length,
      path: this.#frame.config().stateDir,
    });
    this.#observe();
    if (this.#warm && this.#viewFile.load()) for (const event of recall(this.#view)) this.#handle(event);
    this.#stream = await this.#openStream();
    this.#spool = await openSpool({
      directory: join(this.#frame.config().stateDir, "spool"),
      clock,
      logger,
      take: (del) =>
        new Promise((resolve) => this.#handle(delEvent(del, this.#at(this.#calls.openInternal(resolve)), true))),
    });
    this.#socket = await listenSocket({
      path: this.#frame.config().socket,
      clock,
      logger,
      take: (request, connection) => {
        const call = this.#calls.open(request, connection);
        const verdict = decide(request, this.#at(call));
        if (verdict.kind === "event") this.#handle(verdict.event);
        else if (verdict.kind === "fine") this.#calls.done(call);
        else this.#calls.refused(call, verdict.trouble);
      },
    });
    const { ready } = this;
    const repaired = (): void => this.#metrics.installRepairs.inc();
    const install = installOptionsOf(this.#frame.config());
    if (install) this.#installer = startInstaller(install, { ready, clock, logger, repaired });
    this.#wake();
  }

  written(upTo: Extract<LedgerEvent, { kind: "journalled" }>["upTo"], tookMs: number): void {
    this.#metrics.journalWriteDuration.observe(tookMs / 1000);
    this.#handle({ kind: "journalled", upTo });
  }

  failed(upTo: Extract<LedgerEvent, { kind: "journal-failed" }>["upTo"], err: Error): void {
    this.#frame.logger.error("Could not write the journal", { reason: "DiskFull", err });
    this.#handle({ kind: "journal-failed", upTo });
  }

  /** Nobody waits, everything is on disk and acknowledged. */
  async idle(): Promise<void> {
    await this.#calls.idle();
    if (isSettled(this.#ledger)) return;
    await new Promise<void>((resolve) => this.#whenSettled.push(resolve));
  }

  async stop(): Promise<void> {
    await this.#installer?.stop();
    await this.#socket?.stopListening();
    let cancel = (): void => {};
    const late = new Promise<void>((resolve) => {
      cancel = this.#frame.clock.after(lastAnswersMs, resolve);
    });
    await Promise.race([this.#calls.idle(), late]);
    cancel();
    this.#socket?.close();
    this.#spool?.close();
    this.#stream?.stop();
    this.#lease.offline();
    if (this.#warm) this.#viewFile.save();
    await this.#journal?.close();
    this.#cancelWake();
  }

  /** A new journal gets its name, an old one knows how long its lease runs. */
  #resume(meta: Meta): void {
    const { clock, random } = this.#frame;
    const fresh = { journal: random.hex(8), number: 1, timestamp: goTimeText(clock.wallNanos()) };
    const incarnation = incarnationFrom(meta.incarnation) ?? fresh;
    if (incarnation === fresh) this.#journal?.putMeta({ incarnation: JSON.stringify(fresh) });
    const leftMs = leaseLeftMs(meta, textOf(bootIdPath), uptimeMs(), clock.wall());
    const now = this.#now();
    resumeLease(this.#ledger, incarnation, leftMs === undefined ? undefined : ((now + leftMs) as Instant), now);
  }

  #createLedger(closed: Closed | undefined): Ledger {
    const { handles, handleDelayMs } = this.#frame.config();
    return createLedger(
      {
        node: this.#node,
        handles: handles === "eager" ? "eager" : "off",
        handleDelayMs: handles === "lazy" ? handleDelayMs : undefined,
        placement: this.#placement,
        warm: () => this.#warm,
      },
      this.#now(),
      closed,
    );
  }

  #at(call: CallId): Circumstances {
    const { clock } = this.#frame;
    const [now, wall, nanos] = [this.#now(), clock.wall(), clock.wallNanos()];
    return { ledger: this.#ledger, node: this.#node, call, now, wall, nanos };
  }

  #handle(event: LedgerEvent): void {
    for (const effect of step(this.#ledger, event, this.#now())) this.#perform(effect);
    if (this.#whenSettled.length > 0 && isSettled(this.#ledger)) {
      for (const resolve of this.#whenSettled.splice(0)) resolve();
    }
    if (Object.values(readiness).every((check) => check(this.#ledger, this.#now()) === undefined))
      this.#becameReady.resolve();
    this.#wake();
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "journal":
        return this.#journal?.append(effect.number, effect.rows);
      case "commit":
        this.#sentAt.set(effect.commit.id, this.#frame.clock.monotonic());
        return this.#stream?.send({ type: "commit", ...effect.commit });
      case "claim":
        return this.#stream?.send({
          type: "claim",
          id: effect.id,
          pools: [...effect.pools],
          full: [...effect.full],
          borrow: effect.borrow,
        });
      case "claim-block":
        return this.#stream?.send({ type: "claim-block", id: effect.id, block: effect.block, pool: effect.pool });
      case "granted":
        return this.#calls.granted(effect.call, effect.places, effect.path);
      case "done":
        return this.#calls.done(effect.call);
      case "refused":
        return this.#calls.refused(effect.call, effect.trouble);
      case "index":
        return this.#stream?.send({ type: "index", id: effect.id, handles: [...effect.handles] });
      case "incarnation":
        return this.#journal?.putMeta({ incarnation: JSON.stringify(effect.incarnation) });
      case "conflict": {
        const { block, address, handle, attributes } = effect.holding;
        this.#reportConflict(effect.what, address, attributes);
        this.#metrics.conflicts.inc({ kind: effect.what });
        return this.#frame.logger.warn("Saw another writer change what is ours", {
          value: effect.what,
          block,
          address,
          handle,
        });
      }
      case "seek-evidence":
        void readLibcniCaches(this.#frame.config().cni.cacheDirs).then((found) =>
          this.#handle(evidenceEvent(found, this.#at(noCall))),
        );
        return;
      case "judged":
        return this.#tellVerdict(effect);
      case "rebuilt":
        return this.#tellRebuilt(effect);
      case "ended-left-over":
        return this.#frame.logger.info("Released what pods of an earlier boot had left", { count: effect.count });
      case "reconnect":
        return this.#stream?.distrust();
      default:
        return impossible(effect);
    }
  }

  #tellRebuilt({ isLoss, adopted, suspects, gap }: Extract<Effect, { kind: "rebuilt" }>): void {
    const { logger } = this.#frame;
    this.#journal?.putMeta({ isNew: "", lostPast: "" });
    const found = `${adopted} addresses of running pods were taken over, ${suspects} that may be in use are kept back`;
    if (gap !== undefined) logger.warn("Did not see all that runs here", { err: gap, count: suspects });
    if (!isLoss) return logger.info("Took over what ran here before", { count: adopted });
    logger.warn("Rebuilt the journal from the blocks and from what runs here", { count: adopted, value: suspects });
    const note = `the agent's journal was lost and made anew: ${found}${gap === undefined ? "" : `; ${gap}`}`;
    this.#stream?.send({ type: "report", reason: "JournalRebuilt", kind: "node", name: this.#node, note });
  }

  #tellVerdict({ doubt, released, kept }: Extract<Effect, { kind: "judged" }>): void {
    const { logger } = this.#frame;
    if (released.length > 0)
      logger.info("Released stock of a lost journal that nobody uses", {
        count: released.length,
        address: few(released),
      });
    if (kept.length === 0) return;
    const found = { count: kept.length, address: few(kept) };
    if (doubt !== undefined)
      logger.warn("Kept stock of a lost journal, as what runs here could not be told for certain", {
        ...found,
        err: doubt,
      });
    else logger.warn("Kept stock of a lost journal that is in somebody's use", found);
  }

  /** People who look at the pod see why its address does not work. */
  #reportConflict(what: string, address: string, { pod, namespace }: Readonly<Record<string, string>>): void {
    if (pod === undefined || namespace === undefined) return;
    const note = `its address ${address} was ${what === "taken" ? "taken" : "released"} by another writer`;
    this.#stream?.send({ type: "report", reason: "AddressConflict", kind: "pod", namespace, name: pod, note });
  }

  #wake(): void {
    this.#cancelWake();
    const due = nextWake(this.#ledger);
    if (due === undefined) return;
    const { clock } = this.#frame;
    this.#cancelWake = clock.after(Math.max(0, due - this.#now()), () => this.#handle({ kind: "tick" }));
  }

  async #openStream(): Promise<Stream> {
    const { clock, random, logger, files, version } = this.#frame;
    const { server, tokenFile, tls } = this.#frame.config();
    const token = tokenFile === undefined ? undefined : await files.token(tokenFile);
    const authorities = tls.caFile === undefined ? undefined : await files.authorities(tls.caFile);
    return openStream({
      urls: server,
      token: () => token?.current(),
      authorities: () => authorities?.current().ca,
      serverName: tls.serverName,
      hello: () => ({
        type: "hello",
        protocol: streamProtocol,
        version: version.version,
        scope: "node",
        node: this.#node,
        ...(this.#view.lineage !== undefined && { lineage: this.#view.lineage }),
        have: this.#view.have(),
        capabilities: [],
        incarnation: `${this.#ledger.incarnation.journal}.${this.#ledger.incarnation.number}`,
        leaseExpired: this.#ledger.lease.standing === "ran-out",
      }),
      clock,
      random,
      logger,
      deliver: (message) => this.#deliver(message),
      online: () => {
        this.#handle({ kind: "online" });
        this.#lease.online();
      },
      offline: (reason) => this.#offline(reason),
    });
  }

  #deliver(message: ServerMessage): void {
    if (message.type === "beat") {
      this.#heardOf(message.freshness);
      this.#lease.heard(message);
    }
    if (message.type === "ack") this.#measureCommit(message);
    const known = { view: this.#view, placement: this.#placement, ledger: this.#ledger };
    for (const event of follow(message, known)) {
      if (event.kind === "incomplete") this.#frame.logger.warn("Started afresh, as the server has other data");
      this.#handle(event);
    }
    if (message.type === "put" && message.kind === "node") this.#knowNode();
    if (this.#warm && message.type !== "beat")
      this.#viewFile.changed(message.type === "synced" || message.type === "claimed");
  }

  /** The same machine under a new Node object keeps its journal: what it says about this machine's containers is true. */
  #knowNode(): void {
    const nodeUid = this.#view.get("node", this.#node)?.uid;
    const known = this.#nodeUid ?? this.#journal?.meta.nodeUid;
    this.#nodeUid = nodeUid;
    if (nodeUid === undefined || known === nodeUid) return;
    const { logger } = this.#frame;
    if (known !== undefined) logger.warn("Found this node created anew", { node: this.#node, uid: nodeUid });
    this.#journal?.putMeta({ nodeUid });
  }

  #heardOf(freshness: Extract<ServerMessage, { type: "beat" }>["freshness"]): void {
    const at = this.#frame.clock.monotonic();
    for (const [kind, { ageMs }] of Object.entries(freshness)) this.#freshness.set(kind, { ageMs, at });
  }

  #measureCommit({ id, results }: Extract<ServerMessage, { type: "ack" }>): void {
    const since = this.#sentAt.get(id);
    this.#sentAt.delete(id);
    if (results === undefined || since === undefined) return;
    this.#metrics.commitDuration.observe((this.#frame.clock.monotonic() - since) / 1000);
  }

  #offline(reason: EndReason): void {
    this.#metrics.reconnects.inc({ reason });
    this.#sentAt.clear();
    this.#lease.offline();
    this.#handle({ kind: "offline" });
  }

  #observe(): void {
    const { health, metrics, clock, config } = this.#frame;
    for (const [name, check] of Object.entries(readiness))
      health.check("ready", name, () => check(this.#ledger, this.#now(), this.#stream?.status().refusal));
    health.check("ready", "socket", () => (this.#socket ? this.#socket.problem : "it is not there yet"));
    this.#frame.adminPage(
      "/api/v1/objects",
      objectsPage((kind) => this.#view.held(kind)),
    );
    metrics.beforeScrape(() => {
      measureLedger(this.#metrics, this.#ledger, this.#now());
      const { live = false, silentMs } = this.#stream?.status() ?? {};
      this.#metrics.serverConnected.set(live ? 1 : 0);
      if (silentMs !== undefined) this.#metrics.serverLastContact.set((clock.wall() - silentMs) / 1000);
      this.#metrics.cniInFlight.set(this.#calls.inFlight);
      this.#metrics.spooledDeletes.set(this.#spool?.waiting ?? 0);
      this.#metrics.journalBytes.set(sizeOf(join(config().stateDir, "journal.db")));
      for (const resource of streamedKinds) this.#measureAge(resource);
    });
  }

  #measureAge(resource: StreamedKind): void {
    const known = this.#freshness.get(resource);
    if (known) this.#metrics.dataAge.set({ resource }, (known.ageMs + this.#frame.clock.monotonic() - known.at) / 1000);
  }
}

/** Together: an ADD could be answered now. Each says why not. */
const readiness: Readonly<Record<string, (ledger: Ledger, now: Instant, refusal?: string) => string | undefined>> = {
  journal: ({ closed, diskFails }) => closed?.trouble.why ?? (diskFails ? "it cannot be written" : undefined),
  view: ({ complete }) => (complete ? undefined : "not everything that concerns this node has been received"),
  server: (ledger, now, refusal) => {
    if (ledger.online || hasStock(ledger, now)) return undefined;
    const why = "none is connected, and nothing is in stock";
    return refusal === undefined ? why : `${why}; the last attempt: ${refusal}`;
  },
};

function hasStock(ledger: Ledger, now: Instant): boolean {
  return ledger.placement.usual().some((want) => pick(ledger, want, now) !== undefined);
}

/** Everything is on disk and acknowledged. */
function isSettled({ unconfirmed, unsaved, flights, claims, lanes }: Ledger): boolean {
  const isDue = lanes.values().some(({ due }) => due.size > 0);
  return unconfirmed.length + unsaved.size + flights.size + claims.size === 0 && !isDue;
}

/** No call asks for it. */
const noCall = 0 as CallId;

/** What ran here before this journal is still to be found out. */
function unknownPast({ isNew, lostPast = "" }: Meta): Closed | undefined {
  if (isNew !== "true") return undefined;
  const why = `${lostPast || "the agent's journal is new"}; what runs on this node is still being found out`;
  return { trouble: trouble("AgentStarting", why), isLoss: lostPast !== "", verdict: undefined };
}

/** A line of the log stays readable. */
function few(addresses: readonly string[]): string {
  return addresses.slice(0, 8).join(" ") + (addresses.length > 8 ? " …" : "");
}

function sizeOf(path: string): number {
  return ["", "-wal"].reduce((sum, suffix) => sum + (statSync(path + suffix, { throwIfNoEntry: false })?.size ?? 0), 0);
}
