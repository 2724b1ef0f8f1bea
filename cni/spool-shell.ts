// Puts a DEL into the agent's spool so that it survives a power cut: file, name and directory are synced before it counts.
// Leaves to others: when, and the names (spool.ts). The only writer on this side; the agent only reads and removes.
import type { SpooledDel } from "../shared/protocol/socket.ts";
import {
  attachmentKey,
  isRecord,
  maxSpoolRecordBytes,
  maxSpoolRecords,
  recordNameOf,
  supersededBy,
  temporaryNameOf,
} from "./spool.ts";

/** Why it was not stored, or nothing. */
export async function spool(directory: string, del: SpooledDel): Promise<Error | undefined> {
  try {
    // Loaded only here: an ADD that succeeds should not pay for it.
    const fs = await import("node:fs/promises");
    const { createHash } = await import("node:crypto");
    const content = `${JSON.stringify(del)}\n`;
    if (Buffer.byteLength(content) > maxSpoolRecordBytes)
      return new Error(`the record is larger than ${maxSpoolRecordBytes} bytes`);
    const made = await fs.mkdir(directory, { recursive: true, mode: 0o700 });
    if (made !== undefined) await syncDirectory(fs, parentOf(made));
    const present = await fs.readdir(directory);
    const name = recordNameOf(del, createHash("sha256").update(attachmentKey(del)).digest("hex").slice(0, 32));
    const superseded = supersededBy(del, name, present);
    if (present.filter(isRecord).length - superseded.length >= maxSpoolRecords)
      return new Error(`the spool holds ${maxSpoolRecords} records`);
    await writeDurably(fs, directory, temporaryNameOf(del), name, content);
    for (const older of superseded) await fs.rm(`${directory}/${older}`, { force: true });
    return undefined;
  } catch (cause) {
    return new Error("the spool cannot be written", { cause });
  }
}

type Files = typeof import("node:fs/promises");

async function writeDurably(
  fs: Files,
  directory: string,
  temporary: string,
  name: string,
  content: string,
): Promise<void> {
  const path = `${directory}/${temporary}`;
  const file = await fs.open(path, "wx", 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
    await fs.rename(path, `${directory}/${name}`);
  } catch (failure) {
    await fs.rm(path, { force: true }).catch(() => undefined);
    throw failure;
  } finally {
    await file.close();
  }
  // Until the directory is on disk the name is not: a record without it would be lost with the power.
  await syncDirectory(fs, directory);
}

async function syncDirectory(fs: Files, directory: string): Promise<void> {
  const handle = await fs.open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(1, path.lastIndexOf("/")));
}
