// What a process holds of the cluster, as text: for people and programs that compare it with the API server (/api/v1/objects).
// Sequence numbers are in decimal, as on the stream. Leaves to shared/process/http.ts how it is served.
import { type Kind, kinds, type Objects } from "../calico/resources.ts";
import { printLossless } from "../json/lossless.ts";

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
