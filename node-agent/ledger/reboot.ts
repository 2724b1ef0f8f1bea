// Containers do not outlive the machine's boot, and runtimes often forget the DELs of those that a crash took (spec/field-reports.md 58).
// What an earlier boot left is ended as a DEL would, once the runtime has had its time to come back for it.
import type { AttachmentId, Instant, UnixMs } from "../../shared/kinds.ts";
import { end } from "./leaving.ts";
import type { Attachment, Ledger } from "./state.ts";
import { save, type Turn } from "./turn.ts";

/** Of the machine; empty: not known, and then nothing follows from it. */
export interface Boot {
  readonly id: string;
  /** From this agent's start on. */
  readonly graceMs: number;
}

/** At replay: an attachment of an earlier boot is waited for. */
export function noteBoot({ boot, leftOver }: Ledger, attachment: Attachment, now: Instant): void {
  const isEarlier = boot.id !== "" && attachment.boot !== "" && attachment.boot !== boot.id;
  if (isEarlier && attachment.phase === "owned") leftOver.set(attachment.id, (now + boot.graceMs) as Instant);
}

/** Its runtime knows of it. True: that is not on disk yet. */
export function comeBack(turn: Turn, id: AttachmentId): boolean {
  const { ledger } = turn;
  const attachment = ledger.leftOver.delete(id) ? ledger.attachments.get(id) : undefined;
  if (!attachment) return false;
  attachment.boot = ledger.boot.id;
  save(turn, { table: "attachment", id });
  return true;
}

export function endLeftOver(turn: Turn): void {
  const { ledger, now, effects } = turn;
  let count = 0;
  for (const [id, until] of ledger.leftOver) {
    if (until > now || ledger.adds.has(id)) continue;
    ledger.leftOver.delete(id);
    const attachment = ledger.attachments.get(id);
    if (!attachment) continue;
    const { network, containerId, ifname, handle } = attachment;
    // The same container may be added again, by whatever name its runtime gives it: no ADD is forbidden.
    end(turn, { id, parts: { network, containerId, ifname }, handles: [handle], startedAt: 0 as UnixMs });
    count += 1;
  }
  if (count > 0) effects.push({ kind: "ended-left-over", count });
}
