// DELs that the executable left on disk while the agent was away: taken over in order of arrival, removed once they are in the journal.
// Leaves to others what a DEL does. The executable alone writes here (shared/protocol/socket.ts, `spooledDel`).
import { type FSWatcher, watch } from "node:fs";
import { mkdir, open, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";
import type { Logger } from "../../shared/log.ts";
import { type SpooledDel, spooledDel } from "../../shared/protocol/socket.ts";
import type { Clock } from "../../shared/world.ts";

export interface SpoolOptions {
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Resolves with true once the journal has it; false: it could not be written, and the record stays. */
  readonly take: (del: SpooledDel) => Promise<boolean>;
}

export interface Spool {
  /** Records not taken over yet. */
  readonly waiting: number;
  close(): void;
}

/** Far beyond what the executable writes (cni/spool.ts bounds its records at 16 KiB). */
const maxRecordBytes = 64 << 10;
/** Records of one directory taken over at a time; the journal writes them together. */
const batchSize = 256;
/** A watch may miss something, as on a file system that was mounted over. */
const lookEveryMs = 30_000;

/** Resolves when all that lay there has been taken over: before the first ADD is served. */
export async function openSpool(options: SpoolOptions): Promise<Spool> {
  const { directory, clock, logger } = options;
  await mkdir(directory, { recursive: true, mode: 0o700 });
  let waiting = 0;
  let running: Promise<void> | undefined;
  let isStale = false;
  let isClosed = false;

  function look(): Promise<void> {
    isStale = true;
    running ??= drainAll().finally(() => {
      running = undefined;
    });
    return running;
  }

  async function drainAll(): Promise<void> {
    while (isStale && !isClosed) {
      isStale = false;
      try {
        waiting = await drain(options);
      } catch (err) {
        logger.warn("Could not read the spool", { path: directory, err });
      }
    }
  }

  await look();
  const watcher: FSWatcher = watch(directory, () => void look());
  watcher.on("error", (err) => logger.warn("Could not watch the spool", { path: directory, err }));
  let cancel = clock.after(lookEveryMs, wake);
  function wake(): void {
    void look();
    cancel = clock.after(lookEveryMs, wake);
  }
  return {
    get waiting() {
      return waiting;
    },
    close() {
      isClosed = true;
      watcher.close();
      cancel();
    },
  };
}

/** How many are left. */
async function drain({ directory, logger, take }: SpoolOptions): Promise<number> {
  const names = (await readdir(directory)).filter((name) => name.endsWith(".json") && !name.startsWith(".")).sort();
  let left = names.length;
  for (let start = 0; start < names.length; start += batchSize) {
    const paths = names.slice(start, start + batchSize).map((name) => join(directory, name));
    const records = await Promise.all(paths.map(async (path) => ({ path, record: await read(path) })));
    // All are handed over in their order before any is waited for: the journal keeps it.
    const taken = records.map(({ path, record }) => finish(path, record));
    for (const isDone of await Promise.all(taken)) if (isDone) left -= 1;
  }
  if (names.length > left) logger.info("Took over spooled deletes", { count: names.length - left });
  return left;

  async function finish(path: string, record: SpooledDel | string | undefined): Promise<boolean> {
    if (record === undefined) return true;
    if (typeof record === "string") {
      logger.error("Set a spooled delete aside that cannot be read", { path: `${path}.bad`, err: record });
      await rename(path, `${path}.bad`);
      return true;
    }
    if (!(await take(record))) return false;
    await rm(path, { force: true });
    return true;
  }
}

/** A text: what is wrong with it. Undefined: it is gone, superseded by a later one of its attachment. */
async function read(path: string): Promise<SpooledDel | string | undefined> {
  const file = await open(path, "r").catch(() => undefined);
  if (file === undefined) return undefined;
  try {
    const { size } = await file.stat();
    if (size > maxRecordBytes) return `it has ${size} bytes`;
    const parsed = v.safeParse(spooledDel, JSON.parse(await file.readFile("utf8")), { abortEarly: true });
    if (parsed.success) return parsed.output;
    const [issue] = parsed.issues;
    return `${v.getDotPath(issue) ?? "its root"}: ${issue.message}`;
  } catch (error) {
    return String(error);
  } finally {
    await file.close();
  }
}
