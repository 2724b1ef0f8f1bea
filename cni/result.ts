// What ADD and VERSION print: one JSON document in the shape of the configuration's cniVersion (spec/cni.md 3.1, spec 4.10).
// Leaves to others: the addresses, and printing.
import type { Success } from "../shared/protocol/socket.ts";
import { type Complaint, cniCode, complaint } from "./complaint.ts";
import type { Route } from "./ipam-config.ts";
import { type CniVersion, cniVersions, isAtLeast, newestCniVersion } from "./netconf.ts";

export interface Printable {
  readonly ok: true;
  readonly stdout: string;
}

type Ip = NonNullable<Success["ips"]>[number];

export function resultDocument(
  cniVersion: CniVersion,
  dropIn: boolean,
  success: Success,
  configured: readonly Route[],
): Printable | Complaint {
  const ips = [...(success.ips ?? [])].sort((a, b) => Number(isIpv6(a.address)) - Number(isIpv6(b.address)));
  const all = [...(success.routes ?? []), ...configured];
  const routes = all.map((route) => routeOf(route, isAtLeast(cniVersion, "1.1.0")));
  // Calico's library prints an empty `dns` before 1.0.0; a bridge would take it for a wish.
  const dns = dropIn && !isAtLeast(cniVersion, "1.0.0") ? { dns: {} } : {};
  if (!isAtLeast(cniVersion, "0.3.0")) return perFamily(cniVersion, ips, routes, dns);
  const versioned = !isAtLeast(cniVersion, "1.0.0");
  return printable({
    cniVersion,
    ...(ips.length === 0
      ? {}
      : { ips: ips.map((ip) => ({ ...(versioned ? { version: versionOf(ip) } : {}), ...ipOf(ip) })) }),
    ...(routes.length === 0 ? {} : { routes }),
    ...dns,
  });
}

export function versionDocument(): string {
  return JSON.stringify({ cniVersion: newestCniVersion, supportedVersions: cniVersions });
}

/** 0.1.0 and 0.2.0 hold one address of each family, with its routes. */
function perFamily(
  cniVersion: CniVersion,
  ips: readonly Ip[],
  routes: readonly Route[],
  dns: object,
): Printable | Complaint {
  const of4 = ips.filter((ip) => !isIpv6(ip.address));
  const of6 = ips.filter((ip) => isIpv6(ip.address));
  if (of4.length > 1 || of6.length > 1) {
    return complaint(
      cniCode.config,
      "BadConfig",
      `cniVersion ${cniVersion} cannot hold ${ips.length} addresses, two of a family`,
      {
        next: "Use cniVersion 0.3.1 or newer",
      },
    );
  }
  if (ips.length === 0) {
    return complaint(cniCode.config, "BadConfig", `cniVersion ${cniVersion} cannot hold a result without addresses`, {
      next: "Let the ipam section assign at least one family",
      details: "cannot convert: no valid IP addresses",
    });
  }
  const family = (ip: Ip | undefined) => {
    if (ip === undefined) return undefined;
    const own = routes.filter((route) => isIpv6(route.dst) === isIpv6(ip.address));
    const { address, ...rest } = ipOf(ip);
    return { ip: address, ...rest, ...(own.length === 0 ? {} : { routes: own }) };
  };
  return printable({ cniVersion, ip4: family(of4[0]), ip6: family(of6[0]), ...dns });
}

function printable(document: object): Printable {
  return { ok: true, stdout: JSON.stringify(document, null, 4) };
}

function ipOf(ip: Ip): { address: string; gateway?: string } {
  const { address, gateway = "" } = ip;
  return gateway === "" ? { address } : { address, gateway };
}

/** Before 1.1.0 a route is a range and a gateway. */
function routeOf(route: NonNullable<Success["routes"]>[number] | Route, withAttributes: boolean): Route {
  const { dst, gw = "", ...attributes } = route;
  // The excuse for this cast: a missing attribute stays missing, which exactOptionalPropertyTypes cannot see.
  return { dst, ...(gw === "" ? {} : { gw }), ...(withAttributes ? (attributes as Partial<Route>) : {}) };
}

function versionOf(ip: Ip): "4" | "6" {
  return isIpv6(ip.address) ? "6" : "4";
}

function isIpv6(text: string): boolean {
  return text.includes(":");
}
