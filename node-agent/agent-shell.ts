// The node agent put together: journal, ledger, stream, spool, socket. main.ts runs it; the demo and tests start it in their process.
// Leaves to others: where options come from, and when the process ends (shared/process).
import { readFileSync, statSync } from "node:fs";
import { uptime } from "node:os";
import { join } from "node:path";
import { agentMetrics } from "../shared/metrics.ts";
import type { Running } from "../shared/process/daemon.ts";
import type { Frame } from "../shared/process/frame.ts";
import { json, objectsPage } from "../shared/process/http.ts";
import { type NodeState, nodeStatePath } from "../shared/protocol/node-state.ts";
import { streamedKinds } from "../shared/protocol/stream.ts";
import { Agent, readiness } from "./agent.ts";
import { Calls } from "./calls-shell.ts";
import { type Installer, installOptionsOf, startInstaller } from "./install/installer-shell.ts";
import type { Meta } from "./ledger/journal.ts";
import { type OpenJournal, openJournal } from "./ledger/journal-shell.ts";
import type { LedgerEvent } from "./ledger/ledger.ts";
import { measureLedger } from "./measures.ts";
import { nodeStateOf } from "./node-page.ts";
import { readLibcniCaches } from "./runtime/libcni-cache-shell.ts";
import { type AgentSocket, listenSocket } from "./socket/server-shell.ts";
import { openSpool, type Spool } from "./socket/spool-shell.ts";
import { openStream } from "./sync/client-shell.ts";
import type { Stream } from "./sync/stream.ts";
import { textFile } from "./sync/text-file-shell.ts";
import { View } from "./sync/view.ts";
import { ViewFile } from "./sync/view-file.ts";

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
  const agent = new AgentShell(frame);
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

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}

class AgentShell {
  readonly #frame: Frame<"agent">;
  readonly #metrics;
  readonly #agent: Agent;
  readonly #calls: Calls;
  #journal: OpenJournal | undefined;
  #stream: Stream | undefined;
  #spool: Spool | undefined;
  #socket: AgentSocket | undefined;
  #installer: Installer | undefined;

  constructor(frame: Frame<"agent">) {
    const { clock, random, logger, config, version } = frame;
    this.#frame = frame;
    this.#metrics = frame.metrics.create(agentMetrics);
    const view = new View();
    const file = textFile(join(config().stateDir, "view.json"));
    this.#agent = new Agent({
      clock,
      random,
      logger,
      metrics: this.#metrics,
      config,
      version: version.version,
      uptimeMs,
      bootId: textOf(bootIdPath),
      view,
      viewFile: new ViewFile({ file, node: config().nodeName, view, clock, logger }),
      replies: {
        granted: (call, places, path) => this.#calls.granted(call, places, path),
        done: (call) => this.#calls.done(call),
        refused: (call, trouble) => this.#calls.refused(call, trouble),
      },
      stream: () => this.#stream,
      findWitnesses: () => readLibcniCaches(config().cni.cacheDirs),
    });
    const handle = (event: LedgerEvent): void => this.#agent.handle(event);
    const { placement } = this.#agent;
    this.#calls = new Calls({ clock, logger, metrics: this.#metrics, placement, handle });
    frame.onReload(() => this.#agent.reload());
  }

  get ready(): Promise<void> {
    return this.#agent.ready;
  }

  async start(journal: OpenJournal): Promise<void> {
    const { clock, logger } = this.#frame;
    this.#journal = journal;
    this.#agent.open(journal);
    this.#observe();
    this.#stream = await this.#openStream();
    this.#spool = await openSpool({
      directory: join(this.#frame.config().stateDir, "spool"),
      clock,
      logger,
      take: (del) => new Promise((resolve) => this.#agent.takeSpooled(del, this.#calls.openInternal(resolve))),
    });
    this.#socket = await listenSocket({
      path: this.#frame.config().socket,
      clock,
      logger,
      take: (request, connection) => this.#agent.take(request, this.#calls.open(request, connection)),
    });
    const { ready } = this;
    const repaired = (): void => this.#metrics.installRepairs.inc();
    const install = installOptionsOf(this.#frame.config());
    if (install) this.#installer = startInstaller(install, { ready, clock, logger, repaired });
    this.#agent.start();
  }

  written(upTo: Extract<LedgerEvent, { kind: "journalled" }>["upTo"], tookMs: number): void {
    this.#metrics.journalWriteDuration.observe(tookMs / 1000);
    this.#agent.handle({ kind: "journalled", upTo });
  }

  failed(upTo: Extract<LedgerEvent, { kind: "journal-failed" }>["upTo"], err: Error): void {
    this.#frame.logger.error("Could not write the journal", { reason: "DiskFull", err });
    this.#agent.handle({ kind: "journal-failed", upTo });
  }

  /** Nobody waits, everything is on disk and acknowledged. */
  async idle(): Promise<void> {
    await this.#calls.idle();
    await this.#agent.settled();
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
    this.#agent.stop();
    await this.#journal?.close();
  }

  async #openStream(): Promise<Stream> {
    const { clock, random, logger, files } = this.#frame;
    const { server, tokenFile, tls } = this.#frame.config();
    const token = tokenFile === undefined ? undefined : await files.token(tokenFile);
    const authorities = tls.caFile === undefined ? undefined : await files.authorities(tls.caFile);
    return openStream({
      urls: server,
      token: () => token?.current(),
      authorities: () => authorities?.current().ca,
      serverName: tls.serverName,
      hello: () => this.#agent.hello(),
      clock,
      random,
      logger,
      deliver: (message) => this.#agent.deliver(message),
      online: () => this.#agent.online(),
      offline: (reason) => this.#agent.offline(reason),
    });
  }

  #observe(): void {
    const { health, metrics, clock, config } = this.#frame;
    for (const [name, check] of Object.entries(readiness))
      health.check("ready", name, () => check(this.#agent.ledger, this.#agent.now(), this.#stream?.status().refusal));
    health.check("ready", "socket", () => (this.#socket ? this.#socket.problem : "it is not there yet"));
    this.#frame.adminPage(
      "/api/v1/objects",
      objectsPage((kind) => this.#agent.view.held(kind)),
    );
    this.#frame.adminPage(nodeStatePath, { get: async () => json(200, await this.#state()) });
    metrics.beforeScrape(() => {
      measureLedger(this.#metrics, this.#agent.ledger, this.#agent.now());
      const { live = false, silentMs } = this.#stream?.status() ?? {};
      this.#metrics.serverConnected.set(live ? 1 : 0);
      if (silentMs !== undefined) this.#metrics.serverLastContact.set((clock.wall() - silentMs) / 1000);
      this.#metrics.cniInFlight.set(this.#calls.inFlight);
      this.#metrics.spooledDeletes.set(this.#spool?.waiting ?? 0);
      this.#metrics.journalBytes.set(sizeOf(join(config().stateDir, "journal.db")));
      for (const resource of streamedKinds) {
        const ageMs = this.#agent.ageMs(resource);
        if (ageMs !== undefined) this.#metrics.dataAge.set({ resource }, ageMs / 1000);
      }
    });
  }

  async #state(): Promise<NodeState> {
    const { clock, version, config } = this.#frame;
    const runtime = await readLibcniCaches(config().cni.cacheDirs);
    const { ledger } = this.#agent;
    const now = this.#agent.now();
    const problems = Object.entries(readiness).flatMap(([name, check]) => {
      const why = check(ledger, now, this.#stream?.status().refusal);
      return why === undefined ? [] : [`${name}: ${why}`];
    });
    const spooledDeletes = this.#spool?.waiting ?? 0;
    const calls = this.#calls.recent;
    const around = { version: version.version, now, wall: clock.wall(), problems, spooledDeletes, runtime, calls };
    return nodeStateOf(ledger, around);
  }
}

function sizeOf(path: string): number {
  return ["", "-wal"].reduce((sum, suffix) => sum + (statSync(path + suffix, { throwIfNoEntry: false })?.size ?? 0), 0);
}
