// The stream over real sockets, with a store that the tests change by hand: who gets in, who gets what, who is dropped, how it ends.
import assert from "node:assert/strict";
import { connect as connectSocket, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { assign, newBlock } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import { type Block, kinds, type Node } from "../../shared/calico/resources.ts";
import {
  type BlockCidr,
  Failure,
  type HandleId,
  type NodeName,
  type ResourceVersion,
  type Sequence,
  type Uid,
  type UnixMs,
} from "../../shared/kinds.ts";
import { createLog } from "../../shared/log.ts";
import { serverMetrics } from "../../shared/metrics.ts";
import type { Certificate, Rotating } from "../../shared/process/files.ts";
import { createMetrics } from "../../shared/process/metrics.ts";
import { type ServerMessage, streamPath, subProtocol } from "../../shared/protocol/stream.ts";
import { loopbackCertificate } from "../../test/kube-api/certificate-shell.ts";
import { type ManualClock, manualClock, seededRandom } from "../../test/manual-world.ts";
import { Refused, StreamClient } from "../../test/stream-client.ts";
import type { Claims } from "../commit/claims.ts";
import type { CommitAnswer, CommitRequest, Committer } from "../commit/committer.ts";
import { Store } from "../store/store.ts";
import type { Sight } from "../upstream/object-reader.ts";
import { Hub, type HubParts } from "./hub-shell.ts";
import type { Verdict } from "./identity.ts";
import { listenStream } from "./listener-shell.ts";

const heartbeatMs = 10_000;
const version = (at: number): ResourceVersion => String(at) as ResourceVersion;

interface World {
  readonly store: Store;
  readonly hub: Hub;
  readonly url: string;
  readonly clock: ManualClock;
  readonly port: number;
  connect(token?: string): Promise<StreamClient>;
  /** Commits wait here until the test answers them. */
  readonly commits: { readonly request: CommitRequest; answer(answer: CommitAnswer): void }[];
  closed: boolean | string;
  readonly lines: readonly string[];
  /** Events that would have been raised. */
  readonly told: string[];
  /** Nodes that were read. */
  readonly refreshed: string[];
  /** Looks at the API server wait here until the test says what they show. */
  readonly looks: { readonly what: string; show(sight: Sight): void; fail(error: Error): void }[];
}

/** Tokens: "node-a" is the agent of node-a, "node-a#1" that of its Node with uid 1, "observer" an observer, "away" cannot be asked about, anything else is nobody. */
function verdictOn(token: string, now: UnixMs): Verdict {
  if (token === "away") throw new Failure("api-unavailable", "no answer");
  const identity = { user: token, expiresAt: token === "short" ? ((now + 60_000) as UnixMs) : undefined };
  if (token === "observer") return { kind: "known", identity: { ...identity, node: undefined } };
  if (token === "short") return { kind: "known", identity: { ...identity, node: "node-a" as NodeName } };
  const [name = "", nodeUid] = token.split("#");
  if (name.startsWith("node-")) {
    const uid = nodeUid === undefined ? {} : { nodeUid: nodeUid as Uid };
    return { kind: "known", identity: { ...identity, node: name as NodeName, ...uid } };
  }
  return { kind: "refused", status: 401, message: "nobody" };
}

interface Port {
  readonly host?: string;
  readonly certificate?: Parameters<typeof listenStream>[0]["certificate"];
}

async function world(t: TestContext, { host = "127.0.0.1", certificate }: Port = {}): Promise<World> {
  const clock = manualClock();
  const store = new Store(clock);
  for (const kind of kinds) store.replace(kind, [], version(1));
  const system = { name: "kube-system", uid: "cluster-1" as Uid, resourceVersion: version(2), labels: {} };
  store.put("namespace", system);
  const lines: string[] = [];
  const { logger } = createLog({ level: "warn", format: "json", clock, write: (line) => lines.push(line) });
  const metrics = createMetrics().create(serverMetrics);
  const random = seededRandom(1);
  const commits: World["commits"] = [];
  const committer = {
    commit: (request: CommitRequest) => new Promise<CommitAnswer>((answer) => commits.push({ request, answer })),
  } as Committer;
  const told: World["told"] = [];
  const events: HubParts["events"] = {
    aboutNode: (reason, node) => void told.push(`${reason} ${node}`),
    report: (node, { reason, name }) => void told.push(`${node}: ${reason} ${name}`),
  };
  const indexer = { index: async () => undefined };
  const refreshed: string[] = [];
  const refresh = async (name: NodeName): Promise<void> => void refreshed.push(name);
  const looks: World["looks"] = [];
  const reader: HubParts["reader"] = {
    refresh: (_asker, kind, name) => new Promise((show, fail) => looks.push({ what: `${kind} ${name}`, show, fail })),
  };
  const lease = { grantMs: () => 2_700_000, refresh, reader, events, indexer };
  const parts = { store, committer, claims: {} as Claims, clock, random, logger, metrics, heartbeatMs, ...lease };
  const hub = new Hub({ ...parts, group: "crd", replica: "r", version: "1" });
  const verifier = { verify: async (token: string) => verdictOn(token, clock.wall()), follow: () => () => {} };
  const listener = await listenStream({
    host,
    port: 0,
    certificate,
    door: () => (typeof made.closed === "string" ? made.closed : { hub, verifier }),
    random,
    logger,
    metrics,
  });
  const made: World = {
    told,
    looks,
    refreshed,
    lines,
    store,
    hub,
    clock,
    commits,
    url: listener.url,
    port: Number(new URL(listener.url).port),
    connect: (token = "node-a") => StreamClient.connect({ url: listener.url, token }),
    closed: false,
  };
  t.after(async () => {
    const drained = hub.drain();
    clock.advance(10_000);
    await drained;
    await listener.close();
  });
  return made;
}

function block(index: number, at: number, owner = "node-a", prefix = 29): Block {
  const cidr = `10.${index}.0.0/${prefix}` as BlockCidr;
  const state = newBlock({ cidr, affinity: `host:${owner}`, now: 0 as UnixMs, sequence: 1n as Sequence });
  const used = assign(state, [0], { handle: `c${at}` as HandleId, secondary: { node: owner, at: String(at) } });
  return { ...used, name: blockName(cidr), uid: `block-${index}` as Uid, resourceVersion: version(at), cidr };
}

function refusal(connecting: Promise<unknown>): Promise<Refused> {
  return connecting.then(
    () => assert.fail("was let in"),
    (error: unknown) => {
      assert.ok(error instanceof Refused, String(error));
      return error;
    },
  );
}

test("whoever is not let in gets a status and a sentence", async (t) => {
  const { url, connect, ...made } = await world(t);
  assert.equal((await refusal(StreamClient.connect({ url }))).status, 401);
  const nobody = await refusal(connect("nobody"));
  assert.deepEqual([nobody.status, nobody.message, nobody.headers["www-authenticate"]], [401, "nobody\n", "Bearer"]);
  const away = await refusal(connect("away"));
  assert.equal(away.status, 503);
  assert.ok(Number(away.headers["retry-after"]) >= 1);
  assert.equal((await refusal(StreamClient.connect({ url, token: "node-a", protocol: "other.v1" }))).status, 426);
  const elsewhere = new URL("/elsewhere", url).href;
  assert.equal((await refusal(StreamClient.connect({ url: elsewhere, token: "node-a" }))).status, 404);
  assert.equal((await fetch(url.replace("ws:", "http:"))).status, 426);
  assert.equal(made.hub.size, 0);
});

test("given a server that cannot take clients yet, then they are told why and when to come back", async (t) => {
  const made = await world(t);
  made.closed = "not read everything yet";
  const error = await refusal(made.connect());
  assert.deepEqual([error.status, error.message], [503, "not read everything yet\n"]);
});

test("an agent sees its own, an observer everything, each in the very same bytes", async (t) => {
  const { store, connect } = await world(t);
  store.put("block", block(1, 10));
  store.put("block", block(2, 11, "node-b"));
  const [agent, observer] = [await connect("node-a"), await connect("observer")];
  const welcome = await agent.hello("node-a");
  assert.equal(welcome.lineage, "cluster-1.0");
  await observer.hello(undefined);
  await Promise.all([agent.next("synced"), observer.next("synced")]);
  assert.deepEqual([...agent.holds.keys()], ["block/10-1-0-0-29"]);
  assert.deepEqual([...observer.holds.keys()], ["block/10-1-0-0-29", "block/10-2-0-0-29", "namespace/kube-system"]);
  assert.deepEqual(agent.block("10-1-0-0-29"), block(1, 10));
  store.put("block", block(1, 12));
  await Promise.all(
    [agent, observer].map((client) => client.until(() => client.block("10-1-0-0-29")?.resourceVersion === "12")),
  );
});

test("a hello that the token does not bear out ends the stream", async (t) => {
  const { connect } = await world(t);
  const rejected = async (token: string, node: string | undefined, more = {}): Promise<number> => {
    const client = await connect(token);
    client.hello(node, more).catch(() => {});
    return (await client.closed).code;
  };
  assert.equal(await rejected("node-a", "node-b"), 4403);
  assert.equal(await rejected("node-a", undefined), 4403);
  assert.equal(await rejected("observer", "node-a"), 4403);
  assert.equal(await rejected("node-a", "node-a", { protocol: 2 }), 4400);
});

test("messages out of order or out of shape end the stream, unknown ones are passed over", async (t) => {
  const { connect } = await world(t);
  const end = async (...texts: string[]): Promise<{ code: number; reason: string }> => {
    const client = await connect();
    for (const text of texts) client.ws.send(text);
    return client.closed;
  };
  const hello = JSON.stringify({
    type: "hello",
    protocol: 1,
    version: "t",
    scope: "node",
    node: "node-a",
    have: [],
    capabilities: [],
  });
  assert.deepEqual(await end('{"type":"ping","sent":1}'), { code: 4400, reason: "ping before hello" });
  assert.equal((await end("{")).code, 4400);
  assert.deepEqual(await end(hello, hello), { code: 4400, reason: "a second hello" });
  assert.match((await end(hello, '{"type":"ping"}')).reason, /^bad ping message: sent /);
  const client = await connect();
  client.ws.send(hello);
  client.ws.send('{"type":"from-the-future"}');
  client.ws.send('{"type":"claim","id":5,"pools":[],"full":[]}');
  assert.match((await client.next("claimed")).problem?.message ?? "", /^bad claim message: pools /);
  client.send({ type: "ping", sent: 7 });
  await client.until(() => client.messages.find((message) => message.type === "beat" && message.echo === 7));
});

test("given a client that comes back, then only what differs is sent; one with other data starts afresh", async (t) => {
  const { store, connect } = await world(t);
  store.put("block", block(1, 10));
  store.put("block", block(2, 11));
  store.bookmark("block", version(20));
  const have: ["block", string, string][] = [
    ["block", "10-1-0-0-29", "10"],
    ["block", "10-3-0-0-29", "15"],
  ];
  const client = await connect();
  await client.hello("node-a", { lineage: "cluster-1.0", have });
  await client.next("synced");
  const said = client.messages.map((message) => message.type).filter((type) => type !== "beat");
  assert.deepEqual(said, ["welcome", "put", "gone", "synced"]);
  await client.close();
  const foreign = await connect();
  await foreign.hello("node-a", { lineage: "cluster-0.0", have });
  await foreign.next("synced");
  assert.deepEqual(
    foreign.messages.map((message) => message.type),
    ["welcome", "reset", "put", "put", "synced"],
  );
});

test("a commit is answered with the block, which is not put as well", async (t) => {
  const { store, connect, commits } = await world(t);
  const client = await connect();
  await client.hello("node-a");
  const acknowledged = client.commit("10.1.0.0/29", [{ ordinal: 0, expect: null, become: null }]);
  await client.next("synced");
  while (commits.length === 0) await new Promise(setImmediate);
  store.put("block", block(1, 10));
  commits[0]?.answer({ kind: "done", results: ["applied"], block: block(1, 10) });
  assert.deepEqual((await acknowledged).results, ["applied"]);
  client.send({ type: "ping", sent: 1 });
  await client.until(() => client.messages.find((message) => message.type === "beat" && message.echo === 1));
  assert.deepEqual(
    client.messages.filter((message) => message.type === "put"),
    [],
  );
  assert.equal(client.block("10-1-0-0-29")?.resourceVersion, "10");
  const wrong = await client.commit("10.1.0.5/29", [{ ordinal: 0, expect: null, become: null }]);
  assert.equal(wrong.problem?.reason, "BadRequest");
});

test("a reader that does not read costs its keys, not its messages, and gets the newest in the end", async (t) => {
  const { store, hub, connect } = await world(t);
  const [slow, quick] = [await connect("node-a"), await connect("observer")];
  await Promise.all([slow.hello("node-a"), quick.hello(undefined)]);
  await Promise.all([slow.next("synced"), quick.next("synced")]);
  slow.ws.pause();
  // Some 50 KB each: more than the system takes off our hands.
  const last = 400;
  for (let at = 100; at <= last; at++) {
    store.put("block", block(1, at, "node-a", 20));
    await quick.until(() => quick.holds.get("block/10-1-0-0-20")?.resourceVersion === String(at));
  }
  const [status] = hub.status().filter(({ node }) => node === "node-a");
  assert.equal(status?.behindKeys, 1);
  assert.ok((status?.bufferedBytes ?? 0) < 512 * 1024, `${status?.bufferedBytes} bytes`);
  const before = slow.messages.length;
  slow.ws.resume();
  await slow.until(() => slow.holds.get("block/10-1-0-0-20")?.resourceVersion === String(last));
  const puts = slow.messages.length - before;
  assert.ok(puts < last - 100, `${puts} messages for ${last - 100} changes`);
});

test("signs of life are given, and whoever gives none is dropped", async (t) => {
  const { hub, connect, clock, port } = await world(t);
  const live = await connect();
  await live.hello("node-a");
  await live.next("synced");
  const silent = await silentSocket(port, "node-b");
  while (hub.size < 2) await new Promise(setImmediate);
  const gone = new Promise((resolve) => silent.once("close", resolve));
  for (let elapsedMs = 0; elapsedMs < 4 * heartbeatMs; elapsedMs += heartbeatMs / 20) {
    clock.advance(heartbeatMs / 20);
    const sent = elapsedMs;
    live.send({ type: "ping", sent });
    await live.until(() => live.messages.find((message) => message.type === "beat" && message.echo === sent));
  }
  await gone;
  assert.equal(hub.size, 1);
  const own = live.messages.filter((message) => message.type === "beat" && message.echo === undefined);
  assert.ok(own.length >= 3, `${own.length} beats in four intervals`);
});

test("a stream does not outlive its token", async (t) => {
  const { connect, clock } = await world(t);
  const client = await connect("short");
  await client.hello("node-a");
  for (let elapsedMs = 0; elapsedMs < 80_000; elapsedMs += heartbeatMs / 20) {
    clock.advance(heartbeatMs / 20);
    if (elapsedMs < 59_000) {
      client.send({ type: "ping", sent: elapsedMs });
      await client.until(() =>
        client.messages.find((message) => message.type === "beat" && message.echo === elapsedMs),
      );
    }
  }
  assert.deepEqual(await client.closed, { code: 4401, reason: "the token has expired" });
});

test("of two connections of one node the later one stays", async (t) => {
  const { connect } = await world(t);
  const first = await connect();
  await first.hello("node-a");
  const second = await connect();
  await second.hello("node-a");
  assert.equal((await first.closed).code, 4409);
  await second.next("synced");
});

test("at the end everybody is told, what was asked is answered, and nobody is left", async (t) => {
  const { hub, connect, clock, commits } = await world(t);
  const client = await connect();
  await client.hello("node-a");
  const acknowledged = client.commit("10.1.0.0/29", [{ ordinal: 0, expect: null, become: null }]);
  while (commits.length === 0) await new Promise(setImmediate);
  const drained = hub.drain();
  clock.advance(100);
  assert.equal((await client.next("bye")).reason, "this server stops");
  commits[0]?.answer({ kind: "done", results: ["already"], block: null });
  assert.deepEqual((await acknowledged).results, ["already"]);
  assert.equal((await client.closed).code, 1001);
  await drained;
  assert.equal(hub.size, 0);
});

test("given data set back to an older state, then everybody is sent away to start afresh", async (t) => {
  const { store, connect, clock } = await world(t);
  const client = await connect();
  await client.hello("node-a");
  store.replace("pool", [], version(100));
  store.replace("pool", [], version(50));
  clock.advance(heartbeatMs / 20);
  assert.equal((await client.closed).code, 1001);
  const again = await connect();
  assert.equal((await again.hello("node-a", { lineage: "cluster-1.0" })).lineage, "cluster-1.1");
  await again.next("reset");
});

type Have = ["block", string, string][];

/** A client that knows more than the server, which has begun to look at once. */
async function aheadClient(made: World, have: Have): Promise<StreamClient> {
  const client = await made.connect();
  await client.hello("node-a", { lineage: "cluster-1.0", have });
  await client.next("put");
  assert.equal(made.looks.length, 1);
  return client;
}

/** The client's next sign of life is one heartbeat away at most. */
async function passBeats({ clock }: World, holds: () => boolean): Promise<void> {
  for (let step = 0; step < 20 && !holds(); step++) {
    clock.advance(heartbeatMs / 20);
    await new Promise(setImmediate);
  }
  assert.ok(holds());
}

const typesOf = ({ messages }: StreamClient): string[] =>
  messages.map(({ type }) => type).filter((type) => type !== "beat");

test("given a client ahead of this server, when the API server has what it knows, then it keeps that and goes on from there", async (t) => {
  const made = await world(t);
  made.store.put("block", block(1, 10));
  made.store.put("block", block(2, 11));
  const client = await aheadClient(made, [["block", "10-1-0-0-29", "30"]]);
  assert.deepEqual(typesOf(client), ["welcome", "put"]);
  assert.deepEqual(
    made.looks.map(({ what }) => what),
    ["block 10-1-0-0-29"],
  );
  made.store.put("block", block(1, 31));
  made.looks[0]?.show({ version: version(31), dataVersion: version(40) });
  await client.next("synced");
  assert.deepEqual(typesOf(client), ["welcome", "put", "put", "synced"]);
});

test("given a client ahead of this server, when the API server has no such object any more, then it is told that it is gone", async (t) => {
  const made = await world(t);
  made.store.put("block", block(2, 11));
  const client = await aheadClient(made, [["block", "10-1-0-0-29", "30"]]);
  made.looks[0]?.show({ version: undefined, dataVersion: version(40) });
  await client.next("synced");
  assert.deepEqual(typesOf(client), ["welcome", "put", "gone", "synced"]);
});

for (const [what, sight] of [
  ["an older version", { version: version(10), dataVersion: version(99) }],
  ["no such object, and nothing as new", { version: undefined, dataVersion: version(20) }],
] as const) {
  test(`given a client ahead of the API server, which has ${what}, then it starts afresh, once`, async (t) => {
    const made = await world(t);
    made.store.put("block", block(1, 10));
    made.store.put("block", block(2, 11));
    const client = await aheadClient(made, [
      ["block", "10-1-0-0-29", "30"],
      ["block", "10-3-0-0-29", "31"],
    ]);
    made.looks[0]?.show(sight);
    await client.next("synced");
    assert.deepEqual(typesOf(client), ["welcome", "put", "reset", "put", "put", "synced"]);
    for (let step = 0; step < 40; step++) made.clock.advance(heartbeatMs / 20);
    assert.equal(made.looks.length, 1);
  });
}

test("given a client ahead of this server, when the API server does not answer, then the next sign of life looks again", async (t) => {
  const made = await world(t);
  made.store.put("block", block(2, 11));
  const client = await aheadClient(made, [["block", "10-1-0-0-29", "30"]]);
  made.looks[0]?.fail(new Failure("api-unavailable", "no answer"));
  await passBeats(made, () => made.looks.length === 2);
  made.looks[1]?.show({ version: undefined, dataVersion: version(20) });
  await client.next("reset");
});

function node(uid: string, at: number): Node {
  return { name: "node-a" as NodeName, uid: uid as Uid, resourceVersion: version(at), labels: {} };
}

const isBeat = (message: ServerMessage): message is Extract<ServerMessage, { type: "beat" }> => message.type === "beat";

test("a ping is answered with the lease, which no other sign of life renews; that the Node has gone is told at once", async (t) => {
  const { store, connect, clock } = await world(t);
  store.put("node", node("1", 10));
  store.opened("node");
  const client = await connect("node-a#1");
  await client.hello("node-a");
  client.send({ type: "ping", sent: 7 });
  const echo = await client.until(() => client.messages.filter(isBeat).find((beat) => beat.echo === 7));
  assert.deepEqual([echo.lease, echo.node], [{ limitMs: 2_700_000 }, "present"]);
  clock.advance(heartbeatMs);
  const sign = await client.until(() => client.messages.filter(isBeat).find((beat) => beat.echo === undefined));
  assert.deepEqual([sign.lease, sign.node], [undefined, undefined]);
  store.remove("node", "node-a");
  assert.deepEqual(
    (await client.until(() => client.messages.filter(isBeat).find((beat) => beat.node === "gone"))).lease,
    undefined,
  );
  client.send({ type: "ping", sent: 8 });
  const last = await client.until(() => client.messages.filter(isBeat).find((beat) => beat.echo === 8));
  assert.deepEqual([last.lease, last.node], [undefined, "gone"]);
});

test("given a lease that had run out, then it is renewed once the Node has been read, by a second answer to the ping", async (t) => {
  const { store, connect, refreshed } = await world(t);
  store.put("node", node("1", 10));
  store.opened("node");
  const client = await connect("node-a#1");
  await client.hello("node-a", { leaseExpired: true });
  client.send({ type: "ping", sent: 7 });
  const renewed = await client.until(() => client.messages.filter(isBeat).find((beat) => beat.lease !== undefined));
  assert.equal(renewed.echo, 7);
  assert.deepEqual(
    client.messages.filter(isBeat).map(({ lease }) => lease?.limitMs),
    [undefined, 2_700_000],
  );
  assert.deepEqual(refreshed, ["node-a"]);
});

test("given a Node made anew, then an agent with the old one's token is sent away, and not let in again", async (t) => {
  const { store, connect } = await world(t);
  store.put("node", node("1", 10));
  store.opened("node");
  const client = await connect("node-a#1");
  await client.hello("node-a");
  store.put("node", node("2", 11));
  assert.deepEqual(await client.closed, { code: 4401, reason: "the Node of this name is another one now" });
  const refused = await refusal(connect("node-a#1"));
  assert.equal(refused.status, 403);
  assert.match(refused.message, /^the token is of an earlier Node named node-a/);
  await (await connect("node-a#2")).hello("node-a");
});

test("what an agent reports is passed on; what cannot be read costs it nothing", async (t) => {
  const { connect, told } = await world(t);
  const client = await connect();
  await client.hello("node-a");
  client.ws.send(JSON.stringify({ type: "report", reason: 7 }));
  client.send({
    type: "report",
    reason: "AddressConflict",
    kind: "pod",
    namespace: "shop",
    name: "cart",
    note: "taken",
  });
  client.send({ type: "index", id: 3, handles: ["net.c1"] });
  assert.deepEqual(await client.next("indexed"), { type: "indexed", id: 3 });
  assert.deepEqual(told, ["node-a: AddressConflict cart"]);
});

test("given an agent that falls silent for half its lease, then that is told once, and that it is back", async (t) => {
  const { store, connect, port, clock, told, hub } = await world(t);
  store.put("node", node("1", 10));
  const socket = await silentSocket(port, "node-a");
  socket.write(
    maskedText(
      JSON.stringify({
        type: "hello",
        protocol: 1,
        version: "t",
        scope: "node",
        node: "node-a",
        have: [],
        capabilities: [],
      }),
    ),
  );
  while (hub.status()[0]?.state !== "live") await new Promise(setImmediate);
  const tick = (minutes: number): void => {
    for (let passed = 0; passed < minutes * 60_000; passed += heartbeatMs / 20) clock.advance(heartbeatMs / 20);
  };
  tick(1);
  while (hub.size > 0) await new Promise(setImmediate);
  tick(21);
  assert.deepEqual(told, []);
  tick(1);
  assert.deepEqual(told, ["AgentOffline node-a"]);
  tick(30);
  await (await connect()).hello("node-a");
  assert.deepEqual(told, ["AgentOffline node-a", "AgentBack node-a"]);
});

test("given no certificate, then only this machine is listened to, and the log says so", async (t) => {
  const { url, lines } = await world(t, { host: "0.0.0.0" });
  assert.match(url, /^ws:\/\/127\.0\.0\.1:\d+\/v1\/stream$/);
  assert.ok(lines.some((line) => line.includes("as the stream has no certificate") && line.includes("tls.certFile")));
});

test("given a certificate that is still to come, then nobody gets in before it is there, and everybody after", async (t) => {
  const pair = loopbackCertificate();
  let changed = (_: Certificate | undefined): void => {};
  const certificate = {
    current: () => undefined,
    onChange: (listener: typeof changed) => {
      changed = listener;
    },
  };
  const { url } = await world(t, { certificate });
  await assert.rejects(StreamClient.connect({ url, token: "node-a", ca: pair.cert }), /alert handshake failure/);
  changed({ ...pair, expiry: 0 as UnixMs });
  await (await StreamClient.connect({ url, token: "node-a", ca: pair.cert })).hello("node-a");
});

test("given a certificate that is replaced, then new connections get the new one and the open ones go on", async (t) => {
  const [old, renewed] = [loopbackCertificate(), loopbackCertificate()];
  let changed = (_: Certificate): void => {};
  const certificate: Rotating<Certificate> = {
    current: () => ({ ...old, expiry: 0 as UnixMs }),
    onChange: (listener) => {
      changed = listener;
    },
    check: async () => {},
    close: () => {},
  };
  const { url, store } = await world(t, { certificate });
  const first = await StreamClient.connect({ url, token: "node-a", ca: old.cert });
  await first.hello("node-a");
  changed({ ...renewed, expiry: 0 as UnixMs });
  await assert.rejects(StreamClient.connect({ url, token: "node-b", ca: old.cert }), /self-signed/);
  const second = await StreamClient.connect({ url, token: "node-b", ca: renewed.cert });
  await second.hello("node-b");
  store.put("block", block(1, 10));
  await first.until(() => first.block("10-1-0-0-29"));
});

/** One frame as clients must send it; a mask of zeros changes nothing. */
function maskedText(text: string): Buffer {
  const payload = Buffer.from(text);
  const header = Buffer.from([0x81, 0x80 | 126, payload.length >> 8, payload.length & 0xff, 0, 0, 0, 0]);
  return Buffer.concat([header, payload]);
}

/** A client that says its handshake and then nothing, not even what its system would say for it. */
function silentSocket(port: number, token: string): Promise<Socket> {
  const socket = connectSocket(port, "127.0.0.1");
  socket.write(
    [
      `GET ${streamPath} HTTP/1.1`,
      `Host: 127.0.0.1:${port}`,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      `Sec-WebSocket-Protocol: ${subProtocol}`,
      `Authorization: Bearer ${token}`,
      "\r\n",
    ].join("\r\n"),
  );
  return new Promise((resolve) => {
    socket.once("data", () => resolve(socket));
    socket.on("data", () => {});
  });
}
