// How many addresses of a block or a pool are in which state; the states are disjoint, and they sum to its size (ux 0.5).
// Leaves to others: showing it, and what of it is worth an alarm.
import { addressAt, cidrOf, contains, sizeOf } from "../ip/cidr.ts";
import type { Address, BlockCidr, CidrText } from "../kinds.ts";
import { blockOwner, holderOf, isFree, ownerAttributes } from "./block.ts";
import { isWarmHandle } from "./names.ts";
import type { Block, BlockState, Pool } from "./resources.ts";

/** In the order of precedence. foreign: taken by somebody who names neither pod nor tunnel. */
export const addressStates = ["owned", "warm", "cooling", "tunnel", "foreign", "reserved", "free"] as const;
export type AddressState = (typeof addressStates)[number];
export type Census = Readonly<Record<AddressState, bigint>>;

/** The types by which Calico stamps the addresses of a node's own tunnels (spec 4.9). */
const tunnelTypes: ReadonlySet<string> = new Set([
  "ipipTunnelAddress",
  "vxlanTunnelAddress",
  "vxlanV6TunnelAddress",
  "wireguardTunnelAddress",
  "wireguardV6TunnelAddress",
]);

export function isTunnel(attributes: Readonly<Record<string, string>>): boolean {
  return tunnelTypes.has(attributes.type ?? "");
}

export function stateOf(block: BlockState, ordinal: number, isReserved: boolean): AddressState {
  if (isFree(block, ordinal)) return isReserved ? "reserved" : "free";
  const holder = holderOf(block, ordinal);
  if (holder === undefined) return "cooling";
  if (isWarmHandle(holder.handle)) return "warm";
  const attributes = ownerAttributes(block, ordinal) ?? {};
  if (attributes.pod !== undefined) return "owned";
  if (isTunnel(attributes)) return "tunnel";
  // A pod's address on a further interface carries no pod's name, but our mark.
  return Object.keys(attributes).some((key) => key.startsWith("cattail.io/")) ? "owned" : "foreign";
}

export function censusOfBlock(block: Block, reservations: readonly CidrText[]): Census {
  const counts = none();
  for (const ordinal of block.allocations.keys()) {
    counts[stateOf(block, ordinal, isReservedAt(block.cidr, ordinal, reservations))] += 1n;
  }
  return counts;
}

/** `blocks`: those that lie in the pool, of whatever size. */
export function censusOfPool(pool: Pool, blocks: readonly Block[], reservations: readonly CidrText[]): Census {
  const counts = none();
  const touching = withoutNested(reservations.flatMap((cidr) => within(pool.cidr, cidr) ?? []));
  counts.reserved = touching.reduce((sum, cidr) => sum + sizeOf(cidrOf(cidr)), 0n);
  for (const block of blocks) {
    for (const ordinal of block.allocations.keys()) {
      if (isFree(block, ordinal)) continue;
      counts[stateOf(block, ordinal, false)] += 1n;
      if (isReservedAt(block.cidr, ordinal, touching)) counts.reserved -= 1n;
    }
  }
  const counted = addressStates.reduce((sum, state) => sum + counts[state], 0n);
  return { ...counts, free: sizeOf(cidrOf(pool.cidr)) - counted };
}

export interface BlockCounts {
  readonly affine: number;
  readonly ownerless: number;
  /** That nobody has made yet. */
  readonly unclaimed: bigint;
}

export function blocksOfPool(pool: Pool, blocks: readonly Block[]): BlockCounts {
  const affine = blocks.filter((block) => blockOwner(block) !== undefined).length;
  const { family, prefix } = cidrOf(pool.cidr);
  const all = 1n << BigInt(pool.blockSize - prefix);
  // One of another size than the pool has now is in the way of as many as it touches.
  const taken = new Set(blocks.flatMap((block) => placesOf(block.cidr, pool.blockSize, family === 4 ? 32 : 128)));
  return { affine, ownerless: blocks.length - affine, unclaimed: all - BigInt(taken.size) };
}

function placesOf(cidr: BlockCidr, blockSize: number, bits: number): bigint[] {
  const { base, prefix } = cidrOf(cidr);
  const shift = BigInt(bits - blockSize);
  const count = prefix >= blockSize ? 1 : 2 ** (blockSize - prefix);
  return Array.from({ length: count }, (_, index) => (base >> shift) + BigInt(index));
}

function isReservedAt(block: BlockCidr, ordinal: number, reservations: readonly CidrText[]): boolean {
  if (reservations.length === 0) return false;
  const address: Address = addressAt(block, ordinal);
  return reservations.some((cidr) => contains(cidr, address));
}

/** The part of a range that lies in the pool: CIDRs nest or have nothing in common. */
function within(pool: CidrText, cidr: CidrText): CidrText | undefined {
  if (contains(pool, cidr)) return cidr;
  return contains(cidr, pool) ? pool : undefined;
}

function withoutNested(cidrs: readonly CidrText[]): CidrText[] {
  const different = [...new Set(cidrs)];
  return different.filter((cidr) => !different.some((other) => other !== cidr && contains(other, cidr)));
}

function none(): Record<AddressState, bigint> {
  return { owned: 0n, warm: 0n, cooling: 0n, tunnel: 0n, foreign: 0n, reserved: 0n, free: 0n };
}
