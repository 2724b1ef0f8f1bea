// Conflation: whatever changes and however the socket drains, a client comes to hold exactly what concerns it, never an older version.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assign, newBlock, release } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import {
  type Block,
  defaultIpamConfig,
  kinds,
  type Namespace,
  type Node,
  type Objects,
  type Pool,
} from "../../shared/calico/resources.ts";
import type {
  BlockCidr,
  CidrText,
  HandleId,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import { type StreamedKind, streamedKinds } from "../../shared/protocol/stream.ts";
import { manualClock } from "../../test/manual-world.ts";
import { Store, stakesIn } from "../store/store.ts";
import { Audience, type Scope } from "./audience.ts";
import { type Outgoing, Session } from "./session.ts";

const version = (number: number): ResourceVersion => String(number) as ResourceVersion;
const now = 0 as UnixMs;

function block(index: number, at: number, owner: string, borrower?: string): Block {
  const cidr = `10.0.${index}.0/29` as BlockCidr;
  const state = newBlock({ cidr, affinity: `host:${owner}`, now, sequence: 1n as Sequence });
  const secondary = { node: borrower ?? owner };
  const used = assign(state, [at % 8], { handle: `c${at}` as HandleId, secondary });
  return { ...used, name: blockName(cidr), uid: `block-${index}` as Uid, resourceVersion: version(at), cidr };
}

function pool(at: number, namespaceSelector: string): Pool {
  return {
    name: "pool" as PoolName,
    uid: "pool" as Uid,
    resourceVersion: version(at),
    cidr: "10.0.0.0/16" as CidrText,
    blockSize: 29,
    disabled: false,
    deleting: false,
    allocatable: true,
    nodeSelector: "",
    namespaceSelector,
    allowedUses: ["Workload"],
    assignmentMode: "Automatic",
  };
}

function node(name: string, at: number): Node {
  return { name: name as NodeName, uid: name as Uid, resourceVersion: version(at), labels: { at: String(at) } };
}

function namespace(name: string, at: number): Namespace {
  return { name, uid: name as Uid, resourceVersion: version(at), labels: { at: String(at) } };
}

function emptyStore(): Store {
  const store = new Store(manualClock());
  for (const kind of kinds) store.replace(kind, [], version(1));
  return store;
}

function connect(store: Store, scope: Scope, have: [StreamedKind, string, string][] = []): Session {
  const audience = new Audience(store);
  store.listen((change) => audience.tell(change));
  const session = new Session(scope, audience, store, have);
  audience.join(session);
  return session;
}

function drain(session: Session): Outgoing[] {
  const sent: Outgoing[] = [];
  for (let next = session.next(); next !== undefined; next = session.next()) sent.push(next);
  return sent;
}

function said(sent: readonly Outgoing[]): string[] {
  return sent.map((message) => {
    if (message.type === "put") return `put ${message.object.name}@${message.object.resourceVersion}`;
    return message.type === "gone" ? `gone ${message.name}` : message.type;
  });
}

const nodeA: Scope = { kind: "node", node: "a" as NodeName };

test("a new client gets what concerns its node, then synced", () => {
  const store = emptyStore();
  store.put("pool", pool(2, ""));
  store.put("block", block(0, 3, "a"));
  store.put("block", block(1, 4, "b"));
  store.put("block", block(2, 5, "b", "a"));
  store.put("node", node("a", 6));
  store.put("node", node("b", 7));
  store.put("namespace", namespace("demo", 8));
  assert.deepEqual(said(drain(connect(store, nodeA))), [
    "put pool@2",
    "put 10-0-0-0-29@3",
    "put 10-0-2-0-29@5",
    "put a@6",
    "synced",
  ]);
  assert.equal(drain(connect(store, { kind: "all" })).length, 8);
});

test("a client that comes back gets what differs and what is gone", () => {
  const store = emptyStore();
  store.put("pool", pool(2, ""));
  store.put("block", block(0, 30, "a"));
  store.bookmark("block", version(40));
  const session = connect(store, nodeA, [
    ["pool", "pool", "2"],
    ["block", "10-0-0-0-29", "29"],
    ["block", "10-0-9-0-29", "35"],
  ]);
  assert.deepEqual(said(drain(session)), ["put 10-0-0-0-29@30", "gone 10-0-9-0-29", "synced"]);
});

test("given a client that knows more than the server, then nothing is said about it before the server has caught up", () => {
  const store = emptyStore();
  store.put("block", block(0, 30, "a"));
  const session = connect(store, nodeA, [
    ["block", "10-0-0-0-29", "33"],
    ["block", "10-0-9-0-29", "35"],
  ]);
  assert.deepEqual(said(drain(session)), []);
  store.put("block", block(0, 34, "a"));
  assert.deepEqual(said(drain(session)), ["put 10-0-0-0-29@34"]);
  store.bookmark("block", version(35));
  session.reconsider();
  assert.deepEqual(said(drain(session)), ["gone 10-0-9-0-29", "synced"]);
});

test("many changes of one object while the socket is full are one message", () => {
  const store = emptyStore();
  const session = connect(store, nodeA);
  drain(session);
  for (let at = 10; at < 60; at++) store.put("block", block(0, at, "a"));
  assert.equal(session.behind, 1);
  assert.deepEqual(said(drain(session)), ["put 10-0-0-0-29@59"]);
});

test("an object that came and went while the socket was full is never mentioned", () => {
  const store = emptyStore();
  const session = connect(store, nodeA);
  drain(session);
  store.put("block", block(0, 10, "a"));
  store.remove("block", "10-0-0-0-29", { uid: "block-0" as Uid, resourceVersion: version(11) });
  assert.deepEqual(drain(session), []);
});

test("what an answer has told is not put again, and an older answer is replaced by what is known", () => {
  const store = emptyStore();
  const session = connect(store, nodeA);
  drain(session);
  const written = block(0, 10, "a");
  store.put("block", written);
  assert.deepEqual(session.answered(written), { block: written, isNews: true });
  assert.deepEqual(drain(session), []);
  const newer = block(0, 11, "a");
  store.put("block", newer);
  assert.deepEqual(session.answered(written), { block: newer, isNews: true });
  assert.deepEqual(drain(session), []);
  store.put("block", block(0, 12, "a"));
  drain(session);
  assert.deepEqual(session.answered(block(0, 12, "a")), { block: block(0, 12, "a"), isNews: false });
  assert.deepEqual(drain(session), []);
});

test("given a borrowed block whose last address was given back, then the client is told to forget it", () => {
  const store = emptyStore();
  store.put("block", block(0, 10, "b", "a"));
  const session = connect(store, nodeA);
  drain(session);
  const before = block(0, 10, "b", "a");
  const freed = { ...before, ...release(before, [2], { now, cooldownSeconds: 0 }), resourceVersion: version(11) };
  store.put("block", freed);
  drain(session);
  session.answered(freed);
  assert.deepEqual(said(drain(session)), ["gone 10-0-0-0-29"]);
});

test("namespaces are streamed while some pool selects by them", () => {
  const store = emptyStore();
  store.put("namespace", namespace("demo", 2));
  const session = connect(store, nodeA);
  assert.deepEqual(said(drain(session)), ["synced"]);
  store.put("pool", pool(3, "team == 'x'"));
  assert.deepEqual(said(drain(session)), ["put pool@3", "put demo@2"]);
  store.put("pool", pool(4, ""));
  assert.deepEqual(said(drain(session)), ["put pool@4", "gone demo"]);
});

const nodes = ["a", "b", "c"];
const change = fc.record({
  what: fc.constantFrom(
    "block",
    "no block",
    "pool",
    "node",
    "namespace",
    "no namespace",
    "config",
    "drain",
    "reconnect",
  ),
  index: fc.nat(4),
  owner: fc.constantFrom(...nodes),
  borrower: fc.option(fc.constantFrom(...nodes), { nil: undefined }),
  selects: fc.boolean(),
  room: fc.nat(3),
  client: fc.nat(2),
});

interface Client {
  session: Session;
  readonly scope: Scope;
  readonly holds: Map<string, Objects[StreamedKind]>;
}

test("after any changes and drains, what a client holds is exactly what concerns it", () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60, size: "max" }), (changes) => {
      const store = emptyStore();
      const audience = new Audience(store);
      store.listen((told) => audience.tell(told));
      const scopes: Scope[] = [nodeA, { kind: "node", node: "b" as NodeName }, { kind: "all" }];
      const clients = scopes.map((scope): Client => {
        const session = new Session(scope, audience, store, []);
        audience.join(session);
        return { session, scope, holds: new Map() };
      });
      for (const [index, step] of changes.entries()) apply(store, audience, clients, step, index + 2);
      for (const client of clients) {
        take(client, Number.POSITIVE_INFINITY);
        assert.deepEqual(contents(client.holds), contents(concerns(store, client.scope)));
        assert.equal(client.session.behind, 0);
      }
    }),
    { numRuns: 300 },
  );
});

type Step = typeof change extends fc.Arbitrary<infer Value> ? Value : never;

function apply(store: Store, audience: Audience, clients: Client[], step: Step, at: number): void {
  const name = `ns-${step.index}`;
  const removal = { uid: "" as Uid, resourceVersion: version(at) };
  switch (step.what) {
    case "block":
      store.put("block", block(step.index, at, step.owner, step.borrower));
      break;
    case "no block":
      store.remove("block", `10-0-${step.index}-0-29`, { ...removal, uid: `block-${step.index}` as Uid });
      store.bookmark("block", version(at));
      break;
    case "pool":
      store.put("pool", pool(at, step.selects ? "has(x)" : ""));
      break;
    case "node":
      store.put("node", node(step.owner, at));
      break;
    case "namespace":
      store.put("namespace", namespace(name, at));
      break;
    case "no namespace":
      store.remove("namespace", name, { ...removal, uid: name as Uid });
      store.bookmark("namespace", version(at));
      break;
    case "config": {
      const meta = { name: "default", uid: "config" as Uid, resourceVersion: version(at) };
      store.put("config", { ...defaultIpamConfig, ...meta, ipCooldownSeconds: at });
      break;
    }
    case "drain":
      take(clients[step.client] as Client, step.room);
      break;
    default: {
      const client = clients[step.client] as Client;
      audience.leave(client.session);
      const have = [...client.holds].map(([key, held]): [StreamedKind, string, string] => {
        const [kind = "", name = ""] = key.split("/");
        return [kind as StreamedKind, name, held.resourceVersion];
      });
      client.session = new Session(client.scope, audience, store, have);
      audience.join(client.session);
    }
  }
}

function take({ session, holds }: Client, room: number): void {
  for (let sent = 0; sent < room; sent++) {
    const next = session.next();
    if (next === undefined) return;
    if (next.type === "gone") assert.ok(holds.delete(`${next.kind}/${next.name}`), "gone is said of what is held");
    if (next.type !== "put") continue;
    const key = `${next.kind}/${next.object.name}`;
    const held = Number(holds.get(key)?.resourceVersion ?? 0);
    assert.ok(Number(next.object.resourceVersion) > held, "never back in time, nothing twice");
    holds.set(key, next.object);
  }
}

/** A change of nothing but the version is not worth a message. */
function contents(objects: Map<string, Objects[StreamedKind]>): Map<string, unknown> {
  return new Map([...objects].map(([key, object]) => [key, { ...object, resourceVersion: "" }]));
}

/** Said once more, in other words than audience.ts uses. */
function concerns(store: Store, scope: Scope): Map<string, Objects[StreamedKind]> {
  const selects = [...store.all("pool").values()].some(({ namespaceSelector }) => namespaceSelector !== "");
  const holds = new Map<string, Objects[StreamedKind]>();
  for (const kind of streamedKinds) {
    for (const object of store.all(kind).values()) {
      if (scope.kind === "node") {
        if (kind === "node" && object.name !== scope.node) continue;
        if (kind === "namespace" && !selects) continue;
        if (kind === "block" && !stakesIn(object as Block).has(scope.node)) continue;
      }
      holds.set(`${kind}/${object.name}`, object);
    }
  }
  return holds;
}
