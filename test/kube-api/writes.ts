// CREATE, UPDATE, PATCH and DELETE: what a write does to an object and its metadata, and when it is refused (kube-watch 9).
// Each write is decided and stored in one step; what a type's arrival or removal means for the server is left to api-server.ts.
import type { Clock, Random } from "../../shared/world.ts";
import { asObject, asText, equalJson, isObject, type JsonObject, parseJson } from "./json.ts";
import { entryOf, metadataErrors, nameErrors, type ObjectEntry, readMetadata, undecodable } from "./objects.ts";
import { jsonPatch, mergePatch, strategicMergePatch } from "./patch.ts";
import type { ApiRequest, ResourceTarget } from "./request.ts";
import { applyDefaults, prune, validate } from "./schema.ts";
import {
  alreadyExists,
  badRequest,
  type Cause,
  conflict,
  invalid,
  modified,
  notAllowedHere,
  notFound,
  Refusal,
  type Subject,
  unsupportedMediaType,
} from "./status.ts";
import type { Store } from "./store.ts";
import { apiVersionOf, collectionOf, crdCollection, keyOf, type ResourceType } from "./types.ts";

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

function subjectOf(type: ResourceType, name: string): Subject {
  return { name, group: type.group, kind: type.plural };
}

function invalidObject(type: ResourceType, name: string, causes: readonly Cause[]): Refusal {
  return invalid({ name, group: type.group, kind: type.kind }, causes);
}

/** The body as an object of the type that the path names, with its metadata cleaned. */
export function readBody(type: ResourceType, target: ResourceTarget, text: string): JsonObject {
  const object = parseBody(type, text);
  checkKind(type, object);
  const metadata = readMetadata(type, object);
  const namespace = asText(metadata.namespace);
  if (type.namespaced && namespace !== "" && namespace !== target.namespace) {
    throw badRequest("the namespace of the provided object does not match the namespace sent on the request");
  }
  if (type.namespaced) metadata.namespace = target.namespace;
  else delete metadata.namespace;
  return { ...object, metadata };
}

function parseBody(type: ResourceType, text: string): JsonObject {
  const value = parseOr(text, (why) => unrecognized(type, `couldn't get version/kind; json parse error: ${why}`));
  if (!isObject(value)) throw unrecognized(type, "couldn't get version/kind; json parse error: not an object");
  return value;
}

function parseOr(text: string, refusal: (why: string) => Refusal): unknown {
  try {
    return parseJson(text);
  } catch (cause) {
    throw refusal(cause instanceof Error ? cause.message : "unreadable JSON");
  }
}

function unrecognized(type: ResourceType, why: string): Refusal {
  return badRequest(`the object provided is unrecognized (must be of type ${type.kind}): ${why}`);
}

/** Built-in types may leave out what they are. */
function checkKind(type: ResourceType, object: JsonObject): void {
  const { kind, apiVersion } = object;
  const wanted = apiVersionOf(type);
  if (kind === undefined && type.custom) throw unrecognized(type, "Object 'Kind' is missing");
  if (apiVersion !== wanted && (apiVersion !== undefined || type.custom)) {
    throw badRequest(
      `the API version in the data (${asText(apiVersion)}) does not match the expected API version (${wanted})`,
    );
  }
  if (kind === undefined || kind === type.kind) return;
  if (!type.custom) {
    throw badRequest(
      `${asText(kind)} in version "${type.version}" cannot be handled as a ${type.kind}: unknown conversion`,
    );
  }
  const name = asText(asObject(object.metadata).name);
  throw invalid({ name, group: type.group, kind: asText(kind) }, [
    {
      reason: "FieldValueInvalid",
      message: `Invalid value: ${JSON.stringify(kind)}: must be ${type.kind}`,
      field: "kind",
    },
  ]);
}

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
  return { code: 201, body: store(context, type, object, request).text, warnings };
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

export function newUid(random: Random): string {
  const hex = random.hex(16);
  const variant = "89ab".charAt(random.below(4));
  return [hex.slice(0, 8), hex.slice(8, 12), `4${hex.slice(13, 16)}`, variant + hex.slice(17, 20), hex.slice(20)].join(
    "-",
  );
}

export function timestamp(clock: Clock, inSeconds = 0): string {
  return `${new Date(clock.wall() + inSeconds * 1000).toISOString().slice(0, 19)}Z`;
}

/** What the real server adds to, or takes from, a new object of these types. */
export function initialState(type: ResourceType, object: JsonObject): JsonObject {
  const metadata = asObject(object.metadata);
  if (type.custom && type.status) {
    const { status: _ignored, ...rest } = object;
    return rest;
  }
  switch (collectionOf(type)) {
    case "namespaces": {
      const labels = { ...asObject(metadata.labels), "kubernetes.io/metadata.name": metadata.name };
      return {
        ...object,
        metadata: { ...metadata, labels },
        spec: { finalizers: ["kubernetes"] },
        status: { phase: "Active" },
      };
    }
    case "pods":
      return { ...object, status: { phase: "Pending", qosClass: "BestEffort" } };
    case crdCollection:
      return {
        ...object,
        spec: { conversion: { strategy: "None" }, ...asObject(object.spec) },
        status: acceptedDefinition(object),
      };
    default:
      return object;
  }
}

function acceptedDefinition(definition: JsonObject): JsonObject {
  const spec = asObject(definition.spec);
  const versions = (Array.isArray(spec.versions) ? spec.versions : []).filter(isObject);
  const condition = (type: string, reason: string): JsonObject => ({ type, status: "True", reason });
  return {
    acceptedNames: spec.names,
    storedVersions: versions.filter((version) => version.storage === true).map((version) => version.name),
    conditions: [condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")],
  };
}

/** Prunes and defaults a custom resource; built-in objects are taken as they are. */
function conform(
  type: ResourceType,
  object: JsonObject,
  request: ApiRequest,
): { object: JsonObject; warnings: string[] } {
  const schema = type.schema;
  if (schema === undefined) return { object, warnings: [] };
  const unknown: string[] = [];
  const pruned = prune(object, schema, unknown);
  const unknownFields = unknown.map((path) => `unknown field "${path}"`);
  const validation = request.query.get("fieldValidation") ?? "Warn";
  if (validation === "Strict" && unknownFields.length > 0) {
    throw undecodable(type, `strict decoding error: ${unknownFields.join(", ")}`);
  }
  return { object: asObject(applyDefaults(pruned, schema)), warnings: validation === "Warn" ? unknownFields : [] };
}

function schemaErrors(type: ResourceType, object: JsonObject): Cause[] {
  if (type.schema !== undefined) return validate(object, type.schema);
  if (type.kind === "Event") return eventErrors(type, object);
  return collectionOf(type) === crdCollection ? definitionErrors(object) : [];
}

/** An Event lies in the namespace of what it is about; one about a cluster-scoped object in `default`. */
function eventErrors(type: ResourceType, object: JsonObject): Cause[] {
  const about = asObject(type.group === "" ? object.involvedObject : object.regarding);
  const namespace = asText(about.namespace);
  const required =
    type.group === "" ? [] : ["eventTime", "reportingController", "reportingInstance", "action", "reason"];
  const missing = required.filter((field) => asText(object[field]) === "");
  const causes: Cause[] = missing.map((field) => ({ reason: "FieldValueRequired", message: "Required value", field }));
  if ((namespace || "default") !== asObject(object.metadata).namespace) {
    const message = `Invalid value: ${JSON.stringify(namespace)}: does not match event.namespace`;
    causes.push({ reason: "FieldValueInvalid", message, field: "involvedObject.namespace" });
  }
  return causes;
}

function definitionErrors(object: JsonObject): Cause[] {
  const spec = asObject(object.spec);
  const names = asObject(spec.names);
  const wanted = `${asText(names.plural)}.${asText(spec.group)}`;
  const name = asText(asObject(object.metadata).name);
  const causes: Cause[] = [];
  if (name !== wanted) {
    causes.push({
      reason: "FieldValueInvalid",
      message: `Invalid value: ${JSON.stringify(name)}: must be spec.names.plural+"."+spec.group`,
      field: "metadata.name",
    });
  }
  for (const [field, value] of [
    ["spec.group", spec.group],
    ["spec.names.plural", names.plural],
    ["spec.names.kind", names.kind],
    ["spec.scope", spec.scope],
  ] as const) {
    if (asText(value) === "") causes.push({ reason: "FieldValueRequired", message: "Required value", field });
  }
  return causes;
}

/** `storing` writes only when something changed: an update without effect keeps its resourceVersion and makes no event. */
function store(context: WriteContext, type: ResourceType, object: JsonObject, request: ApiRequest): ObjectEntry {
  const dry = isDryRun(request);
  const entry = entryOf(type, object, dry ? context.store.version : context.store.next());
  if (!dry) context.store.collection(collectionOf(type)).put(entry);
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

function requireJson(request: ApiRequest): void {
  const media = request.contentType.split(";")[0]?.trim() ?? "";
  if (media === "" || media === "application/json" || media === "*/*") return;
  throw unsupportedMediaType(
    "the body of the request was in an unknown format - accepted media types include: application/json",
  );
}

function existing(context: WriteContext, type: ResourceType, target: ResourceTarget): ObjectEntry {
  const entry = context.store.collection(collectionOf(type)).get(keyOf(type, target.namespace, target.name));
  if (entry === undefined) throw notFound(subjectOf(type, target.name));
  return entry;
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
    const gone = remove(context, type, object, request);
    return { code: 200, body: gone.text, warnings };
  }
  return { code: 200, body: store(context, type, object, request).text, warnings };
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

function finalizersOf(object: JsonObject): unknown[] {
  const list = asObject(object.metadata).finalizers;
  return Array.isArray(list) ? list : [];
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

function remove(context: WriteContext, type: ResourceType, object: JsonObject, request: ApiRequest): ObjectEntry {
  const dry = isDryRun(request);
  const entry = entryOf(type, object, dry ? context.store.version : context.store.next());
  if (!dry) context.store.collection(collectionOf(type)).remove(entry);
  return entry;
}

interface DeleteOptions {
  readonly uid: string | undefined;
  readonly resourceVersion: string | undefined;
  readonly gracePeriodSeconds: number | undefined;
}

function deleteOptions(request: ApiRequest): DeleteOptions {
  const body = request.body.trim() === "" ? {} : asObject(parseOr(request.body, (why) => badRequest(why)));
  if (body.kind !== undefined && body.kind !== "DeleteOptions") {
    throw badRequest(`no kind ${JSON.stringify(body.kind)} is registered for version "v1": expected DeleteOptions`);
  }
  const preconditions = asObject(body.preconditions);
  const grace = body.gracePeriodSeconds ?? request.query.get("gracePeriodSeconds");
  return {
    uid: asText(preconditions.uid) || undefined,
    resourceVersion: asText(preconditions.resourceVersion) || undefined,
    gracePeriodSeconds: grace === undefined || grace === null ? undefined : Number(grace),
  };
}

export function deleteObject(
  context: WriteContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): Written {
  const options = deleteOptions(request);
  const entry = existing(context, type, target);
  checkPreconditions(type, entry, options);
  return { code: 200, body: deleteEntry(context, type, entry, options, request), warnings: [] };
}

/** Deletes what is listed, in its order, until one refuses; the caller has selected. */
export function deleteAll(
  context: WriteContext,
  type: ResourceType,
  entries: readonly ObjectEntry[],
  request: ApiRequest,
): void {
  const options = deleteOptions(request);
  for (const entry of entries) {
    checkPreconditions(type, entry, options);
    deleteEntry(context, type, entry, options, request);
  }
}

function checkPreconditions(type: ResourceType, entry: ObjectEntry, options: DeleteOptions): void {
  // The Kind, not the plural: these refusals are worded elsewhere in the real server.
  const subject = { name: entry.name, group: type.group, kind: type.kind };
  const { uid, resourceVersion } = options;
  if (uid !== undefined && uid !== entry.uid) {
    throw conflict(
      subject,
      `the UID in the precondition (${uid}) does not match the UID in record (${entry.uid}). The object might have been deleted and then recreated`,
    );
  }
  if (resourceVersion !== undefined && resourceVersion !== String(entry.version)) {
    throw conflict(
      subject,
      `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${entry.version}). The object might have been modified`,
    );
  }
}

function deleteEntry(
  context: WriteContext,
  type: ResourceType,
  entry: ObjectEntry,
  options: DeleteOptions,
  request: ApiRequest,
): string {
  const object = asObject(parseJson(entry.text));
  const metadata = asObject(object.metadata);
  const graceSeconds = graceOf(type, object, options);
  if (finalizersOf(object).length === 0 && graceSeconds === 0) {
    const gone = remove(context, type, lastState(context, type, object), request);
    return returnsObject.has(collectionOf(type)) ? gone.text : deletedStatus(type, entry);
  }
  const known = metadata.deletionTimestamp !== undefined;
  if (known && graceSeconds >= Number(metadata.deletionGracePeriodSeconds ?? 0)) return entry.text;
  return store(context, type, markedForDeletion(context, type, object, graceSeconds), request).text;
}

function markedForDeletion(
  context: WriteContext,
  type: ResourceType,
  object: JsonObject,
  graceSeconds: number,
): JsonObject {
  const metadata = asObject(object.metadata);
  const generation =
    type.generation && metadata.deletionTimestamp === undefined
      ? { generation: Number(metadata.generation ?? 0) + 1 }
      : {};
  return {
    ...object,
    metadata: {
      ...metadata,
      ...generation,
      deletionTimestamp: timestamp(context.clock, graceSeconds),
      deletionGracePeriodSeconds: graceSeconds,
    },
  };
}

/** A pod says even in its last state that it was deleted; other objects just go. */
function lastState(context: WriteContext, type: ResourceType, object: JsonObject): JsonObject {
  return collectionOf(type) === "pods" ? markedForDeletion(context, type, object, 0) : object;
}

/** Only a pod that a kubelet may be running is given time. */
function graceOf(type: ResourceType, object: JsonObject, options: DeleteOptions): number {
  if (collectionOf(type) !== "pods") return 0;
  const spec = asObject(object.spec);
  const phase = asObject(object.status).phase;
  if (asText(spec.nodeName) === "" || phase === "Succeeded" || phase === "Failed") return 0;
  return options.gracePeriodSeconds ?? Number(spec.terminationGracePeriodSeconds ?? 30);
}

const returnsObject: ReadonlySet<string> = new Set(["pods", "namespaces", "serviceaccounts", "services"]);

function deletedStatus(type: ResourceType, entry: ObjectEntry): string {
  return JSON.stringify({
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Success",
    details: { name: entry.name, ...(type.group ? { group: type.group } : {}), kind: type.plural, uid: entry.uid },
  });
}

export function checkDeletable(type: ResourceType, target: ResourceTarget): void {
  if (
    type.plural === "namespaces" &&
    type.group === "" &&
    ["default", "kube-system", "kube-public"].includes(target.name)
  ) {
    throw new Refusal(403, "Forbidden", `namespaces "${target.name}" is forbidden: this namespace may not be deleted`, {
      details: { name: target.name, kind: "namespaces" },
    });
  }
}

export function requireVerb(type: ResourceType, verb: string): void {
  if (!type.verbs.includes(verb)) throw notAllowedHere();
}

export function isValidName(type: ResourceType, name: string): boolean {
  return nameErrors(type, name).length === 0;
}
