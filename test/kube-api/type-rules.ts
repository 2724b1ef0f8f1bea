// What each type adds to its objects and demands of them: first states, pruning, defaults, validation.
// Rules that hold for every object stand in objects.ts and writes.ts.
import { asObject, asText, isObject, type JsonObject } from "./json.ts";
import { undecodable } from "./objects.ts";
import type { ApiRequest } from "./request.ts";
import { applyDefaults, prune, validate } from "./schema.ts";
import type { Cause } from "./status.ts";
import { collectionOf, crdCollection, type ResourceType } from "./types.ts";

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
export function conform(
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

export function schemaErrors(type: ResourceType, object: JsonObject): Cause[] {
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
