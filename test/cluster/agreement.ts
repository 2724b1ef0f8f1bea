// What the API server has, in the form in which server and agents show what they hold, and which part of it concerns a node.
import assert from "node:assert/strict";
import { readers } from "../../shared/calico/codec.ts";
import { apiPath } from "../../shared/calico/names.ts";
import type { Kind } from "../../shared/calico/resources.ts";
import { plain } from "../../shared/protocol/objects.ts";
import { streamedKinds } from "../../shared/protocol/stream.ts";
import type { ApiClient } from "./api.ts";

type ByName = Record<string, unknown>;

export async function objectsOf(admin: ApiClient, kind: Kind): Promise<ByName> {
  const { items } = (await admin.must("GET", apiPath("crd", kind))) as { items: unknown[] };
  const objects = items.map((raw) => {
    const read = readers[kind](raw, "crd");
    if (!read.ok) assert.fail(JSON.stringify(read));
    return read.object;
  });
  return plain(new Map(objects.map((object) => [object.name, object]))) as ByName;
}

/** A node holds the blocks it owns or has addresses in, its own Node, no namespace while no pool selects by them, and all of the rest. */
export function concerning(node: string, kind: Kind, objects: ByName): ByName {
  if (!streamedKinds.some((streamed) => streamed === kind) || kind === "namespace") return {};
  if (kind === "node") return { [node]: objects[node] };
  if (kind !== "block") return objects;
  return Object.fromEntries(Object.entries(objects).filter(([, block]) => hasStake(node, block as Stakes)));
}

interface Stakes {
  readonly affinity?: string;
  readonly attributes: readonly { readonly secondary?: { readonly node?: string } }[];
}

function hasStake(node: string, { affinity, attributes }: Stakes): boolean {
  return affinity === `host:${node}` || attributes.some(({ secondary }) => secondary?.node === node);
}
