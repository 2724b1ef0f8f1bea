// What a list of intents makes of a block: which hold, which are allowed, and the state they lead to, in one write.
// Decides only, on the copy it is given; committer.ts sees to it that the copy was the current one.
import {
  assign,
  bump,
  type Cooling,
  collect,
  giveBack,
  holderOf,
  isFree,
  ownerAttributes,
  retag,
  windowsReservedHandle,
} from "../../shared/calico/block.ts";
import { isWarmHandle, warmHandle } from "../../shared/calico/names.ts";
import type { BlockState, Holder } from "../../shared/calico/resources.ts";
import type { HandleId, NodeName, Sequence } from "../../shared/kinds.ts";
import type { Expectation, Intent, IntentResult, Owner } from "../../shared/protocol/stream.ts";
import { sameValue } from "../store/same-value.ts";

/** An intent and the node on whose behalf it is carried out. */
export interface Wish {
  readonly node: NodeName;
  readonly intent: Intent;
}

export interface Rules extends Cooling {
  /** Addresses of others' blocks may not be taken. */
  readonly strictAffinity: boolean;
  /** The block lies in a pool that may be allocated from: what the asker saw may be old (spec 5.6). Addresses that are held stay so. */
  readonly isOpen: boolean;
}

export interface Outcome {
  readonly result: IntentResult;
  /** Who held the ordinal before, when the intent was applied. */
  readonly before: Holder | undefined;
}

export interface Application {
  /** The very state that was given, when no intent changes anything. */
  readonly next: BlockState;
  /** One per wish, in their order. */
  readonly outcomes: readonly Outcome[];
}

export function applyIntents(block: BlockState, wishes: readonly Wish[], rules: Rules): Application {
  const start = collect(block, rules);
  const draft: Draft = { state: start, changed: new Set(), released: [] };
  const outcomes: Outcome[] = [];
  for (const index of inOrderOfWeight(wishes)) {
    const wish = wishes[index];
    if (wish !== undefined) outcomes[index] = applyOne(draft, wish, rules);
  }
  if (draft.changed.size === 0) return { next: block, outcomes };
  // All at once: Calico makes one cool-down entry per release, however many addresses it covers. As by a DEL, an address keeps its sequence
  // while it cools down, and still nothing under way can hit what comes after: an expectation names a holder, which a cooling address has
  // none of, and the next holder's sequence is that of a later write.
  const next = giveBack(draft.state, draft.released, rules);
  return { next: bump(next), outcomes };
}

/** The block is gone, or marked as such: what was to be released is, and nothing else can be had. */
export function applyToNothing(wishes: readonly Wish[]): readonly Outcome[] {
  return wishes.map(({ intent }) => unchanged(intent.become === null ? "already" : "expectation"));
}

interface Draft {
  state: BlockState;
  /** One write changes an ordinal once: the sequence tells generations apart, and they would share it. */
  readonly changed: Set<number>;
  readonly released: number[];
}

/** Of a node's wishes for one ordinal the last one goes first: it knows more than those before it, which are then mostly void. */
function inOrderOfWeight(wishes: readonly Wish[]): number[] {
  const last = new Map<string, number>();
  wishes.forEach(({ node, intent }, index) => {
    last.set(`${intent.ordinal} ${node}`, index);
  });
  const leading = new Set(last.values());
  const superseded = [...wishes.keys()].filter((index) => !leading.has(index));
  return [...[...wishes.keys()].filter((index) => leading.has(index)), ...superseded.reverse()];
}

function applyOne(draft: Draft, { node, intent }: Wish, rules: Rules): Outcome {
  const { ordinal, become } = intent;
  if (!isProper(draft.state, node, intent)) return unchanged("refused");
  const pendingRelease = draft.released.includes(ordinal);
  if (pendingRelease ? become === null : isAlready(draft.state, ordinal, become)) return unchanged("already");
  if (draft.changed.has(ordinal) || !isExpected(draft.state, ordinal, intent.expect)) return unchanged("expectation");
  if (intent.expect === null && !rules.isOpen) return unchanged("refused");
  if (!mayTouch(draft.state, node, ordinal, rules)) return unchanged("refused");

  const before = holderOf(draft.state, ordinal);
  draft.changed.add(ordinal);
  if (become === null) draft.released.push(ordinal);
  else draft.state = give(draft.state, ordinal, become);
  return { result: "applied", before };
}

function give(state: BlockState, ordinal: number, become: Owner): BlockState {
  const owner = { handle: become.handle as HandleId, secondary: become.attributes };
  return isFree(state, ordinal) ? assign(state, [ordinal], owner) : retag(state, ordinal, owner);
}

function unchanged(result: IntentResult): Outcome {
  return { result, before: undefined };
}

function isAlready(state: BlockState, ordinal: number, become: Owner | null): boolean {
  const holder = holderOf(state, ordinal);
  if (become === null || holder === undefined) return become === null && holder === undefined;
  return holder.handle === become.handle && sameValue(ownerAttributes(state, ordinal), become.attributes);
}

/** Free is free to be taken: an address cooling down is neither free nor held. */
function isExpected(state: BlockState, ordinal: number, expect: Expectation): boolean {
  if (expect === null) return isFree(state, ordinal);
  const holder = holderOf(state, ordinal);
  return holder?.handle === expect.handle && holder.sequence === (BigInt(expect.sequence) as Sequence);
}

/** Types that Calico's own parts read a meaning into (spec 6.3, trap 71): ours to stay away from. */
const calicoTypes = new Set([
  "ipipTunnelAddress",
  "vxlanTunnelAddress",
  "vxlanV6TunnelAddress",
  "wireguardTunnelAddress",
  "wireguardV6TunnelAddress",
  "LoadBalancer",
]);

/** What no state of the block could make right. */
function isProper(state: BlockState, node: NodeName, { ordinal, become }: Intent): boolean {
  // The load-balancer controller trips over allocations it does not know (trap 83).
  if (state.affinity?.startsWith("virtual:") || ordinal >= state.allocations.length) return false;
  if (become === null) return true;
  const handle = become.handle as HandleId;
  if (isWarmHandle(handle) && handle !== warmHandle(node)) return false;
  if (handle.toLowerCase() === windowsReservedHandle || handle.includes("\r")) return false;
  return become.attributes.node === node && !calicoTypes.has(become.attributes.type ?? "");
}

function mayTouch(state: BlockState, node: NodeName, ordinal: number, rules: Rules): boolean {
  const isOwn = state.affinity === `host:${node}`;
  const attributes = ownerAttributes(state, ordinal);
  if (attributes === undefined) return isOwn || !rules.strictAffinity;
  if (calicoTypes.has(attributes.type ?? "")) return false;
  if (holderOf(state, ordinal)?.handle.toLowerCase() === windowsReservedHandle) return false;
  // Very old allocations name no node (spec 1.9): the block's owner answers for them.
  return attributes.node === node || (isOwn && attributes.node === undefined);
}
