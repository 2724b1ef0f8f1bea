// What an API server does, as tests that run unchanged against the embedded one and the real one: so that the embedded one cannot lie.
// Only what a client may rely on is compared: codes, reasons, causes, and those texts by which Calico and Cattail tell refusals apart.
import assert from "node:assert/strict";
import { createPublicKey, createVerify, type webcrypto } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { until } from "../cluster/api.ts";
import { calicoDefinitions } from "./calico-shell.ts";
import { Client, type Connection, type Reply, take, type WatchEvent } from "./conformance-client-shell.ts";
import { asObject, asText, isObject, type JsonObject } from "./json.ts";

export function conformance(name: string, connect: () => Promise<Connection>): void {
  describe(name, () => {
    let client: Client;
    before(async () => {
      client = new Client(await connect());
      await serveCalico(client);
      await make(client, "/api/v1/namespaces", { metadata: { name: "conformance" } });
    });
    after(() => client.close());
    const using = (run: (client: Client) => Promise<void>) => () => run(client);

    describe("list", () => {
      test("is in order of names, whatever the order of creation", using(listOrder));
      test("pages show one state, although objects come and go meanwhile", using(paging));
      test("answers an exact version, a version at least, and refuses one from the future", using(listVersions));
      test("refuses options that contradict each other", using(listOptions));
      test("selects by labels and fields", using(selecting));
      test("hands out metadata alone when asked", using(metadataOnly));
    });
    describe("watch", () => {
      test("tells additions, changes and deletions from a version on, each with its own version", using(watching));
      test("shows an object that stops matching its selector as deleted", using(watchSelector));
      test("says how far it is shortly before it ends", using(bookmarks));
      test("streams the present state, marks its end, and goes on", using(initialEvents));
      test("answers a version that is too old with one error event", using(tooOld));
      test("refuses initial events without their match", using(initialEventsOptions));
    });
    describe("create", () => {
      test("fills in what the server owns", using(creating));
      test("refuses a taken name", using(takenName));
      test("refuses names that are no RFC 1123 subdomain", using(badNames));
      test("makes up a name from generateName", using(generateName));
      test("refuses what is not the kind of the path", using(wrongKind));
    });
    describe("update", () => {
      test("is compare-and-swap, and demands it of custom resources", using(updating));
      test("refuses another object of the same name by its UID", using(foreignUid));
      test("without a change keeps the version and tells nobody", using(noOpUpdate));
      test("counts generations of the content, not of the metadata", using(generations));
    });
    describe("patch", () => {
      test("merges, with and without a version to compare", using(mergePatching));
      test("lets one of many with the same version win", using(contention));
      test("applies JSON patches and refuses a failed test", using(jsonPatching));
      test("knows which formats a type takes", using(patchFormats));
    });
    describe("delete", () => {
      test("compares UID and version when asked to", using(deleting));
      test("waits for finalizers", using(finalizers));
      test("of a collection deletes what is selected", using(deletingCollections));
    });
    describe("schema", () => {
      test("names every field that is missing or wrong", using(schemaRefusals));
      test("takes the group's own type for the deletion mark of affinities", using(deletionMarks));
      test("fills in defaults, keeps unknown fields of the spec, drops others", using(defaultsAndPruning));
      test("keeps integers of 64 bits through every kind of write and read", using(exactNumbers));
      test("keeps status and spec apart", using(statusSubresource));
    });
    describe("core objects", () => {
      test("pods are found by their node and annotated through their status", using(pods));
      test("leases demand a version, nodes do not", using(leases));
      test("events lie where their object does", using(events));
      test("what is not there answers 404, in text where no resource is", using(missing));
      test("discovery names both groups and their resources", using(discovery));
    });
    describe("tokens and access", () => {
      test("a token of a pod says on which node, and verifies with the published key", using(podTokens));
      test("token requests are checked", using(tokenRequests));
      test("nobody knows a wrong or missing token", using(unauthenticated));
      test("a service account may do what roles say, and is told what it may not", using(access));
    });
  });
}

const group = "/apis/crd.projectcalico.org/v1";
const handles = `${group}/ipamhandles`;
const blocks = `${group}/ipamblocks`;
const affinities = `${group}/blockaffinities`;
const pools = `${group}/ippools`;

async function serveCalico(client: Client): Promise<void> {
  for (const definition of [...calicoDefinitions("crd"), ...calicoDefinitions("v3")]) {
    const { code, text } = await client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
    assert.ok(code === 201 || code === 409, text);
    const spec = asObject(asObject(definition).spec);
    const version = asObject(Array.isArray(spec.versions) ? spec.versions[0] : undefined);
    const path = `/apis/${asText(spec.group)}/${asText(version.name)}/${asText(asObject(spec.names).plural)}`;
    await until(`${path} is served`, async () => (await client.get(path)).code === 200);
  }
}

let made = 0;
/** A prefix for the objects of one test, so that tests do not meet. */
function fresh(what: string): string {
  made += 1;
  return `${what}-${made}`;
}

function handle(name: string, more: JsonObject = {}): JsonObject {
  return {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPAMHandle",
    metadata: { name, ...more },
    spec: { handleID: name, block: { "10.0.0.0/29": 1 }, deleted: false },
  };
}

function block(name: string, spec: JsonObject = {}): JsonObject {
  return {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPAMBlock",
    metadata: { name },
    spec: {
      cidr: "10.0.0.0/31",
      affinity: "host:node-a",
      allocations: [0, null],
      attributes: [{ handle_id: "h", secondary: { node: "node-a" } }],
      unallocated: [1],
      strictAffinity: false,
      deleted: false,
      ...spec,
    },
  };
}

async function make(client: Client, path: string, object: unknown): Promise<JsonObject> {
  const reply = await client.post(path, object);
  assert.equal(reply.code, 201, reply.text);
  return reply.object;
}

function meta(object: unknown): JsonObject {
  return asObject(asObject(object).metadata);
}

function specOf(object: unknown): JsonObject {
  return asObject(asObject(object).spec);
}

function version(object: unknown): string {
  return asText(meta(object).resourceVersion);
}

function items(reply: Reply): JsonObject[] {
  assert.equal(reply.code, 200, reply.text);
  return (Array.isArray(reply.object.items) ? reply.object.items : []).filter(isObject);
}

function names(objects: readonly JsonObject[]): string[] {
  return objects.map((object) => asText(meta(object).name));
}

function seen(event: WatchEvent): string {
  return `${event.type} ${asText(meta(event.object).name)}`;
}

interface Expected {
  readonly code: number;
  readonly reason?: string;
  readonly message?: string | RegExp;
  readonly details?: JsonObject;
}

function assertRefused(reply: Reply, expected: Expected): void {
  const { object } = reply;
  assert.equal(reply.code, expected.code, reply.text);
  assert.deepEqual(
    [object.kind, object.apiVersion, object.status, object.code],
    ["Status", "v1", "Failure", expected.code],
  );
  if (expected.reason !== undefined) assert.equal(object.reason, expected.reason);
  if (typeof expected.message === "string") assert.equal(object.message, expected.message);
  else if (expected.message !== undefined) assert.match(asText(object.message), expected.message);
  if (expected.details !== undefined) assert.deepEqual(object.details, expected.details);
}

/** `field reason` of each cause, sorted: the real server's order is random, and it repeats some. */
function causes(reply: Reply): string[] {
  const list = asObject(reply.object.details).causes;
  const found = (Array.isArray(list) ? list : []).map(
    (cause) => `${asText(asObject(cause).field)} ${asText(asObject(cause).reason)}`,
  );
  return [...new Set(found)].sort();
}

// ---- list

async function makeHandles(client: Client, prefix: string, letters: string): Promise<void> {
  for (const letter of letters)
    await make(client, handles, handle(`${prefix}-${letter}`, { labels: { set: prefix, letter } }));
}

async function listOrder(client: Client): Promise<void> {
  const set = fresh("order");
  await makeHandles(client, set, "bca");
  await make(client, handles, handle(`${set}.dot`, { labels: { set } }));
  const reply = await client.get(`${handles}?labelSelector=set%3D${set}`);
  assert.deepEqual(names(items(reply)), [`${set}-a`, `${set}-b`, `${set}-c`, `${set}.dot`]);
  assert.deepEqual([reply.object.kind, reply.object.apiVersion], ["IPAMHandleList", "crd.projectcalico.org/v1"]);
  assert.match(version(reply.object), /^[1-9]\d*$/);
}

async function paging(client: Client): Promise<void> {
  const kind = `${group}/ipreservations`;
  const reservation = (name: string) => ({
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPReservation",
    metadata: { name },
    spec: {},
  });
  for (const name of ["a", "b", "c", "d", "e"]) await make(client, kind, reservation(name));
  const first = await client.get(`${kind}?limit=2`);
  assert.deepEqual(names(items(first)), ["a", "b"]);
  assert.equal(meta(first.object).remainingItemCount, 3);
  await make(client, kind, reservation("bb"));
  assert.equal((await client.delete(`${kind}/d`)).code, 200);
  const token = encodeURIComponent(asText(meta(first.object).continue));
  const second = await client.get(`${kind}?limit=2&continue=${token}`);
  assert.deepEqual(names(items(second)), ["c", "d"]);
  assert.equal(version(second.object), version(first.object));
  const third = await client.get(
    `${kind}?limit=2&continue=${encodeURIComponent(asText(meta(second.object).continue))}`,
  );
  assert.deepEqual(names(items(third)), ["e"]);
  assert.equal(version(third.object), version(first.object));
  assert.equal(meta(third.object).continue || undefined, undefined);
  const now = await client.get(`${kind}?resourceVersion=0&limit=1`);
  assert.deepEqual(names(items(now)), ["a", "b", "bb", "c", "e"], "version 0 ignores the limit");
  assertRefused(await client.get(`${kind}?limit=2&continue=${token}&resourceVersion=5`), {
    code: 400,
    reason: "BadRequest",
  });
  assertRefused(await client.get(`${kind}?limit=2&continue=xyz`), { code: 400, reason: "BadRequest" });
  await client.delete(kind);
}

async function listVersions(client: Client): Promise<void> {
  const set = fresh("version");
  const selector = `labelSelector=set%3D${set}`;
  await makeHandles(client, set, "a");
  const then = version((await client.get(`${handles}?${selector}`)).object);
  await makeHandles(client, set, "b");
  const exact = await client.get(`${handles}?${selector}&resourceVersion=${then}&resourceVersionMatch=Exact`);
  assert.deepEqual(names(items(exact)), [`${set}-a`]);
  assert.equal(version(exact.object), then);
  const atLeast = await client.get(`${handles}?${selector}&resourceVersion=${then}&resourceVersionMatch=NotOlderThan`);
  assert.deepEqual(names(items(atLeast)), [`${set}-a`, `${set}-b`]);
  const future = await client.get(`${handles}?resourceVersion=999999999`);
  assertRefused(future, {
    code: 504,
    reason: "Timeout",
    message: /^Timeout: Too large resource version: 999999999, current: \d+$/,
  });
  assert.deepEqual(asObject(future.object.details).retryAfterSeconds, 1);
  assert.deepEqual(causes(future), [" ResourceVersionTooLarge"]);
}

async function listOptions(client: Client): Promise<void> {
  const refused = async (query: string, cause: string): Promise<void> => {
    const reply = await client.get(`${handles}?${query}`);
    assertRefused(reply, { code: 422, reason: "Invalid" });
    assert.ok(causes(reply).includes(cause), reply.text);
  };
  await refused("resourceVersionMatch=Exact", "resourceVersionMatch FieldValueForbidden");
  await refused("resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch FieldValueForbidden");
  await refused("resourceVersion=1&resourceVersionMatch=Sometime", "resourceVersionMatch FieldValueNotSupported");
  await refused("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "sendInitialEvents FieldValueForbidden");
  assertRefused(await client.get(`${handles}?resourceVersion=abc`), {
    code: 400,
    reason: "BadRequest",
    message: /^invalid resource version/,
  });
}

async function selecting(client: Client): Promise<void> {
  const set = fresh("select");
  await makeHandles(client, set, "abc");
  const found = async (selector: string): Promise<string> => {
    const all = names(
      items(await client.get(`${handles}?labelSelector=${encodeURIComponent(`set=${set},${selector}`)}`)),
    );
    return all.map((name) => name.slice(set.length + 1)).join("");
  };
  assert.equal(await found("letter=b"), "b");
  assert.equal(await found("letter!=b"), "ac");
  assert.equal(await found("letter in (a, c)"), "ac");
  assert.equal(await found("letter notin (a,b)"), "c");
  assert.equal(await found("!other"), "abc");
  assert.equal(await found("letter"), "abc");
  const byName = await client.get(`${handles}?fieldSelector=metadata.name%3D${set}-b`);
  assert.deepEqual(names(items(byName)), [`${set}-b`]);
  assertRefused(await client.get(`${handles}?fieldSelector=spec.handleID%3Dx`), {
    code: 400,
    reason: "BadRequest",
    message: "field label not supported: spec.handleID",
  });
  assertRefused(await client.get(`${handles}?labelSelector=a%20b%20c`), { code: 400, reason: "BadRequest" });
}

const metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const metadataItem = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

async function metadataOnly(client: Client): Promise<void> {
  const set = fresh("meta");
  await makeHandles(client, set, "a");
  const list = await client.get(`${handles}?labelSelector=set%3D${set}`, metadataList);
  assert.deepEqual([list.object.kind, list.object.apiVersion], ["PartialObjectMetadataList", "meta.k8s.io/v1"]);
  const [first = {}] = items(list);
  assert.deepEqual([meta(first).name, first.spec, asObject(meta(first).labels).letter], [`${set}-a`, undefined, "a"]);
  const one = await client.get(`${handles}/${set}-a`, metadataItem);
  assert.deepEqual([one.object.kind, one.object.spec], ["PartialObjectMetadata", undefined]);
  const from = `${handles}?watch=true&timeoutSeconds=10&resourceVersion=${Number(version(one.object)) - 1}&labelSelector=set%3D${set}`;
  const [event] = await take(client.watch(from, metadataItem), 1);
  assert.deepEqual(
    [event?.type, event?.object.kind, event?.object.spec],
    ["ADDED", "PartialObjectMetadata", undefined],
  );
}

// ---- watch

async function watching(client: Client): Promise<void> {
  const name = fresh("watched");
  const from = version((await client.get(`${handles}?limit=1`)).object);
  const path = `${handles}?watch=true&timeoutSeconds=20&resourceVersion=${from}&fieldSelector=metadata.name%3D${name}`;
  const live = take(client.watch(path), 3);
  const created = await make(client, handles, handle(name));
  const changed = await client.patch(`${handles}/${name}`, { metadata: { labels: { a: "b" } } });
  assert.equal((await client.delete(`${handles}/${name}`)).code, 200);
  const events = await live;
  assert.deepEqual(
    events.map((event) => event.type),
    ["ADDED", "MODIFIED", "DELETED"],
  );
  const versions = events.map((event) => Number(version(event.object)));
  assert.deepEqual(versions.slice(0, 2), [Number(version(created)), Number(version(changed.object))]);
  assert.ok((versions[2] ?? 0) > (versions[1] ?? 0), "the deletion has a version of its own");
  assert.deepEqual(meta(events[2]?.object).labels, { a: "b" }, "the deletion shows the last state");
  assert.deepEqual((await take(client.watch(path), 3)).map(seen), events.map(seen), "history is told alike");
}

async function watchSelector(client: Client): Promise<void> {
  const name = fresh("selected");
  const created = await make(client, handles, handle(name, { labels: { [name]: "in" } }));
  const path = `${handles}?watch=true&timeoutSeconds=20&resourceVersion=${version(created)}&labelSelector=${name}%3Din`;
  const live = take(client.watch(path), 3);
  const out = await client.patch(`${handles}/${name}`, { metadata: { labels: { [name]: "out" } } });
  await client.patch(`${handles}/${name}`, { spec: { deleted: true } });
  await client.patch(`${handles}/${name}`, { metadata: { labels: { [name]: "in" } } });
  await client.patch(`${handles}/${name}`, { spec: { deleted: false } });
  const events = await live;
  assert.deepEqual(
    events.map((event) => event.type),
    ["DELETED", "ADDED", "MODIFIED"],
  );
  assert.equal(version(events[0]?.object), version(out.object), "it is gone at the version that took it out");
}

async function bookmarks(client: Client): Promise<void> {
  const name = fresh("marked");
  const from = version((await client.get(`${handles}?limit=1`)).object);
  const path = `${handles}?watch=true&timeoutSeconds=5&allowWatchBookmarks=true&resourceVersion=${from}`;
  const events: WatchEvent[] = [];
  let newer: JsonObject = {};
  const watch = client.watch(`${path}&fieldSelector=metadata.name%3D${name}`);
  const created = make(client, handles, handle(name));
  for await (const event of watch) {
    events.push(event);
    // The real server marks only what is newer than all that the watch began with: a write that it sees live.
    if (event.type === "ADDED") newer = await make(client, handles, handle(`${name}-unseen`));
  }
  await created;
  const last = events.at(-1);
  assert.deepEqual([events[0]?.type, last?.type], ["ADDED", "BOOKMARK"]);
  assert.deepEqual(Object.keys(last?.object ?? {}).sort(), ["apiVersion", "kind", "metadata"]);
  assert.equal(last?.object.kind, "IPAMHandle");
  assert.ok(Number(version(last?.object)) >= Number(version(newer)));
}

const initial =
  "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=20&allowWatchBookmarks=true";

async function initialEvents(client: Client): Promise<void> {
  const set = fresh("initial");
  await makeHandles(client, set, "ab");
  const stream = client.watch(`${handles}?${initial}&labelSelector=set%3D${set}`);
  const events: WatchEvent[] = [];
  for await (const event of stream) {
    events.push(event);
    if (event.type === "BOOKMARK") await makeHandles(client, set, "c");
    if (events.length === 4) break;
  }
  assert.deepEqual(events.slice(0, 2).map(seen).sort(), [`ADDED ${set}-a`, `ADDED ${set}-b`]);
  assert.equal(events[2]?.type, "BOOKMARK");
  assert.equal(asObject(meta(events[2]?.object).annotations)["k8s.io/initial-events-end"], "true");
  assert.ok(Number(version(events[2]?.object)) >= Number(version(events[1]?.object)));
  assert.equal(events[3] === undefined ? "" : seen(events[3]), `ADDED ${set}-c`);
}

async function tooOld(client: Client): Promise<void> {
  const events = await take(client.watch(`${handles}?watch=true&timeoutSeconds=5&resourceVersion=1`), 10);
  assert.deepEqual(
    events.map((event) => event.type),
    ["ERROR"],
  );
  const status = asObject(events[0]?.object);
  assert.deepEqual([status.kind, status.code, status.reason], ["Status", 410, "Expired"]);
  assert.match(asText(status.message), /^too old resource version: 1 \(\d+\)$/);
  const future = await take(client.watch(`${handles}?${initial}&resourceVersion=999999999`), 10);
  assert.deepEqual(
    future.map((event) => [event.type, event.object.code, event.object.reason]),
    [["ERROR", 504, "Timeout"]],
  );
}

async function initialEventsOptions(client: Client): Promise<void> {
  for (const query of [
    "sendInitialEvents=true",
    "sendInitialEvents=true&resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan&resourceVersion=1",
  ]) {
    const reply = await client.get(`${handles}?watch=true&${query}`);
    assertRefused(reply, { code: 422, reason: "Invalid" });
    assert.ok(causes(reply).includes("resourceVersionMatch FieldValueForbidden"), reply.text);
  }
}

// ---- create

async function creating(client: Client): Promise<void> {
  const name = fresh("created");
  const object = handle(name, {
    uid: "mine",
    generation: 7,
    creationTimestamp: "2020-01-01T00:00:00Z",
    labels: { a: "b" },
    foreign: "x",
  });
  const reply = await client.post(handles, object);
  assert.equal(reply.code, 201, reply.text);
  const { uid, resourceVersion, creationTimestamp, managedFields: _fields, ...rest } = meta(reply.object);
  assert.match(asText(uid), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.match(asText(resourceVersion), /^[1-9]\d*$/);
  assert.match(asText(creationTimestamp), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.notEqual(creationTimestamp, "2020-01-01T00:00:00Z");
  assert.deepEqual(rest, { name, generation: 1, labels: { a: "b" } });
  const again = await client.get(`${handles}/${name}`);
  assert.deepEqual(specOf(again.object), object.spec);
  const withVersion = await client.post(handles, handle(`${name}-v`, { resourceVersion: "5" }));
  assertRefused(withVersion, { code: 500, message: "resourceVersion should not be set on objects to be created" });
}

async function takenName(client: Client): Promise<void> {
  const name = fresh("taken");
  await make(client, handles, handle(name));
  assertRefused(await client.post(handles, handle(name)), {
    code: 409,
    reason: "AlreadyExists",
    message: `ipamhandles.crd.projectcalico.org "${name}" already exists`,
    details: { name, group: "crd.projectcalico.org", kind: "ipamhandles" },
  });
}

async function badNames(client: Client): Promise<void> {
  for (const name of ["A-b", "a_b", "-a", "a/b", "a".repeat(254), "a..b"]) {
    const reply = await client.post(handles, handle(name));
    assertRefused(reply, {
      code: 422,
      reason: "Invalid",
      message: new RegExp(`^IPAMHandle\\.crd\\.projectcalico\\.org "${name}" is invalid: `),
    });
    assert.deepEqual(causes(reply), ["metadata.name FieldValueInvalid"]);
  }
  const nameless = await client.post(handles, { ...handle("x"), metadata: {} });
  assertRefused(nameless, { code: 422, reason: "Invalid" });
  assert.deepEqual(causes(nameless), ["metadata.name FieldValueRequired"]);
  const label = await client.post(handles, handle(fresh("label"), { labels: { "a b": "c d" } }));
  assert.deepEqual(causes(label), ["metadata.labels FieldValueInvalid"]);
  assert.equal((await client.post(handles, handle(`${fresh("ok")}.${"a".repeat(200)}`))).code, 201);
}

async function generateName(client: Client): Promise<void> {
  const prefix = `${fresh("made")}-`;
  const { metadata: _named, ...rest } = handle("x");
  const one = await make(client, handles, { ...rest, metadata: { generateName: prefix } });
  const other = await make(client, handles, { ...rest, metadata: { generateName: prefix } });
  assert.match(asText(meta(one).name), new RegExp(`^${prefix}[bcdfghjklmnpqrstvwxz2456789]{5}$`));
  assert.notEqual(meta(one).name, meta(other).name);
}

async function wrongKind(client: Client): Promise<void> {
  const other = await client.post(handles, { ...handle("x"), kind: "IPAMBlock" });
  assertRefused(other, { code: 422, reason: "Invalid", message: /must be IPAMHandle$/ });
  const version = await client.post(handles, { ...handle("x"), apiVersion: "crd.projectcalico.org/v9" });
  assertRefused(version, { code: 400, reason: "BadRequest", message: /does not match the expected API version/ });
  assertRefused(await client.post(handles, '{"kind":'), { code: 400, reason: "BadRequest" });
  assertRefused(await client.post(handles, "[]"), { code: 400, reason: "BadRequest" });
  const text = await client.request("POST", handles, handle("x"), { "content-type": "text/plain" });
  assertRefused(text, { code: 415, reason: "UnsupportedMediaType" });
}

// ---- update

async function updating(client: Client): Promise<void> {
  const name = fresh("updated");
  const created = await make(client, handles, handle(name));
  const bare = await client.put(`${handles}/${name}`, handle(name));
  assertRefused(bare, {
    code: 422,
    reason: "Invalid",
    message: /metadata\.resourceVersion: Invalid value: 0x?0?: must be specified for an update$/,
  });
  assert.deepEqual(causes(bare), ["metadata.resourceVersion FieldValueInvalid"]);
  const next = {
    ...handle(name, { resourceVersion: version(created) }),
    spec: { handleID: name, block: {}, deleted: true },
  };
  const updated = await client.put(`${handles}/${name}`, next);
  assert.equal(updated.code, 200, updated.text);
  assert.deepEqual(specOf(updated.object), next.spec);
  assert.ok(Number(version(updated.object)) > Number(version(created)));
  assert.deepEqual(
    [meta(updated.object).uid, meta(updated.object).creationTimestamp],
    [meta(created).uid, meta(created).creationTimestamp],
  );
  const conflicting = { name, group: "crd.projectcalico.org", kind: "ipamhandles" };
  assertRefused(await client.put(`${handles}/${name}`, next), {
    code: 409,
    reason: "Conflict",
    message: `Operation cannot be fulfilled on ipamhandles.crd.projectcalico.org "${name}": the object has been modified; please apply your changes to the latest version and try again`,
    details: conflicting,
  });
  const absent = fresh("absent");
  assertRefused(await client.put(`${handles}/${absent}`, handle(absent, { resourceVersion: "1" })), {
    code: 404,
    reason: "NotFound",
  });
  assertRefused(await client.put(`${handles}/${name}`, handle(absent)), {
    code: 400,
    reason: "BadRequest",
    message: `the name of the object (${absent}) does not match the name on the URL (${name})`,
  });
}

async function foreignUid(client: Client): Promise<void> {
  const name = fresh("foreign");
  const created = await make(client, handles, handle(name));
  const reply = await client.put(
    `${handles}/${name}`,
    handle(name, { uid: "another", resourceVersion: version(created) }),
  );
  assertRefused(reply, {
    code: 409,
    reason: "Conflict",
    message: /Precondition failed: UID in precondition: another, UID in object meta: [0-9a-f-]{36}$/,
  });
  assertRefused(await client.patch(`${handles}/${name}`, { metadata: { uid: "another" } }), {
    code: 422,
    reason: "Invalid",
  });
}

async function noOpUpdate(client: Client): Promise<void> {
  const name = fresh("same");
  const created = await make(client, handles, handle(name));
  const path = `${handles}?watch=true&timeoutSeconds=20&resourceVersion=${version(created)}&fieldSelector=metadata.name%3D${name}`;
  const events = take(client.watch(path), 1);
  const put = await client.put(`${handles}/${name}`, handle(name, { resourceVersion: version(created) }));
  const patched = await client.patch(`${handles}/${name}`, { spec: { deleted: false } });
  assert.deepEqual([version(put.object), version(patched.object)], [version(created), version(created)]);
  assert.deepEqual([put.code, patched.code], [200, 200]);
  const real = await client.patch(`${handles}/${name}`, { spec: { deleted: true } });
  const [event] = await events;
  assert.equal(version(event?.object), version(real.object), "the first event is the first real change");
}

async function generations(client: Client): Promise<void> {
  const name = fresh("generation");
  await make(client, handles, handle(name));
  const generation = async (patch: unknown): Promise<unknown> =>
    meta((await client.patch(`${handles}/${name}`, patch)).object).generation;
  assert.equal(await generation({ metadata: { labels: { a: "b" } } }), 1);
  assert.equal(await generation({ spec: { deleted: true } }), 2);
  assert.equal(await generation({ spec: { deleted: true } }), 2);
}

// ---- patch

async function mergePatching(client: Client): Promise<void> {
  const name = fresh("merged");
  const created = await make(client, blocks, block(name, { unknown: { kept: [1, { a: null }] } }));
  const stale = version(created);
  const patch = {
    metadata: { resourceVersion: stale },
    spec: { affinity: null, allocations: [0, 0], unallocated: [], attributes: [{ handle_id: "h" }] },
  };
  const patched = await client.patch(`${blocks}/${name}`, patch);
  assert.equal(patched.code, 200, patched.text);
  const { affinity, allocations, unallocated, attributes, unknown, cidr } = specOf(patched.object);
  assert.deepEqual([affinity, allocations, unallocated, attributes], [undefined, [0, 0], [], [{ handle_id: "h" }]]);
  assert.deepEqual([unknown, cidr], [{ kept: [1, { a: null }] }, "10.0.0.0/31"]);
  assertRefused(await client.patch(`${blocks}/${name}`, patch), {
    code: 409,
    reason: "Conflict",
    message: /: the object has been modified; please apply your changes to the latest version and try again$/,
    details: { name, group: "crd.projectcalico.org", kind: "ipamblocks" },
  });
  assert.equal((await client.patch(`${blocks}/${name}`, { spec: { deleted: true } })).code, 200);
  assertRefused(await client.patch(`${blocks}/${fresh("absent")}`, patch), { code: 404, reason: "NotFound" });
  const broken = await client.patch(`${blocks}/${name}`, { spec: { strictAffinity: null } });
  assertRefused(broken, { code: 422, reason: "Invalid" });
  assert.deepEqual(causes(broken), ["spec.strictAffinity FieldValueRequired"]);
  assertRefused(await client.patch(`${blocks}/${name}`, '{"spec":'), { code: 400, reason: "BadRequest" });
  assertRefused(await client.patch(`${blocks}/${name}`, { metadata: { name: "other" } }), {
    code: 400,
    reason: "BadRequest",
  });
}

async function contention(client: Client): Promise<void> {
  const name = fresh("contended");
  const created = await make(client, blocks, block(name));
  const metadata = { resourceVersion: version(created) };
  const writers = Array.from({ length: 20 }, (_, writer) =>
    client.patch(`${blocks}/${name}`, { metadata, spec: { writer } }),
  );
  const codes = (await Promise.all(writers)).map((reply) => reply.code);
  assert.deepEqual(codes.filter((code) => code === 200).length, 1);
  assert.deepEqual(codes.filter((code) => code === 409).length, 19);
  const winner = codes.indexOf(200);
  assert.equal(specOf((await client.get(`${blocks}/${name}`)).object).writer, winner);
}

async function jsonPatching(client: Client): Promise<void> {
  const name = fresh("operations");
  await make(client, blocks, block(name));
  const patch = (operations: unknown) => client.patch(`${blocks}/${name}`, operations, "json-patch");
  const good = await patch([
    { op: "test", path: "/spec/allocations/1", value: null },
    { op: "replace", path: "/spec/allocations/1", value: 0 },
    { op: "remove", path: "/spec/unallocated/0" },
    { op: "add", path: "/metadata/annotations", value: { "a/b": "c" } },
  ]);
  assert.equal(good.code, 200, good.text);
  assert.deepEqual([specOf(good.object).allocations, specOf(good.object).unallocated], [[0, 0], []]);
  assert.deepEqual(meta(good.object).annotations, { "a/b": "c" });
  assert.equal((await patch([{ op: "test", path: "/spec/cidr", value: "x" }])).code, 422);
  assert.equal((await patch([{ op: "remove", path: "/spec/none" }])).code, 422);
  assert.equal((await patch({})).code, 400);
}

async function patchFormats(client: Client): Promise<void> {
  const name = fresh("formats");
  await make(client, handles, handle(name));
  assertRefused(await client.patch(`${handles}/${name}`, {}, "strategic-merge-patch"), {
    code: 415,
    reason: "UnsupportedMediaType",
  });
  await make(client, "/api/v1/nodes", { metadata: { name } });
  const condition = (type: string, status: string) => ({ status: { conditions: [{ type, status }] } });
  await client.patch(`/api/v1/nodes/${name}/status`, condition("Ready", "False"), "strategic-merge-patch");
  await client.patch(`/api/v1/nodes/${name}/status`, condition("Other", "True"), "strategic-merge-patch");
  const node = await client.patch(`/api/v1/nodes/${name}/status`, condition("Ready", "True"), "strategic-merge-patch");
  const conditions = asObject(node.object.status).conditions;
  const seenStates = (Array.isArray(conditions) ? conditions : []).map(
    (item) => `${asText(asObject(item).type)}=${asText(asObject(item).status)}`,
  );
  assert.deepEqual(seenStates.sort(), ["Other=True", "Ready=True"]);
}

// ---- delete

async function deleting(client: Client): Promise<void> {
  const name = fresh("deleted");
  const created = await make(client, handles, handle(name));
  const uid = asText(meta(created).uid);
  const path = `${handles}/${name}`;
  const details = { name, group: "crd.projectcalico.org", kind: "IPAMHandle" };
  assertRefused(await client.delete(path, { preconditions: { uid: "another" } }), {
    code: 409,
    reason: "Conflict",
    message: `Operation cannot be fulfilled on IPAMHandle.crd.projectcalico.org "${name}": the UID in the precondition (another) does not match the UID in record (${uid}). The object might have been deleted and then recreated`,
    details,
  });
  await client.patch(path, { spec: { deleted: true } });
  assertRefused(await client.delete(path, { preconditions: { uid, resourceVersion: version(created) } }), {
    code: 409,
    reason: "Conflict",
    message:
      /: the ResourceVersion in the precondition \(\d+\) does not match the ResourceVersion in record \(\d+\)\. The object might have been modified$/,
    details,
  });
  const current = version((await client.get(path)).object);
  const done = await client.delete(path, { preconditions: { uid, resourceVersion: current } });
  assert.equal(done.code, 200, done.text);
  assert.deepEqual([done.object.kind, done.object.status], ["Status", "Success"]);
  assert.deepEqual(done.object.details, { name, group: "crd.projectcalico.org", kind: "ipamhandles", uid });
  assertRefused(await client.delete(path, { preconditions: { uid } }), {
    code: 404,
    reason: "NotFound",
    message: `ipamhandles.crd.projectcalico.org "${name}" not found`,
    details: { name, group: "crd.projectcalico.org", kind: "ipamhandles" },
  });
  assertRefused(await client.get(path), { code: 404, reason: "NotFound" });
  const remade = await make(client, handles, handle(name));
  assert.notEqual(meta(remade).uid, uid);
}

async function finalizers(client: Client): Promise<void> {
  const name = fresh("finalized");
  await make(client, pools, pool(name, "10.9.0.0/24", { finalizers: ["example.org/hold"] }));
  const path = `${pools}/${name}`;
  const deletion = await client.delete(path);
  assert.equal(deletion.code, 200, deletion.text);
  assert.equal(deletion.object.kind, "IPPool");
  assert.match(asText(meta(deletion.object).deletionTimestamp), /Z$/);
  assert.equal(meta(deletion.object).deletionGracePeriodSeconds, 0);
  const again = await client.delete(path);
  assert.equal(version(again.object), version(deletion.object), "a second deletion changes nothing");
  const more = await client.patch(path, { metadata: { finalizers: ["example.org/hold", "example.org/more"] } });
  assertRefused(more, { code: 422, reason: "Invalid" });
  assert.deepEqual(causes(more), ["metadata.finalizers FieldValueForbidden"]);
  const watchPath = `${pools}?watch=true&timeoutSeconds=20&resourceVersion=${version(again.object)}&fieldSelector=metadata.name%3D${name}`;
  const gone = take(client.watch(watchPath), 1);
  assert.equal((await client.patch(path, { metadata: { finalizers: null } })).code, 200);
  assert.equal((await gone)[0]?.type, "DELETED");
  assert.equal((await client.get(path)).code, 404);
}

async function deletingCollections(client: Client): Promise<void> {
  const set = fresh("swept");
  await makeHandles(client, set, "abc");
  const reply = await client.delete(`${handles}?labelSelector=${encodeURIComponent(`set=${set},letter!=b`)}`);
  assert.equal(reply.code, 200, reply.text);
  const left = await client.get(`${handles}?labelSelector=set%3D${set}`);
  assert.deepEqual(names(items(left)), [`${set}-b`]);
}

// ---- schema

function pool(name: string, cidr: string, metadata: JsonObject = {}, spec: JsonObject = {}): JsonObject {
  return {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPPool",
    metadata: { name, ...metadata },
    spec: { cidr, ...spec },
  };
}

async function schemaRefusals(client: Client): Promise<void> {
  const refused = async (path: string, object: JsonObject, ...expected: string[]): Promise<Reply> => {
    const reply = await client.post(path, object);
    assertRefused(reply, { code: 422, reason: "Invalid" });
    assert.deepEqual(causes(reply), expected);
    return reply;
  };
  const one = await refused(
    blocks,
    block("x", { strictAffinity: undefined }),
    "spec.strictAffinity FieldValueRequired",
  );
  assert.equal(
    one.object.message,
    'IPAMBlock.crd.projectcalico.org "x" is invalid: spec.strictAffinity: Required value',
  );
  const empty = { allocations: null, unallocated: null, attributes: null };
  const required = ["allocations", "attributes", "unallocated"].map((field) => `spec.${field} FieldValueRequired`);
  await refused(blocks, block("x", empty), ...required);
  await refused(
    blocks,
    block("x", {
      cidr: 5,
      deleted: "false",
      attributes: [{ handle_id: 1 }, 7],
      unallocated: [1.5],
      sequenceNumber: "1",
      affinityClaimTime: "now",
    }),
    "spec.affinityClaimTime FieldValueTypeInvalid",
    "spec.attributes[0].handle_id FieldValueTypeInvalid",
    "spec.attributes[1] FieldValueTypeInvalid",
    "spec.cidr FieldValueTypeInvalid",
    "spec.deleted FieldValueTypeInvalid",
    "spec.sequenceNumber FieldValueTypeInvalid",
    "spec.unallocated[0] FieldValueTypeInvalid",
  );
  await refused(blocks, block("x", { unallocated: [null] }), "spec.unallocated[0] FieldValueTypeInvalid");
  await refused(blocks, block("x", { sequenceNumber: 2n ** 63n }), "spec.sequenceNumber FieldValueTypeInvalid");
  await refused(
    pools,
    pool("x", "1".repeat(49), {}, { blockSize: 200, ipipMode: "Sometimes", allowedUses: ["Foo"] }),
    "spec.allowedUses[0] FieldValueNotSupported",
    "spec.blockSize FieldValueInvalid",
    "spec.cidr FieldValueTooLong",
    "spec.ipipMode FieldValueNotSupported",
  );
  const affinity = {
    apiVersion: "projectcalico.org/v3",
    kind: "BlockAffinity",
    metadata: { name: "x" },
    spec: { cidr: "c", node: "n", state: "taken" },
  };
  await refused("/apis/projectcalico.org/v3/blockaffinities", affinity, "spec.state FieldValueNotSupported");
  const owned = { ...block("x", { affinity: "nobody" }), apiVersion: "projectcalico.org/v3" };
  await refused("/apis/projectcalico.org/v3/ipamblocks", owned, "spec.affinity FieldValueInvalid");
  const strict = await client.post(`${handles}?fieldValidation=Strict`, { ...handle("x"), foreign: 1 });
  assertRefused(strict, {
    code: 400,
    reason: "BadRequest",
    message: /strict decoding error: unknown field "foreign"$/,
  });
}

async function deletionMarks(client: Client): Promise<void> {
  const affinity = (apiVersion: string, deleted: unknown) => ({
    apiVersion,
    kind: "BlockAffinity",
    metadata: { name: fresh("affinity") },
    spec: {
      cidr: "10.0.0.0/29",
      node: "n",
      state: "pending",
      type: "host",
      ...(deleted === undefined ? {} : { deleted }),
    },
  });
  const crd = "crd.projectcalico.org/v1";
  const v3 = "projectcalico.org/v3";
  assert.equal((await client.post(affinities, affinity(crd, "false"))).code, 201);
  assert.equal((await client.post(affinities, affinity(crd, false))).code, 422);
  assert.deepEqual(causes(await client.post(affinities, affinity(crd, undefined))), [
    "spec.deleted FieldValueRequired",
  ]);
  assert.equal((await client.post(`/apis/${v3}/blockaffinities`, affinity(v3, "false"))).code, 422);
  const defaulted = await make(client, `/apis/${v3}/blockaffinities`, affinity(v3, undefined));
  assert.equal(specOf(defaulted).deleted, false);
}

async function defaultsAndPruning(client: Client): Promise<void> {
  const config = { apiVersion: "projectcalico.org/v3", kind: "IPAMConfiguration", metadata: { name: fresh("config") } };
  const made = await make(client, "/apis/projectcalico.org/v3/ipamconfigurations", {
    ...config,
    spec: { strictAffinity: null },
  });
  assert.deepEqual(made.spec, { autoAllocateBlocks: true, maxBlocksPerHost: 0, strictAffinity: false });
  const kept = await make(client, blocks, {
    ...block(fresh("unknown"), { extra: { deep: [null, 1] }, attributes: [{ handle_id: "h", odd: true }] }),
    foreign: 1,
  });
  const { extra, attributes, sequenceNumber } = specOf(kept);
  assert.deepEqual(
    [extra, attributes, sequenceNumber, kept.foreign],
    [{ deep: [null, 1] }, [{ handle_id: "h", odd: true }], 0, undefined],
  );
}

async function exactNumbers(client: Client): Promise<void> {
  const name = fresh("exact");
  const sequence = 1_787_405_600_123_456_789n;
  const numbers = {
    sequenceNumber: sequence,
    sequenceNumberForAllocation: { "0": sequence - 1n, "1": 2n ** 63n - 1n },
  };
  const created = await make(client, blocks, block(name, numbers));
  const exact = (object: unknown, expected: bigint): void => {
    const { sequenceNumber, sequenceNumberForAllocation } = specOf(object);
    assert.deepEqual([sequenceNumber, sequenceNumberForAllocation], [expected, numbers.sequenceNumberForAllocation]);
  };
  exact(created, sequence);
  const patched = await client.patch(`${blocks}/${name}`, { spec: { sequenceNumber: sequence + 1n } });
  exact(patched.object, sequence + 1n);
  const put = await client.put(`${blocks}/${name}`, {
    ...patched.object,
    spec: { ...specOf(patched.object), sequenceNumber: sequence + 2n },
  });
  exact(put.object, sequence + 2n);
  exact((await client.get(`${blocks}/${name}`)).object, sequence + 2n);
  exact(items(await client.get(`${blocks}?fieldSelector=metadata.name%3D${name}`))[0], sequence + 2n);
  const path = `${blocks}?watch=true&timeoutSeconds=20&resourceVersion=${version(created)}&fieldSelector=metadata.name%3D${name}`;
  const events = await take(client.watch(path), 2);
  exact(events[0]?.object, sequence + 1n);
  exact(events[1]?.object, sequence + 2n);
}

async function statusSubresource(client: Client): Promise<void> {
  const name = fresh("status");
  const conditions = [
    { type: "Allocatable", status: "False", reason: "R", message: "", lastTransitionTime: "2026-01-01T00:00:00Z" },
  ];
  const created = await make(client, pools, { ...pool(name, "10.8.0.0/24"), status: { conditions } });
  assert.equal(created.status, undefined);
  const patch = { metadata: { labels: { a: "b" } }, spec: { cidr: "10.7.0.0/24" }, status: { conditions } };
  const status = await client.patch(`${pools}/${name}/status`, patch);
  assert.equal(status.code, 200, status.text);
  assert.deepEqual(asObject(status.object.status).conditions, conditions);
  assert.deepEqual(
    [specOf(status.object).cidr, meta(status.object).labels, meta(status.object).generation],
    ["10.8.0.0/24", undefined, 1],
  );
  const main = await client.patch(`${pools}/${name}`, { status: null, spec: { disabled: true } });
  assert.deepEqual(asObject(main.object.status).conditions, conditions);
  assert.equal(meta(main.object).generation, 2);
  assertRefused(await client.patch(`${handles}/${fresh("none")}/status`, {}), { code: 404, reason: "NotFound" });
}

// ---- core objects

const namespace = "/api/v1/namespaces/conformance";

function pod(name: string, nodeName: string, account: string): JsonObject {
  const containers = [{ name: "c", image: "docker.io/local/pause:1" }];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: { containers, nodeName, serviceAccountName: account },
  };
}

async function pods(client: Client): Promise<void> {
  const node = fresh("node");
  await make(client, "/api/v1/nodes", { metadata: { name: node } });
  await make(client, `${namespace}/pods`, pod(`${node}-here`, node, "default"));
  await make(client, `${namespace}/pods`, pod(`${node}-there`, `${node}-other`, "default"));
  const here = await client.get(`/api/v1/pods?fieldSelector=spec.nodeName%3D${node}`);
  assert.deepEqual(names(items(here)), [`${node}-here`]);
  const patch = {
    metadata: { annotations: { "example.org/ip": "10.0.0.1/32" } },
    status: { podIP: "10.0.0.1", podIPs: [{ ip: "10.0.0.1" }] },
  };
  const patched = await client.patch(`${namespace}/pods/${node}-here/status`, patch, "strategic-merge-patch");
  assert.equal(patched.code, 200, patched.text);
  assert.equal(asObject(meta(patched.object).annotations)["example.org/ip"], "10.0.0.1/32");
  assert.equal(asObject(patched.object.status).podIP, "10.0.0.1");
  const deletion = await client.delete(`${namespace}/pods/${node}-here`);
  assert.deepEqual([deletion.object.kind, meta(deletion.object).deletionGracePeriodSeconds], ["Pod", 30]);
  assert.equal((await client.delete(`${namespace}/pods/${node}-here?gracePeriodSeconds=0`)).code, 200);
  assert.equal((await client.get(`${namespace}/pods/${node}-here`)).code, 404);
  assertRefused(await client.post("/api/v1/namespaces/nowhere/pods", pod("x", node, "default")), {
    code: 404,
    reason: "NotFound",
    message: 'namespaces "nowhere" not found',
  });
}

async function leases(client: Client): Promise<void> {
  const name = fresh("lease");
  const path = "/apis/coordination.k8s.io/v1/namespaces/conformance/leases";
  const lease = await make(client, path, {
    metadata: { name },
    spec: { holderIdentity: "a", renewTime: "2026-01-01T00:00:00.000000Z" },
  });
  assertRefused(await client.put(`${path}/${name}`, { metadata: { name }, spec: { holderIdentity: "b" } }), {
    code: 422,
    reason: "Invalid",
  });
  const metadata = { name, resourceVersion: version(lease) };
  assert.equal((await client.put(`${path}/${name}`, { metadata, spec: { holderIdentity: "b" } })).code, 200);
  assertRefused(await client.put(`${path}/${name}`, { metadata, spec: { holderIdentity: "c" } }), {
    code: 409,
    reason: "Conflict",
  });
  await make(client, "/api/v1/nodes", { metadata: { name, labels: { a: "b" } } });
  const node = await client.put(`/api/v1/nodes/${name}`, { metadata: { name, labels: { a: "c" } } });
  assert.deepEqual([node.code, meta(node.object).labels], [200, { a: "c" }]);
}

async function events(client: Client): Promise<void> {
  const event = (name: string, regarding: JsonObject) => ({
    metadata: { name },
    eventTime: "2026-01-01T00:00:00.000000Z",
    reportingController: "example.org/conformance",
    reportingInstance: "one",
    action: "Test",
    reason: "Tested",
    type: "Warning",
    note: "text",
    regarding,
  });
  const path = (name: string) => `/apis/events.k8s.io/v1/namespaces/${name}/events`;
  const node = { apiVersion: "v1", kind: "Node", name: "n" };
  assert.equal((await client.post(path("default"), event(fresh("event"), node))).code, 201);
  assert.equal((await client.post(path("conformance"), event(fresh("event"), node))).code, 422);
  assert.equal(
    (await client.post(path("conformance"), event(fresh("event"), { ...node, kind: "Pod", namespace: "conformance" })))
      .code,
    201,
  );
  const { reason: _reason, ...incomplete } = event(fresh("event"), node);
  assert.equal((await client.post(path("default"), incomplete)).code, 422);
}

async function missing(client: Client): Promise<void> {
  assertRefused(await client.get("/api/v1/nodes/nobody"), {
    code: 404,
    reason: "NotFound",
    message: 'nodes "nobody" not found',
    details: { name: "nobody", kind: "nodes" },
  });
  for (const path of ["/apis/example.org/v1/things", `${group}/things`, "/nothing"]) {
    const reply = await client.get(path);
    assert.deepEqual([reply.code, reply.text.trim()], [404, "404 page not found"]);
  }
  assertRefused(await client.get(handles, "text/html"), { code: 406, reason: "NotAcceptable" });
}

async function discovery(client: Client): Promise<void> {
  const groups = (await client.get("/apis")).object.groups;
  const found = (Array.isArray(groups) ? groups : []).map((item) => asText(asObject(item).name));
  for (const name of ["crd.projectcalico.org", "projectcalico.org", "apiextensions.k8s.io", "coordination.k8s.io"]) {
    assert.ok(found.includes(name), `${name} is announced`);
  }
  const resources = (await client.get(group)).object.resources;
  const block = (Array.isArray(resources) ? resources : []).find((item) => asObject(item).name === "ipamblocks");
  assert.deepEqual(
    [asObject(block).kind, asObject(block).namespaced, asObject(block).singularName],
    ["IPAMBlock", false, "ipamblock"],
  );
  assert.match(asText((await client.get("/version")).object.gitVersion), /^v1\.\d+\.\d+/);
}

// ---- tokens and access

const accounts = `${namespace}/serviceaccounts`;
const tokenKind = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest" };

async function token(client: Client, account: string, spec: JsonObject): Promise<string> {
  const reply = await make(client, `${accounts}/${account}/token`, { ...tokenKind, spec });
  return asText(asObject(reply.status).token);
}

async function review(client: Client, spec: JsonObject): Promise<JsonObject> {
  const reply = await make(client, "/apis/authentication.k8s.io/v1/tokenreviews", {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    spec,
  });
  return asObject(reply.status);
}

async function podTokens(client: Client): Promise<void> {
  assert.equal((await client.get("/openid/v1/jwks", "application/json")).code, 406);
  const name = fresh("agent");
  const account = await make(client, accounts, { metadata: { name } });
  const node = await make(client, "/api/v1/nodes", { metadata: { name } });
  const owner = await make(client, `${namespace}/pods`, pod(name, name, name));
  const boundObjectRef = { apiVersion: "v1", kind: "Pod", name, uid: meta(owner).uid };
  const text = await token(client, name, { audiences: ["cattail"], expirationSeconds: 3600, boundObjectRef });
  const { claims, good } = await verifyOffline(client, text);
  assert.ok(good, "the published key verifies the signature");
  assert.deepEqual(
    [claims.aud, claims.sub, Number(claims.exp) - Number(claims.iat)],
    [["cattail"], `system:serviceaccount:conformance:${name}`, 3600],
  );
  assert.deepEqual(claims["kubernetes.io"], {
    namespace: "conformance",
    node: { name, uid: meta(node).uid },
    pod: { name, uid: meta(owner).uid },
    serviceaccount: { name, uid: meta(account).uid },
  });
  const status = await review(client, { token: text, audiences: ["cattail", "other"] });
  assert.deepEqual([status.authenticated, status.audiences], [true, ["cattail"]]);
  const user = asObject(status.user);
  assert.deepEqual([user.username, user.uid], [`system:serviceaccount:conformance:${name}`, meta(account).uid]);
  assert.deepEqual(user.groups, [
    "system:serviceaccounts",
    "system:serviceaccounts:conformance",
    "system:authenticated",
  ]);
  const { "authentication.kubernetes.io/credential-id": credential, ...extra } = asObject(user.extra);
  assert.deepEqual(credential, [`JTI=${asText(claims.jti)}`]);
  assert.deepEqual(extra, {
    "authentication.kubernetes.io/node-name": [name],
    "authentication.kubernetes.io/node-uid": [meta(node).uid],
    "authentication.kubernetes.io/pod-name": [name],
    "authentication.kubernetes.io/pod-uid": [meta(owner).uid],
  });
  const other = await review(client, { token: text, audiences: ["other"] });
  assert.deepEqual([other.authenticated, asText(other.error) !== ""], [undefined, true]);
  assert.equal(
    (await review(client, { token: `${text.slice(0, -6)}AAAAAA`, audiences: ["cattail"] })).authenticated,
    undefined,
  );
  const bound = await token(client, name, {
    audiences: ["cattail"],
    boundObjectRef: { apiVersion: "v1", kind: "Node", name },
  });
  const { claims: nodeClaims } = await verifyOffline(client, bound);
  assert.deepEqual(asObject(nodeClaims["kubernetes.io"]).node, { name, uid: meta(node).uid });
}

async function verifyOffline(client: Client, text: string): Promise<{ claims: JsonObject; good: boolean }> {
  const [header = "", claims = "", signature = ""] = text.split(".");
  const decoded = (part: string): JsonObject => asObject(JSON.parse(Buffer.from(part, "base64url").toString()));
  // Only this media type, or any, is accepted.
  const keys = (await client.get("/openid/v1/jwks", "application/jwk-set+json")).object.keys;
  const key = (Array.isArray(keys) ? keys : []).find((item) => asObject(item).kid === decoded(header).kid);
  assert.ok(isObject(key), "the key that signed is published");
  const publicKey = createPublicKey({ key: key as webcrypto.JsonWebKey, format: "jwk" });
  const good = createVerify("sha256").update(`${header}.${claims}`).verify(publicKey, signature, "base64url");
  const issuer = (await client.get("/.well-known/openid-configuration")).object.issuer;
  assert.equal(decoded(claims).iss, issuer);
  return { claims: decoded(claims), good };
}

async function tokenRequests(client: Client): Promise<void> {
  const name = fresh("requests");
  await make(client, accounts, { metadata: { name } });
  await make(client, `${namespace}/pods`, pod(name, "somewhere", "default"));
  const request = (spec: JsonObject, account = name) =>
    client.post(`${accounts}/${account}/token`, { ...tokenKind, spec });
  const short = await request({ expirationSeconds: 60 });
  assertRefused(short, { code: 422, reason: "Invalid", message: /may not specify a duration less than 10 minutes$/ });
  assert.deepEqual(causes(short), ["spec.expirationSeconds FieldValueInvalid"]);
  assertRefused(await request({}, "nobody"), { code: 404, reason: "NotFound" });
  const bound = (kind: string, uid?: string) => ({
    boundObjectRef: { apiVersion: "v1", kind, name, ...(uid === undefined ? {} : { uid }) },
  });
  assertRefused(await request(bound("Node")), { code: 404, reason: "NotFound", message: `nodes "${name}" not found` });
  assertRefused(await request(bound("Pod")), {
    code: 400,
    reason: "BadRequest",
    message: /different serviceaccount name/,
  });
  assertRefused(await request(bound("Thing")), {
    code: 400,
    reason: "BadRequest",
    message: /^cannot bind token to object of type/,
  });
}

async function unauthenticated(client: Client): Promise<void> {
  const stranger = client.as("no-such-token");
  assertRefused(await stranger.get("/api/v1/nodes"), { code: 401, reason: "Unauthorized", message: "Unauthorized" });
  stranger.close();
  const status = await review(client, { token: "no-such-token" });
  assert.deepEqual([status.authenticated, asObject(status.user).username], [undefined, undefined]);
  assertRefused(await client.post("/apis/authentication.k8s.io/v1/tokenreviews", { spec: {} }), {
    code: 400,
    reason: "BadRequest",
  });
}

async function access(client: Client): Promise<void> {
  const name = fresh("limited");
  await make(client, accounts, { metadata: { name } });
  const user = `system:serviceaccount:conformance:${name}`;
  const limited = client.as(await token(client, name, {}));
  assertRefused(await limited.get(`${pools}/x`), {
    code: 403,
    reason: "Forbidden",
    message: `ippools.crd.projectcalico.org "x" is forbidden: User "${user}" cannot get resource "ippools" in API group "crd.projectcalico.org" at the cluster scope`,
    details: { name: "x", group: "crd.projectcalico.org", kind: "ippools" },
  });
  assertRefused(await limited.get(`${namespace}/pods?watch=true`), {
    code: 403,
    reason: "Forbidden",
    message: `pods is forbidden: User "${user}" cannot watch resource "pods" in API group "" in the namespace "conformance"`,
    details: { kind: "pods" },
  });
  const rbac = "/apis/rbac.authorization.k8s.io/v1";
  const rule = { apiGroups: ["crd.projectcalico.org"], resources: ["ippools"], verbs: ["get", "list"] };
  await make(client, `${rbac}/clusterroles`, { metadata: { name: `test:${name}` }, rules: [rule] });
  await make(client, `${rbac}/clusterrolebindings`, {
    metadata: { name: `test:${name}` },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: `test:${name}` },
    subjects: [{ kind: "ServiceAccount", name, namespace: "conformance" }],
  });
  const may = async (verb: string): Promise<unknown> => {
    const spec = { resourceAttributes: { group: "crd.projectcalico.org", resource: "ippools", verb } };
    const object = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec };
    return asObject(
      (await limited.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", object)).object.status,
    ).allowed;
  };
  await until("the role is in force", async () => (await may("list")) === true);
  assert.equal(await may("delete"), false);
  assert.equal((await limited.get(pools)).code, 200);
  assertRefused(await limited.delete(`${pools}/x`), { code: 403, reason: "Forbidden" });
  limited.close();
}
