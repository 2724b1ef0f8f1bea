// IPAMHandles, the index from a handle to its blocks: counts raised before a block is written and lowered after (spec 2.12, trap 21).
// A crash in between leaves a count too high, which every reader bears. Leaves to committer.ts what is counted and when.
import { handlePatch, newHandleObject } from "../../shared/calico/codec.ts";
import { handleName } from "../../shared/calico/names.ts";
import type { Handle } from "../../shared/calico/resources.ts";
import type { BlockCidr, HandleId } from "../../shared/kinds.ts";
import { type Desk, type Errand, isUnknown, isWorthAnotherTry } from "./desk.ts";

/** Tries before a handle is given up, as Calico has it; each later one waits. */
const maxTries = 100;

export class Handles {
  readonly #desk: Desk;
  /** By object name: handles that differ in case share an object (trap 13). */
  readonly #turns = new Map<string, Promise<void>>();

  constructor(desk: Desk) {
    this.#desk = desk;
  }

  /** One more count than before for `by` addresses of the block. Rejects when they are not, or perhaps not, counted. */
  add(errand: Errand, handle: HandleId, block: BlockCidr, by: number): Promise<void> {
    return this.#inTurn(handleName(handle), () => this.#add(errand, handle, block, by));
  }

  /** `sure`: the handle exists even if the store does not know it yet. */
  subtract(errand: Errand, handle: HandleId, block: BlockCidr, by: number, sure: boolean): Promise<void> {
    return this.#inTurn(handleName(handle), () => this.#subtract(errand, handle, block, by, sure));
  }

  async #inTurn(name: string, work: () => Promise<void>): Promise<void> {
    const before = this.#turns.get(name) ?? Promise.resolve();
    const mine = before.then(work, work);
    this.#turns.set(name, mine);
    try {
      await mine;
    } finally {
      if (this.#turns.get(name) === mine) this.#turns.delete(name);
    }
  }

  async #add(errand: Errand, handle: HandleId, block: BlockCidr, by: number): Promise<void> {
    const name = handleName(handle);
    let known = this.#desk.store.get("handle", name);
    for (let attempt = 1; ; attempt++) {
      const wanted = countOf(known, block) + by;
      try {
        // Marked as deleted by somebody who did not come to delete it: any reader may (spec 1.5).
        if (known?.deleted) await this.#desk.remove(errand, "handle", known);
        if (known === undefined || known.deleted) await this.#create(errand, handle, block, by);
        else await this.#write(errand, known, block, wanted);
        return;
      } catch (error) {
        if (!isWorthAnotherTry(error) || attempt >= maxTries) throw error;
        if (attempt > 1 && !(await this.#desk.pause(errand, attempt))) throw error;
        known = await this.#desk.read(errand, "handle", name);
        // Handles are written by one at a time, and an address by its own node alone: such a count is our write come true.
        if (isUnknown(error) && countOf(known, block) === wanted) return;
      }
    }
  }

  async #subtract(errand: Errand, handle: HandleId, block: BlockCidr, by: number, sure: boolean): Promise<void> {
    const name = handleName(handle);
    let known = this.#desk.store.get("handle", name);
    if (known === undefined && sure) known = await this.#desk.read(errand, "handle", name);
    for (let attempt = 1; ; attempt++) {
      // Not counted: somebody else has tidied up, or it never was (trap 25).
      if (known === undefined || known.deleted || !known.block.has(block)) return;
      const left = Math.max(0, countOf(known, block) - by);
      try {
        if (left === 0 && known.block.size === 1) await this.#desk.remove(errand, "handle", known);
        else await this.#write(errand, known, block, left);
        return;
      } catch (error) {
        if (!isWorthAnotherTry(error) || attempt >= maxTries) throw error;
        if (attempt > 1 && !(await this.#desk.pause(errand, attempt))) throw error;
        known = await this.#desk.read(errand, "handle", name);
        if (isUnknown(error) && countOf(known, block) === left) return;
      }
    }
  }

  async #create(errand: Errand, handle: HandleId, block: BlockCidr, by: number): Promise<void> {
    const body = newHandleObject(this.#desk.group, handle, new Map([[block, by]]));
    await this.#desk.create(errand, "handle", body);
  }

  async #write(errand: Errand, known: Handle, block: BlockCidr, count: number): Promise<void> {
    const counts = new Map(known.block);
    if (count > 0) counts.set(block, count);
    else counts.delete(block);
    const patch = handlePatch(this.#desk.group, known, { block: counts, deleted: false });
    await this.#desk.patch(errand, "handle", known.name, patch);
  }
}

function countOf(handle: Handle | undefined, block: BlockCidr): number {
  return handle?.deleted ? 0 : (handle?.block.get(block) ?? 0);
}
