// What the ledger knows: attachments, the places held for them, the blocks those lie in, tombstones, and the calls that wait.
// Plain data that only ledger.ts and its neighbours change. Leaves to others what follows from an event, and what is on disk (record.ts).
import { byName } from "../../shared/calico/pools.ts";
import type { Block, Place } from "../../shared/calico/resources.ts";
import { familyOf } from "../../shared/ip/cidr.ts";
import type {
  Address,
  AttachmentId,
  BlockCidr,
  Brand,
  Family,
  HandleId,
  Instant,
  NodeName,
  PoolName,
  Sequence,
  UnixMs,
} from "../../shared/kinds.ts";
import type { AddRequest, DelRequest } from "../../shared/protocol/socket.ts";
import type { Reason } from "../../shared/reasons.ts";
import type { Trouble } from "../trouble.ts";
import type { Boot } from "./reboot.ts";

/** One request on the agent's socket; made by the socket, never on disk. */
export type CallId = Brand<number, "call">;
/** Journal records are numbered in the order in which they are to reach the disk. */
export type RecordNumber = Brand<number, "record">;
export const neverWritten = Number.POSITIVE_INFINITY as RecordNumber;

export type HoldingState =
  /** A reserve is on disk, may be under way and may be done: the ordinal is nobody else's until that is settled. */
  | { readonly kind: "reserving" }
  /** In stock: the block shows it as ours, under this sequence, and nothing is under way for it. `used`: a container had it before. */
  | { readonly kind: "warm"; readonly sequence: Sequence; readonly used: boolean }
  /** Given to its attachment on the journal's word: the block shows it in stock until the retag is done, which may be under way. */
  | { readonly kind: "held"; readonly sequence: Sequence; readonly stock: Readonly<Record<string, string>> }
  /** The block shows it as ours, under this sequence. */
  | { readonly kind: "owned"; readonly sequence: Sequence }
  /** A reserve, or a retag of this sequence, may be under way that nobody wants any more: settled first, then released. */
  | { readonly kind: "withdrawn"; readonly sequence: Sequence | undefined }
  /** A release, or a retag into stock, may be under way, for exactly this sequence. */
  | { readonly kind: "leaving"; readonly sequence: Sequence; readonly to: "free" | "warm" }
  /** Another writer took it while the attachment lives. Taken back if it becomes free, never given to anybody else. */
  | { readonly kind: "lost" }
  /** Never asked for, but a failed record that says so may be on disk after all. Nobody's until a later record is. */
  | { readonly kind: "suspect" };

/** One ordinal of one block that is ours, was, or may be. At most one exists per place. */
export interface Holding extends Place {
  /** Empty: nobody's, in stock or on its way there. */
  readonly attachment: AttachmentId;
  readonly handle: HandleId;
  /** What is, or is to be, stamped on the allocation: sent again it must be the same text to be recognised. */
  readonly attributes: Readonly<Record<string, string>>;
  /** The call that took it: an undelivered ADD is undone by it. */
  readonly request: string;
  /** Asked for by its number: somebody may ask for it again elsewhere, so it never stays in stock. */
  readonly fixed: boolean;
  state: HoldingState;
  /** Since when it is in this state, as far as this process knows. */
  since: Instant;
  /** A reserve for it has left this process or an earlier one, and copies of it may still be under way. */
  sent: boolean;
  /** The record that says what is said here. */
  written: RecordNumber;
}

export interface AttachmentParts {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
}

export interface Attachment extends AttachmentParts {
  readonly id: AttachmentId;
  readonly handle: HandleId;
  /** "namespace/name", or empty: for people. */
  readonly pod: string;
  /** Families and pools of the ADD: a repeated one that asks for something else is a mistake. */
  readonly asked: string;
  /** When the ADD's process started, and when its ADD came here. */
  readonly startedAt: UnixMs;
  readonly addedAt: UnixMs;
  /** An ADD that was not answered by then never will be: its process is gone. */
  readonly deadline: UnixMs;
  /** The machine's boot in which its container runs; empty: not known. */
  boot: string;
  /** `owned`: an ADD may have been answered from it. `reserving`: certainly none was. */
  phase: "reserving" | "owned";
  /** Calls that were told of it, as far as this process knows. */
  answers: number;
  readonly holdings: Set<Holding>;
}

/** One commit under way: what was sent, in its order. */
export interface Flight {
  readonly id: number;
  /** Since when its answer is waited for. */
  since: Instant;
  readonly entries: readonly { readonly holding: Holding; readonly sent: HoldingState }[];
}

/** A block of this node, or one in which it holds something. */
export interface Lane {
  readonly cidr: BlockCidr;
  /** Undefined: not seen yet, or gone. */
  block: Block | undefined;
  readonly holdings: Map<number, Holding>;
  /** Holdings with an intent that is to be sent (again). */
  readonly due: Set<Holding>;
  flight: Flight | undefined;
  notBefore: Instant;
  /** What may wait for company is sent by then; undefined: nothing waits. */
  flushAt: Instant | undefined;
  /** Somebody waits for what is due: it is sent at once. */
  hurry: boolean;
  /** Ordinals that may be taken, next to use first; undefined: to be worked out. */
  free: number[] | undefined;
  /** When that was worked out: what cools down becomes free by the passing of time alone. */
  freeAt: Instant;
  /** The pool it lies in; undefined: to be worked out, null: none. */
  pool: PoolName | null | undefined;
}

/** A DEL was here: no ADD that started before it may succeed, and what turns up under its handle is released. */
export interface Tombstone extends AttachmentParts {
  readonly id: AttachmentId;
  /** The attachment's own first; a stranger may also be known by the one that very old releases used (spec 4.12). */
  readonly handles: readonly HandleId[];
  /** When the process of the DEL started; 0: it forbids no ADD. */
  readonly at: UnixMs;
  /** `handle`: the attachment was never ours, so all that its handles hold is its. Otherwise only what it held here. */
  readonly covers: "handle" | readonly Pick<Place, "block" | "ordinal">[];
}

/** Any address of these pools. */
export interface Any {
  readonly kind: "any";
  readonly family: Family;
  readonly pools: readonly PoolName[];
}

/** One address that an ADD asks for. */
export type Wanted =
  | Any
  | {
      readonly kind: "address";
      readonly family: Family;
      readonly address: Address;
      readonly block: BlockCidr;
      readonly pool: PoolName;
    };

export interface Caller {
  readonly call: CallId;
  readonly deadline: Instant;
}

/** An ADD that is not answered yet, with everybody who waits for it. */
export interface Add {
  readonly id: AttachmentId;
  readonly ask: AddRequest;
  readonly owner: { readonly handle: HandleId; readonly attributes: Readonly<Record<string, string>> };
  readonly arrived: Instant;
  readonly addedAt: UnixMs;
  readonly callers: Caller[];
  /** What this ADD took: given back if it fails, and nothing else. */
  readonly took: Set<Holding>;
  /** Every address wanted has its place. */
  placed: boolean;
  /** It has been counted as demand. */
  counted: boolean;
  /** The record after which it may be answered. */
  recorded: RecordNumber | undefined;
  /** The claim it waits for. */
  waitsFor: string | undefined;
  /** Blocks that are not this node's and were shown to this ADD, to take an address from if they have one (spec 2.13, 3.1). */
  readonly shown: Set<BlockCidr>;
  tries: number;
  claims: number;
  /** The last thing the server told us about it: what a deadline is blamed on. */
  trouble: Trouble | undefined;
}

/** A DEL or GC that is not answered yet. */
export interface Del {
  readonly call: CallId;
  /** Answered as soon as it is on disk and nothing of this attachment is leaving; undefined: as soon as it is on disk. */
  readonly id: AttachmentId | undefined;
  record: RecordNumber;
  /** From then on the journal's word is enough. */
  readonly patience: Instant;
  readonly deadline: Instant;
}

export interface Claim {
  readonly want: Wanted;
  /** Undefined: waits to be asked again. */
  readonly id: number | undefined;
  since: Instant;
  readonly notBefore: Instant;
}

export type Row =
  | { readonly table: "attachment"; readonly id: AttachmentId }
  | { readonly table: "holding"; readonly block: BlockCidr; readonly ordinal: number }
  | { readonly table: "tombstone"; readonly id: AttachmentId };

/** Unique within its table. */
export function keyOf(row: Row): string {
  return row.table === "holding" ? `${row.block}#${row.ordinal}` : row.id;
}

/** Unique among all rows. */
export function rowName(row: Row): string {
  return `${row.table} ${keyOf(row)}`;
}

/** Records handed to the journal whose fate is not known yet. */
export interface Unconfirmed {
  readonly number: RecordNumber;
  readonly rows: readonly Row[];
}

/** What the pools allow; a function of the view (ipam/placement.ts), asked anew at each attempt. */
export interface Placement {
  wanted(ask: AddRequest): readonly Wanted[] | Trouble;
  poolOf(block: BlockCidr): PoolName | undefined;
  /** Ordinals of this block that may be taken, next to use first. */
  freeOrdinals(block: Block): number[];
  /** Why an address that was asked for may not be taken from a block that is not this node's. */
  forbids(block: Block): Trouble | undefined;
  /** What a pod that asks for nothing in particular would be given. */
  usual(): readonly Any[];
  isReserved(address: Address): boolean;
  /** How long a released address rests before it is given again. */
  cooldownMs(): number;
  /** What goes with the refusal of a claim: Calico's own sentence, then what was found in each pool. */
  verdict(reason: Reason, pools: readonly PoolName[]): string;
}

/** How many addresses are kept in stock, and how long what is known to the journal alone may wait for company. */
export interface WarmPolicy {
  readonly floor: number;
  readonly ceiling: number;
  readonly flushDelayMs: number;
}

/** Marks the stock: an agent hands out only what bears its present mark. */
export interface Incarnation {
  /** Made with the journal: what bears another one was given out, if at all, by whoever has that journal. */
  readonly journal: string;
  /** Counts the leases that ran out. */
  readonly number: number;
  /** As Calico prints times: for people who look at the block. */
  readonly timestamp: string;
}

export interface LedgerOptions {
  readonly node: NodeName;
  readonly handles: "eager" | "off";
  /** How old an address is when its handle is written after all; undefined: its handle is written with it, or never. */
  readonly handleDelayMs: number | undefined;
  readonly placement: Placement;
  /** Undefined: every ADD and DEL waits for the write, and nothing is kept in stock. */
  readonly warm: () => WarmPolicy | undefined;
}

/** Pods that want the same pools, and how many of them came lately. */
export interface Demand {
  want: Any;
  /** The first that asked so; undefined: nobody did yet. */
  readonly ask: AddRequest | undefined;
  /** ADDs, each counting half as much after every half-life. */
  recent: number;
  at: Instant;
  /** The pools had no more to give: until then the stock is kept small. */
  shortUntil: Instant;
}

export interface Lease {
  /** Stock may be handed out until then. */
  until: Instant;
  /** `none`: there was none yet. `ran-out`: what is in stock must be marked anew before it is handed out. */
  standing: "none" | "runs" | "ran-out";
  /** How long one runs, as far as is known. */
  limitMs: number;
}

export interface Stranger extends Pick<Place, "block" | "ordinal"> {
  /** As far as this process knows. */
  readonly since: Instant;
}

export interface Ledger extends LedgerOptions {
  readonly attachments: Map<AttachmentId, Attachment>;
  readonly lanes: Map<BlockCidr, Lane>;
  /** Blocks that are this node's own, in Calico's order: by name. */
  own: readonly Lane[];
  /** Oldest first. */
  readonly tombstones: Map<AttachmentId, Tombstone>;
  readonly tombstonesOf: Map<HandleId, Set<AttachmentId>>;
  /** What is on its way out, by the attachment it belonged to. */
  readonly departing: Map<AttachmentId, Set<Holding>>;
  /** Attachments found on disk that no ADD was answered from, and until when one may come back for them. */
  readonly orphans: Map<AttachmentId, Instant>;
  boot: Boot;
  /** Attachments of an earlier boot, and until when their runtime may come back for them. */
  readonly leftOver: Map<AttachmentId, Instant>;
  /** In order of arrival. */
  readonly adds: Map<AttachmentId, Add>;
  readonly dels: Map<CallId, Del>;
  readonly claims: Map<string, Claim>;
  readonly flights: Map<number, Lane>;
  /** What is in stock or on its way there; the longest rested first. */
  readonly stock: Set<Holding>;
  /** By the pools that are wanted. */
  readonly demands: Map<string, Demand>;
  readonly lease: Lease;
  incarnation: Incarnation;
  /** Stock that no record of this journal explains: whoever lost his journal may have given it away. */
  readonly strangers: Map<Address, Stranger>;
  /** What runs on this node is not looked at again before. */
  evidenceAt: Instant;
  /** Handles that are not written yet, and since when they are due; in order of that. */
  readonly unindexed: Map<HandleId, Instant>;
  /** Handles being written, by the request for them. */
  indexing: { readonly id: number; readonly handles: readonly HandleId[]; since: Instant } | undefined;
  /** When the stock is to be looked at again without anything having happened. */
  regulateAt: Instant | undefined;
  nextId: number;
  lastRecord: RecordNumber;
  /** All records up to this one have been reported; failed ones were marked as never written. */
  durable: RecordNumber;
  readonly unconfirmed: Unconfirmed[];
  /** Rows whose last record failed: written again. */
  readonly unsaved: Map<string, Row>;
  /** The last report was of a failure: the disk is not trusted with new promises. */
  diskFails: boolean;
  retryJournalAt: Instant;
  /** Everything that concerns this node has been seen. */
  complete: boolean;
  /** All data is being told anew: an older version of a block is then no old news. */
  afresh: boolean;
  /** The server answers; otherwise since when it does not. */
  online: boolean;
  offlineSince: Instant;
  /** The past is not known, as the journal is new: until it is, no ADD is answered. */
  closed: Closed | undefined;
}

export interface Closed {
  /** What an ADD is told meanwhile. */
  readonly trouble: Trouble;
  /** There had been another journal: an ADD is refused at once. */
  readonly isLoss: boolean;
  /** What runs here was looked at; `gap`: not all of it could be. */
  verdict: { readonly adopted: number; readonly gap: string | undefined } | undefined;
}

export function createLedger(options: LedgerOptions, now: Instant, closed?: Closed): Ledger {
  return {
    ...options,
    attachments: new Map(),
    lanes: new Map(),
    own: [],
    tombstones: new Map(),
    tombstonesOf: new Map(),
    departing: new Map(),
    orphans: new Map(),
    boot: { id: "", graceMs: 0 },
    leftOver: new Map(),
    adds: new Map(),
    dels: new Map(),
    claims: new Map(),
    flights: new Map(),
    stock: new Set(),
    demands: new Map(),
    lease: { until: now, standing: "none", limitMs: usualLeaseMs },
    incarnation: { journal: "", number: 0, timestamp: "" },
    strangers: new Map(),
    evidenceAt: now,
    unindexed: new Map(),
    indexing: undefined,
    regulateAt: undefined,
    nextId: 1,
    lastRecord: 0 as RecordNumber,
    durable: 0 as RecordNumber,
    unconfirmed: [],
    unsaved: new Map(),
    diskFails: false,
    retryJournalAt: now,
    complete: false,
    afresh: false,
    online: false,
    offlineSince: now,
    closed,
  };
}

export function attachmentId({ network, containerId, ifname }: AttachmentParts): AttachmentId {
  return `${network}/${containerId}/${ifname}` as AttachmentId;
}

export function partsOf({ network, containerId, ifname }: AddRequest | DelRequest): AttachmentParts {
  return { network, containerId, ifname };
}

export function laneOf(ledger: Ledger, cidr: BlockCidr): Lane {
  const known = ledger.lanes.get(cidr);
  if (known) return known;
  const lane: Lane = {
    cidr,
    block: undefined,
    holdings: new Map(),
    due: new Set(),
    flight: undefined,
    notBefore: 0 as Instant,
    flushAt: undefined,
    hurry: false,
    free: undefined,
    freeAt: 0 as Instant,
    pool: undefined,
  };
  ledger.lanes.set(cidr, lane);
  return lane;
}

export function holdingAt(ledger: Ledger, block: BlockCidr, ordinal: number): Holding | undefined {
  return ledger.lanes.get(block)?.holdings.get(ordinal);
}

export function isDurable(ledger: Ledger, holding: Holding): boolean {
  return holding.written <= ledger.durable;
}

export function isOpen({ state }: Holding): boolean {
  return state.kind === "reserving" || state.kind === "held" || state.kind === "withdrawn" || state.kind === "leaving";
}

/** What servers give unless told otherwise. */
const usualLeaseMs = 45 * 60_000;

/** In stock, or to be so once what is under way is done. */
export function isStock({ attachment, state }: Holding): boolean {
  if (state.kind === "reserving") return attachment === nobody;
  return state.kind === "warm" || (state.kind === "leaving" && state.to === "warm");
}

export const nobody = "" as AttachmentId;

export function isOwn(ledger: Ledger, { block }: Lane): boolean {
  return block !== undefined && !block.deleted && block.affinity === `host:${ledger.node}`;
}

export function rankOwn(ledger: Ledger): void {
  ledger.own = [...ledger.lanes.values()]
    .flatMap((lane) => (isOwn(ledger, lane) && lane.block ? [{ lane, name: lane.block.name }] : []))
    .sort(byName)
    .map(({ lane }) => lane);
}

export function familyOfHolding(holding: Holding): Family {
  return familyOf(holding.address);
}
