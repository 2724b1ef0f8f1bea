// The names in the agent's spool directory: their order is that of arrival, and one attachment's records know each other.
// Leaves to others: the disk (spool-shell.ts) and the replay (the agent).
import type { SpooledDel } from "../shared/protocol/socket.ts";

/** About a day of a busy node's DELs; a directory with more has an agent that will not come back by itself. */
export const maxSpoolRecords = 10_000;
/** Longer than any record that the bounds of the protocol allow to be useful. */
export const maxSpoolRecordBytes = 16 << 10;

/** Until the year 2286 thirteen digits are enough, so names sort as their times do. */
const timeDigits = 13;
const recordName = /^\d{13}-[0-9a-f]{1,32}-[0-9a-f]{32}\.json$/;

export function isRecord(name: string): boolean {
  return recordName.test(name);
}

export function recordNameOf(del: SpooledDel, attachmentHash: string): string {
  return `${String(del.spooledAt).padStart(timeDigits, "0")}-${del.request}-${attachmentHash}.json`;
}

export function temporaryNameOf(del: SpooledDel): string {
  return `.writing-${del.request}`;
}

/** What the hash in a name is made of. */
export function attachmentKey(del: SpooledDel): string {
  return JSON.stringify([del.network, del.containerId, del.ifname]);
}

/**
 * The older records that a new one makes superfluous: a DEL covers every earlier one of its attachment. An undo covers
 * nothing, because it releases less. Removing them is only tidiness: the new record is durable before.
 */
export function supersededBy(del: SpooledDel, name: string, names: readonly string[]): string[] {
  if (del.undoes !== undefined) return [];
  const sameAttachment = name.slice(name.lastIndexOf("-"));
  return names.filter((other) => isRecord(other) && other.endsWith(sameAttachment) && other < name);
}
