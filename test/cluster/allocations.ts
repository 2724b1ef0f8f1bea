// What the API server says about addresses: who holds each, by IPAMBlocks, and which IPAMHandles there are.
import assert from "node:assert/strict";
import { checkBlock, holderOf } from "../../shared/calico/block.ts";
import { readBlock } from "../../shared/calico/codec.ts";
import { addressAt } from "../../shared/ip/cidr.ts";
import type { ApiClient } from "./api.ts";

export interface Allocations {
  /** Address → handle. */
  readonly owners: ReadonlyMap<string, string>;
  /** Names of IPAMHandle objects. */
  readonly handles: readonly string[];
}

const crd = "/apis/crd.projectcalico.org/v1";

/** Fails on a block that Calico would not accept. */
export async function allocations(admin: ApiClient): Promise<Allocations> {
  const owners = new Map<string, string>();
  for (const raw of await list(admin, "ipamblocks")) {
    const read = readBlock(raw, "crd");
    if (!read.ok) assert.fail(JSON.stringify(read));
    const block = read.object;
    assert.deepEqual(checkBlock(block), []);
    for (const ordinal of block.allocations.keys()) {
      const holder = holderOf(block, ordinal);
      if (holder !== undefined) owners.set(addressAt(block.cidr, ordinal), holder.handle);
    }
  }
  const handles = await list(admin, "ipamhandles");
  return { owners, handles: handles.map(({ metadata }) => metadata.name).sort() };
}

async function list(admin: ApiClient, plural: string): Promise<readonly { metadata: { name: string } }[]> {
  return ((await admin.must("GET", `${crd}/${plural}`)) as { items: { metadata: { name: string } }[] }).items;
}
