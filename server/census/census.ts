// The cluster in numbers: addresses of each pool by state, blocks, handles, and what looks wrong. Kept up as the store changes, so that
// a scrape only reads sums. Follows the store; leaves to measure.ts the gauges and to server/web the pages.
import { blockOwner } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import { type ReservationFilter, reservationFilter } from "../../shared/calico/reservations.ts";
import { type Block, defaultIpamConfig, type Objects, type Pool } from "../../shared/calico/resources.ts";
import { blockCount, indexOfBlock } from "../../shared/calico/walk.ts";
import { cidrOf, contains, sizeOf } from "../../shared/ip/cidr.ts";
import type { BlockCidr, NodeName, PoolName } from "../../shared/kinds.ts";
import type { CheckReason } from "../../shared/reasons.ts";
import type { Clock } from "../../shared/world.ts";
import { isHalfMade, isOrphan } from "../reaper/leftovers.ts";
import type { Change, Store } from "../store/store.ts";
import { addressStates, noStates, type StateCounts, type Tally, tallyOf } from "./tally.ts";

export interface PoolCensus {
  readonly pool: Pool;
  /** Disjoint; they sum to the pool's size. */
  readonly states: Readonly<StateCounts>;
  readonly size: number;
  readonly blocks: { readonly affine: number; readonly ownerless: number; readonly unclaimed: number };
  /** Free, but only in blocks that a node without a free address may not use. */
  readonly stranded: number;
  readonly borrowed: number;
  /** Addresses of pods on Nodes that do not exist. */
  readonly suspects: number;
}

/** Of one node: what it holds, wherever it is, and what there is in its own blocks. */
export interface NodeCensus {
  readonly owned: number;
  readonly warm: number;
  readonly blocks: number;
  readonly free: number;
  readonly cooling: number;
}

export const findingReasons = [
  "AddressLeaked",
  "WarmStale",
  "HandleOrphan",
  "BlockInvalid",
  "BlockOrphan",
  "ClaimHalfDone",
] as const satisfies readonly CheckReason[];
export type FindingReason = (typeof findingReasons)[number];

/** A tally in its place. */
interface Counted extends Tally {
  readonly pool: PoolName | undefined;
  /** The node whose block it is. */
  readonly owner: NodeName | undefined;
  readonly kind: "host" | "virtual" | "ownerless";
  /** Of the size that the pool has now. */
  readonly fits: boolean;
}

interface PoolSums {
  readonly states: StateCounts;
  inReservation: number;
  borrowed: number;
  blocks: number;
  affine: number;
  ownerless: number;
  freeInHosts: number;
  freeInVirtual: number;
}

/** Blocks counted before answers, pings and pages get their turn: about 5 ms. */
const blocksAtOnce = 250;
/** When a whole list has come, what follows from it is counted once. */
const settleMs = 5;

export class Census {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #counted = new Map<BlockCidr, Counted>();
  readonly #pools = new Map<PoolName | undefined, PoolSums>();
  readonly #nodes = new Map<NodeName, { -readonly [K in keyof NodeCensus]: NodeCensus[K] }>();
  /** In how many blocks each handle stands for something. */
  readonly #handleUses = new Map<string, number>();
  readonly #dirty = new Set<BlockCidr>();
  readonly #unlisten: () => void;
  #orphans = 0;
  #halfMade = 0;
  #reservations: ReservationFilter = reservationFilter([]);
  #cancel: (() => void) | undefined;

  constructor(store: Store, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
    this.#unlisten = store.listen((change) => this.#see(change));
    for (const handle of store.all("handle").values()) this.#seeHandle(undefined, handle);
    for (const row of store.all("affinity").values()) this.#halfMade += isHalfMade(row) ? 1 : 0;
    this.#countAnew();
  }

  stop(): void {
    this.#unlisten();
    this.#cancel?.();
  }

  /** Blocks whose last change is not in the sums yet. */
  get behind(): number {
    return this.#dirty.size;
  }

  pools(): PoolCensus[] {
    const suspects = this.#suspects();
    return this.#store.sorted("pool").map((pool) => this.#poolCensus(pool, suspects.get(pool.name) ?? 0));
  }

  node(name: NodeName): NodeCensus {
    return this.#nodes.get(name) ?? nothing;
  }

  /** Nodes that hold or own something, whether they exist or not. */
  nodes(): ReadonlyMap<NodeName, NodeCensus> {
    return this.#nodes;
  }

  handles(): { readonly used: number; readonly orphan: number } {
    return { used: this.#store.all("handle").size - this.#orphans, orphan: this.#orphans };
  }

  isReserved(block: BlockCidr): (ordinal: number) => boolean {
    return this.#reservations.ordinalsOf(block);
  }

  /** What looks wrong by the objects alone. Some of it rights itself within minutes, as handles are written after their blocks. */
  findings(): Readonly<Record<FindingReason, number>> {
    const vanished = [...this.#nodes].filter(([name]) => this.#isVanished(name)).map(([, counts]) => counts);
    return {
      AddressLeaked: vanished.reduce((sum, { owned }) => sum + owned, 0),
      WarmStale: vanished.reduce((sum, { warm }) => sum + warm, 0),
      HandleOrphan: this.#orphans,
      BlockInvalid: this.#store.unread("block").size,
      BlockOrphan: this.#pools.get(undefined)?.blocks ?? 0,
      ClaimHalfDone: this.#halfMade,
    };
  }

  #poolCensus(pool: Pool, suspects: number): PoolCensus {
    const sums = this.#pools.get(pool.name) ?? noSums();
    const size = Number(sizeOf(cidrOf(pool.cidr)));
    const states = { ...sums.states };
    // What is reserved outside all blocks: the blocks have counted what is inside.
    states.reserved += Number(this.#reservations.countIn(pool.cidr)) - sums.inReservation;
    states.free = size - addressStates.reduce((sum, state) => sum + (state === "free" ? 0 : states[state]), 0);
    const unclaimed = Math.max(0, Number(blockCount(pool)) - sums.affine - sums.ownerless);
    const config = this.#store.sorted("config")[0] ?? defaultIpamConfig;
    const isClosed = config.strictAffinity && unclaimed === 0;
    return {
      pool,
      states,
      size,
      blocks: { affine: sums.affine, ownerless: sums.ownerless, unclaimed },
      stranded: sums.freeInVirtual + (isClosed ? sums.freeInHosts : 0),
      borrowed: sums.borrowed,
      suspects,
    };
  }

  #suspects(): ReadonlyMap<PoolName | undefined, number> {
    const suspects = new Map<PoolName | undefined, number>();
    for (const [name, { owned }] of this.#nodes) {
      if (owned === 0 || !this.#isVanished(name)) continue;
      for (const cidr of this.#store.blocksWithStake(name)) {
        const counted = this.#counted.get(cidr);
        const held = counted?.holders.get(name)?.owned ?? 0;
        if (held > 0) suspects.set(counted?.pool, (suspects.get(counted?.pool) ?? 0) + held);
      }
    }
    return suspects;
  }

  #isVanished(node: NodeName): boolean {
    const store = this.#store;
    return store.freshness("node").synced && store.get("node", node) === undefined && !store.unread("node").has(node);
  }

  #see(change: Change): void {
    switch (change.kind) {
      case "block": {
        const cidr = (change.after ?? change.before)?.cidr;
        if (cidr !== undefined) this.#dirty.add(cidr);
        return this.#countSoon();
      }
      case "handle":
        return this.#seeHandle(change.before, change.after);
      case "affinity":
        this.#halfMade +=
          (change.after && isHalfMade(change.after) ? 1 : 0) - (change.before && isHalfMade(change.before) ? 1 : 0);
        return;
      case "pool":
      case "reservation":
        return this.#countAnew();
      default:
        return;
    }
  }

  /** Ranges have changed, and with them what any block counts for. */
  #countAnew(): void {
    this.#reservations = reservationFilter(this.#store.all("reservation").values());
    for (const block of this.#store.all("block").values()) this.#dirty.add(block.cidr);
    this.#countSoon();
  }

  #countSoon(): void {
    this.#cancel ??= this.#clock.after(settleMs, () => this.#countSome());
  }

  #countSome(): void {
    this.#cancel = undefined;
    let counted = 0;
    for (const cidr of this.#dirty) {
      this.#dirty.delete(cidr);
      this.#recount(cidr);
      if (++counted >= blocksAtOnce) break;
    }
    if (this.#dirty.size > 0) this.#cancel = this.#clock.after(0, () => this.#countSome());
  }

  #recount(cidr: BlockCidr): void {
    const before = this.#counted.get(cidr);
    const block = this.#store.get("block", blockName(cidr));
    const after = block === undefined || block.cidr !== cidr ? undefined : this.#count(block);
    if (after === undefined) this.#counted.delete(cidr);
    else this.#counted.set(cidr, after);
    if (before !== undefined) this.#add(before, -1);
    if (after !== undefined) this.#add(after, 1);
    for (const name of before?.handles ?? []) if (!after?.handles.has(name)) this.#use(name, -1);
    for (const name of after?.handles ?? []) if (!before?.handles.has(name)) this.#use(name, 1);
  }

  #count(block: Block): Counted {
    const pool = this.#store.sorted("pool").find(({ cidr }) => contains(cidr, block.cidr));
    const owner = blockOwner(block);
    return {
      ...tallyOf(block, this.#reservations.ordinalsOf(block.cidr)),
      pool: pool?.name,
      owner: owner?.type === "host" ? (owner.name as NodeName) : undefined,
      kind: owner?.type ?? "ownerless",
      fits: pool !== undefined && indexOfBlock(pool, block.cidr) !== undefined,
    };
  }

  #add(counted: Counted, sign: 1 | -1): void {
    const { pool, owner, kind, states, fits } = counted;
    const sums = this.#pools.get(pool) ?? noSums();
    this.#pools.set(pool, sums);
    for (const state of addressStates) sums.states[state] += sign * states[state];
    sums.inReservation += sign * counted.inReservation;
    sums.borrowed += sign * counted.borrowed;
    sums.blocks += sign;
    if (fits && kind === "ownerless") sums.ownerless += sign;
    if (fits && kind !== "ownerless") sums.affine += sign;
    if (kind === "host") sums.freeInHosts += sign * states.free;
    if (kind === "virtual") sums.freeInVirtual += sign * states.free;
    for (const [node, held] of counted.holders) this.#addNode(node, { ...nothing, ...held }, sign);
    if (owner !== undefined)
      this.#addNode(owner, { ...nothing, blocks: 1, free: states.free, cooling: states.cooling }, sign);
  }

  #addNode(node: NodeName, more: NodeCensus, sign: 1 | -1): void {
    const counts = this.#nodes.get(node) ?? { ...nothing };
    for (const key of nodeKeys) counts[key] += sign * more[key];
    if (nodeKeys.every((key) => counts[key] === 0)) this.#nodes.delete(node);
    else this.#nodes.set(node, counts);
  }

  #use(name: string, by: 1 | -1): void {
    const uses = (this.#handleUses.get(name) ?? 0) + by;
    const handle = this.#store.get("handle", name);
    const wasOrphan = handle !== undefined && isOrphan(handle, this.#handleUses);
    if (uses === 0) this.#handleUses.delete(name);
    else this.#handleUses.set(name, uses);
    const isNow = handle !== undefined && isOrphan(handle, this.#handleUses);
    this.#orphans += (isNow ? 1 : 0) - (wasOrphan ? 1 : 0);
  }

  #seeHandle(before: Objects["handle"] | undefined, after: Objects["handle"] | undefined): void {
    if (before !== undefined && isOrphan(before, this.#handleUses)) this.#orphans--;
    if (after !== undefined && isOrphan(after, this.#handleUses)) this.#orphans++;
  }
}

const nothing: NodeCensus = { owned: 0, warm: 0, blocks: 0, free: 0, cooling: 0 };
const nodeKeys = ["owned", "warm", "blocks", "free", "cooling"] as const satisfies readonly (keyof NodeCensus)[];

function noSums(): PoolSums {
  const zero = { inReservation: 0, borrowed: 0, blocks: 0, affine: 0, ownerless: 0, freeInHosts: 0, freeInVirtual: 0 };
  return { states: noStates(), ...zero };
}
