// What runs on this node beside what the journal says: by it, what a lost journal had in stock is taken over, released or kept back.
// Leaves to others where it is read, and how such addresses are found in the blocks (stock.ts).
import { addressAt } from "../../shared/ip/cidr.ts";
import type { Address, Instant, UnixMs } from "../../shared/kinds.ts";
import { adopt, type Claimant, isBlank } from "./rebuild.ts";
import { type Add, type AttachmentParts, attachmentId, type Ledger, nobody, type Stranger } from "./state.ts";
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

export interface Found {
  readonly seen: readonly Witness[];
  /** What was not read, and why: then nothing follows from what was not seen. Undefined: all was read. */
  readonly gap: string | undefined;
}

export interface EvidenceEvent {
  readonly kind: "evidence";
  /** `owner`: what is to be stamped on what is its; undefined if nobody is named. */
  readonly seen: readonly (Witness & { readonly owner: Add["owner"] | undefined })[];
  readonly gap: string | undefined;
  readonly at: UnixMs;
}

/** Between two looks at what runs: what is kept back is in nobody's way. */
export const evidenceRetryMs = 10 * 60_000;

/** Twice the lease: by then whoever hands it out by another journal has stopped, and what he gave away has been written down. */
function quarantineEnd({ lease }: Ledger, { since }: Stranger): Instant {
  return (since + 2 * lease.limitMs) as Instant;
}

/** When what runs is to be looked at; undefined: nothing depends on it. */
export function evidenceTime(ledger: Ledger): Instant | undefined {
  if (ledger.closed) return ledger.online && !ledger.closed.verdict ? ledger.evidenceAt : undefined;
  if (ledger.strangers.size === 0) return undefined;
  const ends = ledger.strangers.values().map((stranger) => quarantineEnd(ledger, stranger));
  return Math.max(ledger.evidenceAt, Math.min(...ends)) as Instant;
}

export function seekEvidence({ ledger, now, effects }: Turn): void {
  const due = evidenceTime(ledger);
  if (due === undefined || due > now) return;
  if (ledger.closed && isBlank(ledger)) {
    ledger.closed.verdict = { adopted: 0, gap: undefined };
    return;
  }
  ledger.evidenceAt = (now + evidenceRetryMs) as Instant;
  effects.push({ kind: "seek-evidence" });
}

/** Released is only what nobody is seen with although all was read, and was read where this node's runtime writes. */
export function judge(turn: Turn, { seen, gap, at }: EvidenceEvent): void {
  const { ledger, now } = turn;
  const adopted = adopt(turn, seen.flatMap(claimantOf), at);
  // A gap keeps nobody waiting: what may be somebody's is not handed out, opened or closed.
  if (ledger.closed) ledger.closed.verdict ??= { adopted, gap };
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

function claimantOf({ attachment, owner, pod, addresses }: EvidenceEvent["seen"][number]): Claimant[] {
  if (!attachment || !owner) return [];
  return [{ attachment, owner, addresses, pod: pod?.name ? `${pod.namespace}/${pod.name}` : "" }];
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
