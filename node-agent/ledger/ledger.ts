// The ledger: which address of this node belongs to which attachment, and what follows from each event.
// Decides only; it knows no disk, socket or clock. Its neighbours hold one concern each: adding, leaving, blocks, commits.
import type { Block } from "../../shared/calico/resources.ts";
import { type AttachmentId, type BlockCidr, type Instant, impossible, type UnixMs } from "../../shared/kinds.ts";
import {
  type AddEvent,
  abandon,
  add,
  advance,
  diskFails,
  expire,
  failAdd,
  placeAll,
  serverPatienceMs,
} from "./adding.ts";
import { seeBlock, sweepLane } from "./blocks.ts";
import {
  type Answer,
  acknowledge,
  answerOverdueMs,
  type ClaimAnswer,
  claimBack,
  claimed,
  flush,
  flushTime,
  unsettle,
} from "./commits.ts";
import { regulate, revalue } from "./demand.ts";
import { type EvidenceEvent, evidenceTime, judge, seekEvidence } from "./evidence.ts";
import { type IndexedEvent, index, indexed, nextIndex } from "./late-handles.ts";
import { expireLease, type LeasedEvent, leased, revoke } from "./lease.ts";
import {
  answerDels,
  clearSuspect,
  collect,
  type DelEvent,
  del,
  expireOrphans,
  type GcEvent,
  giveUpAt,
  undelivered,
} from "./leaving.ts";
import { endLeftOver, noteBoot } from "./reboot.ts";
import { reopen } from "./rebuild.ts";
import type { Records } from "./record.ts";
import {
  type CallId,
  type Holding,
  holdingAt,
  isOpen,
  isStock,
  type Ledger,
  laneOf,
  neverWritten,
  type RecordNumber,
  rowName,
} from "./state.ts";
import { beginTurn, type Effect, indexTombstone, journal, save, type Turn } from "./turn.ts";

export type LedgerEvent =
  | AddEvent
  | DelEvent
  | GcEvent
  /** The caller hung up before its answer. */
  | { readonly kind: "caller-gone"; readonly call: CallId }
  /** The answer of an ADD could not be handed over. */
  | { readonly kind: "undelivered"; readonly id: AttachmentId; readonly request: string }
  | { readonly kind: "journalled"; readonly upTo: RecordNumber }
  /** All records from the last report up to this one: perhaps on disk, perhaps not. */
  | { readonly kind: "journal-failed"; readonly upTo: RecordNumber }
  | { readonly kind: "block"; readonly cidr: BlockCidr; readonly block: Block | undefined }
  /** Pools, reservations, configuration or labels are not what they were. */
  | { readonly kind: "rules-changed" }
  /** What was put off since nothing could be written may be written now. */
  | { readonly kind: "unlocked" }
  /** Connected, and everything that concerns this node has been seen. */
  | { readonly kind: "online" }
  | { readonly kind: "offline" }
  /** The view starts afresh: what is seen until `online` is a part. */
  | { readonly kind: "incomplete" }
  | ({ readonly kind: "acknowledged" } & Answer)
  | ({ readonly kind: "claimed" } & ClaimAnswer)
  | IndexedEvent
  | LeasedEvent
  /** In answer to `seek-evidence`. */
  | EvidenceEvent
  /** A server says that this node's Node is gone. */
  | { readonly kind: "node-gone" }
  /** What was kept on disk has been seen: good enough to go on with, until a server is there. */
  | { readonly kind: "remembered" }
  /** Time has passed: due when `nextWake` says. */
  | { readonly kind: "tick" };

export function step(ledger: Ledger, event: LedgerEvent, now: Instant): Effect[] {
  const turn = beginTurn(ledger, now);
  take(turn, event);
  reopen(turn);
  do {
    for (const lane of turn.vacated) sweepLane(turn, lane);
    turn.vacated.clear();
    while (turn.roomChanged) placeAll(turn);
    for (const id of turn.touched) {
      turn.touched.delete(id);
      const touched = ledger.adds.get(id);
      if (touched) advance(turn, touched);
    }
  } while (turn.roomChanged || turn.vacated.size > 0);
  regulate(turn);
  journal(turn);
  for (const lane of turn.lanes) {
    flush(turn, lane);
    claimBack(turn, lane);
  }
  index(turn);
  answerDels(turn);
  return turn.effects;
}

function take(turn: Turn, event: LedgerEvent): void {
  switch (event.kind) {
    case "add":
      return add(turn, event);
    case "del":
      return del(turn, event);
    case "gc":
      return collect(turn, event);
    case "caller-gone":
      return abandon(turn, event.call);
    case "undelivered":
      return undelivered(turn, event.id, event.request);
    case "journalled":
      return journalled(turn, event.upTo);
    case "journal-failed":
      return journalFailed(turn, event.upTo);
    case "block":
      return seeBlock(turn, event.cidr, event.block);
    case "rules-changed":
      return rulesChanged(turn);
    case "unlocked":
      return unlocked(turn);
    case "online":
      return online(turn);
    case "offline":
      return offline(turn);
    case "incomplete":
      turn.ledger.complete = false;
      turn.ledger.afresh = true;
      return;
    case "acknowledged":
      return acknowledge(turn, event);
    case "claimed":
      return claimed(turn, event);
    case "indexed":
      return indexed(turn, event);
    case "leased":
      return leased(turn, event);
    case "evidence":
      return judge(turn, event);
    case "node-gone":
      return revoke(turn);
    case "remembered":
      turn.ledger.complete = true;
      turn.roomChanged = true;
      return;
    case "tick":
      return tick(turn);
    default:
      impossible(event);
  }
}

function journalled(turn: Turn, upTo: RecordNumber): void {
  const { ledger } = turn;
  ledger.durable = upTo;
  ledger.diskFails = false;
  for (const row of confirmed(ledger, upTo).flatMap(({ rows }) => rows)) {
    if (row.table === "attachment") {
      turn.touched.add(row.id);
    } else if (row.table === "holding") {
      turn.lanes.add(laneOf(ledger, row.block));
      const holding = holdingAt(ledger, row.block, row.ordinal);
      if (holding) clearSuspect(turn, holding);
    }
  }
}

function confirmed(ledger: Ledger, upTo: RecordNumber): Ledger["unconfirmed"] {
  const after = ledger.unconfirmed.findIndex(({ number }) => number > upTo);
  return ledger.unconfirmed.splice(0, after < 0 ? ledger.unconfirmed.length : after);
}

/** How long a failing disk is left alone before it is tried again. */
const journalRetryMs = 1_000;

function journalFailed(turn: Turn, upTo: RecordNumber): void {
  const { ledger } = turn;
  ledger.durable = upTo;
  ledger.diskFails = true;
  ledger.retryJournalAt = (turn.now + journalRetryMs) as Instant;
  const failed = confirmed(ledger, upTo);
  const adds = new Set<AttachmentId>();
  for (const row of failed.flatMap(({ rows }) => rows)) {
    ledger.unsaved.set(rowName(row), row);
    if (row.table === "attachment") adds.add(row.id);
    const holding = row.table === "holding" ? holdingAt(ledger, row.block, row.ordinal) : undefined;
    if (!holding || holding.written > upTo) continue;
    holding.written = neverWritten;
    adds.add(holding.attachment);
  }
  for (const waiting of ledger.dels.values()) {
    if (failed.some(({ number }) => number === waiting.record)) waiting.record = neverWritten;
  }
  for (const id of adds) {
    const add = ledger.adds.get(id);
    if (add) failAdd(turn, add, diskFails());
  }
}

function retryJournal(turn: Turn): void {
  const { ledger } = turn;
  if (ledger.unsaved.size === 0 || ledger.retryJournalAt > turn.now) return;
  for (const row of ledger.unsaved.values()) save(turn, row);
}

function rulesChanged(turn: Turn): void {
  for (const lane of turn.ledger.lanes.values()) {
    lane.free = undefined;
    lane.pool = undefined;
  }
  turn.roomChanged = true;
  revalue(turn);
}

/** Nobody waits for the end of a pause that has lost its reason. */
function unlocked(turn: Turn): void {
  const { ledger, now } = turn;
  for (const lane of ledger.lanes.values()) {
    lane.notBefore = now;
    turn.lanes.add(lane);
  }
  for (const [key, { id }] of ledger.claims) if (id === undefined) ledger.claims.delete(key);
  turn.roomChanged = true;
}

function online(turn: Turn): void {
  const { ledger } = turn;
  ledger.online = true;
  ledger.complete = true;
  ledger.afresh = false;
  for (const lane of ledger.lanes.values()) turn.lanes.add(lane);
  turn.roomChanged = true;
  seekEvidence(turn);
}

function offline(turn: Turn): void {
  if (!turn.ledger.online) return;
  turn.ledger.online = false;
  turn.ledger.offlineSince = turn.now;
  unsettle(turn);
}

function tick(turn: Turn): void {
  const { ledger, now } = turn;
  expireLease(turn);
  for (const waiting of [...ledger.adds.values()]) expire(turn, waiting);
  seekEvidence(turn);
  expireOrphans(turn);
  endLeftOver(turn);
  retryJournal(turn);
  for (const lane of ledger.lanes.values()) if (lane.due.size > 0) turn.lanes.add(lane);
  for (const [key, { id, want, notBefore }] of ledger.claims) {
    if (id !== undefined || notBefore > now) continue;
    ledger.claims.delete(key);
    const lane = want.kind === "address" ? ledger.lanes.get(want.block) : undefined;
    if (lane) turn.lanes.add(lane);
    turn.roomChanged = true; // whoever still waits asks again
  }
  giveUpOverdue(turn);
}

function giveUpOverdue(turn: Turn): void {
  const waited = awaited(turn.ledger).filter(({ since }) => since + answerOverdueMs <= turn.now);
  if (waited.length === 0) return;
  turn.effects.push({ kind: "reconnect" });
  for (const one of waited) one.since = turn.now; // not at every tick until the connection has ended
}

/** What the server owes an answer for. */
function awaited({ flights, claims, indexing }: Ledger): { since: Instant }[] {
  return [
    ...[...flights.values()].flatMap(({ flight }) => flight ?? []),
    ...[...claims.values()].filter(({ id }) => id !== undefined),
    ...(indexing ? [indexing] : []),
  ];
}

/** When a `tick` is due; undefined: nothing waits for time to pass. */
export function nextWake(ledger: Ledger): Instant | undefined {
  const { online } = ledger;
  const waits = [
    ...[...ledger.adds.values()].flatMap(({ callers, arrived }) => [
      ...callers.map(({ deadline }) => deadline),
      ...(online ? [] : [Math.max(ledger.offlineSince, arrived) + serverPatienceMs]),
    ]),
    ...[...ledger.dels.values()].map((del) => (del.record > ledger.durable ? giveUpAt(ledger, del) : del.patience)),
    ...ledger.orphans.values(),
    ...ledger.leftOver.values(),
    ...[...ledger.lanes.values()].flatMap((lane) => flushTime(ledger, lane) ?? []),
    ...(ledger.lease.standing === "runs" ? [ledger.lease.until] : []),
    ...[ledger.regulateAt ?? [], nextIndex(ledger) ?? [], evidenceTime(ledger) ?? []].flat(),
    ...[...ledger.claims.values()].flatMap(({ id, notBefore }) => (id === undefined ? [notBefore] : [])),
    ...awaited(ledger).map(({ since }) => since + answerOverdueMs),
    ...(ledger.unsaved.size > 0 ? [ledger.retryJournalAt] : []),
  ];
  return waits.length === 0 ? undefined : (Math.min(...waits) as Instant);
}

/** An ADD's process lives no longer, whatever its clock said. */
const longestAddMs = 90_000;

/** Takes over what the journal holds, before the first event. All that was sent and not acknowledged is unsettled. */
export function replay(ledger: Ledger, records: Records, now: Instant, wall: UnixMs): void {
  for (const attachment of records.attachments) {
    ledger.attachments.set(attachment.id, attachment);
    noteBoot(ledger, attachment, now);
    const leftMs = Math.min(Math.max(attachment.deadline - wall, 0), longestAddMs);
    if (attachment.phase === "reserving") ledger.orphans.set(attachment.id, (now + leftMs) as Instant);
  }
  for (const holding of records.holdings) {
    const lane = laneOf(ledger, holding.block);
    lane.holdings.set(holding.ordinal, holding);
    holding.since = now;
    if (isOpen(holding)) lane.due.add(holding);
    if (isStock(holding)) ledger.stock.add(holding);
    if (holding.state.kind === "owned" && ledger.handleDelayMs !== undefined)
      ledger.unindexed.set(holding.handle, (now + ledger.handleDelayMs) as Instant);
    attach(ledger, holding);
  }
  for (const stone of [...records.tombstones].sort((a, b) => a.at - b.at)) {
    ledger.tombstones.set(stone.id, stone);
    indexTombstone(ledger, stone);
  }
}

function attach(ledger: Ledger, holding: Holding): void {
  const { kind } = holding.state;
  const group = kind === "withdrawn" || kind === "leaving" ? ledger.departing : undefined;
  if (!group) return void ledger.attachments.get(holding.attachment)?.holdings.add(holding);
  const leaving = group.get(holding.attachment) ?? new Set();
  group.set(holding.attachment, leaving.add(holding));
}

/** Undefined: it lives, and holds exactly these addresses among `previous`. */
export function check(ledger: Ledger, id: AttachmentId, previous: readonly string[]): string | undefined {
  const attachment = ledger.attachments.get(id);
  if (attachment?.phase !== "owned") return "this agent knows no such attachment";
  for (const { address, state } of attachment.holdings) {
    if (state.kind === "lost") return `its address ${address} was taken by another writer`;
    if (!previous.includes(address)) return `its address ${address} is not in prevResult`;
  }
  return undefined;
}
