// What a newly seen version of a block says about what we hold in it, and which of its ordinals may be taken next.
// Leaves to others how a version came here (sync/) and what is sent in return (commits.ts).
import { holderOf, isFree, ownerAttributes } from "../../shared/calico/block.ts";
import type { Block, Holder, Place } from "../../shared/calico/resources.ts";
import { familyOf, ordinalOf } from "../../shared/ip/cidr.ts";
import {
  type BlockCidr,
  type HandleId,
  type Instant,
  impossible,
  invariant,
  type PoolName,
  type Sequence,
} from "../../shared/kinds.ts";
import type { Trouble } from "../trouble.ts";
import { destinationOf } from "./demand.ts";
import { dueForIndex } from "./late-handles.ts";
import { cover } from "./leaving.ts";
import {
  type Any,
  type Holding,
  holdingAt,
  isOwn,
  type Lane,
  type Ledger,
  laneOf,
  nobody,
  rankOwn,
  type Tombstone,
  type Wanted,
} from "./state.ts";
import { lookForStock, pick, stockAt, stocked } from "./stock.ts";
import { hold, letGo, setState, type Turn } from "./turn.ts";

/** Takes in the newest version, undefined = gone, and draws every conclusion from it. */
export function seeBlock(turn: Turn, cidr: BlockCidr, block: Block | undefined): void {
  const { ledger } = turn;
  const lane = laneOf(ledger, cidr);
  const wasOwn = isOwn(ledger, lane);
  lane.block = block;
  lane.free = undefined;
  if (wasOwn !== isOwn(ledger, lane)) rankOwn(ledger);
  reconcile(turn, lane);
  turn.lanes.add(lane);
  turn.roomChanged = true;
  if (block === undefined && lane.holdings.size === 0 && !lane.flight) ledger.lanes.delete(cidr);
}

function reconcile(turn: Turn, lane: Lane): void {
  for (const holding of [...lane.holdings.values()]) {
    if (lane.block) compare(turn, lane.block, holding);
    else if (holding.state.kind === "owned" || holding.state.kind === "held") lose(turn, holding, "block_lost");
    else if (holding.state.kind === "warm") loseStock(turn, holding, "block_lost");
  }
  lookForStock(turn, lane);
  turn.vacated.add(lane);
}

/** What turned up under the handle of a deleted attachment is released. */
export function sweepLane(turn: Turn, lane: Lane): void {
  for (const stone of stonesIn(turn.ledger, lane)) sweep(turn, lane, stone);
}

export function compare(turn: Turn, block: Block, holding: Holding): void {
  const { state, ordinal } = holding;
  const holder = holderOf(block, ordinal);
  const ours = holder?.handle === holding.handle ? holder : undefined;
  const inStock = stockAt(turn.ledger, block, ordinal);
  const since = "sequence" in state ? state.sequence : undefined;
  // A version from before it was so says nothing, unless the data was set back to it.
  if (!turn.ledger.afresh && since !== undefined && block.sequenceNumber <= since) return;
  switch (state.kind) {
    case "reserving":
      // Seen as wished: that settles it. Seen as free settles nothing, the reserve may still be under way.
      if (ours) settleReserve(turn, holding, ours);
      return;
    case "withdrawn":
      if (ours) return settleReserve(turn, holding, ours);
      if (state.sequence === undefined || inStock?.sequence === state.sequence) return;
      return settleWithdrawn(turn, block, holding, inStock);
    case "warm":
      if (inStock?.sequence === state.sequence) return;
      if (inStock) return stocked(turn, block, ordinal, inStock);
      return loseStock(turn, holding, holder ? "taken" : "released");
    case "held":
      if (ours) return settleReserve(turn, holding, ours);
      if (inStock?.sequence === state.sequence) return;
      if (inStock) return holdAgain(turn, block, holding, inStock);
      return lose(turn, holding, holder ? "taken" : "released", block);
    case "owned":
      if (ours?.sequence === state.sequence) return;
      if (ours) return setState(turn, holding, { kind: "owned", sequence: ours.sequence });
      if (inStock) return holdAgain(turn, block, holding, inStock);
      return lose(turn, holding, holder ? "taken" : "released", block);
    case "leaving":
      if (ours?.sequence === state.sequence) return;
      // Where handles are written, its handle is settled by the answer alone.
      if (!ours && turn.ledger.handles === "eager" && holding.attachment !== nobody) return;
      return settleLeaving(turn, block, holding, holder);
    case "lost":
      if (ours) setState(turn, holding, { kind: "owned", sequence: ours.sequence });
      else if (inStock) holdAgain(turn, block, holding, inStock);
      else if (isFree(block, ordinal)) setState(turn, holding, { kind: "reserving" });
      return;
    case "suspect":
      return;
    default:
      impossible(state);
  }
}

/** The block shows it as wished. */
export function settleReserve(turn: Turn, holding: Holding, { sequence }: Holder): void {
  if (holding.state.kind === "withdrawn") return leave(turn, holding, sequence);
  if (holding.attachment === nobody) return setState(turn, holding, { kind: "warm", sequence, used: false });
  setState(turn, holding, { kind: "owned", sequence });
  dueForIndex(turn, holding);
}

export function leave(turn: Turn, holding: Holding, sequence: Sequence): void {
  setState(turn, holding, { kind: "leaving", sequence, to: destinationOf(turn.ledger, holding, turn.now) });
}

/** The retag that nobody wants any more is dead: what it expected will never be again. */
function settleWithdrawn(turn: Turn, block: Block, holding: Holding, inStock: Holder | undefined): void {
  cover(turn, holding);
  if (inStock) stocked(turn, block, holding.ordinal, inStock);
  else letGo(turn, holding);
}

/** Whatever is under way for it expects what will never be again. */
export function settleLeaving(turn: Turn, block: Block, holding: Holding, holder: Holder | undefined): void {
  const { state, ordinal } = holding;
  invariant(state.kind === "leaving", `${holding.address} is not leaving`);
  const inStock = stockAt(turn.ledger, block, ordinal);
  const isOut = holding.attachment === nobody && state.to === "free";
  if (inStock && !isOut) return stocked(turn, block, ordinal, inStock);
  if (holder?.handle !== holding.handle) return letGo(turn, holding);
  setState(turn, holding, { kind: "leaving", sequence: holder.sequence, to: state.to });
}

/** Its attachment lives and the block shows it in this node's stock: it is still to be retagged. */
function holdAgain(turn: Turn, block: Block, holding: Holding, { sequence }: Holder): void {
  const stock = { ...ownerAttributes(block, holding.ordinal) };
  setState(turn, holding, { kind: "held", sequence, stock });
}

/** Nobody has it, so nobody is harmed; but somebody took what was not his. */
function loseStock(turn: Turn, holding: Holding, what: "taken" | "released" | "block_lost"): void {
  turn.effects.push({ kind: "conflict", what, holding });
  letGo(turn, holding);
}

/** An address in use that the API no longer shows as ours: taken back when it is free, else known as lost. */
function lose(turn: Turn, holding: Holding, what: "taken" | "released" | "block_lost", block?: Block): void {
  turn.effects.push({ kind: "conflict", what, holding });
  const again = block !== undefined && isFree(block, holding.ordinal);
  setState(turn, holding, { kind: again ? "reserving" : "lost" });
}

/** The tombstones that may cover something in this block; costs its attributes, not the tombstones. */
function stonesIn(ledger: Ledger, { block }: Lane): Set<Tombstone> {
  const stones = new Set<Tombstone>();
  for (const { handle_id: handle } of block?.attributes ?? []) {
    for (const id of (handle && ledger.tombstonesOf.get(handle as HandleId)) || []) {
      const stone = ledger.tombstones.get(id);
      if (stone) stones.add(stone);
    }
  }
  return stones;
}

/**
 * Releases what a deleted attachment holds in this block by no record of ours: calico-ipam took it before us, or an intent given up
 * long ago was carried out after all. What belongs to another attachment that we know stays.
 */
export function sweep(turn: Turn, lane: Lane, stone: Tombstone): void {
  const { block } = lane;
  if (!block) return;
  for (const ordinal of block.allocations.keys()) {
    const holder = holderOf(block, ordinal);
    if (!holder || !stone.handles.includes(holder.handle)) continue;
    if (lane.holdings.has(ordinal) || !covers(stone, lane.cidr, ordinal)) continue;
    const { id: attachment } = stone;
    const { handle } = holder;
    const holding = { block: lane.cidr, ordinal, attachment, handle, attributes: {}, request: "", fixed: false };
    hold(turn, holding, { kind: "leaving", sequence: holder.sequence, to: "free" });
  }
}

function covers({ covers }: Tombstone, block: BlockCidr, ordinal: number): boolean {
  return covers === "handle" || covers.some((place) => place.block === block && place.ordinal === ordinal);
}

export type Spot = Pick<Place, "block" | "ordinal">;

/** Where a wanted address can be taken now; undefined: nowhere in the blocks of this node and the others that were shown. */
export function findSpot(
  ledger: Ledger,
  want: Wanted,
  shown: ReadonlySet<BlockCidr>,
  now: Instant,
): Spot | Trouble | undefined {
  const inStock = pick(ledger, want, now);
  if (inStock) return inStock;
  if (want.kind === "address") return spotOfAddress(ledger, want);
  for (const lane of [...ownIn(ledger, want), ...shownIn(ledger, want, shown)]) {
    const ordinal = nextFree(ledger, lane, now);
    if (ordinal !== undefined) return { block: lane.cidr, ordinal };
  }
  return undefined;
}

/** The blocks of this node that lie in the wanted pools. */
export function ownIn(ledger: Ledger, want: Any): Lane[] {
  return ledger.own.filter((lane) => liesIn(ledger, lane, want));
}

/** Others' blocks that the server has shown, to borrow from. */
export function shownIn(ledger: Ledger, want: Any, shown: ReadonlySet<BlockCidr>): Lane[] {
  const lanes = [...shown].flatMap((cidr) => ledger.lanes.get(cidr) ?? []);
  return lanes.filter((lane) => !isOwn(ledger, lane) && liesIn(ledger, lane, want));
}

function liesIn(ledger: Ledger, lane: Lane, { family, pools }: Any): boolean {
  if (familyOf(lane.cidr) !== family) return false;
  const pool = poolOf(ledger, lane);
  return pool !== null && pools.includes(pool);
}

export function poolOf(ledger: Ledger, lane: Lane): PoolName | null {
  if (lane.pool === undefined) lane.pool = ledger.placement.poolOf(lane.cidr) ?? null;
  return lane.pool;
}

/** How long a block that was found full is taken for full: whoever waits asks often. */
const recheckMs = 1_000;

export function nextFree(ledger: Ledger, lane: Lane, now: Instant): number | undefined {
  if (lane.free === undefined || (lane.free.length === 0 && now - lane.freeAt >= recheckMs)) {
    lane.free = lane.block ? ledger.placement.freeOrdinals(lane.block) : [];
    lane.freeAt = now;
  }
  while (lane.free[0] !== undefined && lane.holdings.has(lane.free[0])) lane.free.shift();
  return lane.free[0];
}

function spotOfAddress(
  ledger: Ledger,
  { address, block }: Extract<Wanted, { kind: "address" }>,
): Spot | Trouble | undefined {
  const ordinal = ordinalOf(block, address);
  invariant(ordinal !== undefined, `${address} does not lie in ${block}`);
  const lane = ledger.lanes.get(block);
  const forbidden = lane?.block && !isOwn(ledger, lane) ? ledger.placement.forbids(lane.block) : undefined;
  if (forbidden) return forbidden;
  return holdingAt(ledger, block, ordinal) ? undefined : { block, ordinal };
}
