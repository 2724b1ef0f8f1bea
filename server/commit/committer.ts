// Carries out intents: one write per block in flight, whatever arrives meanwhile travels in the next one; compare-and-swap, re-based on
// conflicts, never taken for failed while its outcome is unknown. Leaves what intents mean to intents.ts, writing handles to handles.ts.
import { isEmpty } from "../../shared/calico/block.ts";
import { blockPatch } from "../../shared/calico/codec.ts";
import { blockName, handleName } from "../../shared/calico/names.ts";
import { poolOf } from "../../shared/calico/pools.ts";
import type { Block, BlockState } from "../../shared/calico/resources.ts";
import type { BlockCidr, HandleId, Instant, NodeName, ResourceVersion } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Commit, Intent, IntentResult, Problem } from "../../shared/protocol/stream.ts";
import type { Affinities } from "./affinities.ts";
import { codeOf, type Desk, type Errand, failureIn, isRefusal, isUnknown, isWorthAnotherTry } from "./desk.ts";
import { countsIn, type Handles, hasObject } from "./handles.ts";
import { applyIntents, applyToNothing, type Outcome, type Wish } from "./intents.ts";
import { datastoreLocked, problemOf, tooSlow } from "./problems.ts";

export interface CommitRequest {
  readonly node: NodeName;
  readonly block: BlockCidr;
  readonly intents: readonly Intent[];
  readonly handles: Commit["handles"];
}

/** `block` null: it is gone. When done, the handles of the intents are as the block says. */
export type CommitAnswer =
  | { readonly kind: "done"; readonly results: readonly IntentResult[]; readonly block: Block | null }
  | { readonly kind: "problem"; readonly problem: Problem };

/** How long an agent's request is tried before it is told that nothing is known. */
const commitLimitMs = 30_000;
/** Tries of one write; Calico's number (spec, Appendix B), though ours wait in between. */
const maxTries = 100;
/** Intents in one write: the largest block has so many addresses. */
const maxBatchIntents = 4096;

interface Waiting {
  readonly request: CommitRequest;
  readonly since: Instant;
  answer(answer: CommitAnswer): void;
}

export class Committer {
  readonly #desk: Desk;
  readonly #affinities: Affinities;
  readonly #handles: Handles;
  readonly #log: Logger;
  readonly #metrics: MetricHandles<typeof serverMetrics>;
  /** Blocks with a write under way, and what waits for the next one. */
  readonly #lanes = new Map<BlockCidr, Waiting[]>();
  readonly #trailing = new Set<Promise<void>>();
  readonly #idle: (() => void)[] = [];

  constructor(
    desk: Desk,
    affinities: Affinities,
    handles: Handles,
    log: Logger,
    metrics: MetricHandles<typeof serverMetrics>,
  ) {
    this.#desk = desk;
    this.#affinities = affinities;
    this.#handles = handles;
    this.#log = log;
    this.#metrics = metrics;
  }

  /** Answers when block and handles are written, or when nothing is to be written, or when it cannot be found out. Never rejects. */
  commit(request: CommitRequest): Promise<CommitAnswer> {
    return new Promise((answer) => {
      const waiting: Waiting = { request, since: this.#desk.clock.monotonic(), answer };
      const lane = this.#lanes.get(request.block);
      if (lane) lane.push(waiting);
      else void this.#open(request.block, [waiting]);
    });
  }

  get queued(): number {
    let waiting = 0;
    for (const lane of this.#lanes.values()) waiting += lane.length;
    return waiting;
  }

  /** Resolves when nothing is under way, handles included. */
  idle(): Promise<void> {
    if (this.#lanes.size + this.#trailing.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  async #open(block: BlockCidr, lane: Waiting[]): Promise<void> {
    this.#lanes.set(block, lane);
    while (lane.length > 0) {
      const batch = takeBatch(lane);
      this.#metrics.commitBatchSize.observe(batch.reduce((sum, { request }) => sum + request.intents.length, 0));
      const write = new Write(this.#desk, this.#affinities, this.#handles, this.#log, block, batch);
      const answers = await write.run();
      // The next write does not wait for the handles of this one: they are written in turn.
      const handles = write.bringHandles();
      for (const [index, waiting] of batch.entries()) {
        this.#trail(this.#answer(waiting, answers[index], handles[index]));
      }
      this.#trail(this.#giveUp(block, batch));
    }
    this.#lanes.delete(block);
    this.#tellIdle();
  }

  async #answer(
    waiting: Waiting,
    answer: CommitAnswer | undefined,
    handles: Promise<Problem | undefined> | undefined,
  ): Promise<void> {
    if (answer === undefined) return;
    // Without its handle it is not done: the agent sends it again.
    const problem = await handles;
    const said: CommitAnswer = answer.kind === "done" && problem !== undefined ? { kind: "problem", problem } : answer;
    this.#count(waiting, said);
    waiting.answer(said);
  }

  /**
   * A block that its pool does not want here any more goes with its last address, and the writers' other ones if they are empty (spec 2.6,
   * 3.4). Nobody waits for it.
   */
  async #giveUp(cidr: BlockCidr, batch: readonly Waiting[]): Promise<void> {
    const written = this.#desk.store.blockAt(cidr);
    const nodes = new Set(batch.map(({ request }) => request.node));
    const others = [...nodes].flatMap((node) => this.#affinities.unwantedOf(node)).filter((other) => other !== written);
    const isUnwanted = written !== undefined && this.#affinities.isUnwanted(written);
    for (const block of isUnwanted ? [written, ...others] : others) {
      const errand = { node: nodeThatPays(batch), until: (this.#desk.clock.monotonic() + commitLimitMs) as Instant };
      try {
        await this.#affinities.release(errand, block);
      } catch (error) {
        this.#log.warn("Could not give up an empty block", { block: block.cidr, err: failureIn(error) });
      }
    }
  }

  #trail(work: Promise<void>): void {
    this.#trailing.add(work);
    void work.finally(() => {
      this.#trailing.delete(work);
      this.#tellIdle();
    });
  }

  #tellIdle(): void {
    if (this.#lanes.size + this.#trailing.size > 0) return;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  #count({ request, since }: Waiting, answer: CommitAnswer): void {
    this.#metrics.commitDuration.observe((this.#desk.clock.monotonic() - since) / 1000);
    request.intents.forEach((intent, index) => {
      const result = answer.kind === "done" ? (answer.results[index] ?? "failed") : "failed";
      this.#metrics.intents.inc({ op: operationOf(intent), result });
    });
  }
}

function takeBatch(lane: Waiting[]): Waiting[] {
  let intents = 0;
  let taken = 0;
  for (const { request } of lane) {
    intents += request.intents.length;
    if (taken > 0 && intents > maxBatchIntents) break;
    taken++;
  }
  return lane.splice(0, taken);
}

function operationOf(intent: Intent): "reserve" | "retag" | "release" {
  if (intent.become === null) return "release";
  return intent.expect === null ? "reserve" : "retag";
}

interface Line extends Wish {
  /** Index of the request in the batch. */
  readonly request: number;
  readonly eager: boolean;
  /** What it came to in a try whose outcome is unknown. */
  perhaps: Outcome | undefined;
  outcome: Outcome | undefined;
}

/** One batch of one block, from the first try to the last. */
class Write {
  readonly #desk: Desk;
  readonly #affinities: Affinities;
  readonly #handles: Handles;
  readonly #log: Logger;
  readonly #block: BlockCidr;
  readonly #batch: readonly Waiting[];
  readonly #errand: Errand;
  readonly #lines: Line[];
  readonly #problems = new Map<number, Problem>();
  /** What the objects of handles, by name, say of this block since they were raised for it. */
  readonly #raised = new Map<string, number>();
  /** The block as it is when all is said; undefined: not known. */
  #truth: Block | null | undefined;
  /** The version of the block on which a try was sent that may have been, or may yet be, carried out. */
  #uncertain: ResourceVersion | undefined;

  constructor(
    desk: Desk,
    affinities: Affinities,
    handles: Handles,
    log: Logger,
    block: BlockCidr,
    batch: readonly Waiting[],
  ) {
    this.#desk = desk;
    this.#affinities = affinities;
    this.#handles = handles;
    this.#log = log;
    this.#block = block;
    this.#batch = batch;
    this.#errand = { node: nodeThatPays(batch), until: (desk.clock.monotonic() + commitLimitMs) as Instant };
    this.#lines = batch.flatMap(({ request: { node, intents, handles: mode } }, request) =>
      intents.map(
        (intent): Line => ({
          node,
          intent,
          request,
          eager: mode === "eager",
          perhaps: undefined,
          outcome: undefined,
        }),
      ),
    );
  }

  async run(): Promise<CommitAnswer[]> {
    let block: Block | null = null;
    try {
      block = await this.#write();
    } catch (error) {
      this.#refuseAll(problemOf(error, `the write of block ${this.#block}`));
      this.#log.warn("Could not write a block", { block: this.#block, node: this.#errand.node, err: error });
    }
    return this.#batch.map((_, index): CommitAnswer => {
      const problem = this.#problems.get(index);
      if (problem) return { kind: "problem", problem };
      const results = this.#lines
        .filter(({ request }) => request === index)
        .map(({ outcome }) => outcome?.result ?? "refused");
      return { kind: "done", results, block };
    });
  }

  /** The block as the write left it; null when it is gone. */
  async #write(): Promise<Block | null> {
    let base = this.#desk.store.blockAt(this.#block);
    // What comes of a copy counts once a write has succeeded on it, or when it was read for this purpose: the store's may be old.
    let isProven = false;
    for (let attempt = 1; attempt <= maxTries; attempt++) {
      if (this.#desk.locked) return this.#refuseAll(datastoreLocked);
      const lines = this.#lines.filter(({ request }) => !this.#problems.has(request));
      if (lines.length === 0) return null;
      const { next, outcomes } = this.#plan(base, lines);
      if (base !== undefined && next !== undefined) {
        const settled = await this.#settleAffinity(base, lines, outcomes);
        if (settled !== base) {
          [base, isProven] = [settled, false];
          continue;
        }
        if (!(await this.#raiseHandles(lines, outcomes, [base, next]))) continue;
        const attempted = await this.#try(base, next);
        if (typeof attempted === "object") return this.#settle(lines, outcomes, attempted.written);
        if (attempted === "unknown") remember(lines, outcomes);
        if (attempt > 1 && !(await this.#desk.pause(this.#errand, attempt))) break;
      } else if (isProven) {
        if (!this.#mayStillChange(base)) return this.#settle(lines, outcomes, base);
        if (!(await this.#desk.pause(this.#errand, attempt))) break;
      }
      [base, isProven] = [await this.#read(), true];
    }
    return this.#refuseAll(tooSlow(`block ${this.#block} was not written in time`));
  }

  /** Sent on this very version, and not carried out yet: what was found there is no answer. */
  #mayStillChange(base: Block | undefined): boolean {
    return base !== undefined && base.resourceVersion === this.#uncertain;
  }

  #plan(base: Block | undefined, lines: readonly Line[]): { next?: BlockState; outcomes: readonly Outcome[] } {
    if (base === undefined || base.deleted) return { outcomes: applyToNothing(lines) };
    const { store, clock, config } = this.#desk;
    const rules = {
      strictAffinity: config.strictAffinity,
      cooldownSeconds: config.ipCooldownSeconds,
      now: clock.wall(),
      isOpen: poolOf(store.sorted("pool"), base.cidr) !== undefined,
    };
    const { next, outcomes } = applyIntents(base, lines, rules);
    return next === base ? { outcomes } : { next, outcomes };
  }

  /** Another version than `base`: the affinity had to be settled before an address is taken here, which rewrites the block, or has changed. */
  async #settleAffinity(base: Block, lines: readonly Line[], outcomes: readonly Outcome[]): Promise<Block | undefined> {
    const taking = lines.filter(
      ({ node, intent }, index) =>
        intent.become !== null && outcomes[index]?.result === "applied" && base.affinity === `host:${node}`,
    );
    const [first] = taking;
    if (first === undefined || this.#affinities.isSettled(base)) return base;
    try {
      return await this.#affinities.settle({ node: first.node, until: this.#errand.until }, base);
    } catch (error) {
      if (!isWorthAnotherTry(error) || !(await this.#desk.pause(this.#errand, 1))) {
        const problem = problemOf(error, `the claim of block ${this.#block}`);
        for (const { request } of taking) this.#problems.set(request, problem);
      }
      return this.#read();
    }
  }

  async #try(base: Block, next: BlockState): Promise<{ written: Block | undefined } | "conflict" | "unknown"> {
    // The release that empties a block nobody owns deletes it (spec 3.2); the mark is the decision, the deletion follows it.
    const isLast = next.affinity === undefined && isEmpty(next);
    const patch = blockPatch(this.#desk.group, base, isLast ? { ...next, deleted: true } : next);
    try {
      const written = await this.#desk.patch(this.#errand, "block", base.name, patch);
      if (isLast) await this.#delete(written);
      return { written: isLast ? undefined : written };
    } catch (error) {
      if (codeOf(error) === "api-conflict" || codeOf(error) === "api-missing") return "conflict";
      if (isRefusal(error)) throw error;
      this.#uncertain = base.resourceVersion;
      if (isUnknown(error)) return "unknown";
      throw error;
    }
  }

  async #delete(marked: Block): Promise<void> {
    try {
      await this.#desk.remove(this.#errand, "block", marked);
    } catch (error) {
      this.#log.warn("Could not delete an empty block", { block: this.#block, err: failureIn(error) });
    }
  }

  #read(): Promise<Block | undefined> {
    return this.#desk.read(this.#errand, "block", blockName(this.#block));
  }

  #settle(lines: readonly Line[], outcomes: readonly Outcome[], block: Block | undefined): Block | null {
    this.#uncertain = undefined;
    lines.forEach((line, index) => {
      const outcome = outcomes[index];
      // Found as wished after a try of unknown outcome: it was that try.
      line.outcome = outcome?.result === "already" && line.perhaps ? line.perhaps : outcome;
    });
    this.#truth = block === undefined || block.deleted ? null : block;
    return this.#truth;
  }

  #refuseAll(problem: Problem): null {
    this.#batch.forEach((_, index) => {
      if (!this.#problems.has(index)) this.#problems.set(index, problem);
    });
    return null;
  }

  /** False: some request cannot have its handle; the others go on without it. */
  async #raiseHandles(
    lines: readonly Line[],
    outcomes: readonly Outcome[],
    blocks: readonly BlockState[],
  ): Promise<boolean> {
    const due = lines.filter((line, index) => line.eager && takes(line, outcomes[index]));
    const counts = blocks.map(countsIn);
    await Promise.all(
      [...Map.groupBy(due, wishedName)].map(async ([name, sharing]) => {
        const [first] = sharing;
        const count = Math.max(...counts.map((perName) => perName.get(name) ?? 0));
        if (first === undefined || (this.#raised.get(name) ?? 0) >= count) return;
        const handle = wishedHandle(first);
        try {
          this.#raised.set(name, await this.#handles.raise(this.#errand, { handle, block: this.#block, count }));
        } catch (error) {
          // Perhaps written after all: whoever sends the intent again puts it right.
          this.#log.warn("Could not write a handle", { handle, block: this.#block, err: error });
          const problem = problemOf(error, `the write of handle ${handle}`);
          for (const { request } of sharing) this.#problems.set(request, problem);
        }
      }),
    );
    return due.every(({ request }) => !this.#problems.has(request));
  }

  /** Per request what has kept one of its handles from being as the block says. */
  bringHandles(): Promise<Problem | undefined>[] {
    // A write that may still come: its handles stay raised, and the agent sends it again.
    const concerns = this.#uncertain === undefined ? this.#concerns() : [];
    const counts = this.#truth === undefined ? undefined : countsIn(this.#truth);
    const work = [...Map.groupBy(concerns, ({ handle }) => handleName(handle))].map(([name, sharing]) => ({
      requests: new Set(sharing.map(({ line }) => line.request)),
      done: this.#bring(name, sharing, counts),
    }));
    return this.#batch.map(async (_, request) => {
      const problems = await Promise.all(work.filter(({ requests }) => requests.has(request)).map(({ done }) => done));
      return problems.find((problem) => problem !== undefined);
    });
  }

  #concerns(): Concern[] {
    return this.#lines.flatMap((line) => {
      // What was raised for a line that came to nothing is lowered, whatever it came to.
      if (this.#truth !== undefined) return concernsOf(line);
      return this.#raised.has(wishedName(line)) ? [{ line, handle: wishedHandle(line), isSaidToHold: false }] : [];
    });
  }

  async #bring(
    name: string,
    sharing: readonly Concern[],
    counts: ReadonlyMap<string, number> | undefined,
  ): Promise<Problem | undefined> {
    const [{ handle } = {}] = sharing;
    const count = counts && (counts.get(name) ?? 0);
    if (handle === undefined || (count !== undefined && this.#raised.get(name) === count)) return undefined;
    if (this.#desk.locked) return datastoreLocked;
    const sure = sharing.some(({ line }) => line.eager);
    const mayRaise = sharing.some(({ line, isSaidToHold }) => line.eager && isSaidToHold);
    try {
      await this.#handles.bring(this.#errand, { handle, block: this.#block, count }, { mayRaise, sure });
      return undefined;
    } catch (error) {
      this.#log.warn("Could not bring a handle in line", { handle, block: this.#block, err: error });
      return problemOf(error, `the write of handle ${handle}`);
    }
  }
}

/** A handle that a line may have changed, now or when it was sent before. */
interface Concern {
  readonly line: Line;
  readonly handle: HandleId;
  /** The line came true: the handle is to be raised as well, where it says too little. */
  readonly isSaidToHold: boolean;
}

function concernsOf(line: Line): Concern[] {
  const { intent, outcome } = line;
  const isTrue = outcome?.result === "applied" || outcome?.result === "already";
  const gained = intent.become?.handle as HandleId | undefined;
  const lost = (outcome?.before?.handle ?? intent.expect?.handle) as HandleId | undefined;
  // Passed on to itself: nothing to count.
  if (outcome?.result === "applied" && gained === lost) return [];
  return [gained, lost]
    .filter((handle) => handle !== undefined)
    .filter(hasObject)
    .map((handle) => ({ line, handle, isSaidToHold: isTrue && handle === gained }));
}

function remember(lines: readonly Line[], outcomes: readonly Outcome[]): void {
  lines.forEach((line, index) => {
    if (outcomes[index]?.result === "applied") line.perhaps = outcomes[index];
  });
}

/** Whose turn it is when the write waits for its turn: the one who has waited longest. */
function nodeThatPays(batch: readonly Waiting[]): NodeName {
  return batch[0]?.request.node ?? ("" as NodeName);
}

function wishedHandle({ intent }: Line): HandleId {
  return (intent.become?.handle ?? "") as HandleId;
}

function wishedName(line: Line): string {
  return handleName(wishedHandle(line));
}

function takes(line: Line, outcome: Outcome | undefined): boolean {
  const handle = wishedHandle(line);
  return outcome?.result === "applied" && hasObject(handle) && outcome.before?.handle !== handle;
}
