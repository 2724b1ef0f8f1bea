// The life of an ADD: a place for every address it wants, on disk, written by the server, on disk again, answered. All or nothing.
// Leaves to others which pools there are (ipam/placement.ts) and what the server's answers mean (commits.ts).
import { type BlockCidr, type Instant, invariant, type UnixMs } from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import { cniCode, type Trouble, trouble } from "../trouble.ts";
import { findSpot, type Spot } from "./blocks.ts";
import { claim, hasten } from "./commits.ts";
import { noteDemand } from "./demand.ts";
import { isLeased, leaseExpired } from "./lease.ts";
import { cover, withdraw } from "./leaving.ts";
import { comeBack } from "./reboot.ts";
import { recognise } from "./rebuild.ts";
import {
  type Add,
  type Attachment,
  type Caller,
  type CallId,
  familyOfHolding,
  type Holding,
  holdingAt,
  isOwn,
  type Ledger,
  laneOf,
  nobody,
  partsOf,
  type Wanted,
} from "./state.ts";
import { handOut } from "./stock.ts";
import { type Granted, hold, letGo, refuse, save, setState, type Turn } from "./turn.ts";

/** Without a server an ADD waits so long for one, then says so: the runtime tries again. */
export const serverPatienceMs = 10_000;
/** Other writers may be quicker; so often in a row they are not. */
const maxTries = 8;

export interface AddEvent {
  readonly kind: "add";
  readonly call: CallId;
  readonly id: Attachment["id"];
  readonly ask: AddRequest;
  readonly owner: Add["owner"];
  readonly addedAt: UnixMs;
  readonly deadline: Instant;
}

export function add(turn: Turn, event: AddEvent): void {
  const { ledger } = turn;
  const { call, id, ask } = event;
  if (ledger.closed?.isLoss) return refuse(turn, call, ledger.closed.trouble);
  const stone = ledger.tombstones.get(id);
  if (stone && ask.startedAt <= stone.at) return refuse(turn, call, deletedMeanwhile());
  const running = ledger.adds.get(id);
  const asked = askedOf(ask);
  const known = ledger.attachments.get(id)?.asked ?? (running && askedOf(running.ask));
  if (known && asked !== "" && known !== asked) return refuse(turn, call, askedDifferently());
  const caller = { call, deadline: event.deadline };
  if (running) return join(turn, running, ask, caller);
  if (ledger.diskFails) return refuse(turn, call, diskFails());
  startAdd(turn, event, caller);
}

function join(turn: Turn, running: Add, ask: AddRequest, caller: Caller): void {
  const isSame = running.ask.requested.join() === ask.requested.join();
  if (isSame) running.callers.push(caller);
  else refuse(turn, caller.call, trouble("CommitTimeout", "another ADD of this attachment is not finished yet"));
}

function startAdd(turn: Turn, event: AddEvent, caller: Caller): void {
  const { ledger } = turn;
  const { id, ask, owner, addedAt } = event;
  const orphaned = ledger.orphans.delete(id) ? ledger.attachments.get(id) : undefined;
  const started: Add = {
    id,
    ask,
    owner,
    addedAt,
    arrived: turn.now,
    callers: [caller],
    took: new Set(orphaned?.holdings),
    placed: false,
    counted: false,
    recorded: undefined,
    waitsFor: undefined,
    shown: new Set(),
    tries: 0,
    claims: 0,
    trouble: undefined,
  };
  ledger.adds.set(id, started);
  place(turn, started);
  turn.touched.add(id);
}

export function placeAll(turn: Turn): void {
  turn.roomChanged = false;
  for (const waiting of [...turn.ledger.adds.values()]) if (!waiting.placed) place(turn, waiting);
}

/** Nothing is taken until there is a place for everything. */
function place(turn: Turn, add: Add): void {
  const { ledger } = turn;
  if (!ledger.complete || ledger.closed) return;
  const isNews = recognise(turn, add, askedOf(add.ask)) || comeBack(turn, add.id);
  const attachment = ledger.attachments.get(add.id);
  const missing = missingOf(ledger, add, attachment);
  if ("reason" in missing) return failAdd(turn, add, missing);
  if (missing.length > 0 && ledger.lease.standing === "ran-out" && !ledger.online)
    return failAdd(turn, add, leaseExpired());
  countDemand(turn, add, missing);
  const unseen = missing.find((want) => want.kind === "address" && !isShown(ledger, add, want.block));
  if (unseen) return claim(turn, add, unseen);
  const spots = missing.map((want) => ({ want, spot: findSpot(ledger, want, add.shown, turn.now) }));
  const without = spots.find(({ spot }) => spot === undefined || "reason" in spot);
  if (without?.spot && "reason" in without.spot) return failAdd(turn, add, without.spot);
  if (without?.want.kind === "address") return awaitAddress(turn, add, without.want);
  if (without) return claim(turn, add, without.want);
  add.placed = true;
  add.waitsFor = undefined;
  turn.touched.add(add.id);
  const owner = attachment ?? createAttachment(turn, add);
  for (const { spot } of spots) if (spot && !("reason" in spot)) take(turn, add, owner, spot);
  if (isNews && add.took.size === 0) add.recorded = turn.number;
}

function countDemand(turn: Turn, add: Add, missing: readonly Wanted[]): void {
  if (add.counted) return;
  add.counted = true;
  for (const want of missing) if (want.kind === "any") noteDemand(turn, want, add.ask);
}

/** It may be on its way out, or back from somebody: then it is worth waiting for. */
function awaitAddress(turn: Turn, add: Add, { address, block }: Extract<Wanted, { kind: "address" }>): void {
  const lane = turn.ledger.lanes.get(block);
  const holding = [...(lane?.holdings.values() ?? [])].find((one) => one.address === address);
  const { kind } = holding?.state ?? {};
  if (!lane || (kind !== "leaving" && kind !== "withdrawn" && kind !== "warm")) {
    return failAdd(turn, add, inUse(address));
  }
  hasten(turn, lane);
}

/** Of a block that is not this node's, only what the server has just shown counts. */
function isShown(ledger: Ledger, { shown }: Add, block: BlockCidr): boolean {
  const lane = ledger.lanes.get(block);
  return shown.has(block) || (lane !== undefined && isOwn(ledger, lane));
}

function missingOf(ledger: Ledger, { ask }: Add, attachment: Attachment | undefined): readonly Wanted[] | Trouble {
  const held = [...(attachment?.holdings ?? [])];
  const has = (want: Wanted): boolean =>
    held.some((holding) =>
      want.kind === "any" ? familyOfHolding(holding) === want.family : holding.address === want.address,
    );
  // What lives is answered whatever became of the pools meanwhile.
  if (ask.requested.length === 0 && familiesOf(ask).every((family) => has({ kind: "any", family, pools: [] })))
    return [];
  const wanted = ledger.placement.wanted(ask);
  return "reason" in wanted ? wanted : wanted.filter((want) => !has(want));
}

function createAttachment(turn: Turn, { id, ask, owner, addedAt }: Add): Attachment {
  const attachment: Attachment = {
    ...partsOf(ask),
    id,
    handle: owner.handle,
    pod: ask.podName === "" ? "" : `${ask.podNamespace}/${ask.podName}`,
    asked: askedOf(ask),
    startedAt: ask.startedAt as UnixMs,
    addedAt,
    deadline: ask.deadline as UnixMs,
    boot: turn.ledger.boot.id,
    phase: "reserving",
    answers: 0,
    holdings: new Set(),
  };
  turn.ledger.attachments.set(id, attachment);
  save(turn, { table: "attachment", id });
  return attachment;
}

function take(turn: Turn, { id, owner, ask, took }: Add, attachment: Attachment, spot: Spot): void {
  const { block, ordinal } = spot;
  const fixed = ask.requested.length > 0;
  const taker = { attachment: id, ...owner, request: ask.request, fixed };
  const inStock = holdingAt(turn.ledger, block, ordinal);
  const held = inStock
    ? handOut(turn, inStock, taker)
    : hold(turn, { ...taker, block, ordinal }, { kind: "reserving" });
  took.add(held);
  attachment.holdings.add(held);
}

/** The server says that the ordinal is not to be had. */
export function lostPlace(turn: Turn, holding: Holding): void {
  const { ledger } = turn;
  const add = ledger.adds.get(holding.attachment);
  if (holding.attachment === nobody) return letGo(turn, holding);
  const wanted = holding.state.kind === "reserving";
  if (wanted && ledger.attachments.get(holding.attachment)?.phase === "owned" && !add?.took.has(holding)) {
    return setState(turn, holding, { kind: "lost" }); // of an answered ADD, which goes on using it
  }
  cover(turn, holding);
  letGo(turn, holding);
  if (!wanted || !add) return;
  add.took.delete(holding);
  add.placed = false;
  add.tries += 1;
  if (add.ask.requested.length > 0) return failAdd(turn, add, inUse(holding.address));
  if (add.tries < maxTries) return;
  failAdd(turn, add, trouble("CommitTimeout", `other writers were quicker ${add.tries} times in a row`));
}

/** Called for every ADD that something happened to. */
export function advance(turn: Turn, add: Add): void {
  const { ledger } = turn;
  if (!add.placed || add.callers.length === 0) return;
  if (add.recorded !== undefined) return add.recorded <= ledger.durable ? conclude(turn, add) : undefined;
  const attachment = ledger.attachments.get(add.id);
  invariant(attachment !== undefined, `${add.id} has places but no attachment`);
  const taken = [...add.took].find(({ state }) => state.kind === "lost");
  if (taken) return failAdd(turn, add, trouble("CommitTimeout", `${taken.address} was taken away by another writer`));
  // What is held needs no write before the answer: the block shows it in stock, where nobody takes it.
  if (![...add.took].every(({ state }) => state.kind === "owned" || state.kind === "held")) return;
  if (attachment.phase === "owned" && add.took.size === 0) return conclude(turn, add);
  attachment.phase = "owned";
  save(turn, { table: "attachment", id: add.id });
  add.recorded = turn.number;
}

/** Its last record is on disk. Without a lease that is enough only for what the block shows as its own. */
function conclude(turn: Turn, add: Add): void {
  const { ledger } = turn;
  const attachment = ledger.attachments.get(add.id);
  invariant(attachment !== undefined, `${add.id} is answered without an attachment`);
  const unwritten = [...attachment.holdings].filter(({ state }) => state.kind === "held");
  if (unwritten.length === 0 || isLeased(ledger, turn.now)) return answer(turn, add, attachment);
  if (!ledger.online) return failAdd(turn, add, leaseExpired());
  for (const holding of unwritten) hasten(turn, laneOf(ledger, holding.block));
}

function answer(turn: Turn, add: Add, attachment: Attachment): void {
  turn.ledger.adds.delete(add.id);
  const places = grantedFor(add.ask, [...attachment.holdings]);
  const fromStock = [...add.took].every(({ state }) => state.kind === "held");
  const path = add.took.size === 0 ? "replay" : fromStock ? "warm" : "wait";
  attachment.answers += add.callers.length;
  add.callers.forEach(({ call }, index) => {
    turn.effects.push({ kind: "granted", call, places, path: index > 0 ? "replay" : path });
  });
}

function grantedFor(ask: AddRequest, holdings: readonly Holding[]): Granted[] {
  const answering = holdings.filter((holding) =>
    ask.requested.length > 0
      ? ask.requested.includes(holding.address)
      : familiesOf(ask).includes(familyOfHolding(holding)),
  );
  return answering.sort((a, b) => familyOfHolding(a) - familyOfHolding(b));
}

/** Everything this ADD took goes back; what an earlier one was given stays. */
export function failAdd(turn: Turn, add: Add, why: Trouble): void {
  const { ledger } = turn;
  ledger.adds.delete(add.id);
  const attachment = ledger.attachments.get(add.id);
  for (const { call } of add.callers) refuse(turn, call, why);
  for (const holding of add.took) withdraw(turn, holding);
  if (!attachment || attachment.phase === "owned") return;
  ledger.attachments.delete(add.id);
  save(turn, { table: "attachment", id: add.id });
}

/** Refuses whoever has waited too long; the last one to go takes the ADD along. */
export function expire(turn: Turn, add: Add): void {
  const { ledger, now } = turn;
  const leftAlone = ledger.online
    ? Number.POSITIVE_INFINITY
    : Math.max(ledger.offlineSince, add.arrived) + serverPatienceMs;
  const late = add.callers.filter(({ deadline }) => Math.min(deadline, leftAlone) <= now);
  if (late.length === 0) return;
  if (late.length === add.callers.length) return failAdd(turn, add, delayOf(ledger, add));
  for (const caller of late) dismiss(add, caller, () => refuse(turn, caller.call, delayOf(ledger, add)));
}

/** Nobody reads this caller's answer any more. */
export function abandon(turn: Turn, call: CallId): void {
  for (const add of turn.ledger.adds.values()) {
    const caller = add.callers.find((one) => one.call === call);
    if (!caller) continue;
    if (add.callers.length === 1) failAdd(turn, add, deletedMeanwhile());
    else dismiss(add, caller);
    return;
  }
}

function dismiss(add: Add, caller: Caller, tell?: () => void): void {
  add.callers.splice(add.callers.indexOf(caller), 1);
  tell?.();
}

function delayOf(ledger: Ledger, { trouble: found }: Add): Trouble {
  if (ledger.diskFails) return diskFails();
  if (!ledger.online && ledger.lease.standing === "ran-out") return leaseExpired();
  if (!ledger.online)
    return trouble("ServerAway", "no cache server answers this node's agent, and nothing is in stock");
  if (ledger.closed) return ledger.closed.trouble;
  if (!ledger.complete) return trouble("AgentStarting", "the agent has not received all of its data yet");
  return found ?? trouble("CommitTimeout", "the server did not confirm the write in time");
}

/** Empty: addresses by their number, which are given beside whatever the attachment holds. */
export function askedOf({ families, pools, requested }: AddRequest): string {
  if (requested.length > 0) return "";
  return JSON.stringify([families.ipv4, families.ipv6, pools.ipv4, pools.ipv6]);
}

export function familiesOf({ families }: AddRequest): (4 | 6)[] {
  return [...(families.ipv4 ? ([4] as const) : []), ...(families.ipv6 ? ([6] as const) : [])];
}

export function deletedMeanwhile(): Trouble {
  const why = "the attachment was deleted after this ADD had begun";
  return trouble("BadRequest", why, { code: cniCode.tryLater });
}

function askedDifferently(): Trouble {
  const why = "the attachment exists already, with other address families or pools";
  return trouble("BadRequest", why, { next: "Delete the attachment first" });
}

export function diskFails(): Trouble {
  const next = "Check the disk of the agent's state directory on this node";
  return trouble("DiskFull", "the agent's journal cannot be written", { next });
}

function inUse(address: string): Trouble {
  const details = `resource already exists: ${address} with error: Address already assigned in block`;
  return trouble("AddressInUse", `the address ${address} that was asked for cannot be had`, { details });
}
