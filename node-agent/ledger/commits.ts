// What goes to the server and what its answers mean: one commit per block under way, the newest state of each ordinal in it; joined claims.
// Leaves to others who wanted it (adding.ts, leaving.ts).
import { holderOf } from "../../shared/calico/block.ts";
import type { Block } from "../../shared/calico/resources.ts";
import { familyOf } from "../../shared/ip/cidr.ts";
import { type BlockCidr, type Instant, impossible, type Sequence } from "../../shared/kinds.ts";
import type { Intent, IntentResult, Problem } from "../../shared/protocol/stream.ts";
import { type Reason, reasons } from "../../shared/reasons.ts";
import { type Trouble, trouble } from "../trouble.ts";
import { failAdd, lostPlace } from "./adding.ts";
import { compare, ownIn, seeBlock, settleLeaving, settleReserve, shownIn } from "./blocks.ts";
import { shortMs } from "./demand.ts";
import {
  type Add,
  type Claim,
  type Demand,
  type Flight,
  type Holding,
  isDurable,
  isOpen,
  type Lane,
  type Ledger,
  nobody,
  type Wanted,
} from "./state.ts";
import { stockOwner } from "./stock.ts";
import { letGo, makeDue, setState, type Turn } from "./turn.ts";

/** A commit of this many intents stays far below the largest frame. */
const maxIntentsPerCommit = 1024;
/** The server gives up after 30 s, and a claim may take two such rounds; an answer that is not here by then was lost. */
export const answerOverdueMs = 120_000;
/** After an answer that says nothing, unless it says when to come back. */
const retryMs = 1_000;
/** What a claim may name (shared/protocol/stream.ts). */
const maxPools = 1000;
const maxFull = 4096;
/** Claims made for one ADD that came first in line and still found no room: something is wrong with these blocks. */
const maxClaimsPerAdd = 4;
/** Between two tries to get back what was lost with its block. */
const claimBackMs = 30_000;

export function flush(turn: Turn, lane: Lane): void {
  const { ledger } = turn;
  const due = flushTime(ledger, lane);
  if (due === undefined || due > turn.now) return;
  const ready = [...lane.due].filter((holding) => isDurable(ledger, holding)).slice(0, maxIntentsPerCommit);
  if (ready.length === 0) return;
  const id = ledger.nextId++;
  lane.flight = { id, since: turn.now, entries: ready.map((holding) => ({ holding, sent: holding.state })) };
  ledger.flights.set(id, lane);
  for (const holding of ready) {
    holding.sent = true;
    lane.due.delete(holding);
  }
  lane.hurry = false;
  lane.flushAt = lane.due.size === 0 ? undefined : turn.now;
  const intents = ready.map((holding) => intentOf(ledger, holding));
  turn.effects.push({ kind: "commit", commit: { id, block: lane.cidr, intents, handles: ledger.handles } });
}

/** When what is due may be sent; undefined: when something else has happened. */
export function flushTime(ledger: Ledger, lane: Lane): Instant | undefined {
  if (!ledger.online || lane.flight || lane.due.size === 0) return undefined;
  const ready = [...lane.due].filter((holding) => isDurable(ledger, holding));
  if (ready.length === 0) return undefined;
  const isAwaited =
    lane.hurry || ready.some(({ attachment, state }) => state.kind === "reserving" && attachment !== nobody);
  return isAwaited ? lane.notBefore : (Math.max(lane.notBefore, lane.flushAt ?? 0) as Instant);
}

/** Somebody waits for what leaves here. */
export function hasten(turn: Turn, lane: Lane): void {
  if (lane.due.size === 0) return;
  lane.hurry = true;
  turn.lanes.add(lane);
}

function intentOf(ledger: Ledger, { ordinal, handle, attributes, state }: Holding): Intent {
  const expected = (owner: string, sequence: Sequence): Intent["expect"] => ({
    handle: owner,
    sequence: String(sequence),
  });
  const become = { handle, attributes };
  switch (state.kind) {
    case "leaving":
      return {
        ordinal,
        expect: expected(handle, state.sequence),
        become: state.to === "warm" ? stockOwner(ledger) : null,
      };
    case "held":
      return { ordinal, expect: expected(stockOwner(ledger).handle, state.sequence), become };
    case "withdrawn":
      if (state.sequence === undefined) return { ordinal, expect: null, become };
      return { ordinal, expect: expected(stockOwner(ledger).handle, state.sequence), become };
    default:
      return { ordinal, expect: null, become };
  }
}

export interface Answer {
  readonly id: number;
  readonly results?: readonly IntentResult[] | undefined;
  /** The newest version known, which may be newer than the answer's; null: gone; undefined: not told. */
  readonly block?: Block | null | undefined;
  readonly problem?: Problem | undefined;
}

export function acknowledge(turn: Turn, answer: Answer): void {
  const { ledger } = turn;
  const lane = ledger.flights.get(answer.id);
  const flight = lane?.flight;
  if (!lane || !flight) return; // of a connection that was given up
  ledger.flights.delete(answer.id);
  lane.flight = undefined;
  const { results } = answer;
  if (results === undefined) {
    postpone(turn, lane, flight, answer.problem);
  } else {
    const block = answer.block === undefined ? lane.block : (answer.block ?? undefined);
    flight.entries.forEach(({ holding, sent }, index) => {
      if (lane.holdings.get(holding.ordinal) !== holding || !isOpen(holding)) return; // settled by a version that came first
      if (sent.kind === "held" || (sent.kind === "withdrawn" && sent.sequence !== undefined))
        concludeRetag(turn, lane, holding, block, results[index]);
      else if (sent.kind !== "leaving") concludeReserve(turn, lane, holding, block, results[index]);
      else if (holding.state === sent) concludeRelease(turn, lane, holding, block, results[index]);
    });
    seeBlock(turn, lane.cidr, block);
    if (results.includes("refused")) {
      lane.free = []; // not ours to take from; soon a newer version of it will say so
      lane.freeAt = turn.now;
    }
  }
  turn.lanes.add(lane);
}

/** Nothing is known to be written: all of it is unsettled, and sent again. */
function postpone(turn: Turn, lane: Lane, flight: Flight, problem: Problem | undefined): void {
  lane.notBefore = (turn.now + (problem?.retryAfterMs ?? retryMs)) as Instant;
  const found = problem && troubleOf(problem);
  for (const { holding } of flight.entries) {
    if (lane.holdings.get(holding.ordinal) !== holding || !isOpen(holding)) continue;
    makeDue(turn, lane, holding);
    const add = turn.ledger.adds.get(holding.attachment);
    if (!add || !found || holding.state.kind !== "reserving") continue;
    add.trouble = found;
    if (!isWorthWaiting(found.reason)) failAdd(turn, add, found);
  }
}

function concludeReserve(
  turn: Turn,
  lane: Lane,
  holding: Holding,
  block: Block | undefined,
  result: IntentResult | undefined,
): void {
  if (holding.state.kind === "leaving") return; // settled by the view, and deleted since
  switch (result) {
    case "applied":
    case "already": {
      const holder = block && holderOf(block, holding.ordinal);
      if (holder?.handle === holding.handle) return settleReserve(turn, holding, holder);
      if (block) return lostPlace(turn, holding);
      return makeDue(turn, lane, holding); // asked again, the server shows the block
    }
    case "expectation":
    case "refused":
    case undefined:
      return lostPlace(turn, holding);
    default:
      return impossible(result);
  }
}

/** What the newest block shows decides; where it shows nothing new, the retag is sent again. */
function concludeRetag(
  turn: Turn,
  lane: Lane,
  holding: Holding,
  block: Block | undefined,
  result: IntentResult | undefined,
): void {
  if (holding.state.kind === "leaving") return; // settled by the view, and deleted since
  if (block) compare(turn, block, holding);
  else if (holding.state.kind === "held")
    return; // the block is gone, which is said to all that is in it
  else return lostPlace(turn, holding);
  if (lane.holdings.get(holding.ordinal) !== holding || !isOpen(holding)) return;
  makeDue(turn, lane, holding);
  if (result !== "applied" && result !== "already") lane.notBefore = (turn.now + retryMs) as Instant;
}

function concludeRelease(
  turn: Turn,
  lane: Lane,
  holding: Holding,
  block: Block | undefined,
  result: IntentResult | undefined,
): void {
  const { state } = holding;
  if (state.kind !== "leaving") return;
  const holder = block && holderOf(block, holding.ordinal);
  const isDone = result === "applied" || result === "already";
  if (!block || (isDone && state.to === "free")) return letGo(turn, holding);
  // Not ours to keep, perhaps still ours to give up.
  if (result === "refused") {
    return state.to === "free" ? letGo(turn, holding) : setState(turn, holding, { ...state, to: "free" });
  }
  // Under another sequence: somebody rewrote it. Under the same one the copy we see is old: soon there is a newer one.
  if (holder?.handle !== holding.handle || holder.sequence !== state.sequence)
    return settleLeaving(turn, block, holding, holder);
  lane.notBefore = (turn.now + retryMs) as Instant;
  makeDue(turn, lane, holding);
}

/** Asks for a block for the ADD that came first; whoever else wants the same waits for the same answer. */
export function claim(turn: Turn, add: Add, want: Wanted): void {
  const { ledger } = turn;
  const key = want.kind === "any" ? want.pools.join(" ") : want.block;
  add.waitsFor = key;
  const known = ledger.claims.get(key);
  if (!ledger.online || (known && (known.id !== undefined || known.notBefore > turn.now))) return;
  add.claims += 1;
  if (add.claims > maxClaimsPerAdd) {
    const why = `${maxClaimsPerAdd} blocks were claimed for it and none had a free address`;
    return failAdd(turn, add, withVerdict(ledger, want, trouble("PoolExhausted", why)));
  }
  const id = ledger.nextId++;
  ledger.claims.set(key, { id, want, since: turn.now, notBefore: turn.now });
  if (want.kind === "address") {
    turn.effects.push({ kind: "claim-block", id, block: want.block, pool: want.pool });
    return;
  }
  // What is on its way out may be room as well.
  for (const lane of ownIn(ledger, want)) hasten(turn, lane);
  const full = [...ownIn(ledger, want), ...shownIn(ledger, want, add.shown)].map((lane) => lane.cidr);
  const pools = want.pools.slice(0, maxPools);
  turn.effects.push({ kind: "claim", id, pools, full: full.slice(0, maxFull), borrow: true });
}

/** One more block, of this node only: for nobody in particular. */
export function claimForStock(turn: Turn, { want }: Demand): void {
  const { ledger, now } = turn;
  const key = `stock ${want.pools.join(" ")}`;
  if (!ledger.online || ledger.claims.has(key)) return;
  const id = ledger.nextId++;
  ledger.claims.set(key, { id, want, since: now, notBefore: now });
  const full = ownIn(ledger, want).map((lane) => lane.cidr);
  const pools = want.pools.slice(0, maxPools);
  turn.effects.push({ kind: "claim", id, pools, full: full.slice(0, maxFull), borrow: false });
}

/**
 * A block that is not there any more while pods have addresses in it, since somebody deleted it or the data was set back: made anew, or
 * shown as it is by now, so that these addresses are asserted before somebody else gets them.
 */
export function claimBack(turn: Turn, lane: Lane): void {
  const { ledger, now } = turn;
  if (!ledger.online || lane.block !== undefined || ledger.claims.has(lane.cidr)) return;
  const lost = lostIn(lane);
  const pool = lost && ledger.placement.poolOf(lane.cidr);
  if (lost === undefined || pool === undefined) return;
  const id = ledger.nextId++;
  const want: Wanted = {
    kind: "address",
    family: familyOf(lost.address),
    address: lost.address,
    block: lane.cidr,
    pool,
  };
  ledger.claims.set(lane.cidr, { id, want, since: now, notBefore: now });
  turn.effects.push({ kind: "claim-block", id, block: lane.cidr, pool });
}

function lostIn(lane: Lane | undefined): Holding | undefined {
  return lane?.holdings.values().find(({ state }) => state.kind === "lost");
}

/** What was not got back is not asked for at every turn. */
function rest({ ledger, now }: Turn, { want }: Claim): void {
  if (want.kind !== "address" || !lostIn(ledger.lanes.get(want.block))) return;
  ledger.claims.set(want.block, { id: undefined, want, since: now, notBefore: (now + claimBackMs) as Instant });
}

function isForStock(key: string): boolean {
  return key.startsWith("stock ");
}

export interface ClaimAnswer {
  readonly id: number;
  readonly block?: { readonly cidr: BlockCidr; readonly block: Block | undefined } | undefined;
  readonly problem?: Problem | undefined;
}

export function claimed(turn: Turn, answer: ClaimAnswer): void {
  const { ledger } = turn;
  const [key, asked] = [...ledger.claims].find(([, { id }]) => id === answer.id) ?? [];
  if (key === undefined || asked === undefined) return;
  ledger.claims.delete(key);
  turn.roomChanged = true;
  const waiting = [...ledger.adds.values()].filter(({ waitsFor }) => waitsFor === key);
  if (answer.block) {
    for (const add of waiting) add.shown.add(answer.block.cidr);
    seeBlock(turn, answer.block.cidr, answer.block.block);
    return rest(turn, asked);
  }
  if (isForStock(key)) return runShort(turn, asked.want);
  const problem = answer.problem ?? { reason: "Internal", message: "the server answered a claim with nothing" };
  const found = troubleOf(problem);
  const waits = isWorthWaiting(found.reason);
  const notBefore = (turn.now + (problem.retryAfterMs ?? retryMs)) as Instant;
  if (waits) ledger.claims.set(key, { id: undefined, want: asked.want, since: turn.now, notBefore });
  else rest(turn, asked);
  for (const add of waiting) {
    add.trouble = found;
    if (!waits) failAdd(turn, add, withVerdict(ledger, asked.want, found));
  }
}

/** Whoever has no more to give is left alone for a while, and the stock there kept small. */
function runShort({ ledger, now }: Turn, want: Wanted): void {
  for (const demand of ledger.demands.values()) {
    if (want.kind === "any" && demand.want.pools.join(" ") === want.pools.join(" "))
      demand.shortUntil = (now + shortMs) as Instant;
  }
}

function withVerdict({ placement }: Ledger, want: Wanted, found: Trouble): Trouble {
  return want.kind === "address" ? found : { ...found, details: placement.verdict(found.reason, want.pools) };
}

/** What the server says, in our words; a reason of a newer server is an internal error for this agent. */
function troubleOf({ reason, message }: Problem): Trouble {
  return trouble(reasons.find((known) => known === reason) ?? "Internal", message);
}

/** What passes by itself within the time an ADD has. */
function isWorthWaiting(reason: Reason): boolean {
  return reason === "CommitTimeout" || reason === "ServerAway" || reason === "AgentStarting";
}

/** The connection is gone, and with it the answers: what was sent may be done, or still be done. */
export function unsettle(turn: Turn): void {
  const { ledger } = turn;
  for (const lane of ledger.flights.values()) {
    for (const { holding } of lane.flight?.entries ?? []) {
      if (lane.holdings.get(holding.ordinal) === holding && isOpen(holding)) makeDue(turn, lane, holding);
    }
    lane.flight = undefined;
  }
  ledger.flights.clear();
  ledger.claims.clear();
  ledger.indexing = undefined;
}
