// How an object is stored: its text, made once per write, and beside it only what lists, watches and selectors ask for.
// Also the rules of metadata that hold for every type. Lists and events are pasted together from the texts.
import type { Clock, Random } from "../../shared/world.ts";
import { asObject, asText, isObject, type JsonObject, printJson } from "./json.ts";
import type { Labels } from "./selectors.ts";
import { badRequest, type Cause } from "./status.ts";
import type { Entry } from "./store.ts";
import { apiVersionOf, keyOf, type ResourceType } from "./types.ts";

export interface ObjectEntry extends Entry {
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
  readonly labels: Labels | undefined;
  /** Values of the type's selectable fields. */
  readonly fields: Readonly<Record<string, string>> | undefined;
  /** The whole object: kind, apiVersion, metadata, then the rest. */
  readonly text: string;
  /** Where the metadata object stands in `text`. */
  readonly metadataAt: number;
  readonly metadataEnd: number;
}

/** The object as it will be stored under `version`. */
export function entryOf(type: ResourceType, object: JsonObject, version: number): ObjectEntry {
  const { apiVersion: _apiVersion, kind: _kind, metadata, ...rest } = object;
  const meta: JsonObject = { ...asObject(metadata), resourceVersion: String(version) };
  const head = `{"kind":${JSON.stringify(type.kind)},"apiVersion":${JSON.stringify(apiVersionOf(type))},"metadata":`;
  const metadataText = printJson(meta);
  const body = printJson(rest);
  const namespace = asText(meta.namespace);
  const name = asText(meta.name);
  const labels = asObject(meta.labels) as Labels;
  return {
    key: keyOf(type, namespace, name),
    version,
    name,
    namespace,
    uid: asText(meta.uid),
    labels: Object.keys(labels).length === 0 ? undefined : labels,
    fields: fieldsOf(type, object),
    text: flat(`${head}${metadataText}${body === "{}" ? "}" : `,${body.slice(1)}`}`),
    metadataAt: head.length,
    metadataEnd: head.length + metadataText.length,
  };
}

/** V8 keeps a concatenation as a tree of its parts, at twice the memory; a number parse makes it one piece. */
function flat(text: string): string {
  Number(text);
  return text;
}

function fieldsOf(type: ResourceType, object: JsonObject): Readonly<Record<string, string>> | undefined {
  if (type.fields.length === 0) return undefined;
  return Object.fromEntries(type.fields.map((path) => [path, textAt(object, path)]));
}

function textAt(object: JsonObject, path: string): string {
  const value = path.split(".").reduce<unknown>((inner, key) => asObject(inner)[key], object);
  return value === undefined || value === null ? "" : String(value);
}

/** Everything ObjectMeta has; other keys are dropped, as the real server does. */
const metadataKeys: ReadonlySet<string> = new Set([
  "annotations",
  "creationTimestamp",
  "deletionGracePeriodSeconds",
  "deletionTimestamp",
  "finalizers",
  "generateName",
  "generation",
  "labels",
  "name",
  "namespace",
  "ownerReferences",
  "resourceVersion",
  "uid",
]);

/** Metadata as sent, without nulls, empty maps, foreign keys and managedFields, which are not kept. A wrong type is a 400. */
export function readMetadata(type: ResourceType, object: JsonObject): JsonObject {
  if (object.metadata === undefined || object.metadata === null) return {};
  if (!isObject(object.metadata))
    throw undecodable(type, "json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta");
  const kept = Object.entries(object.metadata).filter(([key, value]) => metadataKeys.has(key) && value !== null);
  for (const [key, value] of kept) {
    if (!hasMetadataType(key, value))
      throw undecodable(type, `json: cannot unmarshal into Go struct field ObjectMeta.metadata.${key}`);
  }
  return Object.fromEntries(kept.filter(([, value]) => !isEmpty(value)));
}

export function undecodable(type: ResourceType, why: string): Error {
  return badRequest(
    `${type.kind} in version ${JSON.stringify(type.version)} cannot be handled as a ${type.kind}: ${why}`,
  );
}

function isEmpty(value: unknown): boolean {
  return (
    value === "" || (Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0)
  );
}

function hasMetadataType(key: string, value: unknown): boolean {
  switch (key) {
    case "labels":
    case "annotations":
      return isObject(value) && Object.values(value).every((text) => typeof text === "string");
    case "finalizers":
      return Array.isArray(value) && value.every((text) => typeof text === "string");
    case "ownerReferences":
      return Array.isArray(value) && value.every(isObject);
    case "generation":
    case "deletionGracePeriodSeconds":
      return typeof value === "number";
    default:
      return typeof value === "string";
  }
}

const labelPattern = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const subdomainPattern = `${labelPattern}(\\.${labelPattern})*`;
const labelName = new RegExp(`^${labelPattern}$`);
const subdomainName = new RegExp(`^${subdomainPattern}$`);

/** What is wrong with a name, in the real server's words. */
export function nameErrors(type: ResourceType, name: string): string[] {
  switch (type.names) {
    case "path":
      return name === "." || name === ".." || /[/%]/.test(name) ? [`may not be '.' or '..' or contain '/' or '%'`] : [];
    case "label":
      return [
        ...(name.length > 63 ? ["must be no more than 63 characters"] : []),
        ...(labelName.test(name)
          ? []
          : [
              `a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '${labelPattern}')`,
            ]),
      ];
    case "subdomain":
      return [
        ...(name.length > 253 ? ["must be no more than 253 characters"] : []),
        ...(subdomainName.test(name)
          ? []
          : [
              `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '${subdomainPattern}')`,
            ]),
      ];
  }
}

const labelValue = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;
const qualifiedName = /^(?:([^/]+)\/)?([A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)$/;

export function metadataErrors(type: ResourceType, metadata: JsonObject): Cause[] {
  const causes: Cause[] = [];
  const bad = (field: string, value: string, why: string): void => {
    causes.push({
      reason: "FieldValueInvalid",
      message: `Invalid value: ${JSON.stringify(value)}: ${why}`,
      field: `metadata.${field}`,
    });
  };
  const name = asText(metadata.name);
  if (name === "")
    causes.push({
      reason: "FieldValueRequired",
      message: "Required value: name or generateName is required",
      field: "metadata.name",
    });
  else for (const why of nameErrors(type, name)) bad("name", name, why);
  for (const [key, value] of Object.entries(asObject(metadata.labels))) {
    if (!isQualifiedName(key)) bad("labels", key, `name part ${namePartRule}`);
    if (asText(value).length > 63) bad("labels", asText(value), "must be no more than 63 bytes");
    if (!labelValue.test(asText(value))) bad("labels", asText(value), labelValueRule);
  }
  for (const key of Object.keys(asObject(metadata.annotations))) {
    if (!isQualifiedName(key.toLowerCase())) bad("annotations", key, `name part ${namePartRule}`);
  }
  return causes;
}

function isQualifiedName(text: string): boolean {
  const [, prefix, name = ""] = qualifiedName.exec(text) ?? [];
  return (
    name !== "" && name.length <= 63 && (prefix === undefined || (prefix.length <= 253 && subdomainName.test(prefix)))
  );
}

const namePartRule =
  "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const labelValueRule =
  "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

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
