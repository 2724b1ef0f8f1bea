// Blocks as the API server holds them, and a server that carries out intents and claims on them: the other side of an agent under test.
// One writer at a time, no I/O, no time; what is delayed, lost or done twice is for the test to decide.

import { applyIntents, applyToNothing } from "../../server/commit/intents.ts";
import { assign, bump, collect, freeOrdinals, holderOf, newBlock, release } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import type { Block, BlockState } from "../../shared/calico/resources.ts";
import { printAddress } from "../../shared/ip/address.ts";
import { addressAt, cidrOf, sizeOf } from "../../shared/ip/cidr.ts";
import type {
  Address,
  BlockCidr,
  CidrText,
  HandleId,
  NodeName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import type { Intent, IntentResult } from "../../shared/protocol/stream.ts";

export interface ModelPool {
  readonly name: string;
  readonly cidr: CidrText;
  readonly blockSize: number;
}

const rules = { now: 0 as UnixMs, cooldownSeconds: 0, strictAffinity: false, isOpen: true };

export class CalicoApi {
  readonly blocks = new Map<BlockCidr, Block>();
  readonly #pools: readonly ModelPool[];
  #version = 100;
  #created = 0;

  constructor(pools: readonly ModelPool[]) {
    this.#pools = pools;
  }

  commit(
    node: NodeName,
    cidr: BlockCidr,
    intents: readonly Intent[],
  ): { results: IntentResult[]; block: Block | null } {
    const block = this.blocks.get(cidr);
    const wishes = intents.map((intent) => ({ node, intent }));
    if (!block) return { results: applyToNothing(wishes).map(({ result }) => result), block: null };
    const { next, outcomes } = applyIntents(block, wishes, rules);
    return { results: outcomes.map(({ result }) => result), block: this.#put(block, next) };
  }

  /** The first block of the pool that nobody has. */
  claim(node: NodeName, poolName: string): Block | undefined {
    const pool = this.#pools.find(({ name }) => name === poolName);
    if (!pool) return undefined;
    const { family, base, prefix } = cidrOf(pool.cidr);
    const step = sizeOf(cidrOf(`${printAddress(family, base)}/${pool.blockSize}` as CidrText));
    for (let index = 0n; index < 1n << BigInt(pool.blockSize - prefix); index++) {
      const cidr = `${printAddress(family, base + index * step)}/${pool.blockSize}` as BlockCidr;
      if (!this.blocks.has(cidr)) return this.#create(node, cidr);
    }
    return undefined;
  }

  /** Another writer takes a free address, as stock calico-ipam does when it borrows. */
  takeFor(cidr: BlockCidr, handle: string, node: string): Address | undefined {
    const block = this.blocks.get(cidr);
    const ordinal = block && freeOrdinals(block)[0];
    if (!block || ordinal === undefined) return undefined;
    this.#put(block, bump(assign(block, [ordinal], { handle: handle as HandleId, secondary: { node } })));
    return addressAt(cidr, ordinal);
  }

  /** Another writer releases what the handle holds. */
  releaseAllOf(handle: string): void {
    for (const block of [...this.blocks.values()]) {
      const held = [...block.allocations.keys()].filter((ordinal) => holderOf(block, ordinal)?.handle === handle);
      if (held.length > 0) this.#put(block, bump(release(block, held, rules)));
    }
  }

  /** Another writer rewrites a block without changing who holds what. */
  touch(cidr: BlockCidr): void {
    const block = this.blocks.get(cidr);
    if (block) this.#put(block, bump(collect(block, rules)));
  }

  /** Addresses by the handle that holds them. */
  holders(): Map<Address, string> {
    const held = new Map<Address, string>();
    for (const block of this.blocks.values()) {
      for (const ordinal of block.allocations.keys()) {
        const holder = holderOf(block, ordinal);
        if (holder) held.set(addressAt(block.cidr, ordinal), holder.handle);
      }
    }
    return held;
  }

  #create(node: NodeName, cidr: BlockCidr): Block {
    this.#created += 1;
    const sequence = (1_000_000n * BigInt(this.#created)) as Sequence;
    const state = newBlock({ cidr, affinity: `host:${node}`, now: 0 as UnixMs, sequence });
    const block = { ...state, name: blockName(cidr), cidr, uid: `uid-${this.#created}` as Uid, ...this.#nextVersion() };
    this.blocks.set(cidr, block);
    return block;
  }

  #put(block: Block, next: BlockState): Block {
    if (next === block) return block;
    const written = { ...block, ...next, ...this.#nextVersion() };
    this.blocks.set(block.cidr, written);
    return written;
  }

  #nextVersion(): { resourceVersion: ResourceVersion } {
    this.#version += 1;
    return { resourceVersion: String(this.#version) as ResourceVersion };
  }
}
