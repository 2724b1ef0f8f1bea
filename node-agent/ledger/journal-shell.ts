// The journal on disk: opened exclusively before it is read, written in groups, never taken for empty when it cannot be read.
// Leaves to others what the rows mean (record.ts) and the files themselves to a thread, as an fsync must not stop the event loop.
import { Worker } from "node:worker_threads";
import { Failure } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { Clock } from "../../shared/world.ts";
import type { Journal, Meta } from "./journal.ts";
import { decodeRows, type JournalRow, schemaVersion } from "./record.ts";
import type { RecordNumber } from "./state.ts";

export type JournalOrder =
  | { readonly kind: "open"; readonly directory: string; readonly meta: Meta; readonly schema: number }
  | { readonly kind: "append"; readonly number: RecordNumber; readonly rows: readonly JournalRow[] }
  | { readonly kind: "meta"; readonly meta: Meta }
  | { readonly kind: "close" };

export type JournalAnswer =
  | { readonly kind: "opened"; readonly meta: Meta; readonly rows: readonly JournalRow[] }
  | { readonly kind: "busy" }
  | { readonly kind: "refused"; readonly why: string }
  | { readonly kind: "written"; readonly upTo: RecordNumber; readonly tookMs: number }
  | { readonly kind: "failed"; readonly upTo: RecordNumber; readonly why: string };

export interface JournalOptions {
  readonly directory: string;
  readonly meta: Meta;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly written: (upTo: RecordNumber, tookMs: number) => void;
  readonly failed: (upTo: RecordNumber, failure: Failure) => void;
  /** Another agent holds it; told once, while its end is waited for. */
  readonly busy: () => void;
}

export interface OpenJournal extends Journal {
  close(): Promise<void>;
}

/** An agent that is being replaced needs its time to go; one that stays is the one that serves. */
export const lockPatienceMs = 30_000;
const lockRetryMs = 500;

/** Rejects with a Failure when another agent keeps it, or when the disk does not let us have it. */
export async function openJournal(options: JournalOptions): Promise<OpenJournal> {
  const worker = new Worker(new URL("./journal-worker-shell.ts", import.meta.url));
  const ended = new Promise<void>((resolve) => worker.once("exit", () => resolve()));
  const post = (order: JournalOrder): void => worker.postMessage(order);
  const close = async (): Promise<void> => {
    post({ kind: "close" });
    await ended;
  };
  try {
    const { meta, rows } = await open(worker, post, options);
    const records = decodeRows(rows);
    worker.on("message", (answer: JournalAnswer) => {
      if (answer.kind === "written") options.written(answer.upTo, answer.tookMs);
      if (answer.kind === "failed") {
        options.failed(answer.upTo, new Failure("journal-write", `cannot write the journal: ${answer.why}`));
      }
    });
    return {
      meta,
      records,
      append: (number, rows) => post({ kind: "append", number, rows }),
      putMeta: (meta) => post({ kind: "meta", meta }),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

type Opened = Extract<JournalAnswer, { kind: "opened" }>;

async function open(worker: Worker, post: (order: JournalOrder) => void, options: JournalOptions): Promise<Opened> {
  const { directory, meta, clock, logger } = options;
  const giveUpAt = clock.monotonic() + lockPatienceMs;
  for (let attempt = 1; ; attempt++) {
    post({ kind: "open", directory, meta, schema: schemaVersion });
    const answer = await new Promise<JournalAnswer>((resolve) => worker.once("message", resolve));
    if (answer.kind === "opened") return answer;
    if (answer.kind !== "busy") {
      const why = "why" in answer ? answer.why : answer.kind;
      throw new Failure("journal-read", `cannot open the journal in ${directory}: ${why}`);
    }
    if (clock.monotonic() >= giveUpAt) {
      throw new Failure("journal-read", `another agent holds the journal in ${directory}; there must be one per node`);
    }
    if (attempt === 1) {
      options.busy();
      logger.warn("Waited for another agent to let go of the journal", { path: directory });
    }
    await new Promise<void>((wake) => clock.after(lockRetryMs, wake));
  }
}
