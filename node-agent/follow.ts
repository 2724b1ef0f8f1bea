// What a message of the stream means: the view takes it in, and what follows from it for the ledger is told as events.
// Leaves the connection to sync/client.ts and the consequences to the ledger.
import { type BlockCidr, impossible } from "../shared/kinds.ts";
import type { ServerMessage } from "../shared/protocol/stream.ts";
import type { ViewPlacement } from "./ipam/placement.ts";
import type { LedgerEvent } from "./ledger/ledger.ts";
import type { Ledger } from "./ledger/state.ts";
import { type Change, concernsPlacement, takeBlock, type View } from "./sync/view.ts";

export interface Known {
  readonly view: View;
  readonly placement: ViewPlacement;
  readonly ledger: Ledger;
}

export function follow(message: ServerMessage, known: Known): LedgerEvent[] {
  const { view } = known;
  switch (message.type) {
    case "welcome":
      return view.welcome(message.lineage) ? [{ kind: "incomplete" }] : [];
    case "reset":
      view.reset();
      return [{ kind: "incomplete" }];
    case "put":
      return consequences(known, view.putWire(message.kind, message.object));
    case "gone":
      return consequences(known, view.gone(message.kind, message.name));
    case "synced":
      return view.synced().flatMap((change) => consequences(known, change));
    case "ack":
      return [acknowledged(known, message)];
    case "claimed":
      return [claimed(known, message)];
    case "indexed":
      return [{ kind: "indexed", id: message.id, done: message.problem === undefined }];
    case "beat":
    case "bye":
      return [];
    default:
      return impossible(message);
  }
}

/** The view as it was kept on disk, from before there is a server. */
export function recall(view: View): LedgerEvent[] {
  const blocks = [...view.all("block").values()];
  return [...blocks.map((block): LedgerEvent => ({ kind: "block", cidr: block.cidr, block })), { kind: "remembered" }];
}

function consequences({ placement }: Known, change: Change | undefined): LedgerEvent[] {
  if (change === undefined) return [];
  if (concernsPlacement(change.kind)) {
    placement.forget();
    return isUnlocking(change) ? [{ kind: "rules-changed" }, { kind: "unlocked" }] : [{ kind: "rules-changed" }];
  }
  if (change.kind !== "block") return [];
  const cidr: BlockCidr | undefined = (change.after ?? change.before)?.cidr;
  return cidr === undefined ? [] : [{ kind: "block", cidr, block: change.after }];
}

/** Calico's datastore may be written again. */
function isUnlocking(change: Change): boolean {
  return change.kind === "cluster" && change.after?.datastoreReady === true && change.before?.datastoreReady !== true;
}

function acknowledged({ view, ledger }: Known, ack: Extract<ServerMessage, { type: "ack" }>): LedgerEvent {
  const { id, results, problem } = ack;
  const name = ledger.flights.get(id)?.block?.name ?? "";
  return { kind: "acknowledged", id, results, block: takeBlock(view, ack.block, name), problem };
}

function claimed({ view }: Known, { id, block, problem }: Extract<ServerMessage, { type: "claimed" }>): LedgerEvent {
  const newest = takeBlock(view, block, block?.name ?? "");
  return { kind: "claimed", id, problem, ...(newest && { block: { cidr: newest.cidr, block: newest } }) };
}
