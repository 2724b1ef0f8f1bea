// One API request, and what its method and path mean: verb, resource, namespace, name.
// The words are those of authorization, the audit log and the fault rules.
import { NoSuchPath } from "./status.ts";

export interface User {
  readonly username: string;
  readonly uid?: string;
  readonly groups: readonly string[];
  readonly extra?: Readonly<Record<string, readonly string[]>>;
}

export interface ApiRequest {
  readonly method: string;
  readonly path: string;
  readonly query: ReadonlyMap<string, string>;
  readonly accept: string;
  readonly contentType: string;
  readonly userAgent: string;
  /** Value of the Authorization header, without `Bearer `. */
  readonly token: string | undefined;
  /** Impersonate-User and Impersonate-Group headers. */
  readonly impersonate?: { readonly user: string; readonly groups: readonly string[] };
  readonly body: string;
}

/** `impersonate` is asked about, never requested. */
export type Verb =
  | "impersonate"
  | "get"
  | "list"
  | "watch"
  | "create"
  | "update"
  | "patch"
  | "delete"
  | "deletecollection";

export interface ResourceTarget {
  readonly kind: "resource";
  readonly verb: Verb;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
}

export interface PathTarget {
  readonly kind: "path";
  readonly verb: string;
  readonly path: string;
}

export type Target = ResourceTarget | PathTarget;

export function targetOf(request: ApiRequest): Target {
  const other: PathTarget = { kind: "path", verb: request.method.toLowerCase(), path: request.path };
  const parts = request.path
    .split("/")
    .filter((part) => part !== "")
    .map(decode);
  const core = parts[0] === "api";
  if (!core && parts[0] !== "apis") return other;
  const [group, version] = core ? ["", parts[1]] : [parts[1], parts[2]];
  let rest = parts.slice(core ? 2 : 3);
  if (group === undefined || version === undefined || rest.length === 0) return other;
  let namespace = "";
  // `namespaces/x` and its `status` are the namespace itself; anything longer lies inside it.
  if (rest[0] === "namespaces" && rest.length > 2 && !(core && (rest[2] === "status" || rest[2] === "finalize"))) {
    namespace = rest[1] ?? "";
    rest = rest.slice(2);
  }
  const [resource = "", name = "", subresource = "", ...more] = rest;
  if (more.length > 0) return other;
  const verb = verbOf(request, name);
  return verb === undefined
    ? other
    : { kind: "resource", verb, group, version, resource, subresource, namespace, name };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new NoSuchPath();
  }
}

function verbOf(request: ApiRequest, name: string): Verb | undefined {
  switch (request.method) {
    case "GET":
    case "HEAD":
      if (name !== "") return "get";
      return isTrue(request.query.get("watch")) ? "watch" : "list";
    case "POST":
      return "create";
    case "PUT":
      return "update";
    case "PATCH":
      return "patch";
    case "DELETE":
      return name === "" ? "deletecollection" : "delete";
    default:
      return undefined;
  }
}

export function isTrue(value: string | undefined): boolean {
  return value === "true" || value === "1" || value === "";
}

/** Whether an Accept header allows this media type; parameters and preferences are not weighed. */
export function accepts(accept: string, mediaType: string): boolean {
  const wanted = accept.split(",").map((part) => part.split(";")[0]?.trim() ?? "");
  return accept === "" || wanted.some((type) => type === mediaType || type === "*/*" || type === "application/*");
}
