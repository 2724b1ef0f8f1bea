// Which node has which block, written in Calico's two phases so that a crash between any two requests leaves what the next user of the
// block finishes (spec 2.8, 2.11, 2.16, 3.5). The block's own word is the truth, its BlockAffinity row the claim that goes before and
// after it. Nothing is read unless a write turns out otherwise than the store said. Leaves to others which block is to change hands.
import { blockOwner, bump, isEmpty, newBlock } from "../../shared/calico/block.ts";
import { affinityPatch, blockPatch, newAffinityObject, newBlockObject } from "../../shared/calico/codec.ts";
import { affinityName, blockName } from "../../shared/calico/names.ts";
import { poolOf } from "../../shared/calico/pools.ts";
import type { Affinity, AffinityState, Block, Objects } from "../../shared/calico/resources.ts";
import { compileSelector } from "../../shared/calico/selector.ts";
import { type BlockCidr, invariant, type NodeName, type Sequence, type UnixMs } from "../../shared/kinds.ts";
import { type Desk, type Errand, isWorthAnotherTry } from "./desk.ts";
import { Turns } from "./turns.ts";

/** A block that was claimed just now is about to be used (spec, Appendix B). */
const leastIdleMs = 60_000;

/** No claim time: any age. */
export function isYoung({ affinityClaimTime = "" }: Block, now: UnixMs): boolean {
  return now - Date.parse(affinityClaimTime) < leastIdleMs;
}

/** What a node can use a block of its own by. */
export interface Taken {
  readonly block: Block;
  /** Something had to be written for it. */
  readonly isNew: boolean;
}

export class Affinities {
  readonly #desk: Desk;
  /** One thing at a time is done to a block and its row: what is half made is not always left over. */
  readonly #turns = new Turns();

  constructor(desk: Desk) {
    this.#desk = desk;
  }

  /** Takes a block that nobody has; undefined: somebody else was quicker. */
  claim(errand: Errand, cidr: BlockCidr): Promise<Taken | undefined> {
    return this.#turns.take(cidr, async () => this.#use(errand, await this.#pendingRow(errand, cidr)));
  }

  /** The block that a row of this node stands for, made or confirmed if need be; undefined: it is another's, and the row is gone. */
  use(errand: Errand, row: Affinity): Promise<Taken | undefined> {
    return this.#turns.take(row.cidr, () => this.#use(errand, this.#desk.store.get("affinity", row.name) ?? row));
  }

  async #use(errand: Errand, row: Affinity): Promise<Taken | undefined> {
    const block = this.#desk.store.blockAt(row.cidr);
    if (block === undefined || block.deleted) return { block: await this.#make(errand, row, block), isNew: true };
    if (block.affinity !== `host:${errand.node}`) return this.#giveUp(errand, row, block.name);
    if (isConfirmed(row)) return { block, isNew: false };
    return { block: await this.#confirm(errand, row, block), isNew: true };
  }

  /** The block's row says what the block says, and where Calico looks for it. */
  isSettled({ affinity, cidr }: Block): boolean {
    const row = this.#desk.store.get("affinity", affinityName((affinity ?? "").replace(/^host:/, ""), cidr));
    return isConfirmed(row) && row.labelled;
  }

  /** What a crash in the midst of a claim or a release has left: due before this node takes an address from its block. */
  settle(errand: Errand, block: Block): Promise<Block | undefined> {
    return this.#turns.take(block.cidr, async () => {
      const now = this.#desk.store.blockAt(block.cidr);
      if (now === undefined || this.isSettled(block)) return now;
      const row = await this.#pendingRow(errand, block.cidr);
      if (!isConfirmed(row)) return this.#confirm(errand, row, block);
      // Nothing is in doubt but the labels, which every write of a row brings along (spec 3.11).
      await this.#patch(errand, "affinity", row.name, affinityPatch(this.#desk.group, row, row));
      return block;
    });
  }

  /**
   * Takes a block that nobody uses from its owner (spec 3.5). The very version that was looked at is the condition, so whoever has used it
   * since wins. False: there is no row of this owner to begin with, and Calico would not begin either.
   */
  release(errand: Errand, block: Block): Promise<boolean> {
    return this.#turns.take(block.cidr, async () => {
      const owner = blockOwner(block);
      invariant(owner !== undefined && isEmpty(this.#desk.loaded(block)), `${block.cidr} is nobody's or in use`);
      const row = this.#desk.store.get("affinity", affinityName(owner.name, block.cidr));
      if (row === undefined || row.deleted) return false;
      const leaving = await this.#setState(errand, row, "pendingDeletion");
      const patch = blockPatch(this.#desk.group, block, { ...block, deleted: true });
      await this.finish(errand, "block", await this.#patch(errand, "block", block.name, patch));
      await this.#deleteRow(errand, leaving);
      return true;
    });
  }

  /** Undoes what a claim has begun and nobody will finish. False: the block is used by now, so the claim was no failure. */
  async abandon(errand: Errand, row: Affinity): Promise<boolean> {
    // What the row stands for decides, and the store's word may be old.
    const block = await this.#desk.read(errand, "block", blockName(row.cidr));
    const isOwn = block?.deleted === false && block.affinity === `host:${row.node}`;
    if (isOwn && !row.deleted) return isEmpty(this.#desk.loaded(block)) && this.release(errand, block);
    await this.#turns.take(row.cidr, () =>
      row.deleted ? this.finish(errand, "affinity", row) : this.#deleteRow(errand, row),
    );
    return true;
  }

  /** An empty block whose pool does not choose its owner any more (spec 3.4). */
  isUnwanted(block: Block): boolean {
    const owner = blockOwner(block);
    const { store } = this.#desk;
    const node = owner?.type === "host" ? store.get("node", owner.name) : undefined;
    const pool = node && poolOf(store.sorted("pool"), block.cidr);
    if (node === undefined || pool === undefined || block.deleted || !isEmpty(this.#desk.loaded(block))) return false;
    const selector = compileSelector(pool.nodeSelector);
    return selector.ok && !selector.matches(node.labels);
  }

  /** The node's blocks of that sort, but for those that it has claimed just now and is about to use. Costs its blocks. */
  unwantedOf(node: NodeName): Block[] {
    const blocks = [...this.#desk.store.blocksOwnedBy(`host:${node}`)].map((cidr) => this.#desk.store.blockAt(cidr));
    return blocks
      .filter((block) => block !== undefined)
      .filter((block) => this.isUnwanted(block) && !isYoung(block, this.#desk.clock.wall()));
  }

  /** Deletes what somebody marked as deleted and did not come to delete: any reader may (spec 1.5). */
  finish(errand: Errand, kind: "affinity" | "block", marked: Affinity | Block): Promise<void> {
    return this.#writing(errand, kind, marked.name, () => this.#desk.remove(errand, kind, marked));
  }

  /** This node's row of the block, pending or confirmed. */
  async #pendingRow(errand: Errand, cidr: BlockCidr): Promise<Affinity> {
    const name = affinityName(errand.node, cidr);
    const known = this.#desk.store.get("affinity", name);
    if (known?.deleted === false) return isConfirmed(known) ? known : this.#setState(errand, known, "pending");
    // In the way of a new one (trap 20).
    if (known !== undefined) await this.finish(errand, "affinity", known);
    const row = { node: errand.node, cidr, state: "pending", type: "host" } as const;
    const body = newAffinityObject(this.#desk.group, row);
    return this.#writing(errand, "affinity", name, () => this.#desk.create(errand, "affinity", body));
  }

  async #confirm(errand: Errand, row: Affinity, block: Block): Promise<Block> {
    const pending = await this.#setState(errand, row, "pending");
    // Whoever is about to take the block away has read it before: this makes their write fail (trap 30).
    const bumped = await this.#patch(errand, "block", block.name, blockPatch(this.#desk.group, block, bump(block)));
    await this.#setState(errand, pending, "confirmed");
    return bumped;
  }

  async #make(errand: Errand, row: Affinity, marked: Block | undefined): Promise<Block> {
    if (marked !== undefined) await this.finish(errand, "block", marked);
    const pending = await this.#setState(errand, row, "pending");
    const { clock, group } = this.#desk;
    const sequence = clock.wallNanos() as Sequence;
    const state = newBlock({ cidr: row.cidr, affinity: `host:${row.node}`, now: clock.wall(), sequence });
    const body = newBlockObject(group, row.cidr, state);
    const block = await this.#writing(errand, "block", blockName(row.cidr), () =>
      this.#desk.create(errand, "block", body),
    );
    await this.#setState(errand, pending, "confirmed");
    return block;
  }

  /** Another has the block, so the claim is void (trap 28). The store's word may be old, and the row may be another replica's at work. */
  async #giveUp(errand: Errand, row: Affinity, block: string): Promise<Taken | undefined> {
    const now = await this.#desk.read(errand, "block", block);
    if (now === undefined || now.affinity === `host:${errand.node}`) return this.#use(errand, row);
    await this.#deleteRow(errand, row);
    return undefined;
  }

  async #deleteRow(errand: Errand, row: Affinity): Promise<void> {
    const patch = affinityPatch(this.#desk.group, row, { state: row.state, deleted: true });
    await this.finish(errand, "affinity", await this.#patch(errand, "affinity", row.name, patch));
  }

  async #setState(errand: Errand, row: Affinity, state: AffinityState): Promise<Affinity> {
    if (row.state === state) return row;
    return this.#patch(errand, "affinity", row.name, affinityPatch(this.#desk.group, row, { state, deleted: false }));
  }

  #patch<K extends "affinity" | "block">(errand: Errand, kind: K, name: string, patch: unknown): Promise<Objects[K]> {
    return this.#writing(errand, kind, name, () => this.#desk.patch(errand, kind, name, patch));
  }

  /** After a surprise the store knows the object as it is now, and the next try starts from that. */
  async #writing<T>(errand: Errand, kind: "affinity" | "block", name: string, write: () => Promise<T>): Promise<T> {
    try {
      return await write();
    } catch (error) {
      if (isWorthAnotherTry(error)) await this.#desk.read(errand, kind, name);
      throw error;
    }
  }
}

/** No state is confirmed too, where the row is found by its labels (trap 16). */
function isConfirmed(row: Affinity | undefined): row is Affinity {
  if (row === undefined || row.deleted) return false;
  return row.state === "confirmed" || (row.state === "" && row.labelled);
}
