// Where an ADD may take its addresses, as pools, labels, reservations and the caller's wishes have it (spec 2.3, 2.5, 3.1).
// A reading of the view, remembered until the view changes: an ADD costs the same however many pools the cluster has.
import { LRUCache } from "lru-cache";
import { collect, freeOrdinals } from "../../shared/calico/block.ts";
import { byName, choosePools, type PoolChoice, poolOf, resolvePools } from "../../shared/calico/pools.ts";
import { type ReservationFilter, reservationFilter } from "../../shared/calico/reservations.ts";
import { type Block, defaultIpamConfig, type Pool } from "../../shared/calico/resources.ts";
import { canonicalAddress, parseAddress, printAddress, unmapped } from "../../shared/ip/address.ts";
import { blockOf, cidrOf, contains, familyOf, sizeOf } from "../../shared/ip/cidr.ts";
import type { Address, BlockCidr, Family, NodeName, PoolName, UnixMs } from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import type { Reason } from "../../shared/reasons.ts";
import type { Any, Placement, Wanted } from "../ledger/state.ts";
import type { View } from "../sync/view.ts";
import { cniCode, type Trouble, trouble } from "../trouble.ts";
import { claimSentence, troubleOfChoice } from "./sentences.ts";

/** Namespaces with pods on one node, times the ways they ask for pools. */
const rememberedChoices = 1024;

export class ViewPlacement implements Placement {
  readonly #view: View;
  readonly #node: NodeName;
  readonly #wall: () => UnixMs;
  #pools: readonly Pool[] | undefined;
  #reservations: ReservationFilter | undefined;
  readonly #choices = new LRUCache<string, PoolChoice>({ max: rememberedChoices });

  constructor(view: View, node: NodeName, wall: () => UnixMs) {
    this.#view = view;
    this.#node = node;
    this.#wall = wall;
  }

  /** The view is not what it was. */
  forget(): void {
    this.#pools = undefined;
    this.#reservations = undefined;
    this.#choices.clear();
  }

  wanted(ask: AddRequest): readonly Wanted[] | Trouble {
    if (this.#view.get("cluster", "default")?.datastoreReady !== true) return locked();
    if (ask.requested.length > 0) return inOrder(ask.requested.map((text) => this.#wantedAddress(text)));
    const families: Family[] = [...(ask.families.ipv4 ? [4 as const] : []), ...(ask.families.ipv6 ? [6 as const] : [])];
    return inOrder(families.map((family) => this.#wantedAny(ask, family)));
  }

  poolOf(block: BlockCidr): PoolName | undefined {
    return poolOf(this.#sortedPools(), block)?.name;
  }

  /** The pool of an address, whatever became of it since. */
  poolAround(address: Address): Pool | undefined {
    return this.#sortedPools().find((pool) => contains(pool.cidr, address));
  }

  freeOrdinals(block: Block): number[] {
    const { ipCooldownSeconds: cooldownSeconds } = this.#view.get("config", "default") ?? defaultIpamConfig;
    // As the server will see it when it writes: what has cooled down is free.
    const state = collect(block, { now: this.#wall(), cooldownSeconds });
    return freeOrdinals(state, this.#reserved().ordinalsOf(block.cidr));
  }

  usual(): readonly Any[] {
    return ([4, 6] as const).flatMap((family) => {
      const choice = this.#chosen(family, [], "");
      return choice.ok ? [{ kind: "any" as const, family, pools: choice.pools.map(({ name }) => name) }] : [];
    });
  }

  isReserved(address: Address): boolean {
    return this.#reserved().reserves(address);
  }

  cooldownMs(): number {
    return (this.#view.get("config", "default") ?? defaultIpamConfig).ipCooldownSeconds * 1000;
  }

  forbids({ cidr, affinity }: Block): Trouble | undefined {
    const { strictAffinity } = this.#view.get("config", "default") ?? defaultIpamConfig;
    if (!strictAffinity) return undefined;
    const [whose, details] =
      affinity === undefined
        ? ["nobody's", `Attempt to assign from block ${cidr} with no affinity`]
        : ["another node's", "Block host affinity does not match"];
    const why = `the address that was asked for lies in block ${cidr}, which is ${whose}, and strictAffinity is set`;
    return trouble("StrictAffinity", why, { code: cniCode.addressNotAllowed, details });
  }

  verdict(reason: Reason, names: readonly PoolName[]): string {
    const pools = names.flatMap((name) => this.#view.get("pool", name) ?? []);
    const each = pools.map(
      ({ name, cidr }) => `pool ${name} ${cidr} (${sizeOf(cidrOf(cidr))} addresses): no block to be had`,
    );
    const config = this.#view.get("config", "default") ?? defaultIpamConfig;
    return [claimSentence(reason, pools, config), ...each].join("; ");
  }

  #wantedAny(ask: AddRequest, family: Family): Wanted | Trouble {
    const choice = this.#choose(ask, family);
    if ("reason" in choice) return choice;
    if (!choice.ok) return troubleOfChoice(choice.error, family, this.#sortedPools());
    const gateway = this.#unsafeGateway(ask, family, choice.pools);
    return gateway ?? { kind: "any", family, pools: choice.pools.map(({ name }) => name) };
  }

  #choose(ask: AddRequest, family: Family): PoolChoice | Trouble {
    const entries = family === 4 ? ask.pools.ipv4 : ask.pools.ipv6;
    const isKnown = this.#view.get("namespace", ask.podNamespace) !== undefined;
    const pools = this.#sortedPools();
    if (entries.length === 0 && !isKnown && ask.podNamespace !== "" && pools.some(asksForNamespace)) {
      const why = `namespace ${ask.podNamespace} is not known on this node yet, and there are pools that choose by namespace`;
      const details = `failed to get namespace ${ask.podNamespace}`;
      return trouble("NoPoolSelected", why, { code: cniCode.tryLater, details });
    }
    return this.#chosen(family, entries, ask.podNamespace);
  }

  #chosen(family: Family, entries: readonly string[], namespace: string): PoolChoice {
    const pools = this.#sortedPools();
    const key = JSON.stringify([family, entries, namespace]);
    const known = this.#choices.get(key);
    if (known) return known;
    const resolved = resolvePools(pools, entries, family);
    const choice = resolved.ok
      ? choosePools(pools, {
          family,
          use: "Workload",
          requested: resolved.cidrs,
          node: this.#node,
          nodeLabels: this.#view.get("node", this.#node)?.labels ?? {},
          namespaceLabels: this.#view.get("namespace", namespace)?.labels,
        })
      : resolved;
    this.#choices.set(key, choice);
    return choice;
  }

  /** A gateway that a pod may be given would cut its node's pods off one day. */
  #unsafeGateway(ask: AddRequest, family: Family, pools: readonly Pool[]): Trouble | undefined {
    if (ask.dropIn) return undefined;
    for (const pool of pools) {
      const gateway = gatewayFor(ask, family, pool);
      if (gateway === undefined || !contains(pool.cidr, gateway) || this.#reserved().reserves(gateway)) continue;
      const why = `its gateway ${gateway} lies in pool ${pool.name} and could be given to a pod`;
      return trouble("BadConfig", why, { next: `Create an IPReservation for ${gateway}` });
    }
    return undefined;
  }

  #wantedAddress(text: string): Wanted | Trouble {
    const parsed = parseAddress(text);
    if (parsed === undefined) return trouble("BadRequest", `"${text}" is no address`);
    const { family, value } = unmapped(parsed);
    const address = printAddress(family, value);
    const pool = poolOf(this.#sortedPools(), address);
    if (pool === undefined) {
      const details = "The provided IP address is not in a configured pool\n";
      return trouble("AddressOutsidePool", `no enabled pool contains the address ${address} that was asked for`, {
        details,
      });
    }
    if (!pool.allowedUses.includes("Workload")) {
      const uses = pool.allowedUses.join(" ");
      const details = `IP address ${address} is in IP pool "${pool.name}", which is not allowed for use "Workload" (allowedUses: [${uses}])`;
      return trouble("AddressOutsidePool", `pool ${pool.name} of the address ${address} is not for workloads`, {
        details,
      });
    }
    return { kind: "address", family, address, block: blockOf(address, pool.blockSize), pool: pool.name };
  }

  #sortedPools(): readonly Pool[] {
    this.#pools ??= [...this.#view.all("pool").values()].sort(byName);
    return this.#pools;
  }

  #reserved(): ReservationFilter {
    this.#reservations ??= reservationFilter(this.#view.all("reservation").values());
    return this.#reservations;
  }
}

/** `first` is the first address a host can have: the one after the network's own. */
export function gatewayFor(ask: AddRequest, family: Family, pool: Pool): Address | undefined {
  const { gateway } = ask.result;
  if (gateway === "") return undefined;
  if (gateway === "first") return printAddress(family, cidrOf(pool.cidr).base + 1n);
  const address = canonicalAddress(gateway);
  return address !== undefined && familyOf(address) === family ? address : undefined;
}

function asksForNamespace({ namespaceSelector }: Pool): boolean {
  return namespaceSelector !== "";
}

function inOrder(found: readonly (Wanted | Trouble)[]): readonly Wanted[] | Trouble {
  const wanted: Wanted[] = [];
  for (const one of found) {
    if ("reason" in one) return one;
    wanted.push(one);
  }
  return wanted;
}

function locked(): Trouble {
  const why = "Calico's datastore is locked: ClusterInformation default is missing or its datastoreReady is false";
  return trouble("DatastoreLocked", why, { details: "Calico is currently not ready to process requests" });
}
