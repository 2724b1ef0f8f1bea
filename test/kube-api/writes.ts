// CREATE, UPDATE and PATCH: what a write does to an object and its metadata, and when it is refused (kube-watch 9).
// Each write is decided and stored in one step; what a type's arrival means for the server is left to api-server.ts.
import { checkKind, parseOr, readBody, requireJson } from "./bodies.ts";
import {
  commit,
  commitRemoval,
  existing,
  finalizersOf,
  invalidObject,
  subjectOf,
  type WriteContext,
  type Written,
} from "./commits.ts";
import { asObject, asText, equalJson, isObject, type JsonObject, parseJson } from "./json.ts";
import { metadataErrors, newUid, type ObjectEntry, readMetadata, timestamp } from "./objects.ts";
import { jsonPatch, mergePatch, strategicMergePatch } from "./patch.ts";
import type { ApiRequest, ResourceTarget } from "./request.ts";
import {
  alreadyExists,
  badRequest,
  type Cause,
  conflict,
  invalid,
  modified,
  notFound,
  Refusal,
  unsupportedMediaType,
} from "./status.ts";
import { conform, initialState, schemaErrors } from "./type-rules.ts";
import { collectionOf, keyOf, type ResourceType } from "./types.ts";

export function createObject(
  context: WriteContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): Written {
  requireJson(request);
  const body = readBody(type, target, request.body);
  const sent = asObject(body.metadata);
  if (sent.resourceVersion !== undefined && sent.resourceVersion !== "0") {
    throw new Refusal(500, "", "resourceVersion should not be set on objects to be created");
  }
  const name = asText(sent.name) || generatedName(context, type, target, asText(sent.generateName));
  if (type.namespaced && !context.store.collection("namespaces").get(target.namespace)) {
    throw notFound({ name: target.namespace, kind: "namespaces" });
  }
  const metadata: JsonObject = {
    ...sent,
    ...(name === "" ? {} : { name }),
    uid: newUid(context.random),
    creationTimestamp: timestamp(context.clock),
    ...(type.generation ? { generation: 1 } : {}),
  };
  for (const key of [
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
    ...(type.generation ? [] : ["generation"]),
  ]) {
    delete metadata[key];
  }
  const { object, warnings } = conform(type, initialState(type, { ...body, metadata }), request);
  const wrong = [...metadataErrors(type, metadata), ...schemaErrors(type, object)];
  if (wrong.length > 0) throw invalidObject(type, name, wrong);
  const key = keyOf(type, target.namespace, name);
  if (context.store.collection(collectionOf(type)).get(key)) throw alreadyExists(subjectOf(type, name));
  return { code: 201, body: commit(context, type, object, request).text, warnings };
}

/** As the real server: five characters that form no words; a name that is taken is tried again. */
const nameLetters = "bcdfghjklmnpqrstvwxz2456789";
const generateTries = 8;

function generatedName(context: WriteContext, type: ResourceType, target: ResourceTarget, prefix: string): string {
  if (prefix === "") return "";
  const collection = context.store.collection(collectionOf(type));
  for (let tries = 0; tries < generateTries; tries += 1) {
    const suffix = Array.from({ length: 5 }, () => nameLetters.charAt(context.random.below(nameLetters.length))).join(
      "",
    );
    const name = prefix.slice(0, 58) + suffix;
    if (!collection.get(keyOf(type, target.namespace, name))) return name;
  }
  throw alreadyExists(subjectOf(type, prefix));
}

export function updateObject(
  context: WriteContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): Written {
  requireJson(request);
  const body = readBody(type, target, request.body);
  const metadata = asObject(body.metadata);
  const name = asText(metadata.name);
  if (name !== target.name) {
    throw badRequest(
      name === ""
        ? "name must be provided"
        : `the name of the object (${name}) does not match the name on the URL (${target.name})`,
    );
  }
  const before = existing(context, type, target);
  const version = asText(metadata.resourceVersion);
  if (version === "" && !type.unconditionalUpdate) {
    throw invalid(subjectOf(type, name), [
      {
        reason: "FieldValueInvalid",
        message: "Invalid value: 0: must be specified for an update",
        field: "metadata.resourceVersion",
      },
    ]);
  }
  checkUid(type, before, asText(metadata.uid));
  checkVersion(type, before, version);
  return replace(context, type, target, request, before, body);
}

export function patchObject(
  context: WriteContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): Written {
  const apply = patchOf(type, request.contentType);
  const before = existing(context, type, target);
  const patch = parseOr(request.body, (why) => badRequest(`error decoding patch: ${why}`));
  const patched = apply(parseJson(before.text), patch);
  if (!isObject(patched))
    throw badRequest("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}");
  checkKind(type, patched);
  const body: JsonObject = { ...patched, metadata: readMetadata(type, patched) };
  const metadata = asObject(body.metadata);
  if (asText(metadata.name) !== target.name) {
    throw badRequest(
      `the name of the object (${asText(metadata.name)}) does not match the name on the URL (${target.name})`,
    );
  }
  if (metadata.uid !== undefined && metadata.uid !== before.uid)
    throw immutable(type, target.name, "uid", metadata.uid);
  checkVersion(type, before, asText(metadata.resourceVersion));
  return replace(context, type, target, request, before, body);
}

function patchOf(type: ResourceType, contentType: string): (target: unknown, patch: unknown) => unknown {
  const supported = [
    "application/json-patch+json",
    "application/merge-patch+json",
    ...(type.custom ? [] : ["application/strategic-merge-patch+json"]),
  ];
  const media = contentType.split(";")[0]?.trim() ?? "";
  if (supported.includes(media)) {
    if (media === "application/json-patch+json") return jsonPatch;
    return media === "application/merge-patch+json" ? mergePatch : strategicMergePatch;
  }
  throw unsupportedMediaType(
    `the body of the request was in an unknown format - accepted media types include: ${supported.join(", ")}`,
  );
}

function checkUid(type: ResourceType, entry: ObjectEntry, uid: string): void {
  if (uid === "" || uid === entry.uid) return;
  // Calico knows this refusal by its text (spec 1.2).
  const key = `/registry/${type.group === "" ? "" : `${type.group}/`}${type.plural}/${entry.key}`;
  const message = `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${entry.uid}`;
  throw conflict(
    subjectOf(type, entry.name),
    `StorageError: invalid object, Code: 4, Key: ${key}, ResourceVersion: 0, AdditionalErrorMsg: ${message}`,
  );
}

function checkVersion(type: ResourceType, entry: ObjectEntry, version: string): void {
  if (version === "" || version === String(entry.version)) return;
  if (!/^\d+$/.test(version))
    throw new Refusal(500, "", `strconv.ParseUint: parsing ${JSON.stringify(version)}: invalid syntax`);
  throw conflict(subjectOf(type, entry.name), modified);
}

function immutable(type: ResourceType, name: string, field: string, value: unknown): Refusal {
  const message = `Invalid value: ${JSON.stringify(value)}: field is immutable`;
  return invalidObject(type, name, [{ reason: "FieldValueInvalid", message, field: `metadata.${field}` }]);
}

/** The common end of update and patch: `body` is the wanted object, `before` what is stored. */
function replace(
  context: WriteContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
  before: ObjectEntry,
  body: JsonObject,
): Written {
  const old = asObject(parseJson(before.text));
  const { object: conformed, warnings } = conform(type, body, request);
  const object = withFixedMetadata(old, splitStatus(type, target.subresource === "status", old, conformed));
  const wrong = [
    ...metadataErrors(type, asObject(object.metadata)),
    ...finalizerErrors(old, object),
    ...schemaErrors(type, object),
  ];
  if (wrong.length > 0) throw invalidObject(type, before.name, wrong);
  if (equalJson(object, old)) return { code: 200, body: before.text, warnings };
  countGeneration(type, old, object);
  if (isFinished(object)) {
    const gone = commitRemoval(context, type, object, request);
    return { code: 200, body: gone.text, warnings };
  }
  return { code: 200, body: commit(context, type, object, request).text, warnings };
}

/** A write of the status leaves the rest alone, a write of the rest leaves the status alone. */
function splitStatus(type: ResourceType, statusOnly: boolean, old: JsonObject, wanted: JsonObject): JsonObject {
  if (statusOnly) {
    // Built-in types let labels and annotations through here; Calico annotates pods this way.
    return { ...old, metadata: type.custom ? old.metadata : wanted.metadata, ...pick(wanted, "status") };
  }
  if (!type.status) return wanted;
  const { status: _ignored, ...rest } = wanted;
  return { ...rest, ...pick(old, "status") };
}

function pick(object: JsonObject, key: string): JsonObject {
  return object[key] === undefined ? {} : { [key]: object[key] };
}

/** What no client can change. */
const fixed = [
  "name",
  "namespace",
  "uid",
  "creationTimestamp",
  "generation",
  "generateName",
  "deletionTimestamp",
  "deletionGracePeriodSeconds",
  "resourceVersion",
];

function withFixedMetadata(old: JsonObject, object: JsonObject): JsonObject {
  const oldMetadata = asObject(old.metadata);
  const metadata = { ...asObject(object.metadata) };
  for (const key of fixed) {
    delete metadata[key];
    Object.assign(metadata, pick(oldMetadata, key));
  }
  return { ...object, kind: old.kind, apiVersion: old.apiVersion, metadata };
}

function finalizerErrors(old: JsonObject, object: JsonObject): Cause[] {
  if (asObject(old.metadata).deletionTimestamp === undefined) return [];
  const before = finalizersOf(old);
  const added = finalizersOf(object).filter((name) => !before.includes(name));
  if (added.length === 0) return [];
  const list = added.map((name) => JSON.stringify(name)).join(", ");
  const message = `Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{${list}}`;
  return [{ reason: "FieldValueForbidden", message, field: "metadata.finalizers" }];
}

function countGeneration(type: ResourceType, old: JsonObject, object: JsonObject): void {
  if (!type.generation) return;
  const relevant = ({ metadata: _metadata, ...rest }: JsonObject): JsonObject => {
    const { status, ...others } = rest;
    return type.status ? others : { ...others, status };
  };
  if (equalJson(relevant(old), relevant(object))) return;
  const metadata = asObject(object.metadata);
  metadata.generation = Number(metadata.generation ?? 0) + 1;
}

/** Being deleted, and nobody holds it back any more. */
function isFinished(object: JsonObject): boolean {
  const metadata = asObject(object.metadata);
  if (metadata.deletionTimestamp === undefined || finalizersOf(object).length > 0) return false;
  return Number(metadata.deletionGracePeriodSeconds ?? 0) === 0;
}
