// The forms in which an object is handed out: whole, its metadata alone, or as a row of a table.
// Chosen by the Accept header; whoever asks for a form that is not known gets the whole object.

import type { Clock } from "../../shared/world.ts";
import { asObject, type JsonObject, parseJson, printJson } from "./json.ts";
import type { ObjectEntry } from "./objects.ts";
import { accepts } from "./request.ts";
import { notAcceptable } from "./status.ts";
import { apiVersionOf, type Column, type ResourceType } from "./types.ts";

export interface View {
  /** One object, as GET answers it and as it stands in an event. */
  one(entry: ObjectEntry): string;
  /** One element of a list's `items` or `rows`. */
  item(entry: ObjectEntry): string;
  /** Up to and including the opening of `items`; `metadata` is the list's. */
  listHead(metadata: JsonObject): string;
  bookmark(metadata: JsonObject): string;
}

export function viewFor(type: ResourceType, accept: string, clock: Clock): View {
  if (!accepts(accept, "application/json")) throw notAcceptable();
  const partial = /;\s*as=PartialObjectMetadata(List)?\b/.test(accept) && accept.includes("meta.k8s.io");
  if (partial) return partialView();
  if (/;\s*as=Table\b/.test(accept) && /v=v1(?!beta)/.test(accept)) return tableView(type, clock);
  return wholeView(type);
}

function wholeView(type: ResourceType): View {
  const apiVersion = apiVersionOf(type);
  return {
    one: (entry) => entry.text,
    item: (entry) => entry.text,
    listHead: (metadata) => {
      // Lists of custom resources always have the key.
      const full = type.custom ? { continue: "", ...metadata } : metadata;
      return `{"kind":"${type.kind}List","apiVersion":"${apiVersion}","metadata":${printJson(full)},"items":[`;
    },
    bookmark: (metadata) => printJson({ kind: type.kind, apiVersion, metadata }),
  };
}

const partialHead = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`;

function partialView(): View {
  const one = (entry: ObjectEntry): string => `${partialHead}${entry.text.slice(entry.metadataAt, entry.metadataEnd)}}`;
  return {
    one,
    item: one,
    listHead: (metadata) =>
      `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":${printJson(metadata)},"items":[`,
    bookmark: (metadata) => `${partialHead}${printJson(metadata)}}`,
  };
}

function tableView(type: ResourceType, clock: Clock): View {
  const own = type.columns.some((column) => column.name === "Age") ? type.columns : [...type.columns, ageColumn];
  const definitions = [
    { name: "Name", type: "string", format: "name", description: "", priority: 0 },
    ...own.map(definitionOf),
  ];
  const head = (metadata: JsonObject): string =>
    `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":${printJson(metadata)},"columnDefinitions":${printJson(definitions)},"rows":[`;
  const row = (entry: ObjectEntry): string => {
    const object = asObject(parseJson(entry.text));
    const cells = [entry.name, ...own.map((column) => cellOf(object, column, clock))];
    return `{"cells":${printJson(cells)},"object":${partialHead}${entry.text.slice(entry.metadataAt, entry.metadataEnd)}}}`;
  };
  return {
    one: (entry) => `${head({ resourceVersion: String(entry.version) })}${row(entry)}]}`,
    item: row,
    listHead: head,
    bookmark: (metadata) => `${head(metadata)}{"cells":[],"object":${partialHead}${printJson(metadata)}}}]}`,
  };
}

const ageColumn: Column = { name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp", wide: false };

function definitionOf(column: Column): JsonObject {
  return {
    name: column.name,
    type: column.type === "date" ? "string" : column.type,
    format: "",
    description: "",
    priority: column.wide ? 1 : 0,
  };
}

function cellOf(object: JsonObject, column: Column, clock: Clock): unknown {
  const path = column.jsonPath.replace(/^\./, "").split(".");
  const value = path.reduce<unknown>((inner, key) => asObject(inner)[key], object);
  if (value === undefined || value === null) return null;
  return column.type === "date" ? age(clock.wall() - Date.parse(String(value))) : value;
}

function age(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
}
