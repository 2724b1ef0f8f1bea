// Reads libcni's result cache. Leaves to libcni-cache.ts what an entry says.
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "../../shared/log.ts";
import type { Found, Witness } from "../ledger/evidence.ts";
import { parseCacheEntry } from "./libcni-cache.ts";

/** More than any node has pods and interfaces: beyond it nobody has tidied up for a long time. */
const maxEntries = 16_384;
/** An entry holds the network configuration, which is seldom more than a few kilobytes. */
const maxEntryBytes = 4 * 1024 * 1024;

/** `gap` says what is missing, in the words of the person who must see to it. */
export async function readLibcniCaches(directories: readonly string[]): Promise<Found> {
  const seen: Witness[] = [];
  const gaps: string[] = [];
  for (const directory of directories) await readCache(join(directory, "results"), seen, gaps);
  if (directories.length === 0) gaps.push("no directory of the runtime's is configured (cni.cacheDirs)");
  return { seen, gap: gaps[0] };
}

async function readCache(directory: string, seen: Witness[], gaps: string[]): Promise<void> {
  try {
    const names = await readdir(directory);
    if (names.length > maxEntries) gaps.push(`${directory} has more than ${maxEntries} entries`);
    for (const name of names.slice(0, maxEntries)) await readEntry(join(directory, name), seen, gaps);
  } catch (error) {
    gaps.push(`${directory} cannot be read: ${messageOf(error)}`);
  }
}

async function readEntry(path: string, seen: Witness[], gaps: string[]): Promise<void> {
  try {
    const { size } = await stat(path);
    if (size > maxEntryBytes) throw new Error(`it has ${size} bytes, more than ${maxEntryBytes}`);
    seen.push(parseCacheEntry(await readFile(path, "utf8")));
  } catch (error) {
    const isGone = error instanceof Error && "code" in error && error.code === "ENOENT"; // by a DEL, just now
    if (!isGone) gaps.push(`${path} is no whole entry of libcni's cache: ${whyOf(error)}`);
  }
}

/** What JSON's parser says quotes the text, which may hold credentials. */
function whyOf(error: unknown): string {
  return error instanceof SyntaxError ? "it is no JSON document" : messageOf(error);
}
