// Another writer of the same blocks, as calico-ipam on a node without Cattail: takes what the API shows free, releases what is its own.
// Keeps its own books, by which the cluster is judged.
import { assign, bump, freeOrdinals, holderOf, release } from "../../shared/calico/block.ts";
import { blockPatch, readBlock } from "../../shared/calico/codec.ts";
import { apiPath } from "../../shared/calico/names.ts";
import type { Block, BlockState } from "../../shared/calico/resources.ts";
import { addressAt } from "../../shared/ip/cidr.ts";
import { parseLossless, printLossless } from "../../shared/json/lossless.ts";
import type { HandleId, UnixMs } from "../../shared/kinds.ts";
import { token } from "../direct-api.ts";
import type { ApiServer } from "../kube-api/api-server.ts";
import type { World } from "./world.ts";

export class Stranger {
  /** By address, its handle. */
  readonly held = new Map<string, string>();
  readonly #world: World;
  readonly #api: ApiServer;
  #made = 0;

  constructor(world: World, api: ApiServer) {
    this.#world = world;
    this.#api = api;
  }

  /** `taken` is told before anybody can see it. */
  take(taken: (address: string) => void): void {
    const block = this.#anyBlock();
    const free = block === undefined ? [] : freeOrdinals(block);
    const ordinal = free[this.#world.random.below(Math.max(1, free.length))];
    if (block === undefined || ordinal === undefined) return;
    this.#made += 1;
    const handle = `other.${this.#made}`;
    const address = addressAt(block.cidr, ordinal);
    taken(address);
    this.held.set(address, handle);
    this.#write(block, assign(block, [ordinal], { handle: handle as HandleId, secondary: { node: "n9" } }));
    this.#world.note("stranger took", address);
  }

  giveBack(): void {
    const block = this.#anyBlock();
    if (block === undefined) return;
    for (const ordinal of block.allocations.keys()) {
      const address = addressAt(block.cidr, ordinal);
      if (holderOf(block, ordinal)?.handle !== this.held.get(address) || !this.held.delete(address)) continue;
      this.#write(block, release(block, [ordinal], { now: 0 as UnixMs, cooldownSeconds: 0 }));
      this.#world.note("stranger gave back", address);
      return;
    }
  }

  #anyBlock(): Block | undefined {
    const entries = this.#api.store.collection("crd.projectcalico.org/ipamblocks").list();
    const text = entries[this.#world.random.below(Math.max(1, entries.length))]?.text;
    const reading = text === undefined ? undefined : readBlock(parseLossless(text), "crd");
    return reading?.ok && !reading.object.deleted ? reading.object : undefined;
  }

  #write(block: Block, next: BlockState): void {
    this.#api.handle({
      method: "PATCH",
      path: apiPath("crd", "block", block.name),
      query: new Map(),
      accept: "application/json",
      contentType: "application/merge-patch+json",
      userAgent: "stranger",
      token,
      body: printLossless(blockPatch("crd", block, bump(next))),
    });
  }
}
