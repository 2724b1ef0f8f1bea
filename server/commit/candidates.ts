// Which block of some pools a node could have next, in Calico's order (spec 2.9, 2.10, 2.13): one that nobody has, one that its owner does
// not use, one to borrow from. Chosen from the store's indexes: what is passed over is what only a look at it can tell, within a bound.
// Leaves to claims.ts which of the three it may be.
import { blockOwner, isEmpty, numFree } from "../../shared/calico/block.ts";
import { affinityName } from "../../shared/calico/names.ts";
import { type ReservationFilter, reservationFilter } from "../../shared/calico/reservations.ts";
import type { Block, Pool } from "../../shared/calico/resources.ts";
import { blockCount, indexOfBlock, startIndex } from "../../shared/calico/walk.ts";
import type { BlockCidr, NodeName } from "../../shared/kinds.ts";
import type { Random } from "../../shared/world.ts";
import { isYoung } from "./affinities.ts";
import type { Desk } from "./desk.ts";

/** Passed over in one pool and one search: wholly reserved, claimed just now, all that is free reserved. An IPv6 pool has no end of them. */
const maxPassedOver = 4096;

export class Candidates {
  readonly #desk: Desk;
  readonly #random: Random;
  readonly #node: NodeName;
  readonly #pools: readonly Pool[];
  readonly #reservations: ReservationFilter;

  constructor(desk: Desk, random: Random, node: NodeName, pools: readonly Pool[]) {
    this.#desk = desk;
    this.#random = random;
    this.#node = node;
    this.#pools = pools;
    this.#reservations = reservationFilter(desk.store.all("reservation").values());
  }

  unclaimed(): BlockCidr | undefined {
    return this.#first((pool, start) => this.#unclaimedIn(pool, start));
  }

  /** Another node's, empty and not new. */
  idle(): Block | undefined {
    return this.#first((pool, start) =>
      this.#pick(this.#desk.store.idleBlocks(pool, start), (block) => this.#isIdle(block)),
    );
  }

  /** Another node's, or nobody's. */
  lender(full: ReadonlySet<BlockCidr>): Block | undefined {
    const lends = (block: Block): boolean =>
      block.affinity !== `host:${this.#node}` && !full.has(block.cidr) && this.hasRoom(block);
    return this.#first((pool, start) => this.#pick(this.#desk.store.blocksWithRoom(pool, start), lends));
  }

  hasRoom(block: Block): boolean {
    return numFree(this.#desk.loaded(block), this.#reservations.ordinalsOf(block.cidr)) > 0;
  }

  reservesAllOf(cidr: BlockCidr): boolean {
    return this.#reservations.reservesAllOf(cidr);
  }

  #first<T>(find: (pool: Pool, start: bigint) => T | undefined): T | undefined {
    for (const pool of this.#pools) {
      if (blockCount(pool) === 0n) continue;
      const found = find(pool, startIndex(this.#node, pool, this.#random));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #unclaimedIn(pool: Pool, start: bigint): BlockCidr | undefined {
    const passedOver = new Set<BlockCidr>();
    let from = start;
    while (passedOver.size < maxPassedOver) {
      const cidr = this.#desk.store.nextFreeBlock(pool, from);
      if (cidr === undefined || passedOver.has(cidr)) return undefined;
      if (this.#isTakable(cidr)) return cidr;
      passedOver.add(cidr);
      from = ((indexOfBlock(pool, cidr) ?? 0n) + 1n) % blockCount(pool);
    }
    return undefined;
  }

  #pick(blocks: Iterable<Block>, suits: (block: Block) => boolean): Block | undefined {
    let passedOver = 0;
    for (const block of blocks) {
      if (suits(block)) return block;
      passedOver++;
      if (passedOver === maxPassedOver) return undefined;
    }
    return undefined;
  }

  /** A row of ours that stands for no block yet is finished before anything new is begun. */
  #isTakable(cidr: BlockCidr): boolean {
    const row = this.#desk.store.get("affinity", affinityName(this.#node, cidr));
    return !this.#reservations.reservesAllOf(cidr) && (row === undefined || row.deleted);
  }

  #isIdle(block: Block): boolean {
    if (blockOwner(block)?.name === this.#node || !this.hasRoom(block)) return false;
    if (isYoung(block, this.#desk.clock.wall())) return false;
    return isEmpty(this.#desk.loaded(block));
  }
}
