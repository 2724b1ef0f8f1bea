// What stands on disk: one row per attachment, holding and tombstone, as JSON; written by state, not by change, so that replay is reading.
// Leaves to others the database (journal-shell.ts) and what a row means (state.ts).
import * as v from "valibot";
import { addressAt } from "../../shared/ip/cidr.ts";
import {
  type AttachmentId,
  type BlockCidr,
  type HandleId,
  type Instant,
  impossible,
  type Sequence,
  type UnixMs,
} from "../../shared/kinds.ts";
import type { Attachment, AttachmentParts, Holding, HoldingState, RecordNumber, Row, Tombstone } from "./state.ts";
import { attachmentId, keyOf } from "./state.ts";

/** Raised when an older agent could misread what a newer one wrote. */
export const schemaVersion = 2;

export const tables = ["attachment", "holding", "tombstone"] as const satisfies readonly Row["table"][];

export interface JournalRow {
  readonly table: Row["table"];
  readonly key: string;
  /** Null: the row is to be gone. */
  readonly value: string | null;
}

export interface Records {
  readonly attachments: readonly Attachment[];
  readonly holdings: readonly Holding[];
  readonly tombstones: readonly Tombstone[];
}

const parts = { network: v.string(), containerId: v.string(), ifname: v.string() };

const attachmentRow = v.object({
  ...parts,
  handle: v.string(),
  pod: v.string(),
  asked: v.string(),
  startedAt: v.number(),
  addedAt: v.number(),
  deadline: v.number(),
  boot: v.optional(v.string(), ""),
  phase: v.picklist(["reserving", "owned"]),
});

const holdingRow = v.object({
  block: v.string(),
  ordinal: v.pipe(v.number(), v.integer(), v.minValue(0)),
  attachment: v.string(),
  handle: v.string(),
  attributes: v.record(v.string(), v.string()),
  request: v.string(),
  fixed: v.optional(v.boolean(), false),
  state: v.picklist(["reserving", "warm", "held", "owned", "withdrawn", "leaving", "lost"]),
  /** In decimal: 64 bits do not fit a JSON number. */
  sequence: v.optional(v.pipe(v.string(), v.regex(/^-?\d{1,19}$/))),
  used: v.optional(v.boolean(), true),
  stock: v.optional(v.record(v.string(), v.string()), {}),
  to: v.optional(v.picklist(["free", "warm"]), "free"),
});

const tombstoneRow = v.object({
  ...parts,
  handles: v.array(v.string()),
  at: v.number(),
  covers: v.union([v.literal("handle"), v.array(v.object({ block: v.string(), ordinal: v.number() }))]),
});

export function encodeRow(row: Row, subject: Attachment | Holding | Tombstone | undefined): JournalRow {
  return {
    table: row.table,
    key: keyOf(row),
    value: subject === undefined ? null : JSON.stringify(contentOf(subject)),
  };
}

function contentOf(subject: Attachment | Holding | Tombstone): object {
  if ("covers" in subject) {
    const { handles, at, covers } = subject;
    return { ...plainParts(subject), handles, at, covers };
  }
  if ("phase" in subject) {
    const { handle, pod, asked, startedAt, addedAt, deadline, boot, phase } = subject;
    return { ...plainParts(subject), handle, pod, asked, startedAt, addedAt, deadline, boot, phase };
  }
  const { block, ordinal, attachment, handle, attributes, request, fixed, state } = subject;
  const { kind, ...more } = state;
  const sequence = "sequence" in more && more.sequence !== undefined ? { sequence: String(more.sequence) } : {};
  return { block, ordinal, attachment, handle, attributes, request, fixed, state: kind, ...more, ...sequence };
}

function plainParts({ network, containerId, ifname }: AttachmentParts): AttachmentParts {
  return { network, containerId, ifname };
}

/** Throws what valibot throws: a row that cannot be read makes the whole journal unreadable. */
export function decodeRows(rows: Iterable<JournalRow>): Records {
  const attachments: Attachment[] = [];
  const holdings: Holding[] = [];
  const tombstones: Tombstone[] = [];
  for (const { table, value } of rows) {
    const row: unknown = JSON.parse(value ?? "null");
    if (table === "attachment") attachments.push(attachmentFrom(v.parse(attachmentRow, row)));
    else if (table === "holding") holdings.push(holdingFrom(v.parse(holdingRow, row)));
    else tombstones.push(tombstoneFrom(v.parse(tombstoneRow, row)));
  }
  return { attachments, holdings, tombstones };
}

// The journal is this program's own: brands are taken over, not checked again.

function attachmentFrom(row: v.InferOutput<typeof attachmentRow>): Attachment {
  return {
    ...row,
    id: attachmentId(row),
    handle: row.handle as HandleId,
    startedAt: row.startedAt as UnixMs,
    addedAt: row.addedAt as UnixMs,
    deadline: row.deadline as UnixMs,
    answers: 0,
    holdings: new Set(),
  };
}

function holdingFrom(row: v.InferOutput<typeof holdingRow>): Holding {
  const block = row.block as BlockCidr;
  return {
    block,
    ordinal: row.ordinal,
    address: addressAt(block, row.ordinal),
    attachment: row.attachment as AttachmentId,
    handle: row.handle as HandleId,
    attributes: row.attributes,
    request: row.request,
    fixed: row.fixed,
    state: stateFrom(row),
    since: 0 as Instant,
    sent: true, // it may have left before the crash
    written: 0 as RecordNumber,
  };
}

function stateFrom({ state, sequence: text, used, stock, to }: v.InferOutput<typeof holdingRow>): HoldingState {
  const sequence = BigInt(text ?? 0) as Sequence;
  switch (state) {
    case "warm":
      return { kind: state, sequence, used };
    case "held":
      return { kind: state, sequence, stock };
    case "owned":
      return { kind: state, sequence };
    case "leaving":
      return { kind: state, sequence, to };
    case "withdrawn":
      return { kind: state, sequence: text === undefined ? undefined : sequence };
    case "reserving":
    case "lost":
      return { kind: state };
    default:
      return impossible(state);
  }
}

function tombstoneFrom(row: v.InferOutput<typeof tombstoneRow>): Tombstone {
  return {
    ...row,
    id: attachmentId(row),
    handles: row.handles as HandleId[],
    at: row.at as UnixMs,
    covers: row.covers as Tombstone["covers"],
  };
}
