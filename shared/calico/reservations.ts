// Which addresses IPReservations keep from being handed out (spec 2.3): to be asked for an address, an ordinal or a whole block.
// The number of reservations decides how long building takes; a question costs one binary search.
import { parseAddress } from "../ip/address.ts";
import { cidrOf, sizeOf } from "../ip/cidr.ts";
import { type Address, type BlockCidr, type CidrText, type Family, invariant } from "../kinds.ts";
import type { Reservation } from "./resources.ts";

export interface ReservationFilter {
  reserves(address: Address): boolean;
  /** Nothing of the block may be handed out: it is neither searched nor claimed. */
  reservesAllOf(block: BlockCidr): boolean;
  /** For shared/calico/block.ts: the test of the block's ordinals. */
  ordinalsOf(block: BlockCidr): (ordinal: number) => boolean;
  /** How many addresses of the range are reserved. */
  countIn(range: CidrText): bigint;
}

interface Range {
  readonly first: bigint;
  readonly last: bigint;
}

export function reservationFilter(reservations: Iterable<Pick<Reservation, "cidrs">>): ReservationFilter {
  const cidrs = [...reservations].flatMap((reservation) => reservation.cidrs);
  const ranges = { 4: merged(cidrs, 4), 6: merged(cidrs, 6) };
  /** The first range that ends at or after the address. */
  const rangeFrom = (family: Family, value: bigint): Range | undefined => {
    let [low, high] = [0, ranges[family].length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ranges[family][middle]?.last ?? 0n) < value) low = middle + 1;
      else high = middle;
    }
    return ranges[family][low];
  };
  const holds = (family: Family, value: bigint): boolean => {
    const range = rangeFrom(family, value);
    return range !== undefined && range.first <= value;
  };
  const overlaps = (block: BlockCidr): boolean => {
    const cidr = cidrOf(block);
    const range = rangeFrom(cidr.family, cidr.base);
    return range !== undefined && range.first < cidr.base + sizeOf(cidr);
  };
  return {
    reserves(text) {
      const address = parseAddress(text);
      invariant(address !== undefined, `${text} is no address`);
      return holds(address.family, address.value);
    },
    reservesAllOf(block) {
      const cidr = cidrOf(block);
      const range = rangeFrom(cidr.family, cidr.base);
      return range !== undefined && range.first <= cidr.base && range.last >= cidr.base + sizeOf(cidr) - 1n;
    },
    ordinalsOf(block) {
      if (!overlaps(block)) return () => false;
      const { family, base } = cidrOf(block);
      return (ordinal) => holds(family, base + BigInt(ordinal));
    },
    countIn(text) {
      const cidr = cidrOf(text);
      const [first, last] = [cidr.base, cidr.base + sizeOf(cidr) - 1n];
      return ranges[cidr.family].reduce((sum, range) => {
        const [from, to] = [range.first > first ? range.first : first, range.last < last ? range.last : last];
        return to < from ? sum : sum + to - from + 1n;
      }, 0n);
    },
  };
}

/**
 * Ascending, neither overlapping nor touching. Calico asks whether one reservation covers a block or the largest ones inside add up to
 * its size; as CIDRs are nested or apart, that is to ask whether one merged range covers it.
 */
function merged(cidrs: readonly CidrText[], family: Family): readonly Range[] {
  const ranges = cidrs
    .map(cidrOf)
    .filter((cidr) => cidr.family === family)
    .map((cidr): Range => ({ first: cidr.base, last: cidr.base + sizeOf(cidr) - 1n }))
    .sort((a, b) => (a.first < b.first ? -1 : a.first > b.first ? 1 : 0));
  const result: Range[] = [];
  for (const range of ranges) {
    const before = result.at(-1);
    if (before === undefined || range.first > before.last + 1n) result.push(range);
    else if (range.last > before.last) result[result.length - 1] = { first: before.first, last: range.last };
  }
  return result;
}
