// The last step of every write: the object under its next version, in the store or, on a dry run, nowhere.
// Whether it may be written is decided before.
import type { Clock, Random } from "../../shared/world.ts";
import { asObject, type JsonObject } from "./json.ts";
import { entryOf, type ObjectEntry } from "./objects.ts";
import type { ApiRequest, ResourceTarget } from "./request.ts";
import { type Cause, invalid, notFound, type Refusal, type Subject } from "./status.ts";
import type { Store } from "./store.ts";
import { collectionOf, keyOf, type ResourceType } from "./types.ts";

export interface WriteContext {
  readonly store: Store<ObjectEntry>;
  readonly clock: Clock;
  readonly random: Random;
}

export interface Written {
  readonly code: number;
  /** The object after the write, or the Status of a deletion. */
  readonly body: string;
  /** Values of Warning headers. */
  readonly warnings: readonly string[];
}

/** Stores the object; on a dry run only says how it would be stored. */
export function commit(
  context: WriteContext,
  type: ResourceType,
  object: JsonObject,
  request: ApiRequest,
): ObjectEntry {
  const dry = isDryRun(request);
  const entry = entryOf(type, object, dry ? context.store.version : context.store.next());
  if (!dry) context.store.collection(collectionOf(type)).put(entry);
  return entry;
}

/** Removes the object; its last state is kept in the history. */
export function commitRemoval(
  context: WriteContext,
  type: ResourceType,
  object: JsonObject,
  request: ApiRequest,
): ObjectEntry {
  const dry = isDryRun(request);
  const entry = entryOf(type, object, dry ? context.store.version : context.store.next());
  if (!dry) context.store.collection(collectionOf(type)).remove(entry);
  return entry;
}

function isDryRun(request: ApiRequest): boolean {
  const wish = request.query.get("dryRun") ?? "";
  if (wish === "" || wish === "All") return wish === "All";
  throw invalid({ group: "meta.k8s.io", kind: "WriteOptions" }, [
    {
      reason: "FieldValueNotSupported",
      message: `Unsupported value: ["${wish}"]: supported values: "All"`,
      field: "dryRun",
    },
  ]);
}

export function existing(context: WriteContext, type: ResourceType, target: ResourceTarget): ObjectEntry {
  const entry = context.store.collection(collectionOf(type)).get(keyOf(type, target.namespace, target.name));
  if (entry === undefined) throw notFound(subjectOf(type, target.name));
  return entry;
}

export function subjectOf(type: ResourceType, name: string): Subject {
  return { name, group: type.group, kind: type.plural };
}

export function invalidObject(type: ResourceType, name: string, causes: readonly Cause[]): Refusal {
  return invalid({ name, group: type.group, kind: type.kind }, causes);
}

export function finalizersOf(object: JsonObject): unknown[] {
  const list = asObject(object.metadata).finalizers;
  return Array.isArray(list) ? list : [];
}
