// How many addresses are kept in stock: a few at rest, more as pods come faster, fewer when a pool runs short; per pool and family.
// Leaves to stock.ts what happens to a single address, to commits.ts how it is asked for.

import { familyOf } from "../../shared/ip/cidr.ts";
import { type Family, type Instant, invariant } from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import { nextFree, ownIn } from "./blocks.ts";
import { claimForStock } from "./commits.ts";
import { isLeased, markAnew } from "./lease.ts";
import {
  type Any,
  type Demand,
  type Holding,
  isDurable,
  type Lane,
  type Ledger,
  nobody,
  type WarmPolicy,
} from "./state.ts";
import { isPresent, isWanted, reserve } from "./stock.ts";
import { setState, type Turn } from "./turn.ts";

/** What came this long ago counts half. One pod a second makes 14, and a stock of twice that. */
const halfLifeMs = 10_000;
const stockPerRecent = 2;
/** How long pools that had nothing to give are left alone. */
export const shortMs = 60_000;
/** Combinations of pools that are provided for; the oldest makes room, and its stock goes back. */
const maxDemands = 16;

export function noteDemand(turn: Turn, want: Any, ask: AddRequest): void {
  const { ledger, now } = turn;
  const demand = demandFor(ledger, want, ask, now);
  demand.recent = recentOf(demand, now) + 1;
  demand.at = now;
}

function demandFor(ledger: Ledger, want: Any, ask: AddRequest | undefined, now: Instant): Demand {
  const key = keyOf(want);
  const known = ledger.demands.get(key);
  if (known) return known;
  const made: Demand = { want, ask, recent: 0, at: now, shortUntil: now };
  ledger.demands.set(key, made);
  const [oldest] = ledger.demands.keys();
  if (ledger.demands.size > maxDemands && oldest !== undefined) ledger.demands.delete(oldest);
  return made;
}

function keyOf({ family, pools }: Any): string {
  return `${family} ${pools.join(" ")}`;
}

function recentOf({ recent, at }: Demand, now: Instant): number {
  return recent * 2 ** ((at - now) / halfLifeMs);
}

export function targetOf(demand: Demand, { floor, ceiling }: WarmPolicy, now: Instant): number {
  if (demand.shortUntil > now) return floor;
  // Less than half a pod is nobody: what decays would otherwise never come to rest.
  const wanted = Math.floor(recentOf(demand, now) * stockPerRecent + 0.5);
  return Math.max(floor, Math.min(ceiling, wanted));
}

/** Pools, labels or reservations are not what they were: what pods would be given is worked out anew. */
export function revalue(turn: Turn): void {
  const { ledger, now } = turn;
  const before = [...ledger.demands.values()];
  ledger.demands.clear();
  for (const want of ledger.placement.usual()) demandFor(ledger, want, undefined, now);
  for (const demand of before) {
    const wanted = demand.ask && ledger.placement.wanted(demand.ask);
    if (!wanted || "reason" in wanted) continue;
    for (const want of wanted) {
      if (want.kind !== "any" || want.family !== demand.want.family) continue;
      const renewed = demandFor(ledger, want, demand.ask, now);
      Object.assign(renewed, { recent: demand.recent, at: demand.at });
    }
  }
}

/** Brings the stock to what is wanted of it. Changes nothing that is under way. */
export function regulate(turn: Turn): void {
  const { ledger, now } = turn;
  const policy = ledger.warm();
  ledger.regulateAt = undefined;
  if (!ledger.complete || ledger.closed || ledger.diskFails) return;
  if (policy === undefined) return giveBack(turn, resting(ledger));
  if (ledger.demands.size === 0) revalue(turn);
  giveBack(
    turn,
    resting(ledger).filter((holding) => !isWantedByAny(ledger, holding)),
  );
  if (!isLeased(ledger, now)) return;
  for (const holding of resting(ledger)) if (!isPresent(ledger, holding.attributes)) markAnew(turn, holding);
  for (const demand of ledger.demands.values()) balance(turn, demand, policy);
}

function balance(turn: Turn, demand: Demand, policy: WarmPolicy): void {
  const { ledger, now } = turn;
  const target = targetOf(demand, policy, now);
  const have = [...ledger.stock].filter((holding) => isWanted(ledger, demand.want, holding));
  const isShort = demand.shortUntil > now;
  const slack = isShort ? 0 : Math.ceil(target / 2);
  if (have.length > target + slack) {
    // What has rested longest stays: it is handed out next.
    const spare = have.filter(({ state }) => state.kind === "warm").slice(target - have.length);
    giveBack(
      turn,
      spare.filter((holding) => isDurable(ledger, holding)),
    );
  }
  if (have.length < target && ledger.online) fill(turn, demand, target, have.length);
  if (isShort || target > policy.floor) wakeAt(ledger, isShort ? demand.shortUntil : ((now + halfLifeMs) as Instant));
}

function wakeAt(ledger: Ledger, at: Instant): void {
  if (ledger.regulateAt === undefined || at < ledger.regulateAt) ledger.regulateAt = at;
}

/** At half the target somebody may soon have to wait. Before that, what is missing travels with whatever is written anyway. */
function fill(turn: Turn, demand: Demand, target: number, have: number): void {
  const { ledger, now } = turn;
  const isUrgent = have < Math.ceil(target / 2);
  let missing = target - have;
  for (const lane of ownIn(ledger, demand.want)) {
    if (missing > 0 && (isUrgent || lane.due.size > 0)) missing -= take(turn, lane, missing);
    if (isUrgent && [...lane.due].some(isForStock)) lane.hurry = true;
  }
  if (missing > 0 && isUrgent && demand.shortUntil <= now) claimForStock(turn, demand);
}

function isForStock({ attachment, state }: Holding): boolean {
  return attachment === nobody && state.kind === "reserving";
}

function take(turn: Turn, lane: Lane, most: number): number {
  const { ledger, now } = turn;
  const spared = needsTunnel(ledger, familyOf(lane.cidr)) ? freeInOthers(ledger, lane) : 1;
  for (let taken = 0; taken < most; taken++) {
    const ordinal = nextFree(ledger, lane, now);
    if (ordinal === undefined) return taken;
    // A tunnel address of this node comes from its own blocks: the last free one is left to it.
    if (spared === 0 && lane.free?.length === 1) return taken;
    reserve(turn, lane, ordinal);
  }
  return most;
}

/** No block of this node shows a tunnel address: one may still be wanted. */
function needsTunnel({ own }: Ledger, family: Family): boolean {
  return !own.some(
    ({ cidr, block }) =>
      familyOf(cidr) === family &&
      block?.attributes.some(({ secondary }) => /^(ipip|vxlan|wireguard)/.test(secondary?.type ?? "")),
  );
}

function freeInOthers(ledger: Ledger, lane: Lane): number {
  const family = familyOf(lane.cidr);
  return ledger.own.filter(
    (other) => other !== lane && familyOf(other.cidr) === family && (other.free?.length ?? 0) > 0,
  ).length;
}

function resting({ stock }: Ledger): Holding[] {
  return [...stock].filter(({ state }) => state.kind === "warm");
}

function isWantedByAny(ledger: Ledger, holding: Holding): boolean {
  return ledger.demands.values().some(({ want }) => isWanted(ledger, want, holding));
}

function giveBack(turn: Turn, holdings: readonly Holding[]): void {
  for (const holding of holdings) {
    const { state } = holding;
    invariant(state.kind === "warm", `${holding.address} is not in stock`);
    setState(turn, holding, { kind: "leaving", sequence: state.sequence, to: "free" });
  }
}

/** Where an address goes whose attachment has ended. */
export function destinationOf(ledger: Ledger, holding: Holding, now: Instant): "free" | "warm" {
  const policy = ledger.warm();
  if (policy === undefined || holding.fixed || ledger.closed || !isLeased(ledger, now)) return "free";
  for (const demand of ledger.demands.values()) {
    if (!isWanted(ledger, demand.want, holding)) continue;
    const have = [...ledger.stock].filter((stocked) => isWanted(ledger, demand.want, stocked)).length;
    if (have < targetOf(demand, policy, now)) return "warm";
  }
  return "free";
}
