// Who a token belongs to, the tokens of service accounts, and the review resources that answer questions about both.
// Signatures are left to a Signer (tokens-shell.ts); what a token must say, and when it is void, is decided here.
import type { Clock, Random } from "../../shared/world.ts";
import { readBody } from "./bodies.ts";
import { asObject, asText, type JsonObject, parseJson, printJson } from "./json.ts";
import { newUid, type ObjectEntry, timestamp } from "./objects.ts";
import { isAllowed } from "./rbac.ts";
import type { ApiRequest, ResourceTarget, Target, User, Verb } from "./request.ts";
import { badRequest, conflict, invalid, notFound } from "./status.ts";
import type { Store } from "./store.ts";
import type { ResourceType } from "./types.ts";

export interface Signer {
  /** The public keys, as the document of /openid/v1/jwks. */
  jwks(): JsonObject;
  sign(claims: JsonObject): string;
  /** The claims of a token that we signed; expiry and audience are not looked at. */
  verify(token: string): JsonObject | undefined;
}

export interface AuthContext {
  readonly store: Store<ObjectEntry>;
  readonly clock: Clock;
  readonly random: Random;
  readonly signer: Signer;
  readonly issuer: string;
  /** Fixed tokens, such as the administrator's. */
  readonly tokens: ReadonlyMap<string, User>;
  readonly rbac: boolean;
  /** URL at which this server is reached. */
  readonly address: () => string;
}

export interface Authenticated {
  readonly user: User;
  readonly audiences: readonly string[];
}

/** Undefined: nobody we know. */
export function authenticate(
  context: AuthContext,
  token: string,
  audiences: readonly string[] = [context.issuer],
): Authenticated | undefined {
  const known = context.tokens.get(token);
  if (known !== undefined) {
    const groups = [...new Set([...known.groups, "system:authenticated"])];
    return { user: { ...known, groups }, audiences };
  }
  const claims = context.signer.verify(token);
  return claims === undefined ? undefined : serviceAccountUser(context, claims, audiences);
}

function serviceAccountUser(
  context: AuthContext,
  claims: JsonObject,
  audiences: readonly string[],
): Authenticated | undefined {
  const nowSeconds = context.clock.wall() / 1000;
  if (claims.iss !== context.issuer || Number(claims.exp) <= nowSeconds) return undefined;
  const meant = (Array.isArray(claims.aud) ? claims.aud : []).filter((audience) => audiences.includes(audience));
  if (meant.length === 0) return undefined;
  const bound = asObject(claims["kubernetes.io"]);
  const namespace = asText(bound.namespace);
  const account = asObject(bound.serviceaccount);
  const pod = asObject(bound.pod);
  const node = asObject(bound.node);
  if (!lives(context, "serviceaccounts", `${namespace}/${asText(account.name)}`, account.uid)) return undefined;
  // A token of a pod dies with the pod. One that is bound to a node alone dies with the node.
  if (pod.name !== undefined && !lives(context, "pods", `${namespace}/${asText(pod.name)}`, pod.uid)) return undefined;
  if (pod.name === undefined && node.name !== undefined && !lives(context, "nodes", asText(node.name), node.uid))
    return undefined;
  const extra: Record<string, readonly string[]> = {
    "authentication.kubernetes.io/credential-id": [`JTI=${asText(claims.jti)}`],
  };
  for (const [kind, object] of [
    ["node", node],
    ["pod", pod],
  ] as const) {
    if (object.name === undefined) continue;
    extra[`authentication.kubernetes.io/${kind}-name`] = [asText(object.name)];
    if (object.uid !== undefined) extra[`authentication.kubernetes.io/${kind}-uid`] = [asText(object.uid)];
  }
  const user: User = {
    username: `system:serviceaccount:${namespace}:${asText(account.name)}`,
    uid: asText(account.uid),
    groups: ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"],
    extra,
  };
  return { user, audiences: meant };
}

function lives(context: AuthContext, collection: string, key: string, uid: unknown): boolean {
  return context.store.collection(collection).get(key)?.uid === uid;
}

/** Bounds of the real server; the default is an hour. */
const shortestTokenSeconds = 600;
const longestTokenSeconds = 2 ** 32;

export function createToken(context: AuthContext, target: ResourceTarget, request: ApiRequest): string {
  const account = context.store.collection("serviceaccounts").get(`${target.namespace}/${target.name}`);
  if (account === undefined) throw notFound({ name: target.name, kind: "serviceaccounts" });
  const body = asObject(request.body.trim() === "" ? {} : parseJson(request.body));
  const spec = asObject(body.spec);
  const seconds = spec.expirationSeconds === undefined ? 3600 : Number(spec.expirationSeconds);
  checkDuration(seconds);
  const audiences =
    Array.isArray(spec.audiences) && spec.audiences.length > 0 ? spec.audiences.map(asText) : [context.issuer];
  const nowSeconds = Math.floor(context.clock.wall() / 1000);
  const token = context.signer.sign({
    aud: audiences,
    exp: nowSeconds + seconds,
    iat: nowSeconds,
    iss: context.issuer,
    jti: newUid(context.random),
    "kubernetes.io": {
      namespace: target.namespace,
      ...boundTo(context, target.namespace, target.name, asObject(spec.boundObjectRef)),
      serviceaccount: { name: target.name, uid: account.uid },
    },
    nbf: nowSeconds,
    sub: `system:serviceaccount:${target.namespace}:${target.name}`,
  });
  return printJson({
    kind: "TokenRequest",
    apiVersion: "authentication.k8s.io/v1",
    metadata: {
      name: target.name,
      namespace: target.namespace,
      uid: account.uid,
      creationTimestamp: timestamp(context.clock),
    },
    spec: { audiences, expirationSeconds: seconds, boundObjectRef: spec.boundObjectRef ?? null },
    status: { token, expirationTimestamp: `${new Date((nowSeconds + seconds) * 1000).toISOString().slice(0, 19)}Z` },
  });
}

function checkDuration(seconds: number): void {
  const wrong =
    seconds < shortestTokenSeconds
      ? "may not specify a duration less than 10 minutes"
      : seconds > longestTokenSeconds
        ? "may not specify a duration larger than 2^32 seconds"
        : undefined;
  if (wrong === undefined) return;
  throw invalid({ group: "authentication.k8s.io", kind: "TokenRequest" }, [
    { reason: "FieldValueInvalid", message: `Invalid value: ${seconds}: ${wrong}`, field: "spec.expirationSeconds" },
  ]);
}

function boundTo(context: AuthContext, namespace: string, account: string, ref: JsonObject): JsonObject {
  const name = asText(ref.name);
  switch (ref.kind) {
    case undefined:
      return {};
    case "Pod": {
      const pod = boundObject(context, "pods", `${namespace}/${name}`, ref);
      const podAccount = asText(asObject(asObject(parseJson(pod.text)).spec).serviceAccountName) || "default";
      if (podAccount !== account) {
        throw badRequest(
          `cannot bind token for serviceaccount "${account}" to pod running with different serviceaccount name.`,
        );
      }
      const nodeName = pod.fields?.["spec.nodeName"] ?? "";
      const node = nodeName === "" ? undefined : context.store.collection("nodes").get(nodeName);
      const nodeClaim =
        nodeName === "" ? {} : { node: { name: nodeName, ...(node === undefined ? {} : { uid: node.uid }) } };
      return { ...nodeClaim, pod: { name, uid: pod.uid } };
    }
    case "Node":
      return { node: { name, uid: boundObject(context, "nodes", name, ref).uid } };
    default:
      throw badRequest(`cannot bind token to object of type /${asText(ref.apiVersion)}, Kind=${asText(ref.kind)}`);
  }
}

function boundObject(context: AuthContext, collection: string, key: string, ref: JsonObject): ObjectEntry {
  const subject = { name: asText(ref.name), kind: collection };
  const entry = context.store.collection(collection).get(key);
  if (entry === undefined) throw notFound(subject);
  if (asText(ref.uid) !== "" && ref.uid !== entry.uid) {
    throw conflict(
      { ...subject, kind: asText(ref.kind) },
      `the UID in the bound object reference (${asText(ref.uid)}) does not match the UID in record. The object might have been deleted and then recreated`,
    );
  }
  return entry;
}

/** Answers a POST to one of the review resources. */
export function createReview(
  context: AuthContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
  user: User,
): string {
  const body = readBody(type, target, request.body);
  const spec = asObject(body.spec);
  return printJson({
    kind: type.kind,
    apiVersion: `${type.group}/${type.version}`,
    metadata: type.kind === "SelfSubjectReview" ? { creationTimestamp: timestamp(context.clock) } : {},
    ...(body.spec === undefined ? {} : { spec: body.spec }),
    status: reviewStatus(context, type, spec, user),
  });
}

function reviewStatus(context: AuthContext, type: ResourceType, spec: JsonObject, user: User): JsonObject {
  switch (type.kind) {
    case "TokenReview":
      return reviewToken(context, spec);
    case "SelfSubjectReview":
      return { userInfo: user };
    case "SelfSubjectAccessReview":
      return { allowed: mayDo(context, user, spec) };
    default:
      return { allowed: mayDo(context, userIn(spec), spec) };
  }
}

function reviewToken(context: AuthContext, spec: JsonObject): JsonObject {
  const token = asText(spec.token);
  if (token === "") throw badRequest("token is required for TokenReview in authentication");
  const audiences =
    Array.isArray(spec.audiences) && spec.audiences.length > 0 ? spec.audiences.map(asText) : [context.issuer];
  const found = authenticate(context, token, audiences);
  if (found === undefined) return { user: {}, error: "invalid bearer token" };
  return { authenticated: true, user: found.user, audiences: found.audiences };
}

function userIn(spec: JsonObject): User {
  return { username: asText(spec.user), groups: Array.isArray(spec.groups) ? spec.groups.map(asText) : [] };
}

function mayDo(context: AuthContext, user: User, spec: JsonObject): boolean {
  return !context.rbac || isAllowed(context.store, user, targetIn(spec));
}

function targetIn(spec: JsonObject): Target {
  if (spec.nonResourceAttributes !== undefined) {
    const attributes = asObject(spec.nonResourceAttributes);
    return { kind: "path", verb: asText(attributes.verb), path: asText(attributes.path) };
  }
  const attributes = asObject(spec.resourceAttributes);
  return {
    kind: "resource",
    // Any word may be asked about; only the known ones are ever allowed by name.
    verb: asText(attributes.verb) as Verb,
    group: asText(attributes.group),
    version: asText(attributes.version),
    resource: asText(attributes.resource),
    subresource: asText(attributes.subresource),
    namespace: asText(attributes.namespace),
    name: asText(attributes.name),
  };
}

/** Where whoever verifies tokens offline finds the keys. Undefined: another path. */
export function keyDocument(context: AuthContext, path: string): JsonObject | undefined {
  switch (path) {
    case "/openid/v1/jwks":
      return context.signer.jwks();
    case "/.well-known/openid-configuration":
      return {
        issuer: context.issuer,
        jwks_uri: `${context.address()}/openid/v1/jwks`,
        response_types_supported: ["id_token"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["RS256"],
      };
    default:
      return undefined;
  }
}
