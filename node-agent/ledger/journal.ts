// What the agent asks of its journal. Leaves how it is kept to journal-shell.ts, and what the rows mean to record.ts.
import type { JournalRow, Records } from "./record.ts";
import type { RecordNumber } from "./state.ts";

/**
 * Whose journal it is: node, machineId, bootId, nodeUid. `isNew`: it is not known yet what ran here before it. `lostPast`: why not, where
 * there had been another one. What is empty is not so.
 */
export type Meta = Readonly<Record<string, string>>;

export interface Journal {
  /** As it was when it was opened, before this agent's own. */
  readonly meta: Meta;
  readonly records: Records;
  append(number: RecordNumber, rows: readonly JournalRow[]): void;
  putMeta(meta: Meta): void;
}
