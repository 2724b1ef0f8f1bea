// Arithmetic of one IPAMBlock: who holds an ordinal, and the states that assigning, retagging and releasing lead to (spec 2.1, 2.2, 6.9).
// Nothing here is changed in place, and a step that changes nothing returns the very state it was given. Whether a step is
// allowed (affinity, reservations, expectations) is for the callers; so is writing, which counts with `bump`.
import { cidrOf, sizeOf } from "../ip/cidr.ts";
import { type BlockCidr, type HandleId, invariant, type Sequence, type UnixMs } from "../kinds.ts";
import type { BlockAttribute, BlockState, Holder } from "./resources.ts";
import { secondsText } from "./timestamps.ts";

export interface Owner {
  readonly handle: HandleId;
  readonly secondary: Readonly<Record<string, string>>;
}

export interface Cooling {
  readonly now: UnixMs;
  /** `ipCooldownSeconds`; 0 frees at once (trap 39). */
  readonly cooldownSeconds: number;
}

/** A block nobody has taken an address from. `sequence` is the clock in Unix nanoseconds, so that a name used again never repeats one (trap 3). */
export function newBlock(block: {
  readonly cidr: BlockCidr;
  readonly affinity: string;
  readonly now: UnixMs;
  readonly sequence: Sequence;
}): BlockState {
  const size = Number(sizeOf(cidrOf(block.cidr)));
  return {
    affinity: block.affinity,
    affinityClaimTime: secondsText(block.now),
    allocations: Array.from({ length: size }, () => null),
    unallocated: Array.from({ length: size }, (_, ordinal) => ordinal),
    attributes: [],
    sequenceNumber: block.sequence,
    sequenceNumberForAllocation: new Map(),
    deleted: false,
  };
}

/** Calico's garbageCollect, due whenever a block is loaded for use: ends cool-downs, drops attributes nobody points at. */
export function collect(state: BlockState, cooling: Cooling): BlockState {
  const isOver = state.attributes.map((attribute) => cooledDown(attribute, cooling));
  const freed = ordinalsWhere(state, (index) => isOver[index] === true);
  if (freed.length === 0) return withoutUnusedAttributes(state);
  const allocations = [...state.allocations];
  const sequences = new Map(state.sequenceNumberForAllocation);
  for (const ordinal of freed) {
    allocations[ordinal] = null;
    sequences.delete(ordinal);
  }
  return withoutUnusedAttributes({
    ...state,
    allocations,
    unallocated: [...state.unallocated, ...freed],
    sequenceNumberForAllocation: sequences,
  });
}

/** Undefined: free or cooling down. An allocation without handle (nobody's, but taken) has the empty handle. */
export function holderOf(state: BlockState, ordinal: number): Holder | undefined {
  const attribute = attributeOf(state, ordinal);
  if (attribute === undefined || isCooling(attribute)) return undefined;
  return { handle: handleOf(attribute), sequence: sequenceOf(state, ordinal) };
}

export function isFree(state: BlockState, ordinal: number): boolean {
  return state.allocations[ordinal] === null;
}

/** `secondary` of the active owner; undefined: free or cooling down. */
export function ownerAttributes(state: BlockState, ordinal: number): Readonly<Record<string, string>> | undefined {
  const attribute = attributeOf(state, ordinal);
  return attribute === undefined || isCooling(attribute) ? undefined : (attribute.secondary ?? {});
}

/** Takes free ordinals, from wherever they stand in the queue. */
export function assign(state: BlockState, ordinals: readonly number[], owner: Owner): BlockState {
  if (ordinals.length === 0) return state;
  for (const ordinal of ordinals) invariant(isFree(state, ordinal), `ordinal ${ordinal} is not free`);
  const taken = new Set(ordinals);
  return {
    ...heldBy(state, ordinals, owner),
    unallocated: state.unallocated.filter((ordinal) => !taken.has(ordinal)),
  };
}

/** Gives a held ordinal to another owner: handle, attributes and sequence all change, or stale collectors would act on it (trap 68). */
export function retag(state: BlockState, ordinal: number, owner: Owner): BlockState {
  invariant(holderOf(state, ordinal) !== undefined, `ordinal ${ordinal} has no holder`);
  return withoutUnusedAttributes(heldBy(state, [ordinal], owner));
}

/** Releases by address, as Calico's ReleaseIPs: what is free or cooling down already is left alone. */
export function release(state: BlockState, ordinals: readonly number[], cooling: Cooling): BlockState {
  const held = [...new Set(ordinals)].filter((ordinal) => holderOf(state, ordinal) !== undefined);
  return released(state, held, cooling, state.sequenceNumber);
}

/** Releases as a CNI DEL does: the sequences of the ordinals stay while they cool down (spec 2.1). */
export function giveBack(state: BlockState, ordinals: readonly number[], cooling: Cooling): BlockState {
  const held = ordinals.filter((ordinal) => holderOf(state, ordinal) !== undefined);
  return released(state, held, cooling, undefined);
}

/** All that the handle holds. */
export function releaseByHandle(state: BlockState, handle: HandleId, cooling: Cooling): BlockState {
  return giveBack(state, ordinalsOfHandle(state, handle), cooling);
}

/** Takes the owner away from a block that still has addresses in use (spec 3.5). */
export function disown(state: BlockState): BlockState {
  const { affinity: _owner, affinityClaimTime: _since, ...ownerless } = state;
  return ownerless;
}

/** Due once per write: a fresh allocation carries the number before, the block the number after (trap 2). */
export function bump(state: BlockState): BlockState {
  return { ...state, sequenceNumber: (state.sequenceNumber + 1n) as Sequence };
}

/** In the order in which they are to be used; reserved ones are passed over and keep their place. */
export function freeOrdinals(state: BlockState, isReserved: (ordinal: number) => boolean = nothingReserved): number[] {
  return [...new Set(state.unallocated)].filter((ordinal) => isFree(state, ordinal) && !isReserved(ordinal));
}

export function numFree(state: BlockState, isReserved?: (ordinal: number) => boolean): number {
  return freeOrdinals(state, isReserved).length;
}

export function ordinalsOfHandle(state: BlockState, handle: HandleId): number[] {
  const matches = state.attributes.map((attribute) => !isCooling(attribute) && handleOf(attribute) === handle);
  return ordinalsWhere(state, (index) => matches[index] === true);
}

/** Allocations without a handle count for the empty one. */
export function ordinalsPerHandle(state: BlockState): ReadonlyMap<HandleId, number> {
  const counts = new Map<HandleId, number>();
  for (const ordinal of state.allocations.keys()) {
    const handle = holderOf(state, ordinal)?.handle;
    if (handle !== undefined) counts.set(handle, (counts.get(handle) ?? 0) + 1);
  }
  return counts;
}

export const windowsReservedHandle = "windows-reserved-ipam-handle";

/** May the block be deleted? What Windows reserves does not count, what cools down does (trap 35). */
export function isEmpty(state: BlockState): boolean {
  return hasNone(state, isCounted);
}

/** Will it be empty once all that cools down has? */
export function isIdle(state: BlockState): boolean {
  return hasNone(state, (attribute) => isCounted(attribute) && !isCooling(attribute));
}

export interface BlockOwner {
  readonly type: "host" | "virtual";
  readonly name: string;
}

/** Undefined: ownerless, or an affinity that Calico cannot read either. */
export function blockOwner(state: BlockState): BlockOwner | undefined {
  const [, type, name] = /^(host|virtual):(.*)$/s.exec(state.affinity ?? "") ?? [];
  return (type === "host" || type === "virtual") && name !== undefined ? { type, name } : undefined;
}

export function affinityText({ type, name }: BlockOwner): string {
  return `${type}:${name}`;
}

/** What `calicoctl ipam check` would find wrong (spec 1.7); empty: nothing. */
export function checkBlock(state: BlockState, now?: UnixMs): string[] {
  const used = new Set(state.allocations);
  const queue = state.unallocated;
  const allocated = state.allocations.filter((index) => index !== null).length;
  return [
    ...state.allocations.flatMap((index, ordinal) =>
      index === null || state.attributes[index] !== undefined
        ? []
        : [`ordinal ${ordinal} points at attribute ${index} of ${state.attributes.length}`],
    ),
    ...state.attributes.flatMap((attribute, index) => [
      ...(used.has(index) ? [] : [`attribute ${index} is not used`]),
      ...(now !== undefined && isCooling(attribute) && Date.parse(attribute.releasedAt) > now
        ? [`attribute ${index} was released in the future, ${attribute.releasedAt}`]
        : []),
    ]),
    ...queue.flatMap((ordinal, place) => [
      ...(queue.indexOf(ordinal) === place ? [] : [`ordinal ${ordinal} is queued twice`]),
      ...(isFree(state, ordinal) ? [] : [`ordinal ${ordinal} is queued and not free`]),
    ]),
    ...(queue.length + allocated === state.allocations.length
      ? []
      : [`${queue.length} queued and ${allocated} allocated are not ${state.allocations.length}`]),
  ];
}

function isCounted(attribute: BlockAttribute): boolean {
  return attribute.handle_id?.toLowerCase() !== windowsReservedHandle;
}

function hasNone(state: BlockState, counts: (attribute: BlockAttribute) => boolean): boolean {
  const counted = state.attributes.map(counts);
  return state.allocations.every((index) => index === null || counted[index] === false);
}

function nothingReserved(): boolean {
  return false;
}

function attributeFor({ handle, secondary }: Owner): BlockAttribute {
  // An empty map does not survive the way through the API.
  return Object.keys(secondary).length === 0 ? { handle_id: handle } : { handle_id: handle, secondary };
}

/** Calico's findOrAddAttribute: addresses taken for the same owner share an entry (trap 43). */
function heldBy(state: BlockState, ordinals: readonly number[], owner: Owner): BlockState {
  const wanted = attributeFor(owner);
  const known = state.attributes.findIndex((attribute) => isSame(attribute, wanted));
  return known < 0
    ? pointedAt(state, ordinals, [...state.attributes, wanted], state.attributes.length, state.sequenceNumber)
    : pointedAt(state, ordinals, state.attributes, known, state.sequenceNumber);
}

function released(
  state: BlockState,
  ordinals: readonly number[],
  cooling: Cooling,
  sequence: Sequence | undefined,
): BlockState {
  if (ordinals.length === 0) return state;
  // Never shared with an earlier release, not even of the same second: Calico appends one per call.
  const attributes = [...state.attributes, { releasedAt: secondsText(cooling.now) }];
  return collect(pointedAt(state, ordinals, attributes, state.attributes.length, sequence), cooling);
}

function pointedAt(
  state: BlockState,
  ordinals: readonly number[],
  attributes: readonly BlockAttribute[],
  index: number,
  sequence: Sequence | undefined,
): BlockState {
  const allocations = [...state.allocations];
  const sequences = new Map(state.sequenceNumberForAllocation);
  for (const ordinal of ordinals) {
    allocations[ordinal] = index;
    if (sequence !== undefined) sequences.set(ordinal, sequence);
  }
  return { ...state, allocations, attributes, sequenceNumberForAllocation: sequences };
}

function withoutUnusedAttributes(state: BlockState): BlockState {
  const used = new Set(state.allocations);
  if (state.attributes.every((_, index) => used.has(index))) return state;
  const renumbered = new Map<number, number>();
  const attributes = state.attributes.filter((_, index) => {
    if (used.has(index)) renumbered.set(index, renumbered.size);
    return used.has(index);
  });
  const allocations = state.allocations.map((index) => (index === null ? null : (renumbered.get(index) ?? index)));
  return { ...state, allocations, attributes };
}

function attributeOf(state: BlockState, ordinal: number): BlockAttribute | undefined {
  const index = state.allocations[ordinal];
  if (index === null || index === undefined) return undefined;
  const attribute = state.attributes[index];
  invariant(attribute !== undefined, `ordinal ${ordinal} points at attribute ${index}, which is not there`);
  return attribute;
}

function handleOf(attribute: BlockAttribute): HandleId {
  // Calico compares handles up to the first carriage return (spec 1.9).
  return (attribute.handle_id ?? "").replace(/\r.*$/s, "") as HandleId;
}

function sequenceOf(state: BlockState, ordinal: number): Sequence {
  return state.sequenceNumberForAllocation.get(ordinal) ?? (0n as Sequence);
}

function isCooling(attribute: BlockAttribute): attribute is BlockAttribute & { readonly releasedAt: string } {
  return typeof attribute.releasedAt === "string";
}

function cooledDown(attribute: BlockAttribute, { now, cooldownSeconds }: Cooling): boolean {
  if (!isCooling(attribute)) return false;
  return cooldownSeconds <= 0 || Date.parse(attribute.releasedAt) < now - cooldownSeconds * 1000;
}

function isSame(attribute: BlockAttribute, wanted: BlockAttribute): boolean {
  const secondary = attribute.secondary ?? {};
  const wantedSecondary = wanted.secondary ?? {};
  return (
    attribute.handle_id === wanted.handle_id &&
    Object.keys(attribute).every((key) => key === "handle_id" || key === "secondary") &&
    Object.keys(secondary).length === Object.keys(wantedSecondary).length &&
    Object.entries(wantedSecondary).every(([key, value]) => secondary[key] === value)
  );
}

function ordinalsWhere(state: BlockState, matches: (attributeIndex: number) => boolean): number[] {
  return state.allocations.flatMap((index, ordinal) => (index !== null && matches(index) ? [ordinal] : []));
}
