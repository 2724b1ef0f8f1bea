// Gives a node one more block: finishes what an earlier claim of it has left half made, then takes a block nobody has, in Calico's two
// phases (spec 2.7-2.11, 2.16). Everything is decided from the store, so that a claim reads nothing; a surprise is read, and all decided afresh.
import { bump, collect, newBlock, numFree } from "../../shared/calico/block.ts";
import { affinityPatch, blockPatch, newAffinityObject, newBlockObject } from "../../shared/calico/codec.ts";
import { affinityName, blockName } from "../../shared/calico/names.ts";
import { byName, isUsable } from "../../shared/calico/pools.ts";
import { type ReservationFilter, reservationFilter } from "../../shared/calico/reservations.ts";
import {
  type Affinity,
  type AffinityState,
  type Block,
  defaultIpamConfig,
  type IpamConfig,
  type Pool,
} from "../../shared/calico/resources.ts";
import { blockCount, indexOfBlock, startIndex } from "../../shared/calico/walk.ts";
import { contains, familyOf } from "../../shared/ip/cidr.ts";
import type { BlockCidr, Instant, NodeName, PoolName, Sequence } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Problem } from "../../shared/protocol/stream.ts";
import type { Random } from "../../shared/world.ts";
import { type Desk, type Errand, isWorthAnotherTry } from "./desk.ts";
import { datastoreLocked, problem, problemOf, tooSlow } from "./problems.ts";

export interface ClaimRequest {
  readonly node: NodeName;
  /** In the order of preference. */
  readonly pools: readonly PoolName[];
  /** Blocks that the node knows and can take nothing from. */
  readonly full: ReadonlySet<BlockCidr>;
}

export type ClaimAnswer =
  | { readonly kind: "claimed"; readonly block: Block; readonly isNew: boolean }
  | { readonly kind: "problem"; readonly problem: Problem };

/** How long an agent's claim is tried. */
const claimLimitMs = 30_000;
const maxTries = 100;
/** Blocks of a node when nothing else is configured (spec, Appendix B). */
const defaultBlockLimit = 20;
/** Wholly reserved or otherwise untakable blocks passed over in one pool: an IPv6 pool may hold more than anyone can count. */
const maxPassedOver = 4096;

export class Claims {
  readonly #desk: Desk;
  readonly #random: Random;
  readonly #log: Logger;
  readonly #metrics: MetricHandles<typeof serverMetrics>;
  /** A node's claims follow each other: two at once would take two blocks where one is enough. */
  readonly #turns = new Map<NodeName, Promise<ClaimAnswer>>();

  constructor(desk: Desk, random: Random, log: Logger, metrics: MetricHandles<typeof serverMetrics>) {
    this.#desk = desk;
    this.#random = random;
    this.#log = log;
    this.#metrics = metrics;
  }

  /** Never rejects. */
  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const before = this.#turns.get(request.node) ?? Promise.resolve();
    const mine = before.then(() => this.#run(request));
    this.#turns.set(request.node, mine);
    const answer = await mine;
    if (this.#turns.get(request.node) === mine) this.#turns.delete(request.node);
    this.#metrics.intents.inc({ op: "claim", result: resultOf(answer) });
    return answer;
  }

  /** Nodes whose claims are under way. */
  get underWay(): number {
    return this.#turns.size;
  }

  async idle(): Promise<void> {
    while (this.#turns.size > 0) await Promise.all(this.#turns.values());
  }

  async #run(request: ClaimRequest): Promise<ClaimAnswer> {
    const until = (this.#desk.clock.monotonic() + claimLimitMs) as Instant;
    const errand = { node: request.node, until };
    for (let attempt = 1; attempt <= maxTries; attempt++) {
      try {
        return await new Claim(this.#desk, this.#random, errand, request).run();
      } catch (error) {
        if (isWorthAnotherTry(error) && (await this.#desk.pause(errand, attempt))) continue;
        const problem = problemOf(error, `a claim of a block for node ${request.node}`);
        this.#log.warn("Could not claim a block", { node: request.node, err: error });
        return { kind: "problem", problem };
      }
    }
    return { kind: "problem", problem: tooSlow(`no block was claimed for node ${request.node} in ${maxTries} tries`) };
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
  readonly #random: Random;
  readonly #errand: Errand;
  readonly #request: ClaimRequest;
  readonly #owner: string;
  readonly #config: IpamConfig;
  readonly #reservations: ReservationFilter;
  readonly #pools: readonly Pool[];
  #isNew = false;

  constructor(desk: Desk, random: Random, errand: Errand, request: ClaimRequest) {
    this.#desk = desk;
    this.#random = random;
    this.#errand = errand;
    this.#request = request;
    this.#owner = `host:${request.node}`;
    this.#config = desk.store.get("config", "default") ?? defaultIpamConfig;
    this.#reservations = reservationFilter(desk.store.all("reservation").values());
    this.#pools = request.pools
      .map((name) => desk.store.get("pool", name))
      .filter((pool) => pool !== undefined)
      .filter((pool) => isUsable(pool, familyOf(pool.cidr)));
  }

  async run(): Promise<ClaimAnswer> {
    if (this.#desk.locked) return refused(datastoreLocked);
    if (this.#pools.length === 0) return refused(this.#noPool());
    const rows = this.#rows();
    for (const row of rows) {
      const block = await this.#use(row);
      if (block !== undefined && this.#hasRoom(block)) return this.#claimed(block);
    }
    const orphan = this.#orphan();
    if (orphan !== undefined) return this.#claim(orphan);

    const limit = this.#config.maxBlocksPerHost || defaultBlockLimit;
    if (rows.length >= limit) return refused(limitReached(this.#request.node, rows.length, limit));
    if (!this.#config.autoAllocateBlocks) return refused(notAutomatic);
    for (const pool of this.#pools) {
      const candidate = this.#candidate(pool);
      if (candidate !== undefined) return this.#claim(candidate);
    }
    // Calico would now take an empty block of another node (spec 2.9), then borrow (2.13).
    return refused(this.#exhausted());
  }

  /** This node's affinities in these pools, in every state: all of them count towards the limit (trap 31). */
  #rows(): Affinity[] {
    const rows: Affinity[] = [];
    for (const name of this.#desk.store.affinitiesOf(this.#request.node)) {
      const row = this.#desk.store.get("affinity", name);
      if (row !== undefined && this.#isOurs(row) && this.#isInPools(row.cidr)) rows.push(row);
    }
    return rows.sort(byName);
  }

  #isOurs(row: Affinity): boolean {
    return row.type === "host" && row.node === this.#request.node && !row.deleted;
  }

  #isInPools(cidr: BlockCidr): boolean {
    return this.#pools.some((pool) => contains(pool.cidr, cidr));
  }

  /** A block that says it is ours, while no affinity does. */
  #orphan(): BlockCidr | undefined {
    for (const cidr of this.#desk.store.blocksOwnedBy(this.#owner)) {
      const block = this.#desk.store.blockAt(cidr);
      const row = this.#desk.store.get("affinity", affinityName(this.#request.node, cidr));
      if (block === undefined || block.deleted || row?.deleted === false) continue;
      if (this.#isInPools(cidr) && this.#hasRoom(block)) return cidr;
    }
    return undefined;
  }

  /** The first block that nobody has, from where Calico begins to look for this node. */
  #candidate(pool: Pool): BlockCidr | undefined {
    const count = blockCount(pool);
    if (count === 0n) return undefined;
    const passedOver = new Set<BlockCidr>();
    let from = startIndex(this.#request.node, pool, this.#random);
    while (passedOver.size < maxPassedOver) {
      const cidr = this.#desk.store.nextFreeBlock(pool, from);
      if (cidr === undefined || passedOver.has(cidr)) return undefined;
      if (this.#isTakable(cidr)) return cidr;
      passedOver.add(cidr);
      from = ((indexOfBlock(pool, cidr) ?? 0n) + 1n) % count;
    }
    return undefined;
  }

  #isTakable(cidr: BlockCidr): boolean {
    const row = this.#desk.store.get("affinity", affinityName(this.#request.node, cidr));
    return !this.#reservations.reservesAllOf(cidr) && (row === undefined || row.deleted);
  }

  #hasRoom(block: Block): boolean {
    if (this.#request.full.has(block.cidr)) return false;
    const cooling = { now: this.#desk.clock.wall(), cooldownSeconds: this.#config.ipCooldownSeconds };
    return numFree(collect(block, cooling), this.#reservations.ordinalsOf(block.cidr)) > 0;
  }

  async #claim(cidr: BlockCidr): Promise<ClaimAnswer> {
    const name = affinityName(this.#request.node, cidr);
    const inTheWay = this.#desk.store.get("affinity", name);
    // Marked as deleted by somebody who did not come to delete it: any reader may (spec 1.5, trap 20).
    if (inTheWay !== undefined)
      await this.#writing("affinity", name, () => this.#desk.remove(this.#errand, "affinity", inTheWay));
    const body = newAffinityObject(this.#desk.group, {
      node: this.#request.node,
      cidr,
      state: "pending",
      type: "host",
    });
    const row = await this.#writing("affinity", name, () => this.#desk.create(this.#errand, "affinity", body));
    const block = await this.#use(row);
    return block === undefined ? refused(this.#exhausted()) : this.#claimed(block);
  }

  /** The block that an affinity of ours stands for, made or confirmed if need be; undefined: it is not ours to use. */
  async #use(row: Affinity): Promise<Block | undefined> {
    if (this.#reservations.reservesAllOf(row.cidr)) return undefined;
    const block = this.#desk.store.blockAt(row.cidr);
    if (block === undefined || block.deleted) return this.#make(row, block);
    if (block.affinity !== this.#owner) return this.#giveUp(row, block.name);
    if (row.state === "confirmed" || row.state === "") return block;
    const pending = await this.#setState(row, "pending");
    // Whoever is about to take the block away has read it before: this makes their write fail (trap 30).
    const patch = blockPatch(this.#desk.group, block, bump(block));
    const bumped = await this.#writing("block", block.name, () =>
      this.#desk.patch(this.#errand, "block", block.name, patch),
    );
    await this.#setState(pending, "confirmed");
    this.#isNew = true;
    return bumped;
  }

  async #make(row: Affinity, marked: Block | undefined): Promise<Block> {
    if (marked !== undefined)
      await this.#writing("block", marked.name, () => this.#desk.remove(this.#errand, "block", marked));
    const pending = await this.#setState(row, "pending");
    const { clock, group } = this.#desk;
    const sequence = clock.wallNanos() as Sequence;
    const state = newBlock({ cidr: row.cidr, affinity: this.#owner, now: clock.wall(), sequence });
    const body = newBlockObject(group, row.cidr, state);
    const name = blockName(row.cidr);
    const block = await this.#writing("block", name, () => this.#desk.create(this.#errand, "block", body));
    await this.#setState(pending, "confirmed");
    this.#isNew = true;
    return block;
  }

  /** Another node has the block, so the claim is void (trap 28). The store's word may be old, and the row may be another replica's at work. */
  async #giveUp(row: Affinity, block: string): Promise<Block | undefined> {
    const now = await this.#desk.read(this.#errand, "block", block);
    if (now === undefined || now.affinity === this.#owner) return this.#use(row);
    const patch = affinityPatch(this.#desk.group, row, { state: row.state, deleted: true });
    const marked = await this.#writing("affinity", row.name, () =>
      this.#desk.patch(this.#errand, "affinity", row.name, patch),
    );
    await this.#writing("affinity", row.name, () => this.#desk.remove(this.#errand, "affinity", marked));
    return undefined;
  }

  async #setState(row: Affinity, state: AffinityState): Promise<Affinity> {
    if (row.state === state) return row;
    const patch = affinityPatch(this.#desk.group, row, { state, deleted: false });
    return this.#writing("affinity", row.name, () => this.#desk.patch(this.#errand, "affinity", row.name, patch));
  }

  /** After a surprise the store knows the object as it is now, and the next try starts from that. */
  async #writing<T>(kind: "affinity" | "block", name: string, write: () => Promise<T>): Promise<T> {
    try {
      return await write();
    } catch (error) {
      if (isWorthAnotherTry(error)) await this.#desk.read(this.#errand, kind, name);
      throw error;
    }
  }

  #claimed(block: Block): ClaimAnswer {
    return { kind: "claimed", block, isNew: this.#isNew };
  }

  #noPool(): Problem {
    return problem("PoolDisabled", `none of the pools ${this.#request.pools.join(", ")} exists and is enabled`);
  }

  #exhausted(): Problem {
    const names = this.#pools.map(({ name, cidr }) => `${name} (${cidr})`).join(", ");
    return problem("PoolExhausted", `every block of ${names} belongs to a node or is reserved`);
  }
}

const notAutomatic = problem(
  "PoolExhausted",
  "the node's blocks are full and autoAllocateBlocks is false in IPAMConfig default",
);

function limitReached(node: NodeName, blocks: number, limit: number): Problem {
  return problem("BlockLimitReached", `node ${node} has ${blocks} blocks in these pools and may have ${limit}`);
}

function refused(reason: Problem): ClaimAnswer {
  return { kind: "problem", problem: reason };
}
