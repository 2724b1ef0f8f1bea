// What a process holds of the cluster, as text: for people and programs that compare it with the API server (/api/v1/objects).
// Sequence numbers are in decimal, as on the stream. Leaves to shared/process/http.ts how it is served.
import { type Block, type Handle, type Kind, kinds, type Objects } from "../calico/resources.ts";
import { printLossless } from "../json/lossless.ts";
import type { BlockCidr } from "../kinds.ts";
import { blockFromWire, type WireBlock } from "./stream.ts";

export type Holdings = <K extends Kind>(kind: K) => ReadonlyMap<string, Objects[K]>;

/** The objects of one kind by name; undefined: no such kind. One kind at a time, because printing 10,000 blocks takes a while. */
export function printObjects(kind: string, held: Holdings): string | undefined {
  const known = kinds.find((one) => one === kind);
  return known && printLossless(plain(held(known)));
}

/** Maps as objects, 64-bit numbers as decimal text. */
export function plain(value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(plain);
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  return Object.fromEntries(entries.map(([key, item]) => [String(key), plain(item)]));
}

/** The way back. What it reads comes from our own server, which projected it: brands and shapes are taken over, not checked again. */
export function fromPlain<K extends Kind>(kind: K, value: unknown): Objects[K] {
  if (kind === "block") return blockFromWire(value as WireBlock) satisfies Block as Objects[K];
  if (kind !== "handle") return value as Objects[K];
  const handle = value as Omit<Handle, "block"> & { readonly block: Readonly<Record<string, number>> };
  const block = new Map(Object.entries(handle.block) as [BlockCidr, number][]);
  return { ...handle, block } satisfies Handle as Handle as Objects[K];
}
