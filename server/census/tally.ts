// One block counted: how many of its addresses are in which state, whose they are, and which handles it names. Decides on the object alone.
// Leaves to census.ts which pool it is in, which Nodes there are, and the sums.
import { isOurKey, isTunnelType } from "../../shared/calico/attributes.ts";
import { windowsReservedHandle } from "../../shared/calico/block.ts";
import { isWarmHandle } from "../../shared/calico/names.ts";
import type { Block, BlockAttribute } from "../../shared/calico/resources.ts";
import type { HandleId, NodeName } from "../../shared/kinds.ts";
import { countsIn } from "../commit/handles.ts";

/** In order of precedence; `free` is what is left. */
export const addressStates = ["owned", "warm", "cooling", "tunnel", "foreign", "reserved", "free"] as const;
export type AddressState = (typeof addressStates)[number];
export type StateCounts = Record<AddressState, number>;

export interface Tally {
  readonly states: StateCounts;
  /** Addresses that an IPReservation names, whatever they are. */
  readonly inReservation: number;
  /** Held by another node than the block's owner. */
  readonly borrowed: number;
  /** By the node that holds them: addresses of pods, addresses in stock. */
  readonly holders: ReadonlyMap<NodeName, { readonly owned: number; readonly warm: number }>;
  /** Names of the IPAMHandle objects that stand for something in it. */
  readonly handles: ReadonlySet<string>;
}

export function noStates(): StateCounts {
  return { owned: 0, warm: 0, cooling: 0, tunnel: 0, foreign: 0, reserved: 0, free: 0 };
}

/** What an address is whose allocation points at these attributes. */
export function stateOf({ handle_id: handle = "", secondary = {}, releasedAt }: BlockAttribute): AddressState {
  if (releasedAt !== undefined) return "cooling";
  if (isWarmHandle(handle as HandleId)) return "warm";
  if (handle.toLowerCase() === windowsReservedHandle) return "reserved";
  if (isTunnelType(secondary.type)) return "tunnel";
  const isOfPod = secondary.pod !== undefined || Object.keys(secondary).some(isOurKey);
  return isOfPod ? "owned" : "foreign";
}

/** The state of each ordinal, in their order: what a picture of the block shows. */
export function statesIn(block: Block, isReserved: (ordinal: number) => boolean): AddressState[] {
  const states = block.attributes.map(stateOf);
  return block.allocations.map((index, ordinal) => {
    if (index === null) return isReserved(ordinal) ? "reserved" : "free";
    return states[index] ?? "foreign";
  });
}

export function tallyOf(block: Block, isReserved: (ordinal: number) => boolean): Tally {
  const states = noStates();
  const holders = new Map<NodeName, { owned: number; warm: number }>();
  const owner = block.affinity?.startsWith("host:") ? block.affinity.slice("host:".length) : undefined;
  let [inReservation, borrowed] = [0, 0];
  for (const [ordinal, state] of statesIn(block, isReserved).entries()) {
    states[state] += 1;
    if (isReserved(ordinal)) inReservation += 1;
    const index = block.allocations[ordinal];
    if (index === null || index === undefined) continue;
    const node = block.attributes[index]?.secondary?.node as NodeName | undefined;
    if (node === undefined || (state !== "owned" && state !== "warm")) continue;
    const held = holders.get(node) ?? { owned: 0, warm: 0 };
    held[state] += 1;
    holders.set(node, held);
    if (node !== owner && state === "owned") borrowed += 1;
  }
  return { states, inReservation, borrowed, holders, handles: new Set(countsIn(block).keys()) };
}
