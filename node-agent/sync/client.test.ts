import assert from "node:assert/strict";
import { test } from "node:test";
import type { Instant } from "../../shared/kinds.ts";
import type { ServerMessage } from "../../shared/protocol/stream.ts";
import type { Random } from "../../shared/world.ts";
import {
  type ClientEffect,
  type ClientEvent,
  createClient,
  longestBackOffMs,
  nextTick,
  openingMs,
  probeMs,
  stepClient,
} from "./client.ts";

/** Always draws the last number it may. */
const last: Random = { below: (limit) => limit - 1, hex: () => "" };

const welcome: ServerMessage = {
  type: "welcome",
  protocol: 1,
  version: "1",
  replica: "r1",
  lineage: "l",
  apiGroup: "crd",
  heartbeatMs: 10_000,
  capabilities: [],
};

class Bench {
  readonly client;
  now = 0;

  constructor(urls: readonly string[] = ["a", "b"], random = last) {
    this.client = createClient(urls, random, 0 as Instant);
  }

  send(event: ClientEvent): ClientEffect[] {
    return stepClient(this.client, event, this.now as Instant);
  }

  message(message: ServerMessage): string[] {
    return this.send({ kind: "message", message }).map(({ kind }) => kind);
  }

  /** Moves the clock to the next tick. */
  due(): ClientEffect[] {
    const due = nextTick(this.client);
    assert.ok(due !== undefined);
    this.now = Math.max(this.now, due);
    return this.send({ kind: "tick" });
  }

  live(): this {
    this.due();
    this.send({ kind: "opened" });
    this.message(welcome);
    assert.deepEqual(this.message({ type: "synced" }), ["deliver", "online"]);
    return this;
  }
}

test("it dials at once, greets when the socket opens, and is online when all has been sent", () => {
  const bench = new Bench();
  assert.deepEqual(bench.due(), [{ kind: "open", url: "b" }]);
  assert.deepEqual(bench.send({ kind: "opened" }), [{ kind: "greet" }]);
  assert.deepEqual(bench.message(welcome), ["deliver"]);
  assert.deepEqual(bench.message({ type: "gone", kind: "pool", name: "x" }), ["deliver"]);
  assert.deepEqual(bench.message({ type: "synced" }), ["deliver", "online"]);
});

test("after a lost connection it tries the next server, after a full-jitter pause that doubles up to its bound", () => {
  const bench = new Bench().live();
  assert.deepEqual(bench.send({ kind: "ended", reason: "closed" }), [{ kind: "offline", reason: "closed" }]);
  const pauses: number[] = [];
  for (let attempt = 0; attempt < 8; attempt++) {
    const before = bench.now;
    assert.deepEqual(bench.due(), [{ kind: "open", url: attempt % 2 === 0 ? "a" : "b" }]);
    pauses.push(bench.now - before + 1);
    bench.send({ kind: "ended", reason: "refused" });
  }
  assert.deepEqual(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, longestBackOffMs, longestBackOffMs]);
});

test("once it was live the pauses begin anew", () => {
  const bench = new Bench();
  for (let attempt = 0; attempt < 5; attempt++) {
    bench.due();
    bench.send({ kind: "ended", reason: "refused" });
  }
  bench.live();
  bench.send({ kind: "ended", reason: "closed" });
  assert.equal(nextTick(bench.client), bench.now + 499);
});

test("silence for three heartbeats ends the connection; any sign of life puts that off", () => {
  const bench = new Bench().live();
  bench.now += 29_999;
  bench.send({ kind: "heard" });
  assert.equal(nextTick(bench.client), bench.now + 30_000);
  assert.deepEqual(bench.due(), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
});

test("while an answer is waited for, silence is asked about and then believed; each sign of life begins anew", () => {
  const bench = new Bench().live();
  bench.now += 9_000;
  bench.send({ kind: "asked" });
  assert.equal(nextTick(bench.client), bench.now + probeMs);
  assert.deepEqual(bench.due(), [{ kind: "probe" }]);
  bench.send({ kind: "heard" });
  assert.deepEqual(bench.due(), [{ kind: "probe" }]);
  const asked = bench.now;
  assert.deepEqual(bench.due(), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
  assert.equal(bench.now, asked + probeMs);
});

test("once all is answered an idle connection costs no more than its heartbeats", () => {
  const bench = new Bench().live();
  bench.send({ kind: "asked" });
  bench.send({ kind: "asked" });
  bench.message({ type: "ack", id: 1, results: [] });
  assert.equal(nextTick(bench.client), bench.now + probeMs);
  bench.message({ type: "claimed", id: 2 });
  assert.equal(nextTick(bench.client), bench.now + 30_000);
  bench.send({ kind: "asked" });
  bench.message({ type: "indexed", id: 3 });
  assert.equal(nextTick(bench.client), bench.now + 30_000);
  assert.deepEqual(bench.due(), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
});

test("what an ended connection was asked is not waited for on the next one", () => {
  const bench = new Bench().live();
  bench.send({ kind: "asked" });
  bench.send({ kind: "ended", reason: "closed" });
  bench.send({ kind: "asked" });
  bench.live();
  assert.equal(nextTick(bench.client), bench.now + 30_000);
});

test("a server that falls silent before it has sent everything is asked for a sign of life as well", () => {
  const bench = new Bench();
  bench.due();
  bench.send({ kind: "opened" });
  bench.message(welcome);
  assert.deepEqual(bench.due(), [{ kind: "probe" }]);
  bench.message({ type: "gone", kind: "pool", name: "x" });
  assert.deepEqual(bench.due(), [{ kind: "probe" }]);
  assert.deepEqual(bench.due(), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
});

test("a probe that is due long ago is put off: this process stood still, and the answers wait in the socket", () => {
  const bench = new Bench().live();
  bench.send({ kind: "asked" });
  bench.now += 60_000;
  assert.deepEqual(bench.send({ kind: "tick" }), []);
  assert.equal(nextTick(bench.client), bench.now + probeMs);
  assert.deepEqual(bench.due(), [{ kind: "probe" }]);
});

test("a tick that comes much too late means that this process stood still: the server gets another heartbeat", () => {
  const bench = new Bench().live();
  bench.now += 60_000;
  assert.deepEqual(bench.send({ kind: "tick" }), []);
  assert.deepEqual(bench.due(), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
});

test("a server that opens and says nothing, or does not open, is given up", () => {
  const bench = new Bench();
  bench.due();
  bench.now += openingMs;
  assert.deepEqual(bench.send({ kind: "tick" }), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
  bench.due();
  bench.send({ kind: "opened" });
  assert.deepEqual(bench.due(), [{ kind: "end" }, { kind: "offline", reason: "timeout" }]);
});

test("after a good-bye answers are still taken, and it comes back when it was told to, elsewhere", () => {
  const bench = new Bench().live();
  assert.deepEqual(bench.message({ type: "bye", reason: "drain", retryAfterMs: 70 }), ["deliver"]);
  assert.deepEqual(bench.message({ type: "ack", id: 1, results: ["applied"] }), ["deliver"]);
  assert.deepEqual(bench.send({ kind: "ended", reason: "closed" }), [{ kind: "offline", reason: "redirect" }]);
  assert.equal(nextTick(bench.client), bench.now + 70);
  assert.deepEqual(bench.due(), [{ kind: "open", url: "a" }]);
});

test("a refusal that names a time is kept to, within bounds", () => {
  const bench = new Bench();
  bench.due();
  bench.send({ kind: "ended", reason: "refused", retryAfterMs: 3_000 });
  assert.equal(nextTick(bench.client), bench.now + 3_000);
  bench.due();
  bench.send({ kind: "ended", reason: "refused", retryAfterMs: 1e9 });
  assert.equal(nextTick(bench.client), bench.now + longestBackOffMs);
});

test("a server of another protocol is left", () => {
  const bench = new Bench();
  bench.due();
  bench.send({ kind: "opened" });
  assert.deepEqual(bench.message({ ...welcome, protocol: 2 }), ["end", "offline"]);
});

test("distrust ends an open connection; stopped it does nothing more", () => {
  const bench = new Bench().live();
  assert.deepEqual(bench.send({ kind: "distrust" }), [{ kind: "end" }, { kind: "offline", reason: "stale" }]);
  assert.deepEqual(bench.send({ kind: "distrust" }), []);
  bench.send({ kind: "stop" });
  assert.deepEqual(bench.send({ kind: "tick" }), []);
  assert.equal(nextTick(bench.client), undefined);
});
