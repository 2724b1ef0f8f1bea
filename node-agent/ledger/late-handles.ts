// Handles that are written late, for what has lived long enough: most pods are gone before (spec trap 21 is departed from on purpose).
// Leaves the writing to the server, which takes the truth from the blocks.
import type { Instant } from "../../shared/kinds.ts";
import { maxIndexedHandles } from "../../shared/protocol/stream.ts";
import type { Holding, Ledger } from "./state.ts";
import type { Turn } from "./turn.ts";

/** After a refusal: there is no hurry. */
const retryMs = 60_000;

/** The block shows it as its attachment's now. */
export function dueForIndex({ ledger, now }: Turn, { handle }: Holding): void {
  if (ledger.handleDelayMs === undefined || ledger.unindexed.has(handle)) return;
  ledger.unindexed.set(handle, (now + ledger.handleDelayMs) as Instant);
}

export function index(turn: Turn): void {
  const { ledger, now } = turn;
  if (!ledger.online || ledger.indexing || ledger.unindexed.size === 0) return;
  const due = [...ledger.unindexed].filter(([, at]) => at <= now).slice(0, maxIndexedHandles);
  if (due.length === 0) return;
  const living = new Set([...ledger.attachments.values()].map(({ handle }) => handle));
  for (const [handle] of due) if (!living.has(handle)) ledger.unindexed.delete(handle);
  const handles = due.map(([handle]) => handle).filter((handle) => living.has(handle));
  if (handles.length === 0) return;
  const id = ledger.nextId++;
  ledger.indexing = { id, handles, since: now };
  turn.effects.push({ kind: "index", id, handles });
}

export interface IndexedEvent {
  readonly kind: "indexed";
  readonly id: number;
  readonly done: boolean;
}

export function indexed({ ledger, now }: Turn, { id, done }: IndexedEvent): void {
  const asked = ledger.indexing;
  if (asked?.id !== id) return;
  ledger.indexing = undefined;
  for (const handle of asked.handles) {
    ledger.unindexed.delete(handle);
    if (!done) ledger.unindexed.set(handle, (now + retryMs) as Instant);
  }
}

/** When the next handle is due; undefined: none is, or one is under way. */
export function nextIndex({ online, indexing, unindexed }: Ledger): Instant | undefined {
  if (!online || indexing) return undefined;
  const [first] = unindexed.values();
  return first;
}
