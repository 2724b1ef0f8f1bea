// The body of a write: an object of the type that the path names, or a Refusal.
// What the type demands of it is left to type-rules.ts.
import { asObject, asText, isObject, type JsonObject, parseJson } from "./json.ts";
import { readMetadata } from "./objects.ts";
import type { ApiRequest, ResourceTarget } from "./request.ts";
import { badRequest, invalid, type Refusal, unsupportedMediaType } from "./status.ts";
import { apiVersionOf, type ResourceType } from "./types.ts";

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

export function parseOr(text: string, refusal: (why: string) => Refusal): unknown {
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
export function checkKind(type: ResourceType, object: JsonObject): void {
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

export function requireJson(request: ApiRequest): void {
  const media = request.contentType.split(";")[0]?.trim() ?? "";
  if (media === "" || media === "application/json" || media === "*/*") return;
  throw unsupportedMediaType(
    "the body of the request was in an unknown format - accepted media types include: application/json",
  );
}
