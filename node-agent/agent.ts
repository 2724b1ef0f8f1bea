// The node agent between its disk, its server and its callers: what each of them says goes to the view and the ledger, and what follows
// from it goes back. Decides only. Leaves the doors themselves to agent-shell.ts, and the answers' words to calls-shell.ts.
import * as v from "valibot";
import { goTimeText } from "../shared/calico/timestamps.ts";
import type { AgentConfig } from "../shared/config/catalogue.ts";
import { type Instant, impossible, type NodeName } from "../shared/kinds.ts";
import type { Logger } from "../shared/log.ts";
import type { agentMetrics, MetricHandles } from "../shared/metrics.ts";
import type { AgentRequest, SpooledDel } from "../shared/protocol/socket.ts";
import { type Hello, type ServerMessage, type StreamedKind, streamProtocol } from "../shared/protocol/stream.ts";
import type { Clock, Random } from "../shared/world.ts";
import { bootClock } from "./boot-clock.ts";
import { follow, recall } from "./follow.ts";
import { ViewPlacement } from "./ipam/placement.ts";
import { type Circumstances, decide, delEvent, evidenceEvent } from "./ipam/verbs.ts";
import { LeaseKeeper, leaseLeftMs, leaseToMeta } from "./lease-keeper.ts";
import type { Found } from "./ledger/evidence.ts";
import type { Journal, Meta } from "./ledger/journal.ts";
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
import type { Effect, Granted, GrantPath } from "./ledger/turn.ts";
import type { EndReason } from "./sync/client.ts";
import type { Stream } from "./sync/stream.ts";
import type { View } from "./sync/view.ts";
import type { ViewFile } from "./sync/view-file.ts";
import { type Trouble, trouble } from "./trouble.ts";

/** Whoever waits for an answer. */
export interface Replies {
  granted(call: CallId, places: readonly Granted[], path: GrantPath): void;
  done(call: CallId): void;
  refused(call: CallId, trouble: Trouble): void;
}

type ConfigKey =
  | "commit"
  | "flushDelayMs"
  | "handleDelayMs"
  | "handles"
  | "nodeName"
  | "offlineLimitMs"
  | "rebootGraceMs"
  | "stateDir"
  | "warm";

export interface AgentParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly metrics: Pick<MetricHandles<typeof agentMetrics>, "commitDuration" | "conflicts" | "reconnects">;
  readonly config: () => Pick<AgentConfig, ConfigKey>;
  readonly version: string;
  /** Since the machine's start, sleep included. */
  readonly uptimeMs: () => number;
  /** Another one after each start of the machine. Empty: not known here. */
  readonly bootId: string;
  readonly view: View;
  readonly viewFile: Pick<ViewFile, "load" | "changed" | "save">;
  readonly replies: Replies;
  /** Undefined: not there yet. */
  readonly stream: () => Pick<Stream, "send" | "distrust" | "status"> | undefined;
  /** What the container runtime wrote down of what runs here. */
  readonly findWitnesses: () => Promise<Found>;
}

export class Agent {
  readonly view: View;
  readonly placement: ViewPlacement;
  readonly now: () => Instant;
  readonly #parts: AgentParts;
  readonly #node: NodeName;
  /** When each commit was sent. */
  readonly #sentAt = new Map<number, Instant>();
  readonly #freshness = new Map<string, { readonly ageMs: number; readonly at: Instant }>();
  readonly #becameReady = Promise.withResolvers<void>();
  readonly #whenSettled: (() => void)[] = [];
  readonly #lease: LeaseKeeper;
  #warm: WarmPolicy | undefined;
  #ledger: Ledger;
  #nodeUid: string | undefined;
  #journal: Journal | undefined;
  #cancelWake = (): void => {};

  constructor(parts: AgentParts) {
    const { clock, view, config, uptimeMs } = parts;
    this.#parts = parts;
    this.view = view;
    this.now = bootClock(clock, uptimeMs);
    this.#warm = warmPolicyOf(config());
    this.#node = config().nodeName as NodeName;
    this.placement = new ViewPlacement(view, this.#node, () => clock.wall());
    this.#ledger = this.#createLedger(undefined);
    this.#lease = new LeaseKeeper({
      now: this.now,
      after: clock.after,
      ping: (sent) => parts.stream()?.send({ type: "ping", sent }),
      limitMs: () => config().offlineLimitMs,
      timestamp: () => goTimeText(clock.wallNanos()),
      tell: (event) => this.handle(event),
      keep: (leftMs) => this.#journal?.putMeta(leaseToMeta(leftMs, uptimeMs(), clock.wall())),
    });
  }

  /** Resolves when an ADD could be answered for the first time. */
  get ready(): Promise<void> {
    return this.#becameReady.promise;
  }

  get ledger(): Ledger {
    return this.#ledger;
  }

  /** Before anything else: what the journal holds is taken over, and what the view's file has. */
  open(journal: Journal): void {
    const { clock, logger, config, bootId, viewFile } = this.#parts;
    this.#journal = journal;
    const closed = unknownPast(journal.meta);
    if (closed?.isLoss)
      logger.warn("Lost the journal: found out anew what runs here before the next ADD", { err: closed.trouble.why });
    this.#ledger = this.#createLedger(closed);
    this.#ledger.boot = { id: bootId, graceMs: config().rebootGraceMs };
    replay(this.#ledger, journal.records, this.now(), clock.wall());
    this.#resume(journal.meta);
    logger.info("Opened the journal", { count: journal.records.attachments.length, path: config().stateDir });
    if (this.#warm && viewFile.load()) for (const event of recall(this.view)) this.handle(event);
  }

  /** From now on time passes. */
  start(): void {
    this.#wake();
  }

  /** The configuration may be another one. */
  reload(): void {
    this.#warm = warmPolicyOf(this.#parts.config());
    this.handle({ kind: "tick" });
  }

  take(request: AgentRequest, call: CallId): void {
    const verdict = decide(request, this.at(call));
    if (verdict.kind === "event") this.handle(verdict.event);
    else if (verdict.kind === "fine") this.#parts.replies.done(call);
    else this.#parts.replies.refused(call, verdict.trouble);
  }

  /** What lay in the spool. */
  takeSpooled(del: SpooledDel, call: CallId): void {
    this.handle(delEvent(del, this.at(call), true));
  }

  /** Nobody is answered any more and nothing more is written. */
  stop(): void {
    this.#lease.offline();
    if (this.#warm) this.#parts.viewFile.save();
    this.#journal = undefined;
    this.#cancelWake();
  }

  /** Resolves when everything is on disk and acknowledged. */
  async settled(): Promise<void> {
    if (isSettled(this.#ledger)) return;
    await new Promise<void>((resolve) => this.#whenSettled.push(resolve));
  }

  hello(): Hello {
    const { incarnation, lease } = this.#ledger;
    return {
      type: "hello",
      protocol: streamProtocol,
      version: this.#parts.version,
      scope: "node",
      node: this.#node,
      ...(this.view.lineage !== undefined && { lineage: this.view.lineage }),
      have: this.view.have(),
      capabilities: [],
      incarnation: `${incarnation.journal}.${incarnation.number}`,
      leaseExpired: lease.standing === "ran-out",
    };
  }

  online(): void {
    this.handle({ kind: "online" });
    this.#lease.online();
  }

  deliver(message: ServerMessage): void {
    if (message.type === "beat") {
      this.#heardOf(message.freshness);
      this.#lease.heard(message);
    }
    if (message.type === "ack") this.#measureCommit(message);
    const known = { view: this.view, placement: this.placement, ledger: this.#ledger };
    for (const event of follow(message, known)) {
      if (event.kind === "incomplete") this.#parts.logger.warn("Started afresh, as the server has other data");
      this.handle(event);
    }
    if (message.type === "put" && message.kind === "node") this.#knowNode();
    if (this.#warm && message.type !== "beat")
      this.#parts.viewFile.changed(message.type === "synced" || message.type === "claimed");
  }

  /** The same machine under a new Node object keeps its journal: what it says about this machine's containers is true. */
  #knowNode(): void {
    const nodeUid = this.view.get("node", this.#node)?.uid;
    const known = this.#nodeUid ?? this.#journal?.meta.nodeUid;
    this.#nodeUid = nodeUid;
    if (nodeUid === undefined || known === nodeUid) return;
    const { logger } = this.#parts;
    if (known !== undefined) logger.warn("Found this node created anew", { node: this.#node, uid: nodeUid });
    this.#journal?.putMeta({ nodeUid });
  }

  #heardOf(freshness: Extract<ServerMessage, { type: "beat" }>["freshness"]): void {
    const at = this.#parts.clock.monotonic();
    for (const [kind, { ageMs }] of Object.entries(freshness)) this.#freshness.set(kind, { ageMs, at });
  }

  #measureCommit({ id, results }: Extract<ServerMessage, { type: "ack" }>): void {
    const since = this.#sentAt.get(id);
    this.#sentAt.delete(id);
    if (results === undefined || since === undefined) return;
    this.#parts.metrics.commitDuration.observe((this.#parts.clock.monotonic() - since) / 1000);
  }

  offline(reason: EndReason): void {
    this.#parts.metrics.reconnects.inc({ reason });
    this.#sentAt.clear();
    this.#lease.offline();
    this.handle({ kind: "offline" });
  }

  /** How old what is known of a kind is; undefined: not told yet. */
  ageMs(kind: StreamedKind): number | undefined {
    const known = this.#freshness.get(kind);
    return known && known.ageMs + this.#parts.clock.monotonic() - known.at;
  }

  at(call: CallId): Circumstances {
    const { clock } = this.#parts;
    const [now, wall, nanos] = [this.now(), clock.wall(), clock.wallNanos()];
    return { ledger: this.#ledger, node: this.#node, call, now, wall, nanos };
  }

  handle(event: LedgerEvent): void {
    for (const effect of step(this.#ledger, event, this.now())) this.#perform(effect);
    if (this.#whenSettled.length > 0 && isSettled(this.#ledger)) {
      for (const resolve of this.#whenSettled.splice(0)) resolve();
    }
    if (Object.values(readiness).every((check) => check(this.#ledger, this.now()) === undefined))
      this.#becameReady.resolve();
    this.#wake();
  }

  /** A new journal gets its name, an old one knows how long its lease runs. */
  #resume(meta: Meta): void {
    const { clock, random, uptimeMs, bootId } = this.#parts;
    const fresh = { journal: random.hex(8), number: 1, timestamp: goTimeText(clock.wallNanos()) };
    const incarnation = incarnationFrom(meta.incarnation) ?? fresh;
    if (incarnation === fresh) this.#journal?.putMeta({ incarnation: JSON.stringify(fresh) });
    const leftMs = leaseLeftMs(meta, bootId, uptimeMs(), clock.wall());
    const now = this.now();
    resumeLease(this.#ledger, incarnation, leftMs === undefined ? undefined : ((now + leftMs) as Instant), now);
  }

  #createLedger(closed: Closed | undefined): Ledger {
    const { handles, handleDelayMs } = this.#parts.config();
    return createLedger(
      {
        node: this.#node,
        handles: handles === "eager" ? "eager" : "off",
        handleDelayMs: handles === "lazy" ? handleDelayMs : undefined,
        placement: this.placement,
        warm: () => this.#warm,
      },
      this.now(),
      closed,
    );
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "journal":
        return this.#journal?.append(effect.number, effect.rows);
      case "commit":
        this.#sentAt.set(effect.commit.id, this.#parts.clock.monotonic());
        return this.#parts.stream()?.send({ type: "commit", ...effect.commit });
      case "claim":
        return this.#parts.stream()?.send({
          type: "claim",
          id: effect.id,
          pools: [...effect.pools],
          full: [...effect.full],
          borrow: effect.borrow,
        });
      case "claim-block":
        return this.#parts
          .stream()
          ?.send({ type: "claim-block", id: effect.id, block: effect.block, pool: effect.pool });
      case "granted":
        return this.#parts.replies.granted(effect.call, effect.places, effect.path);
      case "done":
        return this.#parts.replies.done(effect.call);
      case "refused":
        return this.#parts.replies.refused(effect.call, effect.trouble);
      case "index":
        return this.#parts.stream()?.send({ type: "index", id: effect.id, handles: [...effect.handles] });
      case "incarnation":
        return this.#journal?.putMeta({ incarnation: JSON.stringify(effect.incarnation) });
      case "conflict": {
        const { block, address, handle, attributes } = effect.holding;
        this.#reportConflict(effect.what, address, attributes);
        this.#parts.metrics.conflicts.inc({ kind: effect.what });
        return this.#parts.logger.warn("Saw another writer change what is ours", {
          value: effect.what,
          block,
          address,
          handle,
        });
      }
      case "seek-evidence":
        void this.#parts.findWitnesses().then((found) => this.handle(evidenceEvent(found, this.at(noCall))));
        return;
      case "judged":
        return this.#tellVerdict(effect);
      case "rebuilt":
        return this.#tellRebuilt(effect);
      case "ended-left-over":
        return this.#parts.logger.info("Released what pods of an earlier boot had left", { count: effect.count });
      case "reconnect":
        return this.#parts.stream()?.distrust();
      default:
        return impossible(effect);
    }
  }

  #tellRebuilt({ isLoss, adopted, suspects, gap }: Extract<Effect, { kind: "rebuilt" }>): void {
    const { logger } = this.#parts;
    this.#journal?.putMeta({ isNew: "", lostPast: "" });
    const found = `${adopted} addresses of running pods were taken over, ${suspects} that may be in use are kept back`;
    if (gap !== undefined) logger.warn("Did not see all that runs here", { err: gap, count: suspects });
    if (!isLoss) return logger.info("Took over what ran here before", { count: adopted });
    logger.warn("Rebuilt the journal from the blocks and from what runs here", { count: adopted, value: suspects });
    const note = `the agent's journal was lost and made anew: ${found}${gap === undefined ? "" : `; ${gap}`}`;
    this.#parts.stream()?.send({ type: "report", reason: "JournalRebuilt", kind: "node", name: this.#node, note });
  }

  #tellVerdict({ doubt, released, kept }: Extract<Effect, { kind: "judged" }>): void {
    const { logger } = this.#parts;
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
    this.#parts.stream()?.send({ type: "report", reason: "AddressConflict", kind: "pod", namespace, name: pod, note });
  }

  #wake(): void {
    this.#cancelWake();
    const due = nextWake(this.#ledger);
    if (due === undefined) return;
    const { clock } = this.#parts;
    this.#cancelWake = clock.after(Math.max(0, due - this.now()), () => this.handle({ kind: "tick" }));
  }
}

function warmPolicyOf({ commit, warm, flushDelayMs }: Pick<AgentConfig, ConfigKey>): WarmPolicy | undefined {
  return commit === "sync" ? undefined : { floor: warm.floor, ceiling: warm.ceiling, flushDelayMs };
}

const incarnationMeta = v.object({ journal: v.string(), number: v.number(), timestamp: v.string() });

function incarnationFrom(text: string | undefined): Incarnation | undefined {
  return text === undefined ? undefined : v.parse(incarnationMeta, JSON.parse(text));
}

/** Together: an ADD could be answered now. Each says why not. */
export const readiness: Readonly<
  Record<string, (ledger: Ledger, now: Instant, refusal?: string) => string | undefined>
> = {
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
export function isSettled({ unconfirmed, unsaved, flights, claims, lanes }: Ledger): boolean {
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
