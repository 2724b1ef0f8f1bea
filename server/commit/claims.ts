// Gives a node one more block: finishes what an earlier claim of it has left half made, then takes a block nobody has, then one that its
// owner does not use, then names one to borrow from (spec 2.7-2.13). Everything is decided from the store, so that a claim reads nothing; a
// surprise is read, and all decided afresh. Leaves the writing to affinities.ts, and which block comes next to candidates.ts.
import { affinityName } from "../../shared/calico/names.ts";
import { byName, isUsable } from "../../shared/calico/pools.ts";
import type { Affinity, Block, Pool } from "../../shared/calico/resources.ts";
import { cidrAround, cidrOf, contains, familyOf } from "../../shared/ip/cidr.ts";
import { type BlockCidr, Failure, type Instant, type NodeName, type PoolName } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Problem } from "../../shared/protocol/stream.ts";
import type { Random } from "../../shared/world.ts";
import type { Affinities, Taken } from "./affinities.ts";
import { Candidates } from "./candidates.ts";
import { type Desk, type Errand, failureIn, isWorthAnotherTry } from "./desk.ts";
import { datastoreLocked, problem, problemOf, tooSlow } from "./problems.ts";
import { Turns } from "./turns.ts";

export interface ClaimRequest {
  readonly node: NodeName;
  /** In the order of preference. */
  readonly pools: readonly PoolName[];
  /** Blocks that the node knows and can take nothing from. */
  readonly full: ReadonlySet<BlockCidr>;
  /** When there is none to be had, name one to borrow from. */
  readonly borrow: boolean;
}

/** For an address that was asked for by name (spec 3.1). */
export interface BlockRequest {
  readonly node: NodeName;
  readonly pool: PoolName;
  readonly block: BlockCidr;
}

export type ClaimAnswer =
  | { readonly kind: "claimed"; readonly block: Block; readonly isNew: boolean; readonly isBorrowed: boolean }
  | { readonly kind: "problem"; readonly problem: Problem };

/** How long an agent's claim is tried. */
const claimLimitMs = 30_000;
const maxTries = 100;
/** The schema has no larger blocks. */
const leastPrefix = { 4: 20, 6: 116 } as const;
/** Blocks of a node when nothing else is configured (spec, Appendix B). */
const defaultBlockLimit = 20;

export class Claims {
  readonly #desk: Desk;
  readonly #affinities: Affinities;
  readonly #random: Random;
  readonly #log: Logger;
  readonly #metrics: MetricHandles<typeof serverMetrics>;
  /** A node's claims follow each other: two at once would take two blocks where one is enough. */
  readonly #turns = new Turns();

  constructor(
    desk: Desk,
    affinities: Affinities,
    random: Random,
    log: Logger,
    metrics: MetricHandles<typeof serverMetrics>,
  ) {
    this.#desk = desk;
    this.#affinities = affinities;
    this.#random = random;
    this.#log = log;
    this.#metrics = metrics;
  }

  /** Never rejects. */
  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#inTurn(request.node, `a claim of a block for node ${request.node}`, (errand) =>
      new Claim(this.#desk, this.#affinities, this.#random, errand, request).run(),
    );
  }

  /** This very block if nobody has it, or as it is whoever has it. Neither selectors nor limits count (spec 3.1). Never rejects. */
  claimBlock({ node, pool, block }: BlockRequest): Promise<ClaimAnswer> {
    return this.#inTurn(node, `a claim of block ${block} for node ${node}`, (errand) =>
      this.#block(errand, pool, block),
    );
  }

  async #inTurn(node: NodeName, what: string, attempt: (errand: Errand) => Promise<ClaimAnswer>): Promise<ClaimAnswer> {
    const answer = await this.#turns.take(node, () => this.#run(node, what, attempt));
    this.#metrics.intents.inc({ op: "claim", result: resultOf(answer) });
    return answer;
  }

  /** Nodes whose claims are under way. */
  get underWay(): number {
    return this.#turns.size;
  }

  idle(): Promise<void> {
    return this.#turns.idle();
  }

  async #run(
    node: NodeName,
    what: string,
    attemptOnce: (errand: Errand) => Promise<ClaimAnswer>,
  ): Promise<ClaimAnswer> {
    const errand = { node, until: (this.#desk.clock.monotonic() + claimLimitMs) as Instant };
    for (let attempt = 1; attempt <= maxTries; attempt++) {
      if (this.#desk.locked) return refused(datastoreLocked);
      try {
        return await attemptOnce(errand);
      } catch (error) {
        if (isWorthAnotherTry(error) && (await this.#desk.pause(errand, attempt))) continue;
        const problem = problemOf(error, what);
        this.#log.warn("Could not claim a block", { node, err: error });
        return { kind: "problem", problem };
      }
    }
    return { kind: "problem", problem: tooSlow(`${what} did not succeed in ${maxTries} tries`) };
  }

  async #block(errand: Errand, poolName: PoolName, cidr: BlockCidr): Promise<ClaimAnswer> {
    const pool = this.#desk.store.get("pool", poolName);
    if (pool === undefined || !isUsable(pool, familyOf(pool.cidr)) || !contains(pool.cidr, cidr)) {
      return refused(noPool([poolName]));
    }
    // The address may lie in a block of the size that the pool once had (trap 36).
    const found = this.#covering(cidr);
    if (found !== undefined) {
      return { kind: "claimed", block: found, isNew: false, isBorrowed: found.affinity !== `host:${errand.node}` };
    }
    const marked = this.#desk.store.blockAt(cidr);
    if (marked !== undefined) await this.#affinities.finish(errand, "block", marked);
    if (this.#desk.store.isTaken(cidr)) return refused(overlapped(cidr));
    const taken = await this.#affinities.claim(errand, cidr);
    if (taken === undefined) throw lostTo(cidr);
    return claimed(taken);
  }

  #covering(cidr: BlockCidr): Block | undefined {
    const { family, base, prefix } = cidrOf(cidr);
    for (let size = prefix; size >= leastPrefix[family]; size--) {
      const block = this.#desk.store.blockAt(cidrAround({ family, value: base }, size).text as BlockCidr);
      if (block?.deleted === false) return block;
    }
    return undefined;
  }
}

function resultOf(answer: ClaimAnswer): "applied" | "already" | "refused" | "failed" {
  if (answer.kind === "claimed") return answer.isNew ? "applied" : "already";
  return answer.problem.reason === "BlockLimitReached" || answer.problem.reason === "PoolExhausted"
    ? "refused"
    : "failed";
}

/** One try, from what the store says now. A write that turns out otherwise than planned refreshes the store and rejects. */
class Claim {
  readonly #desk: Desk;
  readonly #affinities: Affinities;
  readonly #errand: Errand;
  readonly #request: ClaimRequest;
  readonly #pools: readonly Pool[];
  readonly #candidates: Candidates;

  constructor(desk: Desk, affinities: Affinities, random: Random, errand: Errand, request: ClaimRequest) {
    this.#desk = desk;
    this.#affinities = affinities;
    this.#errand = errand;
    this.#request = request;
    this.#pools = request.pools
      .map((name) => desk.store.get("pool", name))
      .filter((pool) => pool !== undefined)
      .filter((pool) => isUsable(pool, familyOf(pool.cidr)));
    this.#candidates = new Candidates(desk, random, request.node, this.#pools);
  }

  async run(): Promise<ClaimAnswer> {
    if (this.#pools.length === 0) return refused(noPool(this.#request.pools));
    await this.#giveUpUnwanted();
    const rows = this.#rows();
    for (const row of rows) {
      if (this.#candidates.reservesAllOf(row.cidr)) continue;
      const taken = await this.#affinities.use(this.#errand, row);
      if (taken !== undefined && this.#hasRoom(taken.block)) return claimed(taken);
    }
    const orphan = this.#orphan();
    if (orphan !== undefined) return this.#claim(orphan);

    const { config } = this.#desk;
    const limit = config.maxBlocksPerHost || defaultBlockLimit;
    // Neither leads to a look at what others have: the limit is there to be relied on (trap 32).
    if (rows.length >= limit) return refused(limitReached(this.#request.node, rows.length, limit));
    if (!config.autoAllocateBlocks) return refused(notAutomatic);
    const candidate = this.#candidates.unclaimed() ?? (await this.#afterTidying());
    if (candidate !== undefined) return this.#claim(candidate);
    const idle = this.#candidates.idle();
    if (idle !== undefined && (await this.#affinities.release(this.#errand, idle))) return this.#claim(idle.cidr);
    return this.#borrow();
  }

  /** Blocks of this node outside these pools that are empty and whose pool does not choose it any more (spec 2.6). */
  async #giveUpUnwanted(): Promise<void> {
    for (const block of this.#affinities.unwantedOf(this.#request.node)) {
      if (this.#isInPools(block.cidr)) continue;
      try {
        await this.#affinities.release(this.#errand, block);
      } catch (error) {
        // Another time: it must not cost the node the block that it needs.
        failureIn(error);
      }
    }
  }

  /** This node's affinities in these pools, in every state: all of them count towards the limit (trap 31). */
  #rows(): Affinity[] {
    const rows: Affinity[] = [];
    for (const name of this.#desk.store.affinitiesOf(this.#request.node)) {
      const row = this.#desk.store.get("affinity", name);
      if (row?.type === "host" && !row.deleted && this.#isInPools(row.cidr)) rows.push(row);
    }
    return rows.sort(byName);
  }

  #isInPools(cidr: BlockCidr): boolean {
    return this.#pools.some((pool) => contains(pool.cidr, cidr));
  }

  /** A block that says it is ours, while no affinity does. */
  #orphan(): BlockCidr | undefined {
    const { node } = this.#request;
    for (const cidr of this.#desk.store.blocksOwnedBy(`host:${node}`)) {
      const block = this.#desk.store.blockAt(cidr);
      const row = this.#desk.store.get("affinity", affinityName(node, cidr));
      if (block === undefined || block.deleted || row?.deleted === false) continue;
      if (this.#isInPools(cidr) && this.#hasRoom(block)) return cidr;
    }
    return undefined;
  }

  #hasRoom(block: Block): boolean {
    return !this.#request.full.has(block.cidr) && this.#candidates.hasRoom(block);
  }

  async #claim(cidr: BlockCidr): Promise<ClaimAnswer> {
    const taken = await this.#affinities.claim(this.#errand, cidr);
    if (taken === undefined) throw lostTo(cidr);
    return claimed(taken);
  }

  /** What is marked as deleted keeps its place until somebody deletes it. */
  async #afterTidying(): Promise<BlockCidr | undefined> {
    const marked = this.#pools.flatMap((pool) => [...this.#desk.store.markedBlocks(pool)]);
    for (const block of marked) await this.#affinities.finish(this.#errand, "block", block);
    return marked.length > 0 ? this.#candidates.unclaimed() : undefined;
  }

  #borrow(): ClaimAnswer {
    if (this.#desk.config.strictAffinity) return refused(exhausted(this.#pools));
    const lender = this.#request.borrow ? this.#candidates.lender(this.#request.full) : undefined;
    if (lender === undefined) return refused(exhausted(this.#pools));
    return { kind: "claimed", block: lender, isNew: false, isBorrowed: true };
  }
}

function claimed({ block, isNew }: Taken): ClaimAnswer {
  return { kind: "claimed", block, isNew, isBorrowed: false };
}

/** Another node was quicker: all is decided afresh. */
function lostTo(cidr: BlockCidr): Failure {
  return new Failure("api-conflict", `block ${cidr} went to another node`);
}

function noPool(names: readonly PoolName[]): Problem {
  return problem("PoolDisabled", `none of the pools ${names.join(", ")} exists and is enabled`);
}

function exhausted(pools: readonly Pool[]): Problem {
  const names = pools.map(({ name, cidr }) => `${name} (${cidr})`).join(", ");
  return problem("PoolExhausted", `every block of ${names} belongs to a node or is reserved`);
}

function overlapped(cidr: BlockCidr): Problem {
  return problem("AddressInUse", `block ${cidr} cannot be made: smaller blocks lie in it`);
}

const notAutomatic = problem(
  "BlockLimitReached",
  "the node's blocks are full and autoAllocateBlocks is false in IPAMConfig default",
);

function limitReached(node: NodeName, blocks: number, limit: number): Problem {
  return problem("BlockLimitReached", `node ${node} has ${blocks} blocks in these pools and may have ${limit}`);
}

function refused(reason: Problem): ClaimAnswer {
  return { kind: "problem", problem: reason };
}
