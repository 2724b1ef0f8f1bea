// What nobody will come for, if its node is gone: ours in a block, claims half made, handles without an address. Decides only, on the
// objects it is shown. Leaves to reaper.ts whether the node is gone and since when each of these has been as it is.
import { isOurKey } from "../../shared/calico/attributes.ts";
import { holderOf, ownerAttributes } from "../../shared/calico/block.ts";
import { isWarmHandle } from "../../shared/calico/names.ts";
import type { Affinity, Block, Handle } from "../../shared/calico/resources.ts";
import { type BlockCidr, type HandleId, invariant, type NodeName } from "../../shared/kinds.ts";
import type { Intent } from "../../shared/protocol/stream.ts";

/** Addresses in one block that only an agent of this node could release. */
export interface Stock {
  readonly node: NodeName;
  readonly block: BlockCidr;
  /** Each names handle and sequence: what was allocated anew since is not meant (trap 74). */
  readonly releases: readonly Intent[];
}

/** Calico's collector frees what is stamped with a pod; what is ours alone it never touches (spec 6.7), and then it cannot let go of the node (trap 72). */
export function stocksIn(block: Block, isOfInterest: (node: NodeName) => boolean): Stock[] {
  if (block.deleted || !block.attributes.some(({ handle_id, secondary }) => isOurs(handle_id ?? "", secondary ?? {})))
    return [];
  const releases = new Map<NodeName, Intent[]>();
  for (const [ordinal] of block.allocations.entries()) {
    const intent = releaseOf(block, ordinal);
    if (intent === undefined || !isOfInterest(intent.node)) continue;
    const known = releases.get(intent.node);
    if (known === undefined) releases.set(intent.node, [intent.release]);
    else known.push(intent.release);
  }
  return [...releases].map(([node, intents]) => ({ node, block: block.cidr, releases: intents }));
}

function releaseOf(block: Block, ordinal: number): { readonly node: NodeName; readonly release: Intent } | undefined {
  const holder = holderOf(block, ordinal);
  const attributes = ownerAttributes(block, ordinal) ?? {};
  if (holder === undefined || attributes.node === undefined || !isOurs(holder.handle, attributes)) return undefined;
  const expect = { handle: holder.handle, sequence: String(holder.sequence) };
  return { node: attributes.node as NodeName, release: { ordinal, expect, become: null } };
}

/** Warm addresses, and those of secondary interfaces, which carry no pod for Calico's collector to look for (trap 67). */
function isOurs(handle: string, attributes: Readonly<Record<string, string>>): boolean {
  if (attributes.pod !== undefined && attributes.namespace !== undefined) return false;
  return isWarmHandle(handle as HandleId) || Object.keys(attributes).some(isOurKey);
}

/** Phase one of a claim was written and phase three was not (spec 2.16). */
export function isHalfMade(row: Affinity): boolean {
  return row.type === "host" && (row.state === "pending" || row.deleted);
}

/** Made by a CNI executable or by us: nobody can tell these two apart. Tunnels' and load balancers' handles are their makers' to clean up. */
export function isOrphan(handle: Handle, used: Pick<ReadonlySet<string>, "has">): boolean {
  return handle.handleId.includes(".") && !used.has(handle.name);
}

/** The same thing in the same state, from one look to the next. */
export class Sightings {
  #first = new Map<string, number>();
  #present: Map<string, number> | undefined;

  /** A new look begins. What is not seen in it is forgotten. */
  begin(): void {
    this.#present = new Map();
  }

  /** For how long it has been seen as it is. */
  ageMs(key: string, now: number): number {
    invariant(this.#present !== undefined, "a look has begun");
    const since = this.#first.get(key) ?? now;
    this.#present.set(key, since);
    return now - since;
  }

  end(): void {
    this.#first = this.#present ?? this.#first;
    this.#present = undefined;
  }
}
