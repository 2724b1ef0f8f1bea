// One turn of the ledger: what an event changed so far, gathered so that it reaches the disk as one record and each block as one commit.
// Leaves to its users why something changes.
import { addressAt } from "../../shared/ip/cidr.ts";
import {
  type Address,
  type AttachmentId,
  type BlockCidr,
  type HandleId,
  type Instant,
  impossible,
  invariant,
  type PoolName,
} from "../../shared/kinds.ts";
import type { Commit } from "../../shared/protocol/stream.ts";
import type { Trouble } from "../trouble.ts";
import { encodeRow, type JournalRow } from "./record.ts";
import {
  type CallId,
  type Holding,
  holdingAt,
  type Incarnation,
  isOpen,
  isStock,
  type Lane,
  type Ledger,
  laneOf,
  neverWritten,
  type RecordNumber,
  type Row,
  rowName,
  type Tombstone,
} from "./state.ts";

export type Effect =
  /** Reported back, in order, as `journalled` or `journal-failed`. */
  | { readonly kind: "journal"; readonly number: RecordNumber; readonly rows: readonly JournalRow[] }
  | { readonly kind: "commit"; readonly commit: Omit<Commit, "type"> }
  | {
      readonly kind: "claim";
      readonly id: number;
      readonly pools: readonly string[];
      readonly full: readonly BlockCidr[];
      readonly borrow: boolean;
    }
  | { readonly kind: "claim-block"; readonly id: number; readonly block: BlockCidr; readonly pool: PoolName }
  | { readonly kind: "granted"; readonly call: CallId; readonly places: readonly Granted[]; readonly path: GrantPath }
  | { readonly kind: "done"; readonly call: CallId }
  | { readonly kind: "refused"; readonly call: CallId; readonly trouble: Trouble }
  /** Write these handles from what the blocks say, when nothing more urgent is to be written. */
  | { readonly kind: "index"; readonly id: number; readonly handles: readonly HandleId[] }
  /** To be kept: what is in stock bears it from now on. */
  | { readonly kind: "incarnation"; readonly incarnation: Incarnation }
  /** The API shows that somebody else changed what is ours. */
  | { readonly kind: "conflict"; readonly what: Conflict; readonly holding: Holding }
  /** Look at what runs on this node: answered by `evidence`. */
  | { readonly kind: "seek-evidence" }
  /** What became of a lost journal's stock. `doubt`: why nothing was released; undefined: what is kept is in somebody's use. */
  | {
      readonly kind: "judged";
      readonly doubt: string | undefined;
      readonly released: readonly Address[];
      readonly kept: readonly Address[];
    }
  /** Attachments of an earlier boot that nobody came back for. */
  | { readonly kind: "ended-left-over"; readonly count: number }
  /** What ran here before this journal is known as far as it can be, and is on disk: ADDs are answered from now on. */
  | {
      readonly kind: "rebuilt";
      readonly isLoss: boolean;
      readonly adopted: number;
      readonly suspects: number;
      readonly gap: string | undefined;
    }
  /** The server owes an answer for too long: another connection may bring one. */
  | { readonly kind: "reconnect" };

/** From stock, after waiting for the server, or what was given before. */
export type GrantPath = "warm" | "wait" | "replay";
export type Granted = Pick<Holding, "address" | "block">;
export type Conflict = "taken" | "released" | "block_lost";

export interface Turn {
  readonly ledger: Ledger;
  readonly now: Instant;
  readonly effects: Effect[];
  readonly number: RecordNumber;
  readonly rows: Map<string, Row>;
  /** Blocks that may have something to send. */
  readonly lanes: Set<Lane>;
  /** Blocks in which an ordinal is not ours any more, whoever has it now. */
  readonly vacated: Set<Lane>;
  /** ADDs that may be complete. */
  readonly touched: Set<AttachmentId>;
  /** ADDs that found no room may find some now. */
  roomChanged: boolean;
}

export function beginTurn(ledger: Ledger, now: Instant): Turn {
  return {
    ledger,
    now,
    effects: [],
    number: (ledger.lastRecord + 1) as RecordNumber,
    rows: new Map(),
    lanes: new Set(),
    vacated: new Set(),
    touched: new Set(),
    roomChanged: false,
  };
}

export function refuse(turn: Turn, call: CallId, trouble: Trouble): void {
  turn.effects.push({ kind: "refused", call, trouble });
}

/** What the row says at the end of the turn is what is written. */
export function save(turn: Turn, row: Row): void {
  turn.rows.set(rowName(row), row);
  if (row.table !== "holding") return;
  const holding = holdingAt(turn.ledger, row.block, row.ordinal);
  if (holding) holding.written = turn.number;
}

export function setState(turn: Turn, holding: Holding, state: Holding["state"]): void {
  const lane = laneOf(turn.ledger, holding.block);
  invariant(lane.holdings.get(holding.ordinal) === holding, `${holding.address} is not held any more`);
  holding.state = state;
  holding.since = turn.now;
  save(turn, { table: "holding", block: holding.block, ordinal: holding.ordinal });
  turn.lanes.add(lane);
  turn.touched.add(holding.attachment);
  if (isOpen(holding)) makeDue(turn, lane, holding);
  else lane.due.delete(holding);
  if (isStock(holding)) turn.ledger.stock.add(holding);
  else turn.ledger.stock.delete(holding);
  if (state.kind === "withdrawn" || state.kind === "leaving") depart(turn.ledger, holding);
}

/** It is to be sent: with whatever is sent next, or when it has waited long enough for company. */
export function makeDue({ ledger, now }: Turn, lane: Lane, holding: Holding): void {
  lane.due.add(holding);
  lane.flushAt ??= (now + (ledger.warm()?.flushDelayMs ?? 0)) as Instant;
}

export function hold(
  turn: Turn,
  holding: Omit<Holding, "address" | "state" | "since" | "sent" | "written">,
  state: Holding["state"],
): Holding {
  const lane = laneOf(turn.ledger, holding.block);
  invariant(!lane.holdings.has(holding.ordinal), `${holding.block} ordinal ${holding.ordinal} is held already`);
  const held = {
    ...holding,
    address: addressAt(holding.block, holding.ordinal),
    state,
    since: turn.now,
    sent: false,
    written: neverWritten,
  };
  lane.holdings.set(held.ordinal, held);
  setState(turn, held, state);
  return held;
}

/** Nothing of ours can be under way for it any more: the ordinal is like any other. */
export function letGo(turn: Turn, holding: Holding): void {
  const { ledger } = turn;
  const lane = laneOf(ledger, holding.block);
  if (lane.holdings.get(holding.ordinal) !== holding) return;
  lane.holdings.delete(holding.ordinal);
  lane.due.delete(holding);
  ledger.stock.delete(holding);
  lane.free = undefined;
  ledger.attachments.get(holding.attachment)?.holdings.delete(holding);
  const leaving = ledger.departing.get(holding.attachment);
  leaving?.delete(holding);
  if (leaving?.size === 0) ledger.departing.delete(holding.attachment);
  // Of a suspect the disk has been told already that it is gone.
  if (holding.state.kind !== "suspect")
    save(turn, { table: "holding", block: holding.block, ordinal: holding.ordinal });
  turn.touched.add(holding.attachment);
  turn.roomChanged = true;
  turn.vacated.add(lane);
  if (lane.block === undefined && lane.holdings.size === 0 && !lane.flight) ledger.lanes.delete(lane.cidr);
}

function depart(ledger: Ledger, holding: Holding): void {
  ledger.attachments.get(holding.attachment)?.holdings.delete(holding);
  const leaving = ledger.departing.get(holding.attachment);
  if (leaving) leaving.add(holding);
  else ledger.departing.set(holding.attachment, new Set([holding]));
}

/** Enough for the DELs of hours; the oldest make room. What it forbids, an ADD of long ago, is over by then. */
const maxTombstones = 4096;

export function bury(turn: Turn, stone: Tombstone): void {
  const { ledger } = turn;
  forgetTombstone(ledger, stone.id);
  ledger.tombstones.set(stone.id, stone);
  indexTombstone(ledger, stone);
  save(turn, { table: "tombstone", id: stone.id });
  const [oldest] = ledger.tombstones.keys();
  if (ledger.tombstones.size <= maxTombstones || oldest === undefined) return;
  forgetTombstone(ledger, oldest);
  save(turn, { table: "tombstone", id: oldest });
}

export function indexTombstone({ tombstonesOf }: Ledger, { id, handles }: Tombstone): void {
  for (const handle of handles) tombstonesOf.set(handle, (tombstonesOf.get(handle) ?? new Set()).add(id));
}

function forgetTombstone(ledger: Ledger, id: AttachmentId): void {
  const stone = ledger.tombstones.get(id);
  if (!stone) return;
  ledger.tombstones.delete(id);
  for (const handle of stone.handles) {
    const sharing = ledger.tombstonesOf.get(handle);
    sharing?.delete(id);
    if (sharing?.size === 0) ledger.tombstonesOf.delete(handle);
  }
}

/** Hands everything this turn changed to the journal as one record. */
export function journal(turn: Turn): void {
  const { ledger, number } = turn;
  if (turn.rows.size === 0) return;
  repeatUnsaved(turn);
  const rows = [...turn.rows.values()];
  ledger.lastRecord = number;
  ledger.unconfirmed.push({ number, rows });
  turn.effects.push({ kind: "journal", number, rows: rows.map((row) => encodeRow(row, subjectOf(ledger, row))) });
}

/** What failed travels with whatever is written next: a record on disk means that all before it are. */
function repeatUnsaved(turn: Turn): void {
  const { ledger } = turn;
  for (const row of ledger.unsaved.values()) save(turn, row);
  ledger.unsaved.clear();
  for (const waiting of ledger.dels.values()) {
    if (waiting.record === neverWritten) waiting.record = turn.number;
  }
}

function subjectOf(ledger: Ledger, row: Row): Parameters<typeof encodeRow>[1] {
  switch (row.table) {
    case "attachment":
      return ledger.attachments.get(row.id);
    case "tombstone":
      return ledger.tombstones.get(row.id);
    case "holding": {
      const holding = holdingAt(ledger, row.block, row.ordinal);
      return holding?.state.kind === "suspect" ? undefined : holding;
    }
    default:
      return impossible(row);
  }
}
