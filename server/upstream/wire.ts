// Reads what the API server sends about a collection: the lines of a watch and the pages of a list, down to projected objects.
// Leaves transport and order to others. Whatever is not understood becomes `junk` or an unread object, never an exception.
import { readers } from "../../shared/calico/codec.ts";
import { isFields, reading, record, requiredText, text } from "../../shared/calico/fields.ts";
import type { ApiGroup, Kind, Meta, Objects } from "../../shared/calico/resources.ts";
import { canonicalCidr } from "../../shared/ip/cidr.ts";
import { parseLossless } from "../../shared/json/lossless.ts";
import type { ResourceVersion, Uid } from "../../shared/kinds.ts";
import { type Refusal, refusalOfEvent } from "../../shared/kube/status.ts";
import type { Unread } from "../store/store.ts";

export type Item<K extends Kind = Kind> =
  | { readonly legible: true; readonly object: Objects[K] }
  | { readonly legible: false; readonly unread: Unread };

export interface Junk {
  readonly kind: "junk";
  readonly what: string;
  /** The next try would meet it again, or events may have been missed: list afresh. */
  readonly relist: boolean;
}

export type StreamEvent<K extends Kind = Kind> =
  | { readonly kind: "put"; readonly type: "added" | "modified"; readonly item: Item<K>; readonly whole: boolean }
  | { readonly kind: "removed"; readonly meta: Meta }
  | { readonly kind: "bookmark"; readonly version: ResourceVersion; readonly initialEnd: boolean }
  | { readonly kind: "error"; readonly refusal: Refusal }
  | Junk;

export interface Page<K extends Kind = Kind> {
  readonly kind: "page";
  readonly items: readonly Item<K>[];
  readonly version: ResourceVersion;
  /** Empty = this was the last page. */
  readonly next: string;
  readonly whole: boolean;
}

/** Of these only metadata is asked for; a server that cannot do that sends them whole. */
export const metadataOnly: ReadonlySet<Kind> = new Set<Kind>(["node", "namespace"]);
/** Only blocks hold numbers that a plain parser would round (trap 1); the others are parsed in a fifth of the time. */
const lossless: ReadonlySet<Kind> = new Set<Kind>(["block"]);

export function readLine<K extends Kind>(kind: K, group: ApiGroup, line: string): StreamEvent<K> {
  const event = parse(kind, line);
  if (!isFields(event)) return junk("a line that is no JSON object");
  switch (event.type) {
    case "ADDED":
    case "MODIFIED": {
      const item = readItem(kind, group, event.object);
      const type = event.type === "ADDED" ? "added" : "modified";
      return item === undefined
        ? junk("an object without metadata")
        : { kind: "put", type, item, whole: isWhole(kind, event.object) };
    }
    case "DELETED": {
      const meta = metaOf(event.object);
      return meta === undefined ? junk("an object without metadata") : { kind: "removed", meta };
    }
    case "BOOKMARK":
      return readBookmark(event.object);
    case "ERROR":
      return { kind: "error", refusal: refusalOfEvent(event.object) };
    default:
      return junk(`an event of type ${JSON.stringify(event.type)}`, true);
  }
}

export function readPage<K extends Kind>(kind: K, group: ApiGroup, body: string): Page<K> | Junk {
  const list = parse(kind, body);
  const head = reading(() => {
    const metadata = record(isFields(list) ? list : {}, "metadata");
    return { version: requiredText(metadata, "resourceVersion") as ResourceVersion, next: text(metadata, "continue") };
  });
  if (!isFields(list) || !head.ok || !String(list.kind).endsWith("List")) return junk("a list that is none");
  const items: Item<K>[] = [];
  // An empty list of built-in kinds is null in old versions.
  for (const raw of Array.isArray(list.items) ? list.items : []) {
    const item = readItem(kind, group, raw);
    if (item === undefined) return junk("an object without metadata");
    items.push(item);
  }
  return {
    kind: "page",
    items,
    ...head.object,
    whole: metadataOnly.has(kind) && list.kind !== "PartialObjectMetadataList",
  };
}

export function itemMeta(item: Item): Meta {
  return item.legible ? item.object : item.unread;
}

function readItem<K extends Kind>(kind: K, group: ApiGroup, raw: unknown): Item<K> | undefined {
  const meta = metaOf(raw);
  if (meta === undefined) return undefined;
  const read = readers[kind](raw, group);
  if (read.ok) return { legible: true, object: read.object };
  const cidr = kind === "block" ? cidrIn(raw) : undefined;
  return { legible: false, unread: { ...meta, problem: read.problem, ...(cidr !== undefined && { cidr }) } };
}

function readBookmark(object: unknown): StreamEvent<never> {
  const read = reading(() => {
    const metadata = record(isFields(object) ? object : {}, "metadata");
    const version = requiredText(metadata, "resourceVersion") as ResourceVersion;
    return { version, initialEnd: text(record(metadata, "annotations"), "k8s.io/initial-events-end") === "true" };
  });
  return read.ok ? { kind: "bookmark", ...read.object } : junk("a bookmark without a version");
}

function metaOf(raw: unknown): Meta | undefined {
  const read = reading(() => {
    const metadata = record(isFields(raw) ? raw : {}, "metadata");
    return {
      name: requiredText(metadata, "name"),
      uid: requiredText(metadata, "uid") as Uid,
      resourceVersion: requiredText(metadata, "resourceVersion") as ResourceVersion,
    };
  });
  return read.ok ? read.object : undefined;
}

function cidrIn(raw: unknown) {
  const read = reading(() => text(record(isFields(raw) ? raw : {}, "spec"), "cidr"));
  return read.ok ? canonicalCidr(read.object) : undefined;
}

function isWhole(kind: Kind, raw: unknown): boolean {
  return metadataOnly.has(kind) && isFields(raw) && raw.kind !== "PartialObjectMetadata";
}

function parse(kind: Kind, body: string): unknown {
  try {
    return lossless.has(kind) ? parseLossless(body) : JSON.parse(body);
  } catch {
    return undefined;
  }
}

function junk(what: string, relist = false): Junk {
  return { kind: "junk", what, relist };
}
