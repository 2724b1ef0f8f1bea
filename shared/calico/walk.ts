// In which order Calico tries the blocks of a pool for a host (spec 2.10): from a start that the host's name decides, once around.
// Leaves to others which of them are free. A walk costs nothing until it is taken: an IPv6 pool has more blocks than anyone counts.
import { utf8ToBytes } from "@noble/hashes/utils.js";
import { bitsOf } from "../ip/address.ts";
import { type Cidr, cidrAround, cidrOf } from "../ip/cidr.ts";
import { type BlockCidr, type CidrText, invariant } from "../kinds.ts";
import type { Random } from "../world.ts";
import { goRandom } from "./go-rand.ts";

export interface PoolRange {
  readonly cidr: CidrText;
  readonly blockSize: number;
}

export function* candidateBlocks(pool: PoolRange, host: string, random: Random): Generator<BlockCidr> {
  const blocks = blockCount(pool);
  if (blocks === 0n) return;
  const start = startIndex(host, pool, random);
  for (let k = start; k < blocks; k++) yield blockAtIndex(pool, k);
  for (let k = 0n; k < start; k++) yield blockAtIndex(pool, k);
}

/** Blocks of one address begin anywhere, as otherwise every pod would begin at the same place (trap 51). */
export function startIndex(host: string, pool: PoolRange, random: Random): bigint {
  const blocks = blockCount(pool);
  invariant(blocks > 0n, `${pool.cidr} holds no block of /${pool.blockSize}`);
  if (pool.blockSize === bitsOf(cidrOf(pool.cidr).family)) return below(blocks, () => random.below(2 ** 32));
  const source = goRandom(fnv1(utf8ToBytes(host)));
  return below(blocks, () => source.uint32());
}

export function blockAtIndex(pool: PoolRange, index: bigint): BlockCidr {
  const { family, base } = cidrOf(pool.cidr);
  const hostBits = BigInt(bitsOf(family) - pool.blockSize);
  return cidrAround({ family, value: base + (index << hostBits) }, pool.blockSize).text as BlockCidr;
}

/** Undefined: no block of this pool. */
export function indexOfBlock(pool: PoolRange, block: BlockCidr): bigint | undefined {
  const range = cidrOf(pool.cidr);
  const { family, base, prefix } = cidrOf(block);
  if (family !== range.family || prefix !== pool.blockSize || base < range.base) return undefined;
  const index = (base - range.base) >> BigInt(bitsOf(family) - prefix);
  return index < blockCount(pool) ? index : undefined;
}

/** 0 when the pool is smaller than one of its blocks. */
export function blockCount(pool: PoolRange): bigint {
  const range: Cidr = cidrOf(pool.cidr);
  return pool.blockSize < range.prefix ? 0n : 1n << BigInt(pool.blockSize - range.prefix);
}

/** FNV-1, not 1a: multiply, then xor. */
function fnv1(bytes: Uint8Array): number {
  let hash = 2_166_136_261;
  for (const byte of bytes) hash = (Math.imul(hash, 16_777_619) ^ byte) >>> 0;
  return hash;
}

/** Go's big.Int.Rand: as many 64-bit words as the limit has, lower half first, the top one masked; drawn again until below the limit. */
function below(limit: bigint, uint32: () => number): bigint {
  const bits = limit.toString(2).length;
  for (;;) {
    let drawn = 0n;
    for (let shift = 0; shift < bits; shift += 64) {
      const low = BigInt(uint32());
      drawn |= (low | (BigInt(uint32()) << 32n)) << BigInt(shift);
    }
    drawn = BigInt.asUintN(bits, drawn);
    if (drawn < limit) return drawn;
  }
}
