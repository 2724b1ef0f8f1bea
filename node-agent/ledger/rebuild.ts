// A journal that is new knows nothing of what ran here before it: until the blocks and the runtime have told, no ADD is answered. On a
// node that had another journal it is refused, else it waits. Leaves to evidence.ts when the runtime is asked, and what becomes of the
// stock that nobody is seen with.
import { holderOf, ownerAttributes } from "../../shared/calico/block.ts";
import type { Holder } from "../../shared/calico/resources.ts";
import { contains, ordinalOf } from "../../shared/ip/cidr.ts";
import type { Address, UnixMs } from "../../shared/kinds.ts";
import { dueForIndex } from "./late-handles.ts";
import {
  type Add,
  type Attachment,
  type AttachmentParts,
  attachmentId,
  type Lane,
  type Ledger,
  partsOf,
} from "./state.ts";
import { stockAt } from "./stock.ts";
import { hold, save, type Turn } from "./turn.ts";

/** Whom the runtime has given an address, as far as it has written that down. */
export interface Claimant {
  readonly attachment: AttachmentParts;
  readonly pod: string;
  readonly owner: Add["owner"];
  readonly addresses: readonly Address[];
}

/** Takes over what the blocks show of a container that runs here and of which this journal knows nothing. Counts the addresses. */
export function adopt(turn: Turn, claimants: readonly Claimant[], at: UnixMs): number {
  const claims = new Map<Address, number>();
  for (const { addresses } of claimants)
    for (const address of addresses) claims.set(address, (claims.get(address) ?? 0) + 1);
  let adopted = 0;
  for (const claimant of claimants) {
    // One of several is the right one, and nobody knows which.
    for (const address of claimant.addresses)
      if (claims.get(address) === 1) adopted += adoptOne(turn, claimant, address, at);
  }
  return adopted;
}

function adoptOne(turn: Turn, { attachment: parts, pod, owner }: Claimant, address: Address, at: UnixMs): 0 | 1 {
  const { ledger } = turn;
  const id = attachmentId(parts);
  const known = ledger.attachments.get(id);
  // A DEL was here, or the record of an ADD says more than the runtime's.
  if (ledger.tombstones.has(id) || ledger.adds.has(id) || known?.phase === "reserving") return 0;
  const lane = [...ledger.lanes.values()].find(({ cidr }) => contains(cidr, address));
  const ordinal = lane && ordinalOf(lane.cidr, address);
  if (!lane?.block || ordinal === undefined || lane.holdings.has(ordinal)) return 0;
  const attributes = { ...ownerAttributes(lane.block, ordinal) };
  const stock = stockAt(ledger, lane.block, ordinal);
  const holder = holderOf(lane.block, ordinal);
  const place = { block: lane.cidr, ordinal, attachment: id, request: "", fixed: false };
  if (stock) {
    ledger.strangers.delete(address);
    const attachment = known ?? createAttachment(turn, parts, { handle: owner.handle, pod, asked: "", at });
    attachment.holdings.add(
      hold(turn, { ...place, ...owner }, { kind: "held", sequence: stock.sequence, stock: attributes }),
    );
    return 1;
  }
  if (holder?.handle !== owner.handle || attributes.node !== ledger.node) return 0;
  takeOver(
    turn,
    known ?? createAttachment(turn, parts, { handle: owner.handle, pod, asked: "", at }),
    { ...place, attributes },
    holder,
  );
  return 1;
}

/** An ADD that the blocks say was done before: by its handle and the interface stamped beside it. Which one is not guessed where none is. */
export function recognise(turn: Turn, add: Add, asked: string): boolean {
  const { ledger } = turn;
  const { id, ask, owner, addedAt: at } = add;
  if (ask.ifnameIsFirst || ask.requested.length > 0 || ledger.attachments.has(id)) return false;
  for (const lane of ledger.lanes.values()) {
    for (const { ordinal, holder, attributes } of unexplained(ledger, lane)) {
      if (holder.handle !== owner.handle || attributes["cattail.io/interface"] !== ask.ifname) continue;
      const pod = ask.podName === "" ? "" : `${ask.podNamespace}/${ask.podName}`;
      const attachment =
        ledger.attachments.get(id) ?? createAttachment(turn, partsOf(ask), { handle: owner.handle, pod, asked, at });
      const place = { block: lane.cidr, ordinal, attachment: id, request: "", fixed: false };
      takeOver(turn, attachment, { ...place, attributes }, holder);
    }
  }
  return ledger.attachments.has(id);
}

type Adopted = Omit<Parameters<typeof hold>[1], "handle">;

function takeOver(turn: Turn, attachment: Attachment, place: Adopted, { handle, sequence }: Holder): void {
  const holding = hold(turn, { ...place, handle }, { kind: "owned", sequence });
  attachment.holdings.add(holding);
  dueForIndex(turn, holding);
}

type Found = Pick<Attachment, "handle" | "pod" | "asked"> & { readonly at: UnixMs };

function createAttachment(turn: Turn, parts: AttachmentParts, { handle, pod, asked, at }: Found): Attachment {
  const id = attachmentId(parts);
  const { network, containerId, ifname } = parts;
  const times = { startedAt: 0 as UnixMs, addedAt: at, deadline: 0 as UnixMs };
  const attachment: Attachment = {
    ...{ network, containerId, ifname, id, handle, pod, asked, ...times },
    boot: turn.ledger.boot.id,
    phase: "owned",
    answers: 1,
    holdings: new Set(),
  };
  turn.ledger.attachments.set(id, attachment);
  save(turn, { table: "attachment", id });
  return attachment;
}

interface Unexplained {
  readonly ordinal: number;
  readonly holder: Holder;
  readonly attributes: Readonly<Record<string, string>>;
}

/** What the block shows as this node's and no record of this journal speaks of. */
function* unexplained(ledger: Ledger, { block, holdings }: Lane): Generator<Unexplained> {
  for (const ordinal of block?.allocations.keys() ?? []) {
    const holder = block && holderOf(block, ordinal);
    const attributes = (block && ownerAttributes(block, ordinal)) ?? {};
    if (holder && attributes.node === ledger.node && !holdings.has(ordinal)) yield { ordinal, holder, attributes };
  }
}

/** Nothing in the blocks is to be asked about: a node that has just been made. */
export function isBlank(ledger: Ledger): boolean {
  return ledger.lanes.values().every((lane) => unexplained(ledger, lane).next().done === true);
}

/** Once all that was found out is on disk. */
export function reopen(turn: Turn): void {
  const { ledger, rows, effects } = turn;
  const { closed, unconfirmed, unsaved } = ledger;
  if (closed?.verdict === undefined || rows.size + unconfirmed.length + unsaved.size > 0) return;
  ledger.closed = undefined;
  turn.roomChanged = true;
  const { isLoss, verdict } = closed;
  effects.push({
    kind: "rebuilt",
    isLoss: isLoss || ledger.strangers.size > 0,
    suspects: ledger.strangers.size,
    ...verdict,
  });
}
