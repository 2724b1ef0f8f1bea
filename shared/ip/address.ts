// One IP address: text to number and back, as Go's net/netip reads and prints it (RFC 5952; IPv4-mapped stays IPv6; no zones).
// Leaves ranges to cidr.ts. ip-num judges the text; inside there are plain integers only.
import { IPv4, IPv6 } from "ip-num";
import type { Address, Family } from "../kinds.ts";

export interface IpAddress {
  readonly family: Family;
  readonly value: bigint;
}

/** The longest textual address: `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255`. */
const longestText = 45;

export function parseAddress(text: string): IpAddress | undefined {
  // ip-num accepts a zone and drops it.
  if (text.length > longestText || text.includes("%")) return undefined;
  try {
    return text.includes(":")
      ? { family: 6, value: IPv6.fromString(text).value }
      : { family: 4, value: IPv4.fromDecimalDottedString(text).value };
  } catch {
    return undefined;
  }
}

export function canonicalAddress(text: string): Address | undefined {
  const address = parseAddress(text);
  return address && printAddress(address.family, address.value);
}

/** Makes `::ffff:10.0.0.7` the IPv4 address that Calico takes it for when somebody asks for it (spec 4.4). */
export function unmapped(address: IpAddress): IpAddress {
  return isMapped(address.family, address.value) ? { family: 4, value: BigInt.asUintN(32, address.value) } : address;
}

export function bitsOf(family: Family): 32 | 128 {
  return family === 4 ? 32 : 128;
}

export function printAddress(family: Family, value: bigint): Address {
  if (family === 4) return dotted(value) as Address;
  if (isMapped(family, value)) return `::ffff:${dotted(BigInt.asUintN(32, value))}` as Address;
  return compressed(hextets(value)) as Address;
}

function isMapped(family: Family, value: bigint): boolean {
  return family === 6 && value >> 32n === 0xffffn;
}

function dotted(value: bigint): string {
  const bits = Number(value);
  return `${bits >>> 24}.${(bits >>> 16) & 255}.${(bits >>> 8) & 255}.${bits & 255}`;
}

function hextets(value: bigint): number[] {
  const parts: number[] = [];
  for (let shift = 112n; shift >= 0n; shift -= 16n) parts.push(Number((value >> shift) & 0xffffn));
  return parts;
}

/** RFC 5952: the first of the longest runs of at least two zeros becomes `::`. */
function compressed(parts: readonly number[]): string {
  let start = 0;
  let length = 1;
  for (let from = 0; from < parts.length; ) {
    let to = from;
    while (parts[to] === 0) to++;
    if (to - from > length) [start, length] = [from, to - from];
    from = to + 1;
  }
  const hex = (from: number, to?: number): string =>
    parts
      .slice(from, to)
      .map((part) => part.toString(16))
      .join(":");
  return length < 2 ? hex(0) : `${hex(0, start)}::${hex(start + length)}`;
}
