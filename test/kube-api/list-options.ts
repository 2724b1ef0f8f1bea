// The query of a list or watch: which of its options go together, which objects they select.
// What is done with them is left to reads.ts and watches.ts.
import type { ObjectEntry } from "./objects.ts";
import type { ResourceTarget } from "./request.ts";
import { fieldSelector, labelSelector } from "./selectors.ts";
import { badRequest, type Cause, invalid, Refusal } from "./status.ts";
import type { ResourceType } from "./types.ts";

export type Query = ReadonlyMap<string, string>;
export type Matches = (entry: ObjectEntry) => boolean;

export function checkOptions(query: Query, watch: boolean): void {
  const causes: Cause[] = [];
  const forbid = (field: string, why: string): void => {
    causes.push({ reason: "FieldValueForbidden", message: `Forbidden: ${why}`, field });
  };
  const unsupported = (supported: string): void => {
    const message = `Unsupported value: ${JSON.stringify(match)}: supported values: ${supported}`;
    causes.push({ reason: "FieldValueNotSupported", message, field: "resourceVersionMatch" });
  };
  const match = query.get("resourceVersionMatch") ?? "";
  const initial = query.has("sendInitialEvents");
  const version = query.get("resourceVersion") ?? "";
  if (watch && initial) {
    if (match !== "NotOlderThan")
      forbid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    if (match !== "NotOlderThan" && match !== "") unsupported('"NotOlderThan"');
  } else if (watch) {
    if (match !== "")
      forbid(
        "resourceVersionMatch",
        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
      );
  } else {
    if (match !== "" && version === "")
      forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided");
    if (match !== "" && query.get("continue"))
      forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
    if (match !== "" && match !== "Exact" && match !== "NotOlderThan") unsupported('"Exact", "NotOlderThan", ""');
    if (match === "Exact" && version === "0")
      forbid("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"');
    if (initial) forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
  }
  if (causes.length > 0) throw invalid({ group: "meta.k8s.io", kind: "ListOptions" }, causes);
}

export function matcher(
  type: ResourceType,
  target: ResourceTarget,
  query: Query,
): { matches: Matches; selected: boolean } {
  const labels = labelSelector(query.get("labelSelector"));
  const fields = fieldSelector(query.get("fieldSelector"), [
    "metadata.name",
    ...(type.namespaced ? ["metadata.namespace"] : []),
    ...type.fields,
  ]);
  const inside = target.namespace;
  return {
    selected: labels !== undefined || fields.length > 0 || inside !== "",
    matches: (entry) =>
      (inside === "" || entry.namespace === inside) &&
      fields.every((term) => (fieldOf(entry, term.field) === term.value) === term.equal) &&
      (labels === undefined || labels(entry.labels)),
  };
}

function fieldOf(entry: ObjectEntry, field: string): string {
  if (field === "metadata.name") return entry.name;
  if (field === "metadata.namespace") return entry.namespace;
  return entry.fields?.[field] ?? "";
}

/** Only a list calls a version that is no number the client's mistake. */
export function versionIn(query: Query, verb: "list" | ""): number | undefined {
  const text = query.get("resourceVersion") ?? "";
  if (text === "") return undefined;
  if (/^\d+$/.test(text)) return Number(text);
  const value = JSON.stringify(text);
  const why = `resourceVersion: Invalid value: ${value}: strconv.ParseUint: parsing ${value}: invalid syntax`;
  throw verb === "list" ? badRequest(`invalid resource version: ${why}`) : new Refusal(500, "", why);
}

export function wholeNumber(text: string | undefined): number | undefined {
  if (text === undefined || text === "") return undefined;
  if (!/^-?\d+$/.test(text)) throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text)}: invalid syntax`);
  return Number(text);
}
