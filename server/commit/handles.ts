// IPAMHandles, the index from a handle to its blocks. What an object says of a block is always the number of ordinals that this block
// holds, never one more or one less than before: so whoever says it again, after whatever crash, says the same. Raised before the block
// is written, lowered after (spec 2.12, trap 21). Leaves to committer.ts which handles a write concerns.
import { ordinalsPerHandle, windowsReservedHandle } from "../../shared/calico/block.ts";
import { handlePatch, newHandleObject } from "../../shared/calico/codec.ts";
import { blockName, handleName, isWarmHandle } from "../../shared/calico/names.ts";
import type { BlockState, Handle } from "../../shared/calico/resources.ts";
import type { BlockCidr, HandleId } from "../../shared/kinds.ts";
import { type Desk, type Errand, isWorthAnotherTry } from "./desk.ts";
import { Turns } from "./turns.ts";

/** Tries before a handle is given up, as Calico has it; each later one waits. */
const maxTries = 100;

/** What one handle has in one block. */
export interface Entry {
  readonly handle: HandleId;
  readonly block: BlockCidr;
  readonly count: number;
}

export interface Manner {
  /** A count too low is raised; else only one too high is lowered. */
  readonly mayRaise: boolean;
  /** What the store says is not taken for granted when nothing would have to be written: it may be old. */
  readonly sure: boolean;
}

export class Handles {
  readonly #desk: Desk;
  /** By object name: handles that differ in case share an object (trap 13), and the blocks of a pod share its handle. */
  readonly #turns = new Turns();

  constructor(desk: Desk) {
    this.#desk = desk;
  }

  /** Before the block is written: no less than `count`, and how many it says then. More is for `bring` to lower, which knows the block. */
  raise(errand: Errand, entry: Entry): Promise<number> {
    return this.#turns.take(handleName(entry.handle), async () => {
      let stored = 0;
      await this.#until(errand, entry.handle, true, async (known) => {
        stored = entryOf(known, entry.block) ?? 0;
        if (stored >= entry.count) return "as wished";
        await this.#write(errand, known, entry);
        stored = entry.count;
        return "written";
      });
      return stored;
    });
  }

  /** After the block was written, or found: as it says. `count` undefined: it is to be asked. */
  bring(
    errand: Errand,
    { handle, block, count }: Pick<Entry, "handle" | "block"> & { readonly count: number | undefined },
    { mayRaise, sure }: Manner,
  ): Promise<void> {
    return this.#turns.take(handleName(handle), () =>
      this.#until(errand, handle, sure, async (known, isRepeated) => {
        // Whoever else was at the handle may have been at the block as well.
        const due = isRepeated || count === undefined ? await this.#countNow(errand, handle, block) : count;
        const stored = entryOf(known, block);
        const isRight = mayRaise ? stored === (due || undefined) : stored === undefined || (due > 0 && stored <= due);
        if (isRight) return "as wished";
        await this.#write(errand, known, { handle, block, count: due });
        return "written";
      }),
    );
  }

  /** Looks at the store's copy first; after a surprise, or where that copy asks for nothing and that is not good enough, at the API's. */
  async #until(
    errand: Errand,
    handle: HandleId,
    sure: boolean,
    step: (known: Handle | undefined, isRepeated: boolean) => Promise<"as wished" | "written">,
  ): Promise<void> {
    const name = handleName(handle);
    let known = this.#desk.store.get("handle", name);
    let isRepeated = false;
    for (let attempt = 1, isProven = !sure; ; isProven = true) {
      try {
        if ((await step(known, isRepeated)) === "written" || isProven) return;
      } catch (error) {
        if (!isWorthAnotherTry(error) || attempt >= maxTries) throw error;
        if (attempt > 1 && !(await this.#desk.pause(errand, attempt))) throw error;
        isRepeated = true;
        attempt++;
      }
      known = await this.#desk.read(errand, "handle", name);
    }
  }

  async #countNow(errand: Errand, handle: HandleId, block: BlockCidr): Promise<number> {
    const now = await this.#desk.read(errand, "block", blockName(block));
    return countsIn(now).get(handleName(handle)) ?? 0;
  }

  /** The entries of other blocks stay as they are; an object without any entry is deleted. */
  async #write(errand: Errand, known: Handle | undefined, { handle, block, count }: Entry): Promise<void> {
    const { group } = this.#desk;
    const entries = new Map(known?.deleted === false ? known.block : []);
    if (count > 0) entries.set(block, count);
    else entries.delete(block);
    // Also what was marked as deleted by somebody who did not come to delete it: any reader may (spec 1.5).
    if (known !== undefined && (known.deleted || entries.size === 0)) {
      await this.#desk.remove(errand, "handle", known);
      if (entries.size === 0) return;
    }
    if (known?.deleted === false) {
      await this.#desk.patch(
        errand,
        "handle",
        known.name,
        handlePatch(group, known, { block: entries, deleted: false }),
      );
    } else {
      await this.#desk.create(errand, "handle", newHandleObject(group, handle, entries));
    }
  }
}

/** How many ordinals of a block each IPAMHandle object stands for, by its name; none for a block that is gone. */
export function countsIn(block: BlockState | null | undefined): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  if (!block || block.deleted) return counts;
  for (const [handle, count] of ordinalsPerHandle(block)) {
    if (hasObject(handle)) counts.set(handleName(handle), (counts.get(handleName(handle)) ?? 0) + count);
  }
  return counts;
}

/** Warm addresses and what Windows reserves have handles without an object (spec 1.9, 6.8). */
export function hasObject(handle: HandleId): boolean {
  return handle !== "" && !isWarmHandle(handle) && handle.toLowerCase() !== windowsReservedHandle;
}

function entryOf(handle: Handle | undefined, block: BlockCidr): number | undefined {
  return handle?.deleted ? undefined : handle?.block.get(block);
}
