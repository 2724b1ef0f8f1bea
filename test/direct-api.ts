// The server's door to the API, opened straight onto the embedded API server: no socket, no time of its own, faults by rule.
// For tests of what the server decides; what lies between them on a wire is tested elsewhere.

import { resourceOf } from "../shared/calico/names.ts";
import { type ApiGroup, kinds } from "../shared/calico/resources.ts";
import { parseLossless, printLossless } from "../shared/json/lossless.ts";
import { type Api, ApiFailure } from "../shared/kube/api.ts";
import { failureOf, refusalOfAnswer } from "../shared/kube/status.ts";
import type { Clock, Random } from "../shared/world.ts";
import { ApiServer } from "./kube-api/api-server.ts";
import { Faults } from "./kube-api/faults.ts";
import { targetOf } from "./kube-api/request.ts";

export interface DirectApi extends Api {
  readonly server: ApiServer;
  readonly faults: Faults;
  /** "get ipamblocks/10-0-0-0-26", in the order of arrival. */
  readonly requests: string[];
  /** Called before a request takes effect: where somebody else comes in between. */
  before: (request: string) => void;
}

export const token = "test";

export function directApi(clock: Clock, random: Random, group: ApiGroup = "crd"): DirectApi {
  const server = new ApiServer({
    clock,
    random,
    signer: { jwks: () => ({}), sign: () => "", verify: () => undefined },
    issuer: "test",
    address: () => "127.0.0.1:6443",
    tokens: new Map([[token, { username: "test", groups: ["system:masters"] }]]),
    rbac: false,
    anonymous: false,
    bookmarkEveryMs: 60_000,
    historyLimit: 1000,
  });
  server.seed(kinds.filter((kind) => kind !== "node" && kind !== "namespace").map((kind) => definition(group, kind)));
  const faults = new Faults();
  const requests: string[] = [];

  const call = async (method: string, path: string, body?: unknown): Promise<unknown> => {
    const request = {
      method,
      path: path.split("?")[0] ?? "",
      query: new Map(new URLSearchParams(path.split("?")[1] ?? "")),
      accept: "application/json",
      contentType: method === "PATCH" ? "application/merge-patch+json" : "application/json",
      userAgent: "test",
      token,
      body: body === undefined ? "" : printLossless(body),
    };
    const target = targetOf(request);
    const name = target.kind === "path" ? path : `${target.resource}/${target.name || nameIn(body)}`;
    const said = `${target.verb} ${name}`;
    requests.push(said);
    await Promise.resolve();
    api.before(said);
    const effect = faults.take(target, "test");
    const what = `${method} ${path}`;
    if (effect?.kind === "status") {
      const status = { kind: "Status", code: effect.code, reason: effect.reason ?? "", message: effect.message ?? "" };
      const after = effect.retryAfterSeconds === undefined ? undefined : String(effect.retryAfterSeconds);
      throw failureOf(refusalOfAnswer(effect.code, after, JSON.stringify(status)), what);
    }
    const lost = new ApiFailure("api-unavailable", `${what}: the connection was reset`, { status: 0, reason: "" });
    if (effect?.kind === "drop" && effect.when === "before") throw lost;
    const { answer } = server.handle(request);
    if (effect?.kind === "drop") throw lost;
    if (answer.kind !== "body") throw new Error(`${what} is no request for an object`);
    const text = answer.pieces.join("");
    if (answer.code >= 300) throw failureOf(refusalOfAnswer(answer.code, undefined, text), what);
    return parseLossless(text);
  };

  const api: DirectApi = {
    server,
    faults,
    requests,
    before: () => {},
    get: (path) => call("GET", path),
    create: (path, body) => call("POST", path, body),
    patch: (path, mergePatch) => call("PATCH", path, mergePatch),
    remove: async (path, preconditions) => {
      await call("DELETE", path, { apiVersion: "v1", kind: "DeleteOptions", preconditions });
    },
  };
  return api;
}

function nameIn(body: unknown): string {
  return (body as { metadata?: { name?: string } } | undefined)?.metadata?.name ?? "";
}

/** Takes any object: what the real schemas demand is not the point here. */
function definition(group: ApiGroup, kind: Parameters<typeof resourceOf>[1]): unknown {
  const resource = resourceOf(group, kind);
  const [groupName, version] = resource.apiVersion.split("/");
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${resource.plural}.${groupName}` },
    spec: {
      group: groupName,
      scope: "Cluster",
      names: { kind: resource.kind, plural: resource.plural, singular: resource.kind.toLowerCase() },
      versions: [{ name: version, served: true, storage: true, schema }],
    },
  };
}
