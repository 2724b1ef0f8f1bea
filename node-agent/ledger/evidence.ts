// What runs on this node beside what the journal says: by it, what a lost journal had in stock is released or kept back.
// Leaves to others where it is read, and how such addresses are found in the blocks (stock.ts).
import { addressAt } from "../../shared/ip/cidr.ts";
import type { Address, Instant } from "../../shared/kinds.ts";
import { type AttachmentParts, attachmentId, type Ledger, nobody, type Stranger } from "./state.ts";
import { stockAt } from "./stock.ts";
import { hold, type Turn } from "./turn.ts";

/** What the container runtime has written down of one attachment. */
export interface Witness {
  /** Undefined: it does not say whose. */
  readonly attachment: AttachmentParts | undefined;
  /** Both empty: of no pod. */
  readonly pod: { readonly namespace: string; readonly name: string } | undefined;
  readonly addresses: readonly Address[];
}

export interface EvidenceEvent {
  readonly kind: "evidence";
  readonly seen: readonly Witness[];
  /** What was not read, and why: then nothing follows from what was not seen. Undefined: all was read. */
  readonly gap: string | undefined;
}

/** Between two looks at what runs: what is kept back is in nobody's way. */
export const evidenceRetryMs = 10 * 60_000;

/** Twice the lease: by then whoever hands it out by another journal has stopped, and what he gave away has been written down. */
function quarantineEnd({ lease }: Ledger, { since }: Stranger): Instant {
  return (since + 2 * lease.limitMs) as Instant;
}

/** When what runs is to be looked at; undefined: nothing depends on it. */
export function evidenceTime(ledger: Ledger): Instant | undefined {
  if (ledger.closed || ledger.strangers.size === 0) return undefined;
  const ends = ledger.strangers.values().map((stranger) => quarantineEnd(ledger, stranger));
  return Math.max(ledger.evidenceAt, Math.min(...ends)) as Instant;
}

export function seekEvidence({ ledger, now, effects }: Turn): void {
  const due = evidenceTime(ledger);
  if (due === undefined || due > now) return;
  ledger.evidenceAt = (now + evidenceRetryMs) as Instant;
  effects.push({ kind: "seek-evidence" });
}

/** Released is only what nobody is seen with although all was read, and was read where this node's runtime writes. */
export function judge(turn: Turn, { seen, gap }: EvidenceEvent): void {
  const { ledger, now } = turn;
  if (ledger.closed) return; // what a lost journal knew may still be running
  const doubt = gap ?? (isOfThisNode(ledger, seen) ? undefined : "none of the pods that run here is in it");
  const named = new Set(seen.flatMap(({ addresses }) => addresses));
  const [released, kept]: [Address[], Address[]] = [[], []];
  for (const [address, stranger] of [...ledger.strangers]) {
    if (quarantineEnd(ledger, stranger) > now) continue;
    if (doubt === undefined && !named.has(address)) {
      releaseStranger(turn, stranger);
      released.push(address);
    } else {
      kept.push(address);
    }
  }
  if (released.length + kept.length > 0) turn.effects.push({ kind: "judged", doubt, released, kept });
}

/** It names somebody who is known to live here: a folder that is empty, or of another runtime, says nothing about ours. */
function isOfThisNode({ attachments }: Ledger, seen: readonly Witness[]): boolean {
  return seen.some(({ attachment }) => attachment && attachments.get(attachmentId(attachment))?.phase === "owned");
}

function releaseStranger(turn: Turn, { block, ordinal }: Stranger): void {
  const { ledger } = turn;
  ledger.strangers.delete(addressAt(block, ordinal));
  const lane = ledger.lanes.get(block);
  const holder = lane?.block && stockAt(ledger, lane.block, ordinal);
  if (!lane || !holder || lane.holdings.has(ordinal)) return;
  const { handle, sequence } = holder;
  const holding = { block, ordinal, attachment: nobody, handle, attributes: {}, request: "", fixed: false };
  hold(turn, holding, { kind: "leaving", sequence, to: "free" });
}
