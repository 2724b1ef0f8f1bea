// The end of an attachment: DEL, GC, an ADD that is taken back. On disk first, then released by the server, then answered.
// Leaves to others what a release that the server refuses means (commits.ts).
import { type AttachmentId, type Instant, impossible, type UnixMs } from "../../shared/kinds.ts";
import { cniCode, trouble } from "../trouble.ts";
import { deletedMeanwhile, diskFails, failAdd } from "./adding.ts";
import { leave, sweep } from "./blocks.ts";
import { comeBack } from "./reboot.ts";
import {
  type Attachment,
  type AttachmentParts,
  type CallId,
  type Del,
  type Holding,
  isDurable,
  type Ledger,
  neverWritten,
  type Tombstone,
} from "./state.ts";
import { putBack } from "./stock.ts";
import { bury, letGo, refuse, save, setState, type Turn } from "./turn.ts";

/** How long a DEL waits for the server once it is on disk: the runtime has a pod to end (spec/cni.md 3.4). */
export const releasePatienceMs = 5_000;
/** GC leaves alone what is younger: its runtime may have listed its attachments before (spec/cni.md 3.6). */
export const gcGraceMs = 120_000;
/** A GC without a single valid attachment and more victims than this is a mistake of its caller. */
export const gcBlindMax = 16;

export interface DelEvent {
  readonly kind: "del";
  readonly call: CallId;
  readonly id: AttachmentId;
  readonly parts: AttachmentParts;
  readonly handles: Tombstone["handles"];
  readonly startedAt: UnixMs;
  readonly deadline: Instant;
  /** Only what the ADD of this request took. */
  readonly undoes: string | undefined;
  /** From the spool: it may be older than what lives now under the same name. */
  readonly spooled: boolean;
}

export function del(turn: Turn, event: DelEvent): void {
  const { ledger } = turn;
  const { call, id, undoes } = event;
  const attachment = ledger.attachments.get(id);
  const isOld = event.spooled && attachment !== undefined && event.startedAt < attachment.startedAt;
  if (isOld) return void turn.effects.push({ kind: "done", call });
  const running = ledger.adds.get(id);
  if (running && (undoes === undefined || running.ask.request === undoes)) failAdd(turn, running, deletedMeanwhile());
  if (undoes === undefined) end(turn, event);
  else undo(turn, event, undoes);
  const patience = (turn.now + releasePatienceMs) as Instant;
  // A caller in a hurry gets its answer from the journal all the same.
  const deadline = Math.max(event.deadline, patience) as Instant;
  ledger.dels.set(call, { call, id, record: turn.number, patience, deadline });
}

export function end(turn: Turn, what: Pick<DelEvent, "id" | "parts" | "handles" | "startedAt">): void {
  const { id, parts, handles, startedAt } = what;
  const { ledger } = turn;
  const stone = ledger.tombstones.get(id);
  const attachment = ledger.attachments.get(id);
  // As Calico's DEL: all that the handle holds, wherever it came from. But a container's interfaces share it, and the others may live.
  const isAlone =
    attachment === undefined ? stone === undefined || stone.covers === "handle" : !isShared(ledger, attachment);
  const covers = isAlone ? "handle" : placesOf(stone);
  bury(turn, { ...parts, id, handles, at: laterOf(startedAt, stone), covers });
  if (attachment) remove(turn, attachment);
  if (isAlone) sweepAll(turn, id);
}

function isShared({ attachments }: Ledger, { id, handle }: Attachment): boolean {
  return attachments.values().some((other) => other.id !== id && other.handle === handle);
}

/** Forbids what the ADD may still be given and takes back what it was given; an earlier ADD's addresses stay. */
function undo(turn: Turn, { id, parts, handles, startedAt }: DelEvent, request: string): void {
  const { ledger } = turn;
  const stone = ledger.tombstones.get(id);
  bury(turn, { ...parts, id, handles, at: laterOf(startedAt, stone), covers: stone?.covers ?? [] });
  const attachment = ledger.attachments.get(id);
  if (attachment) withdrawTaken(turn, attachment, request);
}

function withdrawTaken(turn: Turn, attachment: Attachment, request: string): void {
  for (const holding of [...attachment.holdings]) if (holding.request === request) withdraw(turn, holding);
  if (attachment.holdings.size === 0) remove(turn, attachment);
}

function laterOf(startedAt: UnixMs, stone: Tombstone | undefined): UnixMs {
  return stone && stone.at > startedAt ? stone.at : startedAt;
}

function placesOf(stone: Tombstone | undefined): Extract<Tombstone["covers"], readonly unknown[]> {
  return stone === undefined || stone.covers === "handle" ? [] : stone.covers;
}

function remove(turn: Turn, attachment: Attachment): void {
  const { ledger } = turn;
  for (const holding of [...attachment.holdings]) withdraw(turn, holding);
  ledger.attachments.delete(attachment.id);
  ledger.orphans.delete(attachment.id);
  save(turn, { table: "attachment", id: attachment.id });
}

function sweepAll(turn: Turn, id: AttachmentId): void {
  const stone = turn.ledger.tombstones.get(id);
  if (stone) for (const lane of turn.ledger.lanes.values()) sweep(turn, lane, stone);
}

/** Nobody wants it any more. What may be under way is settled first, what never left is simply forgotten. */
export function withdraw(turn: Turn, holding: Holding): void {
  const { state } = holding;
  switch (state.kind) {
    case "reserving":
      if (holding.sent) {
        cover(turn, holding);
        return setState(turn, holding, { kind: "withdrawn", sequence: undefined });
      }
      // Its record failed: it may be on disk all the same, and a replay would then ask for the ordinal.
      if (holding.written === neverWritten) return makeSuspect(turn, holding);
      return letGo(turn, holding);
    case "held":
      if (!holding.sent) return putBack(turn, holding);
      cover(turn, holding);
      return setState(turn, holding, { kind: "withdrawn", sequence: state.sequence });
    case "owned":
      cover(turn, holding);
      return leave(turn, holding, state.sequence);
    case "lost":
      cover(turn, holding);
      return letGo(turn, holding);
    case "warm":
    case "withdrawn":
    case "leaving":
    case "suspect":
      return;
    default:
      impossible(state);
  }
}

/** Lifetimes of one container id are few; each holds one address per family. */
const maxCovered = 64;

/** A copy of its reserve may be carried out long after we have turned away from it: what it takes is released again. */
export function cover(turn: Turn, { attachment: id, block, ordinal, handle }: Holding): void {
  const stone = turn.ledger.tombstones.get(id);
  const attachment = turn.ledger.attachments.get(id);
  if (stone?.covers === "handle" || !attachment) return;
  const { network, containerId, ifname } = attachment;
  const covers = [...placesOf(stone), { block, ordinal }].slice(-maxCovered);
  const { handles, at } = stone ?? { handles: [handle], at: 0 as UnixMs };
  bury(turn, { network, containerId, ifname, id, handles, at, covers });
}

function makeSuspect(turn: Turn, holding: Holding): void {
  setState(turn, holding, { kind: "suspect" });
  turn.ledger.attachments.get(holding.attachment)?.holdings.delete(holding);
}

/** A later record says that nothing is there: a replay will not find it. */
export function clearSuspect(turn: Turn, holding: Holding): void {
  if (holding.state.kind === "suspect" && isDurable(turn.ledger, holding)) letGo(turn, holding);
}

export interface GcEvent {
  readonly kind: "gc";
  readonly call: CallId;
  readonly network: string;
  readonly valid: ReadonlySet<AttachmentId>;
  readonly now: UnixMs;
  readonly startedAt: UnixMs;
  readonly deadline: Instant;
}

export function collect(turn: Turn, event: GcEvent): void {
  const { ledger } = turn;
  const victims = [...ledger.attachments.values()].filter(
    ({ id, network, addedAt }) =>
      network === event.network && !event.valid.has(id) && !ledger.adds.has(id) && event.now - addedAt >= gcGraceMs,
  );
  for (const id of event.valid) comeBack(turn, id);
  if (event.valid.size === 0 && victims.length > gcBlindMax) {
    const why = `the list of valid attachments is empty and ${victims.length} of ${event.network} would be released, more than ${gcBlindMax}`;
    return refuse(turn, event.call, trouble("BadRequest", why, { code: cniCode.config }));
  }
  for (const { id, handle, network, containerId, ifname } of victims) {
    end(turn, { id, parts: { network, containerId, ifname }, handles: [handle], startedAt: event.startedAt });
  }
  const { call, deadline } = event;
  const record = victims.length === 0 ? ledger.durable : turn.number;
  ledger.dels.set(call, { call, id: undefined, record, patience: turn.now, deadline });
}

/** The answer could not be delivered: the caller is told nothing, so it must not hold anything. */
export function undelivered(turn: Turn, id: AttachmentId, request: string): void {
  const { ledger } = turn;
  const attachment = ledger.attachments.get(id);
  if (!attachment || ledger.adds.has(id)) return;
  attachment.answers -= 1;
  if (attachment.answers <= 0) withdrawTaken(turn, attachment, request);
}

/** An ADD interrupted by a crash, for which nobody came back in its time. */
export function expireOrphans(turn: Turn): void {
  for (const [id, until] of turn.ledger.orphans) {
    const attachment = turn.ledger.attachments.get(id);
    if (until <= turn.now && attachment) remove(turn, attachment);
  }
}

export function answerDels(turn: Turn): void {
  const { ledger, now } = turn;
  for (const waiting of [...ledger.dels.values()]) {
    if (isAnswerable(ledger, waiting, now)) {
      ledger.dels.delete(waiting.call);
      turn.effects.push({ kind: "done", call: waiting.call });
    } else if (giveUpAt(ledger, waiting) <= now) {
      ledger.dels.delete(waiting.call);
      refuse(turn, waiting.call, diskFails());
    }
  }
}

/** A disk that has failed for so long will not come back soon: the executable keeps a DEL elsewhere, if it can. */
export function giveUpAt({ diskFails }: Ledger, { patience, deadline }: Del): Instant {
  return diskFails ? patience : deadline;
}

/** The journal's word is a promise; the server's is waited for only while it is likely to come soon. */
function isAnswerable(ledger: Ledger, { id, record, patience }: Del, now: Instant): boolean {
  if (record > ledger.durable) return false;
  // Where writes may wait, nobody waits for them.
  const isPromise = ledger.warm() !== undefined || !ledger.online || patience <= now;
  return id === undefined || isPromise || !ledger.departing.has(id);
}
