// Single addresses into stock and out of it: handed to an attachment on the journal's word, taken back, found in a block.
// Leaves to others how many are kept (demand.ts) and whether any may be handed out at all (lease.ts).
import { holderOf, ownerAttributes } from "../../shared/calico/block.ts";
import { warmHandle } from "../../shared/calico/names.ts";
import type { Block, Holder } from "../../shared/calico/resources.ts";
import { addressAt, familyOf } from "../../shared/ip/cidr.ts";
import { type HandleId, type Instant, invariant } from "../../shared/kinds.ts";
import type { Owner } from "../../shared/protocol/stream.ts";
import { poolOf } from "./blocks.ts";
import { isLeased } from "./lease.ts";
import {
  type Any,
  type Holding,
  holdingAt,
  type Incarnation,
  isDurable,
  isOwn,
  type Lane,
  type Ledger,
  laneOf,
  nobody,
  type Wanted,
} from "./state.ts";
import { hold, letGo, type Turn } from "./turn.ts";

/** Not one of Calico's types, so that its collector leaves the address alone (spec 6.7, 6.8). */
const stockType = "cattail-warm";
const incarnationKey = "cattail.io/incarnation";

/** The same for all of them: they share one entry in the block. */
export function stockOwner({ node, incarnation }: Ledger): Owner & { readonly handle: HandleId } {
  const { timestamp } = incarnation;
  const mark = markOf(incarnation);
  return { handle: warmHandle(node), attributes: { node, timestamp, type: stockType, [incarnationKey]: mark } };
}

function markOf({ journal, number }: Incarnation): string {
  return `${journal}.${number}`;
}

type Attributes = Readonly<Record<string, string>>;

export function isPresent({ incarnation }: Ledger, attributes: Attributes): boolean {
  return attributes[incarnationKey] === markOf(incarnation);
}

/** Marked by this journal, now or before: whom it was given to is known here. */
function isOurs({ incarnation }: Ledger, attributes: Attributes): boolean {
  return attributes[incarnationKey]?.startsWith(`${incarnation.journal}.`) ?? false;
}

/** The longest rested address in stock that may be handed out now for what is wanted. */
export function pick(ledger: Ledger, want: Wanted, now: Instant): Holding | undefined {
  if (ledger.warm() === undefined || !isLeased(ledger, now)) return undefined;
  if (want.kind === "address") {
    const [found] = [...ledger.stock].filter(({ address }) => address === want.address);
    return found && mayHandOut(ledger, found, now) ? found : undefined;
  }
  for (const holding of ledger.stock) {
    if (mayHandOut(ledger, holding, now) && isWanted(ledger, want, holding)) return holding;
  }
  return undefined;
}

function mayHandOut(ledger: Ledger, holding: Holding, now: Instant): boolean {
  const { state, since } = holding;
  if (state.kind !== "warm" || !isDurable(ledger, holding) || !isPresent(ledger, holding.attributes)) return false;
  return !state.used || since + ledger.placement.cooldownMs() <= now;
}

/** In a pool that may be used, in a block of this node, and not reserved since. */
export function isWanted(ledger: Ledger, { family, pools }: Any, holding: Holding): boolean {
  if (familyOf(holding.block) !== family) return false;
  const lane = laneOf(ledger, holding.block);
  const pool = poolOf(ledger, lane);
  return isOwn(ledger, lane) && pool !== null && pools.includes(pool) && !ledger.placement.isReserved(holding.address);
}

type Taker = Pick<Holding, "attachment" | "handle" | "attributes" | "request" | "fixed">;

export function handOut(turn: Turn, stocked: Holding, taker: Taker): Holding {
  const { block, ordinal, attributes: stock, state } = stocked;
  invariant(state.kind === "warm", `${stocked.address} is not in stock`);
  letGo(turn, stocked);
  return hold(turn, { ...taker, block, ordinal }, { kind: "held", sequence: state.sequence, stock });
}

/** Nothing was ever sent for it: the block shows it in stock all the time, and nothing is to be written. */
export function putBack(turn: Turn, held: Holding): void {
  const { block, ordinal, state } = held;
  invariant(state.kind === "held" && !held.sent, `a retag of ${held.address} may be under way`);
  const { handle } = stockOwner(turn.ledger);
  letGo(turn, held);
  const { sequence, stock } = state;
  hold(turn, { ...nobodys, block, ordinal, handle, attributes: stock }, { kind: "warm", sequence, used: true });
}

const nobodys = { attachment: nobody, request: "", fixed: false };

/** To be reserved for the stock. */
export function reserve(turn: Turn, lane: Lane, ordinal: number): void {
  hold(turn, { ...nobodys, block: lane.cidr, ordinal, ...stockOwner(turn.ledger) }, { kind: "reserving" });
}

/** The holder of this ordinal, if it is this node's stock. */
export function stockAt({ node }: Ledger, block: Block, ordinal: number): Holder | undefined {
  const holder = holderOf(block, ordinal);
  return holder?.handle === warmHandle(node) ? holder : undefined;
}

/** The block shows it in stock, whatever we held there before: what was sent for an earlier sequence is dead. */
export function stocked(turn: Turn, block: Block, ordinal: number, { handle, sequence }: Holder): void {
  const before = holdingAt(turn.ledger, block.cidr, ordinal);
  if (before) letGo(turn, before);
  const attributes = { ...ownerAttributes(block, ordinal) };
  hold(turn, { ...nobodys, block: block.cidr, ordinal, handle, attributes }, { kind: "warm", sequence, used: true });
}

/** What bears a mark of ours was asked for by us. Anything else may have been given away by whoever lost his journal. */
export function lookForStock(turn: Turn, lane: Lane): void {
  const { ledger, now } = turn;
  const { block, cidr } = lane;
  for (const [address, stranger] of [...ledger.strangers]) {
    if (stranger.block === cidr && !isStranger(ledger, lane, stranger.ordinal)) ledger.strangers.delete(address);
  }
  if (!block?.attributes.some(({ handle_id }) => handle_id === warmHandle(ledger.node))) return;
  for (const ordinal of block.allocations.keys()) {
    const holder = stockAt(ledger, block, ordinal);
    if (!holder || lane.holdings.has(ordinal)) continue;
    const address = addressAt(cidr, ordinal);
    if (isOurs(ledger, ownerAttributes(block, ordinal) ?? {})) stocked(turn, block, ordinal, holder);
    else if (!ledger.strangers.has(address)) ledger.strangers.set(address, { block: cidr, ordinal, since: now });
  }
}

function isStranger(ledger: Ledger, { block, holdings }: Lane, ordinal: number): boolean {
  return block !== undefined && !holdings.has(ordinal) && stockAt(ledger, block, ordinal) !== undefined;
}
