import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { blockName } from "../../shared/calico/names.ts";
import type { Kind } from "../../shared/calico/resources.ts";
import type { BlockCidr, Instant } from "../../shared/kinds.ts";
import { connectTo } from "../../shared/kube/connection-shell.ts";
import { Http } from "../../shared/kube/http-shell.ts";
import type { Logger } from "../../shared/log.ts";
import { type ManualClock, manualClock, seededRandom } from "../../test/manual-world.ts";
import { type Exchange, ScriptedServer } from "../../test/scripted-server.ts";
import { Store } from "../store/store.ts";
import { maxLineBytes } from "./line-splitter.ts";
import type { Streaming } from "./reflector.ts";
import { ReflectorShell } from "./reflector-shell.ts";
import { Turns } from "./turns.ts";

let server: ScriptedServer;
let clock: ManualClock;
let store: Store;
let http: Http;
let shell: ReflectorShell<Kind>;
let told: string[];
let logged: string[];
let events: string[];
let waiting: (() => void)[];

beforeEach(async () => {
  server = await new ScriptedServer().listen();
  clock = manualClock();
  store = new Store(clock);
  told = [];
  logged = [];
  events = [];
  waiting = [];
  store.listen(({ name, before, after }) => {
    told.push(`${before ? (after ? "~" : "-") : "+"}${name}`);
    for (const wake of waiting.splice(0)) wake();
  });
  http = new Http({ connection: connectTo(server.url), userAgent: "test", clock });
});
afterEach(async () => {
  shell.stop();
  http.stop();
  await server.close();
});

function reflect(kind: Kind, streaming: Streaming["support"] = "no"): void {
  const say = (message: string, keys: object = {}): void => {
    logged.push([message, ...Object.values(keys)].join(" "));
    for (const wake of waiting.splice(0)) wake();
  };
  const log: Logger = { error: say, warn: say, info: say, debug: say, trace: say, with: () => log, isOn: () => true };
  shell = new ReflectorShell<Kind>(kind, {
    http,
    store,
    group: "crd",
    streaming: { support: streaming, askAgainAt: Number.POSITIVE_INFINITY as Instant },
    turns: new Turns(),
    clock,
    random: seededRandom(1),
    log,
    metrics: {
      upstreamEvents: { inc: (labels) => void events.push(labels.type) },
      upstreamRestarts: { inc: () => {} },
    },
    onReached: () => {},
  });
  shell.start(1);
  clock.advance(1);
}

/** Resolves once the condition holds; looked at whenever the store or the log has something new. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise<void>((resolve) => waiting.push(resolve));
}

const meta = (name: string, version: number, more: object = {}) => ({
  metadata: { name, uid: `uid of ${name}`, resourceVersion: String(version), ...more },
});
const node = (name: string, version: number, labels: object = {}) => ({
  kind: "PartialObjectMetadata",
  apiVersion: "meta.k8s.io/v1",
  ...meta(name, version, { labels }),
});
const nodeList = (version: number, ...items: object[]) => ({
  kind: "PartialObjectMetadataList",
  metadata: { resourceVersion: String(version) },
  items,
});
const added = (object: object) => ({ type: "ADDED", object });
const modified = (object: object) => ({ type: "MODIFIED", object });
const bookmark = (version: number, annotations: object = {}) => ({
  type: "BOOKMARK",
  object: { kind: "Node", metadata: { resourceVersion: String(version), annotations } },
});
function rawBlock(cidr: string, version: number, spec: object = {}, name = blockName(cidr as BlockCidr)) {
  const allocations = [null, null, null, null];
  const fields = { cidr, allocations, unallocated: [0, 1, 2, 3], attributes: [], sequenceNumber: 1, deleted: false };
  return { kind: "IPAMBlock", ...meta(name, version), spec: { ...fields, ...spec } };
}

/** Lists these and returns the watch that follows, with its headers sent. */
async function watching(version: number, ...nodes: object[]): Promise<Exchange> {
  reflect("node");
  (await server.next()).json(200, nodeList(version, ...nodes));
  const watch = (await server.next()).open();
  await until(() => shell.problem === undefined);
  told.length = 0;
  return watch;
}

/** Waits until the failure has been seen, then lets the pause go by. */
async function retried(after: RegExp): Promise<Exchange> {
  await until(() => logged.some((line) => after.test(line)));
  logged.length = 0;
  clock.advance(30_000);
  return server.next();
}

test("a list and then a watch are asked for as Kubernetes wants it, of nodes only the metadata", async () => {
  reflect("node");
  const list = await server.next();
  assert.equal(list.path, "/api/v1/nodes");
  assert.deepEqual([...list.query], [["limit", "500"]]);
  assert.equal(
    list.headers.accept,
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
  );
  list.json(200, nodeList(10, node("a", 5, { zone: "1" })));
  const watch = await server.next();
  assert.equal(watch.headers.accept, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
  const { timeoutSeconds, ...query } = Object.fromEntries(watch.query);
  assert.deepEqual(query, { watch: "true", resourceVersion: "10", allowWatchBookmarks: "true" });
  assert.ok(Number(timeoutSeconds) >= 300 && Number(timeoutSeconds) <= 600);
  assert.deepEqual(store.get("node", "a")?.labels, { zone: "1" });
});

test("a streaming list is asked for, taken over at its end mark, and goes on as a watch", async () => {
  reflect("block", "unknown");
  const stream = (await server.next()).open();
  assert.equal(stream.path, "/apis/crd.projectcalico.org/v1/ipamblocks");
  const { timeoutSeconds, ...query } = Object.fromEntries(stream.query);
  assert.deepEqual(query, {
    watch: "true",
    sendInitialEvents: "true",
    resourceVersionMatch: "NotOlderThan",
    allowWatchBookmarks: "true",
  });
  await stream.line(added(rawBlock("10.0.0.0/30", 1)));
  await stream.line(bookmark(9, { "k8s.io/initial-events-end": "true" }));
  await stream.line(added(rawBlock("10.0.0.4/30", 10)));
  await until(() => told.length === 2);
  assert.deepEqual(told, ["+10-0-0-0-30", "+10-0-0-4-30"]);
  assert.equal(store.freshness("block").version, "10");
  assert.equal(server.count, 1);
});

test("watch case 11: a list that is cut or garbled is asked for again, and nothing of it is seen", async () => {
  reflect("node");
  const whole = JSON.stringify(nodeList(10, node("a", 5), node("b", 6)));
  (await server.next()).json(200, whole.slice(0, -20));
  const second = await retried(/a list that is none/);
  second.open();
  await second.write(whole.slice(0, 40));
  second.reset();
  const third = await retried(/ECONNRESET|aborted/);
  assert.deepEqual(told, []);
  third.json(200, whole);
  await until(() => told.length === 2);
});

test("watch case 15: half an event before a reset does not count; after the pause it is seen once", async () => {
  const watch = await watching(10);
  await watch.line(added(node("a", 11)));
  await until(() => told.length === 1);
  const line = JSON.stringify(added(node("b", 12)));
  await watch.write(line.slice(0, 30));
  watch.reset();
  const again = (await retried(/begun again/)).open();
  assert.equal(again.query.get("resourceVersion"), "11");
  await again.write(`${line}\n`);
  await until(() => told.length === 2);
  assert.deepEqual(told, ["+a", "+b"]);
});

test("half an event before a clean end does not count either", async () => {
  const watch = await watching(10);
  await watch.write(JSON.stringify(added(node("b", 12))));
  clock.advance(2_000);
  watch.end();
  await server.next();
  assert.deepEqual(told, []);
});

test("watch case 18: lines come in any pieces, with any line ends, and mean the same", async () => {
  const watch = await watching(10);
  const tricky = { "näme/漢字": "🙂", line: "a\u2028b" };
  const text = [
    JSON.stringify(added(node("a", 11, tricky))),
    "\r\n\n",
    JSON.stringify(bookmark(12)),
    "\r\n \n",
    JSON.stringify(added(node("b", 13))),
    "\n",
    JSON.stringify(added(node("c", 14))),
    "\n",
  ].join("");
  const bytes = Buffer.from(text);
  const cut = bytes.indexOf('{"type":"ADDED"', bytes.indexOf('"b"'));
  for (let i = 0; i < cut; i++) await watch.write(bytes.subarray(i, i + 1));
  await watch.write(bytes.subarray(cut));
  await until(() => told.length === 3);
  assert.deepEqual(told, ["+a", "+b", "+c"]);
  assert.deepEqual(store.get("node", "a")?.labels, tricky);
  assert.deepEqual(events, ["added", "bookmark", "added", "added"]);
});

test("watch case 19: an object of 10 MiB is taken, one of 40 MiB ends the stream and leads to a list", async () => {
  const watch = await watching(10);
  const wide = (name: string, version: number, bytes: number) =>
    JSON.stringify(added({ ...node(name, version), padding: "x".repeat(bytes) }));
  await watch.write(`${wide("large", 11, 10 << 20)}\n`);
  await until(() => told.length === 1);
  watch.write(`${wide("huge", 12, 40 << 20)}\n`).catch(() => {});
  const list = await retried(new RegExp(`more than ${maxLineBytes} bytes`));
  assert.equal(list.query.get("watch"), null);
  assert.deepEqual(told, ["+large"]);
});

test("watch case 20: noise in a stream ends it", async () => {
  const watch = await watching(10);
  await watch.write("<html>\n");
  const again = await retried(/no JSON object/);
  assert.equal(again.query.get("resourceVersion"), "10");
});

test("watch case 21: a burst is worked off in slices, and its end comes after its last event", async () => {
  const watch = await watching(10);
  let turns = 0;
  let counting = true;
  const tick = (): void => {
    turns++;
    if (counting) setImmediate(tick);
  };
  setImmediate(tick);
  // Each event takes a millisecond of the hand-moved clock.
  store.listen(() => clock.advance(1));
  const lines = Array.from({ length: 200 }, (_, i) => `${JSON.stringify(added(node(`n${i}`, 11 + i)))}\n`);
  watch.write(lines.join(""));
  watch.end();
  await until(() => told.length === 200);
  counting = false;
  assert.ok(turns >= 15, `others had ${turns} turns`);
  assert.deepEqual(told.at(-1), "+n199");
  const again = await retried(/begun again/);
  assert.equal(again.query.get("resourceVersion"), "210");
});

test("watch case 22: a listener that throws does not stop the stream", async () => {
  const watch = await watching(10);
  store.listen(() => {
    throw new Error("broken");
  });
  await watch.line(added(node("a", 11)));
  await watch.line(added(node("b", 12)));
  await until(() => told.length === 2);
  assert.equal(store.listenerFailures, 2);
});

test("watch case 36: a captive portal and a redirect are neither list nor watch, and are not followed", async () => {
  const watch = await watching(10);
  clock.advance(2_000);
  watch.end();
  (await server.next()).text(200, "<html>log in</html>", { "content-type": "text/html" });
  (await retried(/text\/html/)).text(302, "", { location: `${server.url}/elsewhere` });
  const again = await retried(/answered 302/);
  assert.equal(again.path, "/api/v1/nodes");
  assert.equal(again.query.get("resourceVersion"), "10");
});

test("watch case 37: sequence numbers of blocks are read exactly", async () => {
  reflect("block");
  const exact = "1787405600123456793";
  const body = JSON.stringify({
    kind: "IPAMBlockList",
    metadata: { resourceVersion: "5" },
    items: [rawBlock("10.0.0.0/30", 4)],
  });
  (await server.next()).json(200, body.replace('"sequenceNumber":1', `"sequenceNumber":${exact}`));
  await server.next();
  assert.equal(store.get("block", "10-0-0-0-30")?.sequenceNumber, BigInt(exact));
});

test("watch case 39: whole objects where metadata was asked for are good enough, and said once", async () => {
  reflect("node");
  const whole = (name: string, version: number) => ({ ...node(name, version), kind: "Node", spec: {}, status: {} });
  (await server.next()).json(200, { kind: "NodeList", metadata: { resourceVersion: "10" }, items: [whole("a", 5)] });
  const watch = (await server.next()).open();
  await watch.line(added(whole("b", 11)));
  await until(() => told.length === 2);
  assert.equal(logged.filter((line) => line.includes("whole objects")).length, 1);
});

test("an object that cannot be read is said once and kept out; a block's addresses stay taken", async () => {
  reflect("block");
  const broken = (version: number) => rawBlock("10.0.0.0/30", version, { allocations: [7, null, null, null] });
  const misnamed = rawBlock("10.0.0.4/30", 4, {}, "some-name");
  (await server.next()).json(200, {
    kind: "IPAMBlockList",
    metadata: { resourceVersion: "5" },
    items: [broken(3), misnamed],
  });
  const watch = (await server.next()).open();
  await watch.line(modified(broken(6)));
  await watch.line(added(rawBlock("10.0.0.8/30", 7)));
  await until(() => told.length === 1);
  assert.deepEqual(told, ["+10-0-0-8-30"]);
  const said = logged.filter((line) => line.includes("could not be read"));
  assert.equal(said.length, 2);
  assert.match(said[0] ?? "", /ipamblocks\/10-0-0-0-30 ordinal 0 points at no attribute/);
  assert.deepEqual([...store.unread("block").keys()], ["10-0-0-0-30", "some-name"]);
  const pool = { cidr: "10.0.0.0/28", blockSize: 30 } as Parameters<Store["nextFreeBlock"]>[0];
  assert.equal(store.nextFreeBlock(pool, 0n), "10.0.0.12/30");
});

test("when stopped, connections are closed and nothing is asked for any more", async () => {
  const watch = await watching(10);
  shell.stop();
  await watch.closed;
  clock.advance(600_000);
  assert.equal(server.count, 2);
});
