// Structural schemas of CustomResourceDefinitions: pruning of unknown fields, defaults and validation with the real server's words.
// Not evaluated: CEL rules (x-kubernetes-validations) and combinators (allOf, anyOf, oneOf, not).

import { isRawNumber } from "../../shared/json/lossless.ts";
import { equalJson, isObject, type JsonObject } from "./json.ts";
import type { Cause } from "./status.ts";

export interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly nullable?: boolean;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: boolean | Schema;
  readonly items?: Schema;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
  readonly "x-kubernetes-int-or-string"?: boolean;
  readonly "x-kubernetes-embedded-resource"?: boolean;
}

/** Keys every object has; their content is checked elsewhere. */
const rootKeys: ReadonlySet<string> = new Set(["apiVersion", "kind", "metadata"]);

/** The object without the fields that its schema does not know; `unknown` collects their paths. */
export function prune(object: JsonObject, schema: Schema, unknown: string[] = []): JsonObject {
  const body = pruneValue(object, { ...schema, properties: withRoot(schema.properties) }, "", unknown);
  return isObject(body) ? body : object;
}

const anything: Schema = { "x-kubernetes-preserve-unknown-fields": true };

function withRoot(properties: Schema["properties"]): Readonly<Record<string, Schema>> {
  return { ...properties, ...Object.fromEntries([...rootKeys].map((key) => [key, anything])) };
}

function pruneValue(value: unknown, schema: Schema, path: string, unknown: string[]): unknown {
  if (Array.isArray(value)) {
    const items = schema.items;
    return items === undefined ? value : value.map((item, at) => pruneValue(item, items, `${path}[${at}]`, unknown));
  }
  if (!isObject(value)) return value;
  const kept: [string, unknown][] = [];
  for (const [key, item] of Object.entries(value)) {
    const at = path === "" ? key : `${path}.${key}`;
    const inner = schemaOf(schema, key);
    if (inner !== undefined) kept.push([key, pruneValue(item, inner, at, unknown)]);
    else if (
      schema["x-kubernetes-preserve-unknown-fields"] === true ||
      schema["x-kubernetes-embedded-resource"] === true
    )
      kept.push([key, item]);
    else unknown.push(at);
  }
  return Object.fromEntries(kept);
}

function schemaOf(schema: Schema, key: string): Schema | undefined {
  if (schema.properties !== undefined && Object.hasOwn(schema.properties, key)) return schema.properties[key];
  if (isObject(schema.additionalProperties)) return schema.additionalProperties;
  return schema.additionalProperties === true ? anything : undefined;
}

/** Fills in defaults. A null where none is allowed counts as absent, but stays in a list. */
export function applyDefaults(value: unknown, schema: Schema): unknown {
  if (Array.isArray(value)) {
    const items = schema.items;
    return items === undefined ? value : value.map((item) => applyDefaults(item, items));
  }
  if (!isObject(value)) return value;
  const filled = new Map(Object.entries(value));
  for (const [key, item] of filled) {
    if (item === null && schemaOf(schema, key)?.nullable !== true && schemaOf(schema, key)?.type !== undefined)
      filled.delete(key);
  }
  for (const [key, inner] of Object.entries(schema.properties ?? {})) {
    if (!filled.has(key) && inner.default !== undefined) filled.set(key, inner.default);
  }
  for (const [key, item] of filled) {
    const inner = schemaOf(schema, key);
    if (inner !== undefined) filled.set(key, applyDefaults(item, inner));
  }
  return Object.fromEntries(filled);
}

/** What is wrong with the object, as causes of a 422. */
export function validate(object: JsonObject, schema: Schema): Cause[] {
  const causes: Cause[] = [];
  const { apiVersion: _version, kind: _kind, metadata: _metadata, ...body } = object;
  const { apiVersion: _1, kind: _2, metadata: _3, ...properties } = schema.properties ?? {};
  check(body, { ...schema, properties }, "", causes);
  return causes;
}

function check(value: unknown, schema: Schema, path: string, causes: Cause[]): void {
  if (value === null) {
    if (schema.nullable !== true && schema.type !== undefined) wrongType(path, schema.type, "null", causes);
    return;
  }
  if (!hasType(value, schema)) {
    wrongType(path, schema.type ?? "integer,string", typeOf(value), causes);
    return;
  }
  if (schema.enum !== undefined && !schema.enum.some((allowed) => equalJson(allowed, value))) {
    const supported = schema.enum.map((allowed) => JSON.stringify(allowed)).join(", ");
    causes.push({
      reason: "FieldValueNotSupported",
      message: `Unsupported value: ${quoted(value)}: supported values: ${supported}`,
      field: path,
    });
  }
  if (typeof value === "string") checkText(value, schema, path, causes);
  else if (typeof value === "number" || typeof value === "bigint") checkNumber(value, schema, path, causes);
  else if (Array.isArray(value)) checkArray(value, schema, path, causes);
  else if (isObject(value)) checkObject(value, schema, path, causes);
}

function hasType(value: unknown, schema: Schema): boolean {
  if (schema["x-kubernetes-int-or-string"] === true) return typeof value === "string" || isInteger(value);
  switch (schema.type) {
    case undefined:
      return true;
    case "integer":
      return isInteger(value);
    default:
      return typeOf(value) === schema.type || (schema.type === "number" && isInteger(value));
  }
}

function isInteger(value: unknown): boolean {
  return typeOf(value) === "integer";
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  // Beyond 64 bits the real server reads a floating point number.
  if (typeof value === "bigint") return BigInt.asIntN(64, value) === value ? "integer" : "number";
  if (isRawNumber(value)) return "number";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

function quoted(value: unknown): string {
  return typeof value === "bigint" ? value.toString() : JSON.stringify(value);
}

function wrongType(path: string, wanted: string, found: string, causes: Cause[]): void {
  const message = `Invalid value: "${found}": ${path} in body must be of type ${wanted}: "${found}"`;
  causes.push({ reason: "FieldValueTypeInvalid", message, field: path });
}

function refuse(path: string, value: unknown, why: string, causes: Cause[]): void {
  causes.push({
    reason: "FieldValueInvalid",
    message: `Invalid value: ${quoted(value)}: ${path} in body ${why}`,
    field: path,
  });
}

function checkText(value: string, schema: Schema, path: string, causes: Cause[]): void {
  const length = [...value].length;
  if (schema.maxLength !== undefined && length > schema.maxLength) {
    causes.push({
      reason: "FieldValueTooLong",
      message: `Too long: may not be more than ${schema.maxLength} bytes`,
      field: path,
    });
  }
  if (schema.minLength !== undefined && length < schema.minLength) {
    refuse(path, value, `should be at least ${schema.minLength} chars long`, causes);
  }
  if (schema.pattern !== undefined && !new RegExp(schema.pattern, "u").test(value)) {
    refuse(path, value, `should match '${schema.pattern}'`, causes);
  }
  if (schema.format === "date-time" && !dateTime.test(value)) {
    const message = `Invalid value: ${quoted(value)}: ${path} in body must be of type date-time: ${quoted(value)}`;
    causes.push({ reason: "FieldValueTypeInvalid", message, field: path });
  }
}

const dateTime = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;

function checkNumber(value: number | bigint, schema: Schema, path: string, causes: Cause[]): void {
  if (schema.minimum !== undefined && value < schema.minimum)
    refuse(path, value, `should be greater than or equal to ${schema.minimum}`, causes);
  if (schema.maximum !== undefined && value > schema.maximum)
    refuse(path, value, `should be less than or equal to ${schema.maximum}`, causes);
}

function checkArray(value: readonly unknown[], schema: Schema, path: string, causes: Cause[]): void {
  if (schema.maxItems !== undefined && value.length > schema.maxItems) {
    causes.push({
      reason: "FieldValueTooMany",
      message: `Too many: ${value.length}: must have at most ${schema.maxItems} items`,
      field: path,
    });
  }
  if (schema.minItems !== undefined && value.length < schema.minItems) {
    refuse(path, value.length, `should have at least ${schema.minItems} items`, causes);
  }
  const items = schema.items;
  if (items === undefined) return;
  for (const [at, item] of value.entries()) check(item, items, `${path}[${at}]`, causes);
}

function checkObject(value: JsonObject, schema: Schema, path: string, causes: Cause[]): void {
  for (const key of schema.required ?? []) {
    if (Object.hasOwn(value, key) || rootKeys.has(key)) continue;
    causes.push({
      reason: "FieldValueRequired",
      message: "Required value",
      field: path === "" ? key : `${path}.${key}`,
    });
  }
  for (const [key, item] of Object.entries(value)) {
    const inner = schemaOf(schema, key);
    if (inner !== undefined) check(item, inner, path === "" ? key : `${path}.${key}`, causes);
  }
}
