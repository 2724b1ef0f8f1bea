// Which pools an address may come from, in which order, and Calico's sentences for when there is none (spec 1.6, 2.5, 3.1, 4.8).
// A function of pools and labels. Leaves to others what is free in them.
import { printAddress } from "../ip/address.ts";
import { cidrOf, contains, familyOf, parseCidr } from "../ip/cidr.ts";
import type { Address, CidrText, Family } from "../kinds.ts";
import type { Pool, PoolUse } from "./resources.ts";
import { compileSelector, type Labels } from "./selector.ts";

export interface PoolRequest {
  readonly family: Family;
  readonly use: PoolUse;
  /** Canonical CIDRs in the caller's order, as `resolvePools` gives them; none = Calico chooses. */
  readonly requested: readonly CidrText[];
  /** For the sentence alone. */
  readonly node: string;
  readonly nodeLabels: Labels;
  /** Undefined: no namespace is known, which counts as one without labels (trap 48). */
  readonly namespaceLabels: Labels | undefined;
}

export type PoolChoice =
  | { readonly ok: true; readonly pools: readonly Pool[] }
  | { readonly ok: false; readonly error: string };

/** `pools` in the order of `byName`. Never empty when ok. */
export function choosePools(pools: readonly Pool[], request: PoolRequest): PoolChoice {
  const usable = pools.filter((pool) => isUsable(pool, request.family));
  if (usable.length === 0) return refused("cannot find a qualified ippool");
  const matching = request.requested.length > 0 ? requestedPools(usable, request) : automaticPools(usable, request);
  if (!matching.ok) return matching;
  if (matching.pools.length === 0) return refused(`no configured Calico pools for node ${request.node}`);
  const allowed = matching.pools.filter((pool) => pool.allowedUses.includes(request.use));
  if (allowed.length > 0) return chosen(allowed);
  return refused(`cannot find a qualified ippool, no pools match the required use (${request.use})`);
}

/** Calico's order wherever nobody asked for another: bytewise by name (trap 46). */
export function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  // Names of Kubernetes objects are ASCII: code units are bytes.
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}

export function isUsable(pool: Pool, family: Family): boolean {
  return !pool.deleting && !pool.disabled && pool.allocatable && familyOf(pool.cidr) === family;
}

/** The usable pool that an address or a block lies in: the first in the order of `byName`. */
export function poolOf(pools: readonly Pool[], place: Address | CidrText): Pool | undefined {
  const family = familyOf(place);
  return pools.find((pool) => isUsable(pool, family) && contains(pool.cidr, place));
}

export type Resolved =
  | { readonly ok: true; readonly cidrs: readonly CidrText[] }
  | { readonly ok: false; readonly error: string };

/** Makes CIDRs of what a network configuration lists: CIDRs or names of any pools, usable or not. */
export function resolvePools(pools: readonly Pool[], entries: readonly string[], family: Family): Resolved {
  const cidrs: CidrText[] = [];
  for (const entry of entries) {
    const cidr = parseCidr(entry)?.text ?? pools.find((pool) => pool.name === entry)?.cidr;
    if (cidr === undefined)
      return refused(`error parsing pool ${JSON.stringify(entry)}: invalid CIDR address: ${entry}`);
    if (familyOf(cidr) !== family) {
      const { family: other, base } = cidrOf(cidr);
      return refused(`"${printAddress(other, base)}" isn't a IPv${family} address`);
    }
    cidrs.push(cidr);
  }
  return { ok: true, cidrs };
}

/** Neither selectors nor Manual count for what was asked for (trap 45). */
function requestedPools(usable: readonly Pool[], { requested }: PoolRequest): PoolChoice {
  // Should two pools have the same range, the later name wins, as in Calico's map.
  const byCidr = new Map(usable.map((pool) => [pool.cidr, pool]));
  const pools: Pool[] = [];
  for (const cidr of requested) {
    const pool = byCidr.get(cidr);
    if (pool === undefined) return refused(`the given pool (${cidr}) does not exist, or is not enabled`);
    pools.push(pool);
  }
  return chosen(pools);
}

function automaticPools(usable: readonly Pool[], request: PoolRequest): PoolChoice {
  const pools: Pool[] = [];
  for (const pool of usable) {
    if (pool.assignmentMode === "Manual") continue;
    const nodes = compileSelector(pool.nodeSelector);
    if (!nodes.ok) return nodes;
    if (!nodes.matches(request.nodeLabels)) continue;
    const namespaces = compileSelector(pool.namespaceSelector);
    if (!namespaces.ok) return namespaces;
    if (namespaces.matches(request.namespaceLabels ?? {})) pools.push(pool);
  }
  return chosen(pools);
}

function chosen(pools: readonly Pool[]): PoolChoice {
  return { ok: true, pools };
}

function refused(error: string): { readonly ok: false; readonly error: string } {
  return { ok: false, error };
}
