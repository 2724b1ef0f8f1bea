// The API server without its sockets: one request in, one answer out, at once. http-shell.ts serves it; a simulation calls it directly.
// Authenticates, authorises and hands on; also does what a write to a definition or a namespace entails.
import type { Clock, Random } from "../../shared/world.ts";
import type { Written } from "./commits.ts";
import { checkDeletable, deleteAll, deleteObject } from "./deletions.ts";
import { discover } from "./discovery.ts";
import { asObject, asText, isObject, type JsonObject, parseJson, printJson } from "./json.ts";
import { matcher } from "./list-options.ts";
import { entryOf, metadataErrors, newUid, type ObjectEntry, timestamp } from "./objects.ts";
import { bootstrapRoles, isAllowed, mastersGroup } from "./rbac.ts";
import { getObject, listObjects } from "./reads.ts";
import { type ApiRequest, accepts, type ResourceTarget, type Target, targetOf, type User } from "./request.ts";
import { type AuthContext, authenticate, createReview, createToken, keyDocument, type Signer } from "./reviews.ts";
import {
  badRequest,
  forbidden,
  invalid,
  NoSuchPath,
  noSuchResource,
  notAcceptable,
  notAllowedHere,
  notFound,
  Refusal,
  tooLarge,
  unauthorized,
} from "./status.ts";
import { Store } from "./store.ts";
import { initialState } from "./type-rules.ts";
import { collectionOf, crdCollection, customType, keyOf, type ResourceType, Types } from "./types.ts";
import { type StartWatch, watchObjects } from "./watches.ts";
import { createObject, patchObject, updateObject } from "./writes.ts";

export interface ApiServerOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly signer: Signer;
  readonly issuer: string;
  readonly address: () => string;
  readonly tokens: ReadonlyMap<string, User>;
  /** Evaluate Role and ClusterRole objects; otherwise whoever has a token may do everything. */
  readonly rbac: boolean;
  /** Requests without a token are those of system:anonymous instead of a 401. */
  readonly anonymous: boolean;
  readonly bookmarkEveryMs: number;
  readonly historyLimit: number;
}

export type Answer =
  | {
      readonly kind: "body";
      readonly code: number;
      readonly contentType: string;
      /** To be sent one after the other. */
      readonly pieces: readonly string[];
      readonly warnings: readonly string[];
      readonly retryAfterSeconds: number | undefined;
    }
  | { readonly kind: "watch"; readonly start: StartWatch };

export interface Handled {
  readonly target: Target;
  /** Undefined: not known to us. */
  readonly user: User | undefined;
  readonly answer: Answer;
}

/** The real server's limit for a request body. */
export const bodyLimitBytes = 3 * 1024 * 1024;

const anonymousUser: User = { username: "system:anonymous", groups: ["system:unauthenticated"] };
const firstNamespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];

export class ApiServer {
  readonly store: Store<ObjectEntry>;
  readonly types = new Types();
  readonly #options: ApiServerOptions;
  readonly #auth: AuthContext;

  constructor(options: ApiServerOptions) {
    this.#options = options;
    this.store = new Store<ObjectEntry>(options.historyLimit);
    this.#auth = { ...options, store: this.store };
    for (const type of this.types.all()) this.store.collection(collectionOf(type));
    this.seed([
      ...firstNamespaces.map((name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name } })),
      ...firstNamespaces.map((namespace) => ({
        apiVersion: "v1",
        kind: "ServiceAccount",
        metadata: { name: "default", namespace },
      })),
      ...bootstrapRoles,
    ]);
  }

  handle(request: ApiRequest): Handled {
    let target: Target = { kind: "path", verb: request.method.toLowerCase(), path: request.path };
    let user: User | undefined;
    try {
      target = targetOf(request);
      if (request.body.length > bodyLimitBytes) throw tooLarge(bodyLimitBytes);
      user = this.#userOf(request);
      this.#authorise(user, target);
      return { target, user, answer: this.#serve(request, target, user) };
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      return { target, user, answer: refused(refusal) };
    }
  }

  /** Stores objects as they are, past authorisation and schemas; an object without uid or creation time gets one. */
  seed(objects: readonly unknown[]): void {
    for (const object of objects) this.#seedOne(asObject(object));
  }

  /** The stored objects of one type, parsed; numbers beyond 2^53 are bigint. */
  objects(plural: string, group?: string): JsonObject[] {
    const type = this.types
      .all()
      .find((known) => known.plural === plural && (group === undefined || known.group === group));
    if (type === undefined) return [];
    return this.store
      .collection(collectionOf(type))
      .list()
      .map((entry) => asObject(parseJson(entry.text)));
  }

  /** As after an etcd restore: older state, older versions, every watch cut. */
  restoreTo(version: number): void {
    this.store.restoreTo(version);
    for (const type of this.types.all()) if (type.custom) this.types.remove(type);
    for (const entry of this.store.collection(crdCollection).list())
      this.#serveDefinition(asObject(parseJson(entry.text)));
  }

  #userOf(request: ApiRequest): User {
    if (request.token === undefined) {
      if (this.#options.anonymous || openPaths.has(request.path)) return anonymousUser;
      throw unauthorized();
    }
    const found = authenticate(this.#auth, request.token);
    if (found === undefined) throw unauthorized();
    const { impersonate } = request;
    if (impersonate === undefined) return found.user;
    const users: ResourceTarget = {
      kind: "resource",
      verb: "impersonate",
      group: "",
      version: "v1",
      resource: "users",
      subresource: "",
      namespace: "",
      name: impersonate.user,
    };
    this.#authorise(found.user, users);
    const groups = impersonate.groups.includes(mastersGroup)
      ? impersonate.groups
      : [...impersonate.groups, "system:authenticated"];
    return { username: impersonate.user, groups };
  }

  #authorise(user: User, target: Target): void {
    if (this.#options.rbac && !isAllowed(this.store, user, target)) throw notAllowed(user, target);
  }

  #serve(request: ApiRequest, target: Target, user: User): Answer {
    if (target.kind === "path") return this.#servePath(request);
    const type = this.types.find(target.group, target.version, target.resource);
    if (type === undefined) throw new NoSuchPath();
    if (!hasSubresource(type, target.subresource))
      throw notFound({ name: target.name, group: type.group, kind: type.plural });
    if (target.name === "" && (target.verb === "update" || target.verb === "patch")) {
      throw type.custom ? badRequest("name must be provided") : notAllowedHere();
    }
    if (type.namespaced && target.namespace === "") {
      if (target.name !== "") throw noSuchResource();
      if (target.verb === "create") throw notAllowedHere();
    }
    if (!type.verbs.includes(target.verb)) throw notAllowedHere();
    switch (target.verb) {
      case "get":
        return body(200, [getObject(this.#reading, type, target, request)]);
      case "list":
        return body(200, listObjects(this.#reading, type, target, request));
      case "watch":
        return { kind: "watch", start: watchObjects(this.#reading, type, target, request) };
      case "create":
        return this.#create(type, target, request, user);
      case "update":
        return this.#written(type, target, updateObject(this.#writing, type, target, request));
      case "patch":
        return this.#written(type, target, patchObject(this.#writing, type, target, request));
      case "delete":
        return this.#delete(type, target, request);
      case "deletecollection":
        return this.#deleteCollection(type, target, request);
      default:
        throw new NoSuchPath();
    }
  }

  get #reading() {
    return { store: this.store, clock: this.#options.clock, bookmarkEveryMs: this.#options.bookmarkEveryMs };
  }

  get #writing() {
    return { store: this.store, clock: this.#options.clock, random: this.#options.random };
  }

  #servePath(request: ApiRequest): Answer {
    if (healthPaths.has(request.path)) return { ...body(200, ["ok"]), contentType: plainText };
    const document = keyDocument(this.#auth, request.path) ?? discover(this.types.all(), request.path);
    if (document === undefined) throw new NoSuchPath();
    if (request.method !== "GET" && request.method !== "HEAD") throw notAllowedHere();
    const contentType = request.path === "/openid/v1/jwks" ? "application/jwk-set+json" : "application/json";
    if (!accepts(request.accept, contentType)) throw notAcceptable(contentType);
    return { ...body(200, [printJson(document)]), contentType };
  }

  #create(type: ResourceType, target: ResourceTarget, request: ApiRequest, user: User): Answer {
    if (target.subresource === "token") return body(201, [createToken(this.#auth, target, request)]);
    if (type.verbs.length === 1) return body(201, [createReview(this.#auth, type, target, request, user)]);
    return this.#written(type, target, createObject(this.#writing, type, target, request));
  }

  #delete(type: ResourceType, target: ResourceTarget, request: ApiRequest): Answer {
    checkDeletable(type, target);
    const collection = collectionOf(type);
    const before = this.store.collection(collection).get(keyOf(type, target.namespace, target.name));
    const written = deleteObject(this.#writing, type, target, request);
    if (before !== undefined && this.store.collection(collection).get(before.key) === undefined) {
      if (collection === "namespaces") this.#emptyNamespace(target.name);
      if (collection === crdCollection) this.#dropDefinition(asObject(parseJson(before.text)));
    }
    return this.#answer(written);
  }

  #deleteCollection(type: ResourceType, target: ResourceTarget, request: ApiRequest): Answer {
    const { matches } = matcher(type, target, request.query);
    const entries = this.store.collection(collectionOf(type)).list().filter(matches);
    const list = listObjects(this.#reading, type, target, request);
    deleteAll(this.#writing, type, entries, request);
    return body(200, list);
  }

  #written(type: ResourceType, target: ResourceTarget, written: Written): Answer {
    if (collectionOf(type) === crdCollection && target.subresource === "") {
      const definition = parseJson(written.body);
      if (isObject(definition)) this.#serveDefinition(definition);
    }
    return this.#answer(written);
  }

  #answer(written: Written): Answer {
    return { ...body(written.code, [written.body]), warnings: written.warnings };
  }

  /** A change of a definition cuts the watches of its objects (kube-watch 13). */
  #serveDefinition(definition: JsonObject): void {
    const type = customType(definition);
    if (type === undefined) return;
    const known = this.types.named(type.group, type.plural);
    this.types.add(type);
    this.store.collection(collectionOf(type));
    if (known !== undefined && printJson(known) !== printJson(type))
      this.store.collection(collectionOf(type)).endWatches();
  }

  #dropDefinition(definition: JsonObject): void {
    const spec = asObject(definition.spec);
    const type = this.types.named(asText(spec.group), asText(asObject(spec.names).plural));
    if (type === undefined) return;
    const collection = this.store.collection(collectionOf(type));
    this.#removeAll(type, collection.list());
    collection.endWatches();
    this.types.remove(type);
  }

  /** What the namespace controller would do. */
  #emptyNamespace(namespace: string): void {
    for (const type of this.types.all()) {
      if (!type.namespaced) continue;
      const entries = this.store.collection(collectionOf(type)).list();
      this.#removeAll(
        type,
        entries.filter((entry) => entry.namespace === namespace),
      );
    }
  }

  #removeAll(type: ResourceType, entries: readonly ObjectEntry[]): void {
    const collection = this.store.collection(collectionOf(type));
    for (const entry of entries) collection.remove(entryOf(type, asObject(parseJson(entry.text)), this.store.next()));
  }

  #seedOne(object: JsonObject): void {
    const type = this.types.ofKind(asText(object.apiVersion), asText(object.kind));
    if (type === undefined) throw new Error(`no such type: ${asText(object.apiVersion)} ${asText(object.kind)}`);
    const metadata: JsonObject = {
      uid: newUid(this.#options.random),
      creationTimestamp: timestamp(this.#options.clock),
      ...(type.generation ? { generation: 1 } : {}),
      ...asObject(object.metadata),
    };
    const wrong = metadataErrors(type, metadata);
    if (wrong.length > 0) throw invalid({ kind: type.kind, group: type.group, name: asText(metadata.name) }, wrong);
    const whole = { ...object, metadata };
    const seeded = type.custom || object.status !== undefined ? whole : initialState(type, whole);
    this.store.collection(collectionOf(type)).put(entryOf(type, seeded, this.store.next()));
    if (collectionOf(type) === crdCollection) this.#serveDefinition(seeded);
  }
}

const healthPaths: ReadonlySet<string> = new Set(["/healthz", "/livez", "/readyz"]);
/** Answered to everybody, so that probes and token verifiers need no token. */
const openPaths: ReadonlySet<string> = new Set([...healthPaths, "/version"]);

function hasSubresource(type: ResourceType, subresource: string): boolean {
  switch (subresource) {
    case "":
      return true;
    case "status":
      return type.status;
    case "token":
      return type.plural === "serviceaccounts" && type.group === "";
    default:
      return false;
  }
}

type BodyAnswer = Extract<Answer, { kind: "body" }>;

const plainText = "text/plain; charset=utf-8";

function body(code: number, pieces: readonly string[]): BodyAnswer {
  return { kind: "body", code, contentType: "application/json", pieces, warnings: [], retryAfterSeconds: undefined };
}

function refused(refusal: Refusal): Answer {
  const contentType = refusal instanceof NoSuchPath ? plainText : "application/json";
  return { ...body(refusal.code, [refusal.body]), contentType, retryAfterSeconds: refusal.retryAfterSeconds };
}

function notAllowed(user: User, target: Target): Refusal {
  const who = `User ${JSON.stringify(user.username)} cannot ${target.verb}`;
  if (target.kind === "path") return forbidden({}, `${who} path ${JSON.stringify(target.path)}`);
  const resource = target.subresource === "" ? target.resource : `${target.resource}/${target.subresource}`;
  const where =
    target.namespace === "" ? "at the cluster scope" : `in the namespace ${JSON.stringify(target.namespace)}`;
  return forbidden(
    { name: target.name, group: target.group, kind: target.resource },
    `${who} resource ${JSON.stringify(resource)} in API group ${JSON.stringify(target.group)} ${where}`,
  );
}
