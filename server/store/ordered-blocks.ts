// Blocks in the order of their addresses, so that the next one of a kind can be found from anywhere in a pool without looking at the
// others. Changing and finding cost one short list, however many blocks there are. Leaves to the store which blocks are of the kind.
import { cidrOf, sizeOf } from "../../shared/ip/cidr.ts";
import type { BlockCidr, CidrText, Family } from "../../shared/kinds.ts";

interface Entry {
  readonly cidr: BlockCidr;
  readonly base: bigint;
  readonly prefix: number;
}

/** Split when longer: inserting moves at most so many. */
const longest = 512;

export class OrderedBlocks {
  /** Lists in order, none empty, each in order. */
  readonly #lists: Record<Family, Entry[][]> = { 4: [], 6: [] };

  /** No-op when it is there. */
  add(text: BlockCidr): void {
    const { family, base, prefix } = cidrOf(text);
    const lists = this.#lists[family];
    const entry: Entry = { cidr: text, base, prefix };
    const [at, list] = listFor(lists, entry);
    if (list === undefined) {
      lists.push([entry]);
      return;
    }
    const index = placeIn(list, entry);
    if (list[index]?.cidr === text) return;
    list.splice(index, 0, entry);
    if (list.length > longest) lists.splice(at + 1, 0, list.splice(longest / 2));
  }

  /** No-op when it is not there. */
  remove(text: BlockCidr): void {
    const { family, base, prefix } = cidrOf(text);
    const lists = this.#lists[family];
    const [at, list] = listFor(lists, { base, prefix });
    if (list === undefined) return;
    const index = placeIn(list, { base, prefix });
    if (list[index]?.cidr !== text) return;
    list.splice(index, 1);
    if (list.length === 0) lists.splice(at, 1);
  }

  /** Those that begin in the range, once around: from this address on, then from the start. Not to be held while blocks change. */
  *around(range: CidrText, from: bigint): Generator<BlockCidr> {
    const cidr = cidrOf(range);
    yield* this.#between(cidr.family, from, cidr.base + sizeOf(cidr));
    yield* this.#between(cidr.family, cidr.base, from);
  }

  *#between(family: Family, first: bigint, end: bigint): Generator<BlockCidr> {
    const lists = this.#lists[family];
    const start = { base: first, prefix: 0 };
    let [at, list] = listFor(lists, start);
    let index = list === undefined ? 0 : placeIn(list, start);
    for (; list !== undefined; list = lists[++at], index = 0) {
      for (; index < list.length; index++) {
        const entry = list[index];
        if (entry === undefined || entry.base >= end) return;
        yield entry.cidr;
      }
    }
  }
}

type Place = Pick<Entry, "base" | "prefix">;

/** The last list that begins at or before the place; the first one if none does. */
function listFor(lists: Entry[][], place: Place): [number, Entry[] | undefined] {
  const after = firstIndex(lists.length, (index) => isBefore(place, lists[index]?.[0]));
  const at = Math.max(0, after - 1);
  return [at, lists[at]];
}

/** The index of the first entry that is not before the place. */
function placeIn(list: readonly Entry[], place: Place): number {
  return firstIndex(list.length, (index) => !isBefore(list[index], place));
}

function isBefore(a: Place | undefined, b: Place | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  return a.base === b.base ? a.prefix < b.prefix : a.base < b.base;
}

/** The first index for which the test holds, which then holds for all that follow; `length`: for none. */
function firstIndex(length: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
