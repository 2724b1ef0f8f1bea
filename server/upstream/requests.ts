// What reflectors ask for, as paths and media types, and the words under which requests are counted.
// Leaves sending to http-shell.ts and the order of requests to reflector.ts.
import { apiPath, resourceOf } from "../../shared/calico/names.ts";
import { type ApiGroup, type Kind, kinds } from "../../shared/calico/resources.ts";
import { impossible } from "../../shared/kinds.ts";
import type { Request } from "./reflector.ts";
import { metadataOnly } from "./wire.ts";

export function requestPath(group: ApiGroup, kind: Kind, request: Request): string {
  const query = Object.entries(queryOf(request)).flatMap(([key, value]) =>
    value === undefined ? [] : [`${key}=${encodeURIComponent(value)}`],
  );
  return [apiPath(group, kind), query.join("&")].filter(Boolean).join("?");
}

function queryOf(request: Request): Record<string, string | number | boolean | undefined> {
  switch (request.kind) {
    case "watch": {
      const { version: resourceVersion, timeoutSeconds } = request;
      return { watch: true, resourceVersion, allowWatchBookmarks: true, timeoutSeconds };
    }
    case "stream": {
      const { atLeast: resourceVersion, timeoutSeconds } = request;
      const list = { sendInitialEvents: true, resourceVersionMatch: "NotOlderThan", resourceVersion };
      return { watch: true, ...list, allowWatchBookmarks: true, timeoutSeconds };
    }
    case "page": {
      const { atLeast: resourceVersion, next, limit } = request;
      const resourceVersionMatch = resourceVersion === undefined ? undefined : "NotOlderThan";
      return { limit: limit || undefined, continue: next || undefined, resourceVersion, resourceVersionMatch };
    }
    default:
      return impossible(request);
  }
}

/** With plain JSON behind it, for servers that cannot send metadata alone (kube-watch 8). */
export function acceptOf(kind: Kind, request: Request): string {
  if (!metadataOnly.has(kind)) return "application/json";
  const as = request.kind === "page" ? "PartialObjectMetadataList" : "PartialObjectMetadata";
  return `application/json;as=${as};g=meta.k8s.io;v=v1,application/json`;
}

export type RequestVerb = "get" | "list" | "watch" | "create" | "patch" | "delete";

/** Verb and resource as the API server's audit log would have them, in our words for the kinds that are ours. */
export function requestLabels(method: string, path: string, stream: boolean): { verb: RequestVerb; resource: string } {
  const [, api, ...rest] = (path.split("?")[0] ?? "").split("/");
  const parts = rest.slice(api === "apis" ? 2 : 1);
  const inNamespace = parts[0] === "namespaces" && parts.length > 2;
  const [plural = "", name] = inNamespace ? parts.slice(2) : parts;
  return {
    verb: stream ? "watch" : verbOf(method, name !== undefined),
    resource: kindByPlural.get(plural) ?? singular(plural),
  };
}

function verbOf(method: string, named: boolean): RequestVerb {
  switch (method) {
    case "POST":
      return "create";
    case "PATCH":
      return "patch";
    case "DELETE":
      return "delete";
    default:
      return named ? "get" : "list";
  }
}

const kindByPlural: ReadonlyMap<string, Kind> = new Map(
  (["crd", "v3"] as const).flatMap((group) => kinds.map((kind) => [resourceOf(group, kind).plural, kind] as const)),
);

function singular(plural: string): string {
  return plural.replace(/s$/, "");
}
