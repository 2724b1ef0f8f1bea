// Ranges of addresses: canonical text, containment, and the places of addresses in a block.
// Leaves to others what a range is for (shared/calico). Texts are branded once canonical, so they compare as strings.
import { LRUCache } from "lru-cache";
import { type Address, type BlockCidr, type CidrText, type Family, invariant } from "../kinds.ts";
import { bitsOf, type IpAddress, parseAddress, printAddress } from "./address.ts";

export interface Cidr {
  readonly family: Family;
  /** The network address: host bits are zero. */
  readonly base: bigint;
  readonly prefix: number;
  readonly text: CidrText;
}

/** Host bits are masked away, as Go's net.ParseCIDR does; a prefix with leading zeros is refused. */
export function parseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf("/");
  const address = slash < 0 ? undefined : parseAddress(text.slice(0, slash));
  const prefixText = text.slice(slash + 1);
  if (address === undefined || !/^(0|[1-9][0-9]{0,2})$/.test(prefixText)) return undefined;
  const prefix = Number(prefixText);
  return prefix > bitsOf(address.family) ? undefined : cidrAround(address, prefix);
}

export function canonicalCidr(text: string): CidrText | undefined {
  return parseCidr(text)?.text;
}

/** The range of this prefix length that an address lies in. */
export function cidrAround({ family, value }: IpAddress, prefix: number): Cidr {
  const hostBits = BigInt(bitsOf(family) - prefix);
  const base = (value >> hostBits) << hostBits;
  return { family, base, prefix, text: `${printAddress(family, base)}/${prefix}` as CidrText };
}

/** An address alone, as /32 or /128. */
export function hostCidr(address: IpAddress): Cidr {
  return cidrAround(address, bitsOf(address.family));
}

/** Holds the blocks of a node many times over; a server walks through more, at the price of parsing them again. */
const rememberedCidrs = 16_384;
const remembered = new LRUCache<CidrText, Cidr>({ max: rememberedCidrs });

/** The numbers behind a canonical text. */
export function cidrOf(text: CidrText): Cidr {
  const known = remembered.get(text);
  if (known !== undefined) return known;
  const cidr = parseCidr(text);
  invariant(cidr !== undefined, `${text} is no CIDR`);
  remembered.set(text, cidr);
  return cidr;
}

export function familyOf(text: CidrText | Address): Family {
  return text.includes(":") ? 6 : 4;
}

export function sizeOf(cidr: Cidr): bigint {
  return 1n << BigInt(bitsOf(cidr.family) - cidr.prefix);
}

export function contains(outer: CidrText, inner: CidrText | Address): boolean {
  const a = cidrOf(outer);
  const b = inner.includes("/") ? cidrOf(inner as CidrText) : hostCidr(knownAddress(inner as Address));
  if (a.family !== b.family || a.prefix > b.prefix) return false;
  const hostBits = BigInt(bitsOf(a.family) - a.prefix);
  return a.base >> hostBits === b.base >> hostBits;
}

export function overlaps(one: CidrText, other: CidrText): boolean {
  return contains(one, other) || contains(other, one);
}

export function addressAt(cidr: CidrText, ordinal: number): Address {
  const { family, base, prefix } = cidrOf(cidr);
  invariant(ordinal >= 0 && ordinal < 2 ** (bitsOf(family) - prefix), `${cidr} has no ordinal ${ordinal}`);
  return printAddress(family, base + BigInt(ordinal));
}

/** Undefined when the address lies outside. */
export function ordinalOf(cidr: CidrText, address: Address): number | undefined {
  const block = cidrOf(cidr);
  const { family, value } = knownAddress(address);
  if (family !== block.family || value < block.base || value - block.base >= sizeOf(block)) return undefined;
  return Number(value - block.base);
}

/** The block that an address lies in when blocks have this prefix length. */
export function blockOf(address: Address, blockSize: number): BlockCidr {
  return cidrAround(knownAddress(address), blockSize).text as BlockCidr;
}

function knownAddress(text: Address): IpAddress {
  const address = parseAddress(text);
  invariant(address !== undefined, `${text} is no address`);
  return address;
}
