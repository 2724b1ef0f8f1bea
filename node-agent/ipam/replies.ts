// What the executable is told: results in the shape its main plugin understands, refusals in one sentence (spec 4.10; ux 8).
// Leaves to others what was decided, and the printing to the executable.
import { bitsOf } from "../../shared/ip/address.ts";
import { cidrOf, familyOf } from "../../shared/ip/cidr.ts";
import type { AddRequest, AgentRequest, Refusal, Success } from "../../shared/protocol/socket.ts";
import { explain, maxDetailsChars, shortened } from "../../shared/reasons.ts";
import type { Granted } from "../ledger/turn.ts";
import type { Trouble } from "../trouble.ts";
import { gatewayFor, type ViewPlacement } from "./placement.ts";

type Ip = NonNullable<Success["ips"]>[number];

export function grant(ask: AddRequest, places: readonly Granted[], placement: ViewPlacement): Success {
  const ips = places.map((place): Ip => (ask.dropIn ? calicosIp(ask, place) : ownIp(ask, place, placement)));
  // Calico's main plugin takes an address without a route for a migration's target (trap 53); others choke on such routes.
  const routes = ask.dropIn ? ips.map(({ address }) => ({ dst: address })) : [];
  return { ok: true, ips, ...(routes.length > 0 && { routes }) };
}

/** The block's prefix, but an address that was asked for stands alone. */
function calicosIp({ requested }: AddRequest, { address, block }: Granted): Ip {
  const prefix = requested.length > 0 ? bitsOf(familyOf(address)) : cidrOf(block).prefix;
  return { address: `${address}/${prefix}` };
}

function ownIp(ask: AddRequest, { address, block }: Granted, placement: ViewPlacement): Ip {
  const pool = placement.poolAround(address);
  const family = familyOf(address);
  const gateway = pool && gatewayFor(ask, family, pool);
  return { address: `${address}/${prefixOf()}`, ...(gateway !== undefined && { gateway }) };

  function prefixOf(): number {
    if (ask.result.prefix === "host") return bitsOf(family);
    return cidrOf(ask.result.prefix === "pool" && pool ? pool.cidr : block).prefix;
  }
}

const failedAct = {
  ADD: "no address",
  DEL: "address not released",
  CHECK: "attachment not confirmed",
  GC: "nothing collected",
  STATUS: "not ready",
} as const satisfies Record<AgentRequest["verb"], string>;

export function refusal(request: AgentRequest, { code, reason, why, next, details }: Trouble): Refusal {
  const object = objectOf(request);
  const msg = explain({
    what: failedAct[request.verb],
    ...(object !== undefined && { object }),
    why,
    reason,
    request: request.request,
    ...(next !== undefined && { next }),
  });
  return { ok: false, code, msg, ...(details !== undefined && { details: shortened(details, maxDetailsChars) }) };
}

function objectOf(request: AgentRequest): string | undefined {
  if (request.verb === "STATUS") return undefined;
  if (request.verb === "GC") return `network ${request.network}`;
  if (request.podName !== "") return `pod ${request.podNamespace}/${request.podName}`;
  return `container ${request.containerId.slice(0, 12)}`;
}
