// Cleans up what no agent will: warm addresses of vanished nodes, their half-made claims, handles without an address. The leader's work.
// After that Calico's own clean-up of the node can end (trap 72). Leaves to leftovers.ts what is one, to limits.ts how long to wait.
import { handleName } from "../../shared/calico/names.ts";
import type { Affinity, Handle } from "../../shared/calico/resources.ts";
import type { Instant, NodeName } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Random } from "../../shared/world.ts";
import type { Affinities } from "../commit/affinities.ts";
import type { Committer } from "../commit/committer.ts";
import { type Desk, failureIn } from "../commit/desk.ts";
import { countsIn } from "../commit/handles.ts";
import type { Recorder } from "../events/recorder.ts";
import { isHalfMade, isOrphan, Sightings, type Stock, stocksIn } from "./leftovers.ts";
import { Vanished } from "./vanished.ts";

export interface ReaperParts {
  readonly desk: Desk;
  readonly committer: Pick<Committer, "commit">;
  readonly affinities: Pick<Affinities, "abandon">;
  readonly events: Pick<Recorder, "aboutNode">;
  /** To be asked before each write: another server may have taken over. */
  readonly leads: () => boolean;
  /** How long a Node must be missing. */
  readonly reapAfterMs: () => number;
  /** Brings the store's copy of the Node up to date; rejects when nobody can tell. */
  readonly refresh: (node: NodeName) => Promise<void>;
  readonly random: Random;
  readonly logger: Logger;
  readonly metrics: Pick<MetricHandles<typeof serverMetrics>, "reaped">;
}

export const passMs = 60_000;
const jitterMs = 5_000;
/**
 * So long must an address or a row have been there, while its Node was missing. The blocks' watch may be ahead of the nodes' by 90 s
 * (limits.ts): something younger could be of a Node that was made again and that this server has not seen yet.
 */
const settledMs = 120_000;
/** Calico's own collector waits as long for what it thinks has leaked. Between a handle and its address lie seconds. */
const orphanMs = 15 * 60_000;
/** Handles deleted in one pass: five a second. */
const maxHandlesPerPass = 300;
/** Blocks looked at before pings and answers get their turn. */
const blocksAtOnce = 250;
const writeLimitMs = 30_000;
const viewLimitMs = 15_000;

interface Leftovers {
  readonly stocks: ReadonlyMap<NodeName, readonly Stock[]>;
  readonly rows: ReadonlyMap<NodeName, readonly Affinity[]>;
  readonly orphans: readonly Handle[];
}

export class Reaper {
  readonly #parts: ReaperParts;
  readonly #vanished: Vanished;
  readonly #sightings = new Sightings();
  #cancel = (): void => {};
  #passing: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(parts: ReaperParts) {
    this.#parts = parts;
    this.#vanished = new Vanished(parts.desk.store, parts.desk.clock);
  }

  start(): void {
    const { desk, random } = this.#parts;
    this.#cancel = desk.clock.after(passMs + random.below(jitterMs), () => {
      this.#passing = this.pass().finally(() => {
        if (!this.#stopped) this.start();
      });
    });
  }

  /** What is being written is finished; nothing new is begun. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel();
    this.#vanished.stop();
    await this.#passing;
  }

  /** One look at everything, and what follows from it. Never rejects for what the world does. */
  async pass(): Promise<void> {
    if (!this.#mayAct()) return;
    const { stocks, rows, orphans } = await this.#look();
    for (const node of new Set([...stocks.keys(), ...rows.keys()])) {
      await this.#reap(node, stocks.get(node) ?? [], rows.get(node) ?? []);
    }
    for (const handle of orphans) await this.#removeOrphan(handle);
  }

  #mayAct(): boolean {
    const { desk, leads } = this.#parts;
    const isFresh = (["node", "block", "affinity", "handle"] as const).every((kind) => {
      const { synced, ageMs } = desk.store.freshness(kind);
      return synced && ageMs <= viewLimitMs;
    });
    return !this.#stopped && leads() && isFresh && !desk.locked;
  }

  async #look(): Promise<Leftovers> {
    const { clock, store } = this.#parts.desk;
    const stocks = new Map<NodeName, Stock[]>();
    const used = new Set<string>();
    this.#sightings.begin();
    let looked = 0;
    for (const block of [...store.all("block").values()]) {
      for (const name of countsIn(block).keys()) used.add(name);
      for (const stock of stocksIn(block, (node) => this.#isVanished(node))) {
        const settled = this.#settled(stock);
        if (settled.releases.length > 0) stocks.set(stock.node, [...(stocks.get(stock.node) ?? []), settled]);
      }
      if (++looked % blocksAtOnce === 0) await new Promise<void>((wake) => clock.after(0, wake));
    }
    const rows = Map.groupBy(this.#settledRows(), ({ node }) => node as NodeName);
    const orphans = this.#orphans(used);
    this.#sightings.end();
    return { stocks, rows, orphans };
  }

  #isVanished(node: NodeName): boolean {
    const since = this.#vanished.missingSince(node);
    return since !== undefined && this.#now() - since >= this.#parts.reapAfterMs();
  }

  #settled(stock: Stock): Stock {
    const releases = stock.releases.filter(({ ordinal, expect }) => {
      const key = `${stock.block} ${ordinal} ${expect?.handle} ${expect?.sequence}`;
      return this.#sightings.ageMs(key, this.#now()) >= settledMs;
    });
    return { ...stock, releases };
  }

  #settledRows(): Affinity[] {
    return [...this.#parts.desk.store.all("affinity").values()].filter((row) => {
      if (!isHalfMade(row) || !this.#isVanished(row.node as NodeName)) return false;
      return this.#sightings.ageMs(`${row.uid} ${row.resourceVersion}`, this.#now()) >= settledMs;
    });
  }

  #orphans(used: ReadonlySet<string>): Handle[] {
    const { store } = this.#parts.desk;
    // What cannot be read may hold the address.
    if (store.unread("block").size > 0) return [];
    const old = [...store.all("handle").values()].filter((handle) => {
      if (!isOrphan(handle, used)) return false;
      return this.#sightings.ageMs(`${handle.uid} ${handle.resourceVersion}`, this.#now()) >= orphanMs;
    });
    return old.slice(0, maxHandlesPerPass);
  }

  async #reap(node: NodeName, stocks: readonly Stock[], rows: readonly Affinity[]): Promise<void> {
    const { events, logger, metrics, refresh } = this.#parts;
    try {
      // After all these were seen: were the Node there again, it would be found.
      await refresh(node);
    } catch (error) {
      return logger.warn("Could not look whether a Node is gone", { node, err: failureIn(error) });
    }
    let released = 0;
    for (const stock of stocks) if (this.#mayReap(node)) released += await this.#release(stock);
    for (const row of rows) if (this.#mayReap(node)) await this.#abandon(node, row);
    if (released === 0) return;
    metrics.reaped.inc({ kind: "warm" }, released);
    logger.info("Released addresses of a vanished node", { node, count: released });
    const minutes = Math.round(this.#parts.reapAfterMs() / 60_000);
    events.aboutNode(
      "NodeAddressesReleased",
      node,
      `${released} addresses that nobody uses were released, as the Node has been missing for ${minutes} min`,
    );
  }

  #mayReap(node: NodeName): boolean {
    return this.#mayAct() && this.#isVanished(node);
  }

  async #release({ node, block, releases }: Stock): Promise<number> {
    const answer = await this.#parts.committer.commit({ node, block, intents: releases, handles: "off" });
    if (answer.kind === "done") return answer.results.filter((result) => result === "applied").length;
    this.#parts.logger.warn("Could not release addresses of a vanished node", {
      node,
      block,
      reason: answer.problem.reason,
      err: answer.problem.message,
    });
    return 0;
  }

  async #abandon(node: NodeName, row: Affinity): Promise<void> {
    const { affinities, logger, metrics } = this.#parts;
    try {
      if (await affinities.abandon({ node, until: this.#until() }, row)) metrics.reaped.inc({ kind: "claim" });
    } catch (error) {
      logger.warn("Could not undo a half-made claim", { node, block: row.cidr, err: failureIn(error) });
    }
  }

  /** Exactly the object that was seen without an address all the time: whoever has used it since has changed its version. */
  async #removeOrphan(handle: Handle): Promise<void> {
    const { desk, logger, metrics } = this.#parts;
    const isUsed = [...handle.block.keys()].some((cidr) =>
      countsIn(desk.store.blockAt(cidr)).has(handleName(handle.handleId)),
    );
    if (isUsed || !this.#mayAct()) return;
    try {
      await desk.remove({ node: orphanTurn, until: this.#until() }, "handle", handle);
      metrics.reaped.inc({ kind: "handle" });
    } catch (error) {
      const err = failureIn(error);
      logger.debug("Could not delete a handle without an address", { handle: handle.handleId, err });
    }
  }

  #until(): Instant {
    return (this.#now() + writeLimitMs) as Instant;
  }

  #now(): Instant {
    return this.#parts.desk.clock.monotonic();
  }
}

/** Handles of all nodes take one node's turn together. */
const orphanTurn = "" as NodeName;
