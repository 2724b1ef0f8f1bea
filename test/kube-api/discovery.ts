// What the server says it serves: groups, versions and resources, as clients such as kubectl ask before anything else.
// Only the unaggregated form; newer clients fall back to it.
import type { JsonObject } from "./json.ts";
import { NoSuchPath } from "./status.ts";
import { apiVersionOf, type ResourceType } from "./types.ts";

/** The version whose behaviour is copied. */
export const serverVersion = {
  major: "1",
  minor: "35",
  gitVersion: "v1.35.4+cattail",
  platform: "linux/amd64",
} as const;

/** Undefined: not a path of discovery. */
export function discover(types: readonly ResourceType[], path: string): JsonObject | undefined {
  const parts = path.split("/").filter((part) => part !== "");
  switch (parts[0]) {
    case "version":
      return { ...serverVersion };
    case "api":
      if (parts.length === 1) return { kind: "APIVersions", versions: ["v1"], serverAddressByClientCIDRs: [] };
      return resourceList(types, "", parts[1] ?? "");
    case "apis":
      if (parts.length === 1)
        return {
          kind: "APIGroupList",
          apiVersion: "v1",
          groups: groupsOf(types).map((group) => groupInfo(types, group)),
        };
      if (parts.length === 2) return { kind: "APIGroup", apiVersion: "v1", ...groupInfo(types, parts[1] ?? "") };
      return resourceList(types, parts[1] ?? "", parts[2] ?? "");
    case "openapi":
      if (parts[1] === "v3") return openApi(types, parts.slice(2).join("/"));
      throw new NoSuchPath();
    default:
      return undefined;
  }
}

function groupsOf(types: readonly ResourceType[]): string[] {
  return [...new Set(types.map((type) => type.group))].filter((group) => group !== "");
}

function groupInfo(types: readonly ResourceType[], group: string): JsonObject {
  const versions = [...new Set(types.filter((type) => type.group === group).map((type) => type.version))].map(
    (version) => ({
      groupVersion: `${group}/${version}`,
      version,
    }),
  );
  if (versions.length === 0 || group === "") throw new NoSuchPath();
  return { name: group, versions, preferredVersion: versions[0] };
}

function resourceList(types: readonly ResourceType[], group: string, version: string): JsonObject {
  const found = types.filter((type) => type.group === group && type.version === version);
  if (found.length === 0) throw new NoSuchPath();
  return {
    kind: "APIResourceList",
    ...(group === "" ? {} : { apiVersion: "v1" }),
    groupVersion: group === "" ? version : `${group}/${version}`,
    resources: found.flatMap(resourcesOf),
  };
}

function resourcesOf(type: ResourceType): JsonObject[] {
  const main = {
    name: type.plural,
    singularName: type.singular,
    namespaced: type.namespaced,
    kind: type.kind,
    verbs: type.verbs,
    ...(type.shortNames.length === 0 ? {} : { shortNames: type.shortNames }),
  };
  const sub = (name: string, kind: string, verbs: readonly string[]): JsonObject => ({
    name: `${type.plural}/${name}`,
    singularName: "",
    namespaced: type.namespaced,
    kind,
    verbs,
  });
  return [
    main,
    ...(type.status ? [sub("status", type.kind, ["get", "patch", "update"])] : []),
    ...(type.plural === "serviceaccounts"
      ? [{ ...sub("token", "TokenRequest", ["create"]), group: "authentication.k8s.io", version: "v1" }]
      : []),
  ];
}

/** No schemas: just enough for kubectl to learn that the server validates fields, and not to do so itself. */
function openApi(types: readonly ResourceType[], document: string): JsonObject {
  const pathOf = (type: ResourceType): string => `${type.group === "" ? "api" : "apis"}/${apiVersionOf(type)}`;
  if (document === "") {
    const paths = types.map((type) => [pathOf(type), { serverRelativeURL: `/openapi/v3/${pathOf(type)}` }]);
    return { paths: Object.fromEntries(paths) };
  }
  const served = types.filter((type) => pathOf(type) === document);
  if (served.length === 0) throw new NoSuchPath();
  const parameters = ["dryRun", "fieldValidation", "fieldManager"].map((name) => ({
    name,
    in: "query",
    schema: { type: "string" },
  }));
  const operation = (type: ResourceType): JsonObject => ({
    parameters,
    responses: { 200: { description: "OK" } },
    "x-kubernetes-action": "patch",
    "x-kubernetes-group-version-kind": { group: type.group, version: type.version, kind: type.kind },
  });
  return {
    openapi: "3.0.0",
    info: { title: "Kubernetes", version: serverVersion.gitVersion },
    paths: Object.fromEntries(served.map((type) => [`/${document}/${type.plural}/{name}`, { patch: operation(type) }])),
  };
}
