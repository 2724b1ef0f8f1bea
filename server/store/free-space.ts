// Where there is room for a block: the binary tree of all ranges that are taken, each branch knowing the largest free range below it. Only
// ranges that are taken and the places where two of them part are branches, so that a lone block of an IPv6 pool is one, not a hundred.
// Adding, removing and finding cost one walk from the root, however many ranges there are and of whatever sizes. Leaves policy to others.
import { bitsOf } from "../../shared/ip/address.ts";
import { cidrAround, cidrOf } from "../../shared/ip/cidr.ts";
import { type BlockCidr, type CidrText, type Family, invariant } from "../../shared/kinds.ts";

export interface FreeBlock {
  readonly cidr: BlockCidr;
  /** Its number among the pool's blocks of this size. */
  readonly index: bigint;
}

/** A range that is taken, or the smallest one around two of them; the root stands for all addresses. */
interface Branch {
  readonly base: bigint;
  readonly prefix: number;
  /** How often exactly this range was added. */
  taken: number;
  readonly children: [Branch | undefined, Branch | undefined];
  /** Prefix length of the largest free range below. */
  free: number;
}

/** Longer than any prefix: no room. */
const full = 129;

export class FreeSpace {
  readonly #roots: Record<Family, Branch> = { 4: newBranch(0n, 0), 6: newBranch(0n, 0) };
  /** Branches visited and halves looked into since the beginning: what the work really was. */
  steps = 0;

  /** Ranges may be equal and may overlap; each is there until it was removed as often as added. */
  add(text: CidrText): void {
    const { family, base, prefix } = cidrOf(text);
    const path = this.#pathTo(family, base, prefix);
    let last = at(path, path.length - 1);
    if (last.prefix < prefix) {
      last = grown(last, family, base, prefix);
      if (last.prefix < prefix) {
        path.push(last);
        last = grown(last, family, base, prefix);
      }
      path.push(last);
    }
    last.taken++;
    this.#settle(path, family);
  }

  remove(text: CidrText): void {
    const { family, base, prefix } = cidrOf(text);
    const path = this.#pathTo(family, base, prefix);
    const last = at(path, path.length - 1);
    invariant(last.prefix === prefix && last.taken > 0, `${text} was removed more often than added`);
    last.taken--;
    this.#settle(path, family);
  }

  /** The first range of this prefix length in the pool that overlaps nothing taken: from number `from` on, then from the start. */
  firstFree(pool: CidrText, prefix: number, from: bigint): FreeBlock | undefined {
    const { family, base, prefix: poolPrefix } = cidrOf(pool);
    invariant(poolPrefix <= prefix && prefix <= bitsOf(family), `blocks of /${prefix} in ${pool}`);
    const path = this.#pathTo(family, base, poolPrefix);
    const around = at(path, path.length - 1);
    if (path.some((branch) => branch.taken > 0 && branch.prefix <= poolPrefix)) return undefined;
    const below = around.prefix === poolPrefix ? around : around.children[side(family, base, around.prefix)];
    const isInPool = below !== undefined && shared(family, below.base, base) >= poolPrefix;
    const find = (start: bigint): bigint | undefined =>
      this.#findFree(isInPool ? below : undefined, family, prefix - poolPrefix, poolPrefix, 0n, start);
    const found = find(from) ?? find(0n);
    if (found === undefined) return undefined;
    const value = base + (found << BigInt(bitsOf(family) - prefix));
    return { cidr: cidrAround({ family, value }, prefix).text as BlockCidr, index: found };
  }

  /** From the root down to the last branch that is this range or lies around it. */
  #pathTo(family: Family, base: bigint, prefix: number): Branch[] {
    const path = [this.#roots[family]];
    for (;;) {
      this.steps++;
      const last = at(path, path.length - 1);
      if (last.prefix === prefix) return path;
      const child = last.children[side(family, base, last.prefix)];
      if (child === undefined || child.prefix > prefix || shared(family, child.base, base) < child.prefix) return path;
      path.push(child);
    }
  }

  /** From the end up: what is not needed any more goes, and what a branch knows follows from its children. */
  #settle(path: readonly Branch[], family: Family): void {
    for (let index = path.length - 1; index >= 0; index--) {
      this.steps++;
      const branch = at(path, index);
      const [low, high] = branch.children;
      if (index > 0 && branch.taken === 0 && (low === undefined || high === undefined)) {
        const above = at(path, index - 1);
        above.children[side(family, branch.base, above.prefix)] = low ?? high;
      } else {
        branch.free =
          branch.taken > 0 ? full : Math.min(freeIn(low, branch.prefix + 1), freeIn(high, branch.prefix + 1));
      }
    }
  }

  /**
   * The smallest free index >= from among the ranges `levels` below the range of prefix length `depth` that starts at index `start`; all that
   * is taken in it is in this branch. Only along the one path that `from` cuts can a search fail after it began, so this is a walk, not a scan.
   */
  #findFree(
    branch: Branch | undefined,
    family: Family,
    levels: number,
    depth: number,
    start: bigint,
    from: bigint,
  ): bigint | undefined {
    this.steps++;
    const size = 1n << BigInt(levels);
    if (start + size <= from) return undefined;
    if (branch === undefined) return start < from ? from : start;
    if (freeIn(branch, depth) > depth + levels) return undefined;
    const [low, high] = halves(branch, family, depth);
    return (
      this.#findFree(low, family, levels - 1, depth + 1, start, from) ??
      this.#findFree(high, family, levels - 1, depth + 1, start + (size >> 1n), from)
    );
  }
}

/** Prefix length of the largest free range in the one of prefix length `depth` in which this branch is all that is taken. */
function freeIn(branch: Branch | undefined, depth: number): number {
  if (branch === undefined) return depth;
  return branch.prefix === depth ? branch.free : depth + 1;
}

function halves(branch: Branch, family: Family, depth: number): readonly [Branch | undefined, Branch | undefined] {
  if (branch.prefix === depth) return branch.children;
  return side(family, branch.base, depth) === 0 ? [branch, undefined] : [undefined, branch];
}

/** One branch more below this one, on the way to the range: the range itself, or where it parts from what is there. */
function grown(above: Branch, family: Family, base: bigint, prefix: number): Branch {
  const half = side(family, base, above.prefix);
  const there = above.children[half];
  const depth = there === undefined ? prefix : Math.min(prefix, there.prefix, shared(family, base, there.base));
  const hostBits = BigInt(bitsOf(family) - depth);
  const branch = newBranch((base >> hostBits) << hostBits, depth);
  if (there !== undefined) branch.children[side(family, there.base, depth)] = there;
  above.children[half] = branch;
  return branch;
}

function newBranch(base: bigint, prefix: number): Branch {
  return { base, prefix, taken: 0, children: [undefined, undefined], free: prefix };
}

/** How many bits two addresses begin with alike. */
function shared(family: Family, one: bigint, other: bigint): number {
  const difference = one ^ other;
  return difference === 0n ? bitsOf(family) : bitsOf(family) - difference.toString(2).length;
}

/** Which half of a range of prefix length `depth` an address lies in. */
function side(family: Family, value: bigint, depth: number): 0 | 1 {
  return (value >> BigInt(bitsOf(family) - 1 - depth)) & 1n ? 1 : 0;
}

function at(path: readonly Branch[], index: number): Branch {
  const branch = path[index];
  invariant(branch !== undefined, `no branch at ${index}`);
  return branch;
}
