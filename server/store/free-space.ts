// Where there is room for a block: the binary tree of all ranges that are taken, each node knowing the largest free range below it.
// Adding, removing and finding cost one walk from the root, however many ranges there are and of whatever sizes. Leaves policy to others.
import { bitsOf } from "../../shared/ip/address.ts";
import { cidrAround, cidrOf } from "../../shared/ip/cidr.ts";
import { type BlockCidr, type CidrText, type Family, invariant } from "../../shared/kinds.ts";

export interface FreeBlock {
  readonly cidr: BlockCidr;
  /** Its number among the pool's blocks of this size. */
  readonly index: bigint;
}

/** A prefix with something taken in it; one with nothing in it has no branch. */
interface Branch {
  /** How often exactly this range was added. */
  taken: number;
  readonly children: [Branch | undefined, Branch | undefined];
  /** Prefix length of the largest free range below. */
  free: number;
}

/** Longer than any prefix: no room. */
const full = 129;

export class FreeSpace {
  readonly #roots: Record<Family, Branch | undefined> = { 4: undefined, 6: undefined };

  /** Ranges may be equal and may overlap; each is there until it was removed as often as added. */
  add(text: CidrText): void {
    this.#change(text, 1);
  }

  remove(text: CidrText): void {
    this.#change(text, -1);
  }

  /** The first range of this prefix length in the pool that overlaps nothing taken: from number `from` on, then from the start. */
  firstFree(pool: CidrText, prefix: number, from: bigint): FreeBlock | undefined {
    const { family, base, prefix: poolPrefix } = cidrOf(pool);
    invariant(poolPrefix <= prefix && prefix <= bitsOf(family), `blocks of /${prefix} in ${pool}`);
    const branch = this.#poolBranch(family, base, poolPrefix);
    if (branch === "taken") return undefined;
    const found =
      findFree(branch, prefix - poolPrefix, poolPrefix, 0n, from) ??
      findFree(branch, prefix - poolPrefix, poolPrefix, 0n, 0n);
    if (found === undefined) return undefined;
    const value = base + (found << BigInt(bitsOf(family) - prefix));
    return { cidr: cidrAround({ family, value }, prefix).text as BlockCidr, index: found };
  }

  #poolBranch(family: Family, base: bigint, prefix: number): Branch | undefined | "taken" {
    let branch = this.#roots[family];
    for (let depth = 0; depth < prefix && branch !== undefined; depth++) {
      if (branch.taken > 0) return "taken";
      branch = branch.children[side(family, base, depth)];
    }
    return branch;
  }

  #change(text: CidrText, by: 1 | -1): void {
    const { family, base, prefix } = cidrOf(text);
    const root = this.#roots[family] ?? emptyBranch();
    this.#roots[family] = root;
    const path = [root];
    let last = root;
    for (let depth = 0; depth < prefix; depth++) {
      last = childOf(last, side(family, base, depth));
      path.push(last);
    }
    last.taken += by;
    invariant(last.taken >= 0, `${text} was removed more often than added`);
    for (let depth = prefix; depth >= 0; depth--) this.#settle(path, depth, side(family, base, depth - 1), family);
  }

  /** Computes what a branch knows from its children, or cuts it off when nothing is left in it. */
  #settle(path: readonly Branch[], depth: number, child: 0 | 1, family: Family): void {
    const branch = at(path, depth);
    const [low, high] = branch.children;
    if (branch.taken === 0 && low === undefined && high === undefined) {
      if (depth === 0) this.#roots[family] = undefined;
      else at(path, depth - 1).children[child] = undefined;
    } else {
      branch.free = branch.taken > 0 ? full : Math.min(low?.free ?? depth + 1, high?.free ?? depth + 1);
    }
  }
}

/**
 * The smallest free index >= from at `levels` below this branch, which is at `depth` and starts at index `start`.
 * Only along the one path that `from` cuts can a search fail after it began, so this is a walk and not a scan.
 */
function findFree(
  branch: Branch | undefined,
  levels: number,
  depth: number,
  start: bigint,
  from: bigint,
): bigint | undefined {
  const size = 1n << BigInt(levels);
  if (start + size <= from) return undefined;
  if (branch === undefined) return start < from ? from : start;
  if (branch.free > depth + levels) return undefined;
  const [low, high] = branch.children;
  return (
    findFree(low, levels - 1, depth + 1, start, from) ??
    findFree(high, levels - 1, depth + 1, start + (size >> 1n), from)
  );
}

function childOf(branch: Branch, half: 0 | 1): Branch {
  const child = branch.children[half] ?? emptyBranch();
  branch.children[half] = child;
  return child;
}

function emptyBranch(): Branch {
  return { taken: 0, children: [undefined, undefined], free: full };
}

/** Which half of a range of prefix length `depth` an address lies in. */
function side(family: Family, value: bigint, depth: number): 0 | 1 {
  return (value >> BigInt(bitsOf(family) - 1 - depth)) & 1n ? 1 : 0;
}

function at(path: readonly Branch[], depth: number): Branch {
  const branch = path[depth];
  invariant(branch !== undefined, `no branch at depth ${depth}`);
  return branch;
}
