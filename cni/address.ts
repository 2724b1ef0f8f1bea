// An address that somebody asks for or has: canonical, IPv4-mapped IPv6 taken for IPv4 as Calico does (spec 4.4).
// A file of its own because what it stands on doubles the time the executable needs to start: loaded only when asked.
import { parseAddress, printAddress, unmapped } from "../shared/ip/address.ts";
import type { Address } from "../shared/kinds.ts";

export function addressOf(text: string): Address | undefined {
  const parsed = parseAddress(text);
  if (parsed === undefined) return undefined;
  const { family, value } = unmapped(parsed);
  return printAddress(family, value);
}
