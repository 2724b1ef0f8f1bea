import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Kind, Meta, Node } from "../../shared/calico/resources.ts";
import type { Instant, NodeName, ResourceVersion, Uid } from "../../shared/kinds.ts";
import { refusalOfAnswer, refusalOfEvent } from "../../shared/kube/status.ts";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { type Change, Store } from "../store/store.ts";
import {
  type Effect,
  limits,
  newReflector,
  type ReflectorEvent,
  type Request,
  type Streaming,
  step,
} from "./reflector.ts";
import type { Item, Page, StreamEvent } from "./wire.ts";

/** A reflector of nodes, its store, and a hand on the clock and on the API server's side of the connection. */
class Bench {
  readonly clock = manualClock();
  readonly streaming: Streaming;
  readonly store = new Store(this.clock);
  readonly random;
  readonly reflector;
  readonly sent: { atMs: number; what: Request }[] = [];
  readonly restarts: { atMs: number; reason: string; why: string }[] = [];
  /** "+a" new, "~a" changed, "-a" gone. */
  readonly told: string[] = [];
  abandoned = 0;
  turnsHeld = 0;
  /** False: turns are asked for and not given. */
  givesTurns = true;
  #cancel = () => {};

  constructor(options: { seed?: number; streaming?: Streaming; kind?: Kind } = {}) {
    this.random = seededRandom(options.seed ?? 1);
    this.streaming = options.streaming ?? { support: "no", askAgainAt: Number.POSITIVE_INFINITY as Instant };
    // Every kind behaves alike; nodes are the shortest to write.
    this.reflector = newReflector((options.kind ?? "node") as "node", this.streaming, this.clock.monotonic());
    this.store.listen(({ name, before, after }: Change) =>
      this.told.push(`${before ? (after ? "~" : "-") : "+"}${name}`),
    );
  }

  get nowMs(): number {
    return this.clock.monotonic();
  }

  get last(): Request {
    const last = this.sent.at(-1);
    assert.ok(last, "something was sent");
    return last.what;
  }

  /** What was sent from then on. */
  sentSince(count: number): string[] {
    return this.sent.slice(count).map(({ what }) => (what.kind === "watch" ? `watch ${what.version}` : what.kind));
  }

  start(): this {
    this.feed({ kind: "start", delayMs: 0 });
    this.clock.advance(0);
    return this;
  }

  /** Listed these in one page, and watching from there. */
  watching(version: number, ...nodes: Node[]): this {
    this.start().page({ items: nodes, version });
    this.opened();
    this.told.length = 0;
    return this;
  }

  /** Lets time pass until the next request goes out. */
  untilSent(): void {
    const before = this.sent.length;
    for (let waitedMs = 0; this.sent.length === before; waitedMs += 10) {
      assert.ok(waitedMs <= 2 * limits.longestPauseMs, "something is sent in the end");
      this.clock.advance(10);
    }
  }

  opened(): void {
    this.feed({ kind: "opened", request: this.reflector.request });
  }

  stream(event: StreamEvent<"node">): void {
    this.feed({ kind: "heard", request: this.reflector.request });
    this.feed({ kind: "stream", request: this.reflector.request, event });
  }

  put(item: Node, type: "added" | "modified" = "modified"): void {
    this.stream({ kind: "put", type, item: { legible: true, object: item }, whole: false });
  }

  removed(meta: Meta): void {
    this.stream({ kind: "removed", meta });
  }

  bookmark(version: number, initialEnd = false): void {
    this.stream({ kind: "bookmark", version: rv(version), initialEnd });
  }

  page({ items, version, next = "" }: { items: readonly Node[]; version: number; next?: string }): void {
    const legible: Item<"node">[] = items.map((object) => ({ legible: true, object }));
    const page: Page<"node"> = { kind: "page", items: legible, version: rv(version), next, whole: false };
    this.feed({ kind: "page", request: this.reflector.request, page });
  }

  refused(status: number, body: object | string = "", retryAfter?: string): void {
    const refusal = refusalOfAnswer(status, retryAfter, typeof body === "string" ? body : JSON.stringify(body));
    this.feed({ kind: "refused", request: this.reflector.request, refusal });
  }

  errorEvent(object: unknown): void {
    this.stream({ kind: "error", refusal: refusalOfEvent(object) });
  }

  junk(relist = false): void {
    this.stream({ kind: "junk", what: "noise", relist });
  }

  eof(): void {
    this.feed({ kind: "ended", request: this.reflector.request, how: "eof", message: "end" });
  }

  broken(): void {
    this.feed({ kind: "ended", request: this.reflector.request, how: "broken", message: "ECONNRESET" });
  }

  feed(event: ReflectorEvent<"node">): void {
    const moment = { now: this.clock.monotonic(), random: this.random };
    for (const effect of step(this.reflector, event, moment)) this.#perform(effect);
  }

  #perform(effect: Effect<"node">): void {
    switch (effect.kind) {
      case "send":
        this.sent.push({ atMs: this.nowMs, what: effect.what });
        break;
      case "abandon":
        this.abandoned++;
        break;
      case "wake":
        this.#cancel();
        this.#cancel = this.clock.after(effect.delayMs, () => this.feed({ kind: "woken" }));
        break;
      case "ask-turn":
        if (this.givesTurns) {
          this.turnsHeld++;
          this.clock.after(0, () => this.feed({ kind: "turn" }));
        }
        break;
      case "end-turn":
        this.turnsHeld--;
        break;
      case "put":
        if (effect.item.legible) this.store.put("node", effect.item.object);
        else this.store.hold("node", effect.item.unread);
        break;
      case "remove":
        this.store.remove("node", effect.meta.name, effect.meta);
        break;
      case "replace":
        this.store.replace(
          "node",
          effect.items.flatMap((item) => (item.legible ? item.object : [])),
          effect.version,
        );
        break;
      case "advance":
        this.store.bookmark("node", effect.version);
        break;
      case "opened":
        this.store.opened("node");
        break;
      case "closed":
        this.store.closed("node", effect.heardAt);
        break;
      case "restarted":
        this.restarts.push({ atMs: this.nowMs, reason: effect.reason, why: effect.why });
        break;
      case "sent-whole":
        break;
    }
  }
}

const rv = (version: number): ResourceVersion => String(version) as ResourceVersion;

function node(name: string, version: number, uid = `uid of ${name}`): Node {
  return {
    name: name as NodeName,
    uid: uid as Uid,
    resourceVersion: rv(version),
    labels: { version: String(version) },
  };
}

const status = (code: number, reason: string, more: object = {}) => ({
  kind: "Status",
  code,
  reason,
  message: reason,
  ...more,
});
const expired = status(410, "Expired");
const tooLarge = {
  ...status(504, "Timeout"),
  message: "Too large resource version: 12, current: 3",
  details: { causes: [{ reason: "ResourceVersionTooLarge" }], retryAfterSeconds: 1 },
};
const noStreaming = {
  ...status(422, "Invalid"),
  details: { causes: [{ reason: "FieldValueForbidden", field: "sendInitialEvents" }] },
};
const unknownStreaming = (): Streaming => ({ support: "unknown", askAgainAt: 0 as Instant });

for (const [form, fail] of [
  ["1: a 410 inside the stream", (bench: Bench) => bench.errorEvent(expired)],
  ["2: a 410 as the answer to a watch", (bench: Bench) => bench.refused(410, expired)],
] as const) {
  test(`watch case ${form} leads to one list at least as new, and to exactly the real differences`, () => {
    const bench = new Bench().watching(10, node("stays", 1), node("changes", 2), node("goes", 3));
    bench.bookmark(12);
    const before = bench.sent.length;
    fail(bench);
    bench.clock.advance(5_000);
    assert.deepEqual(bench.last, { kind: "page", atLeast: "12", next: "", limit: 500 });
    bench.page({ items: [node("stays", 1), node("changes", 20), node("comes", 21)], version: 30 });
    assert.deepEqual(bench.told, ["-goes", "~changes", "+comes"]);
    assert.deepEqual(bench.sentSince(before), ["page", "watch 30"]);
    assert.equal(bench.restarts.at(-1)?.reason, "gone");
  });
}

test("watch case 3: a relist that is itself refused as too old or too new is asked for without a version, with pauses", () => {
  const bench = new Bench().watching(10, node("a", 1));
  bench.errorEvent(expired);
  bench.clock.advance(5_000);
  for (const answer of [tooLarge, expired, expired]) {
    const before = bench.sent.length;
    bench.refused(answer.code, answer);
    bench.clock.advance(399);
    assert.equal(bench.sent.length, before, "not at once");
    bench.clock.advance(5_000);
    assert.deepEqual(bench.last, { kind: "page", atLeast: undefined, next: "", limit: 500 });
  }
  assert.deepEqual(bench.told, []);
});

test("watch case 4: after a 429 with Retry-After nothing is sent for that long, then the watch goes on where it was", () => {
  const bench = new Bench().watching(10);
  bench.refused(429, "", "7");
  const before = bench.sent.length;
  bench.clock.advance(6_999);
  assert.equal(bench.sent.length, before);
  bench.clock.advance(1_001);
  assert.deepEqual(bench.sentSince(before), ["watch 10"]);
});

test("watch case 5: a 429 in plain text without Retry-After is backed off from", () => {
  const bench = new Bench().watching(10);
  const starts: number[] = [];
  for (let i = 0; i < 6; i++) {
    bench.refused(429, "too many requests, please try again later");
    bench.clock.advance(limits.longestPauseMs);
    starts.push(bench.sent.at(-1)?.atMs ?? 0);
  }
  assert.deepEqual(bench.sentSince(2), Array(6).fill("watch 10"));
  assert.match(bench.restarts.at(-1)?.why ?? "", /answered 429: too many requests, please/);
});

test("watch case 6: a server without streaming lists is listed in pages at once, and not asked again by others of its group", () => {
  const streaming = unknownStreaming();
  const bench = new Bench({ streaming }).start();
  assert.equal(bench.last.kind, "stream");
  bench.refused(422, noStreaming);
  assert.equal(bench.last.kind, "page");
  assert.equal(bench.nowMs, 0);
  assert.equal(new Bench({ streaming }).start().last.kind, "page");
  assert.equal(
    new Bench({ streaming: unknownStreaming() }).start().last.kind,
    "stream",
    "another group asks for itself",
  );
});

test("watch case 7: an old server that ignores the wish for an end mark is never taken for complete", () => {
  const bench = new Bench({ streaming: unknownStreaming() }).start();
  bench.put(node("a", 1), "added");
  bench.clock.advance(29_999);
  assert.equal(bench.last.kind, "stream");
  bench.clock.advance(1);
  assert.equal(bench.last.kind, "page");
  assert.deepEqual(bench.told, []);
  assert.equal(bench.store.freshness("node").synced, false);
});

test("watch case 7: not even when it goes on sending events", () => {
  const bench = new Bench({ streaming: unknownStreaming() }).start();
  for (let second = 0; second < 300; second += 5) {
    bench.put(node("busy", second + 1), "modified");
    bench.clock.advance(5_000);
  }
  assert.equal(bench.last.kind, "page");
  assert.deepEqual(bench.told, []);
});

test("watch case 8: of a streaming list that is cut nothing is seen, and it is begun again after a pause", () => {
  const bench = new Bench({ streaming: unknownStreaming() }).start();
  for (let i = 0; i < 60; i++) bench.put(node(`n${i}`, i + 1), "added");
  bench.broken();
  assert.deepEqual(bench.told, []);
  assert.equal(bench.sent.length, 1);
  assert.equal(bench.turnsHeld, 0);
  bench.clock.advance(800);
  assert.deepEqual(bench.last, { ...bench.last, kind: "stream", atLeast: undefined });
});

test("watch case 9: what changes or goes while a streaming list is told is right in the end", () => {
  const bench = new Bench({ streaming: unknownStreaming() }).start();
  bench.put(node("changes", 1), "added");
  bench.put(node("goes", 2), "added");
  bench.put(node("changes", 8));
  bench.removed(node("goes", 9));
  bench.put(node("goes", 2), "added");
  bench.put(node("stays", 3), "added");
  bench.bookmark(10, true);
  assert.deepEqual([...bench.store.all("node").keys()].sort(), ["changes", "stays"]);
  assert.equal(bench.store.get("node", "changes")?.resourceVersion, "8");
  assert.equal(bench.store.freshness("node").version, "10");
  assert.equal(bench.streaming.support, "yes");
  bench.put(node("later", 11), "added");
  assert.equal(bench.sent.length, 1, "the stream goes on as a watch");
  assert.deepEqual(bench.told.at(-1), "+later");
});

test("watch case 10: a page that is too old restarts the list in one piece; no page is seen before the last", () => {
  const bench = new Bench().start();
  bench.page({ items: [node("a", 1)], version: 10, next: "t1" });
  bench.page({ items: [node("b", 2)], version: 10, next: "t2" });
  assert.deepEqual(bench.last, { kind: "page", atLeast: undefined, next: "t2", limit: 500 });
  bench.refused(410, { ...expired, metadata: { continue: "inconsistent" } });
  assert.deepEqual(bench.told, []);
  bench.clock.advance(800);
  assert.deepEqual(bench.last, { kind: "page", atLeast: undefined, next: "", limit: 0 });
  bench.page({ items: [node("a", 1), node("c", 12)], version: 12 });
  assert.deepEqual(bench.told, ["+a", "+c"]);
});

test("pages are put together under the version of the first", () => {
  const bench = new Bench().start();
  bench.page({ items: [node("a", 1)], version: 10, next: "t1" });
  bench.page({ items: [node("b", 2)], version: 10 });
  assert.deepEqual(bench.told, ["+a", "+b"]);
  assert.deepEqual(bench.sentSince(2), ["watch 10"]);
  assert.equal(bench.turnsHeld, 0);
});

test("watch case 12: a server that lags is asked for the same version again, a second apart, without a list", () => {
  const bench = new Bench().watching(10);
  for (let i = 0; i < 3; i++) {
    const before = bench.sent.length;
    bench.refused(504, tooLarge);
    bench.clock.advance(999);
    assert.equal(bench.sent.length, before);
    bench.clock.advance(1_001);
    assert.deepEqual(bench.sentSince(before), ["watch 10"]);
  }
  bench.opened();
  bench.put(node("a", 11));
  assert.deepEqual(bench.told, ["+a"]);
});

test("a server that lags for good is listed without a version", () => {
  const bench = new Bench().watching(10);
  while (bench.last.kind === "watch" && bench.sent.length < 100) {
    bench.refused(504, tooLarge);
    bench.clock.advance(3_000);
  }
  assert.equal(bench.sent.length, 2 + limits.lags + 1);
  assert.deepEqual(bench.last, { kind: "page", atLeast: undefined, next: "", limit: 500 });
});

test("lags, like internal errors and noise, are counted in a row: an event in between begins anew", () => {
  const bench = new Bench().watching(10);
  for (let round = 0; round < 3; round++) {
    for (let i = 0; i < limits.lags - 1; i++) {
      bench.refused(504, tooLarge);
      bench.clock.advance(3_000);
    }
    bench.opened();
    bench.bookmark(11 + round);
  }
  assert.deepEqual(bench.sentSince(2).includes("page"), false);
});

test("pauses grow from failure to failure, and are short again after two minutes of health", () => {
  const bench = new Bench().watching(10);
  const pauseMs = (): number => {
    const from = bench.nowMs;
    bench.broken();
    bench.untilSent();
    bench.opened();
    return (bench.sent.at(-1)?.atMs ?? 0) - from;
  };
  const pauses = Array.from({ length: 8 }, pauseMs);
  for (const [i, ms] of pauses.entries()) {
    const fullMs = Math.min(limits.longestPauseMs, limits.firstPauseMs * 2 ** i);
    assert.ok(ms >= fullMs / 2 && ms <= fullMs, `pause ${i} is ${ms} ms`);
  }
  for (let minute = 1; minute <= 3; minute++) {
    bench.clock.advance(60_000);
    bench.bookmark(10 + minute);
  }
  assert.ok(pauseMs() <= limits.firstPauseMs);
});

test("watch case 13: a watch that ends at its deadline is begun again at once from its last bookmark", () => {
  const bench = new Bench().watching(10);
  for (let minute = 1; minute <= 5; minute++) {
    bench.clock.advance(60_000);
    bench.bookmark(10 + minute);
  }
  const before = bench.sent.length;
  bench.eof();
  assert.deepEqual(bench.sentSince(before), ["watch 15"]);
  assert.equal(bench.store.freshness("node").ageMs, 0);
});

test("watch case 14: a server that ends every watch at once is asked at most 8 times in 30 s, and is followed again once it recovers", () => {
  fc.assert(
    fc.property(fc.nat(), (seed) => {
      const bench = new Bench({ seed }).watching(10);
      const from = bench.sent.length - 1;
      for (let i = 0; i < 20; i++) {
        bench.opened();
        bench.eof();
        bench.untilSent();
      }
      const times = bench.sent.slice(from).map(({ atMs }) => atMs);
      assert.equal(times.length, 21);
      assert.ok(times.filter((atMs) => atMs < 30_000).length <= 8);
      bench.opened();
      bench.put(node("a", 11));
      assert.deepEqual(bench.told, ["+a"]);
    }),
  );
});

test("a server that ends every watch after one event is asked once a second at most", () => {
  const bench = new Bench().watching(10);
  for (let i = 0; i < 50; i++) {
    const before = bench.sent.length;
    bench.opened();
    bench.put(node("a", 11 + i));
    bench.eof();
    bench.clock.advance(999);
    assert.equal(bench.sent.length, before);
    bench.clock.advance(1);
    assert.equal(bench.sent.length, before + 1);
  }
});

test("watch case 16: a connection gone silent is given up after 150 s, and the view ages meanwhile from when it was last heard", () => {
  const bench = new Bench().watching(10);
  bench.clock.advance(10_000);
  bench.bookmark(11);
  bench.clock.advance(149_999);
  assert.equal(bench.sent.length, 2);
  assert.equal(bench.store.freshness("node").ageMs, 149_999);
  bench.clock.advance(1);
  assert.equal(bench.restarts.at(-1)?.reason, "timeout");
  assert.equal(bench.store.freshness("node").ageMs, 150_000);
  bench.clock.advance(800);
  assert.deepEqual(bench.sentSince(2), ["watch 11"]);
  bench.opened();
  assert.equal(bench.store.freshness("node").ageMs, 0);
});

test("a watch without headers is given up after 30 s", () => {
  const bench = new Bench().start();
  bench.page({ items: [], version: 10 });
  bench.clock.advance(30_000);
  assert.equal(bench.restarts.at(-1)?.reason, "timeout");
});

test("watch case 17: an hour of nothing but bookmarks is an hour of one watch after another, and nothing to tell", () => {
  const bench = new Bench().watching(10);
  for (let minute = 1; minute <= 60; minute++) {
    bench.clock.advance(60_000);
    bench.bookmark(10 + minute);
    if (minute % 8 === 0) {
      bench.eof();
      bench.opened();
    }
  }
  assert.deepEqual(bench.told, []);
  assert.equal(
    bench.restarts.every(({ reason }) => reason === "closed"),
    true,
  );
  assert.equal(bench.restarts.length, 7);
  assert.equal(bench.store.freshness("node").version, "70");
});

test("watch case 20: a line that is noise ends the stream; a second one in a row leads to a list", () => {
  const bench = new Bench().watching(10);
  bench.junk();
  bench.clock.advance(30_000);
  assert.deepEqual(bench.sentSince(2), ["watch 10"]);
  bench.opened();
  bench.put(node("a", 11));
  bench.junk();
  bench.clock.advance(30_000);
  assert.deepEqual(bench.sentSince(3), ["watch 11"], "an event in between: not in a row");
  bench.opened();
  bench.junk();
  bench.clock.advance(30_000);
  assert.deepEqual(bench.last, { kind: "page", atLeast: "11", next: "", limit: 500 });
});

test("what cannot be taken in from a streaming list is asked for in pages", () => {
  const bench = new Bench({ streaming: unknownStreaming() }).start();
  bench.junk(true);
  bench.clock.advance(800);
  assert.equal(bench.last.kind, "page");
});

test("an event of a new protocol leads to a list", () => {
  const bench = new Bench().watching(10);
  bench.junk(true);
  bench.clock.advance(800);
  assert.equal(bench.last.kind, "page");
});

test("watch case 23: an object made anew during a disconnect is told as gone, then new", () => {
  const bench = new Bench().watching(10, node("a", 1, "first"));
  bench.errorEvent(expired);
  bench.clock.advance(5_000);
  bench.page({ items: [node("a", 15, "second")], version: 20 });
  assert.deepEqual(bench.told, ["-a", "+a"]);
});

test("watch case 24: replayed, doubled and senseless events change nothing", () => {
  const bench = new Bench().watching(10, node("a", 5));
  bench.put(node("a", 5), "added");
  bench.put(node("a", 3));
  bench.removed(node("unknown", 11));
  bench.put(node("b", 12), "added");
  bench.put(node("b", 12), "added");
  assert.deepEqual(bench.told, ["+b"]);
  assert.equal(bench.reflector.version, "12");
  bench.eof();
  assert.equal(bench.store.get("node", "a")?.resourceVersion, "5");
});

test("watch case 25: a consistent list that is older than what we had begins a new epoch with its own content", () => {
  const bench = new Bench().watching(100, node("lost", 90), node("old", 95));
  for (let i = 0; i <= limits.lags; i++) {
    bench.refused(504, tooLarge);
    bench.clock.advance(3_000);
  }
  bench.page({ items: [node("old", 20)], version: 30 });
  assert.equal(bench.store.epoch, 1);
  assert.deepEqual(bench.told, ["-lost", "~old"]);
  assert.deepEqual(bench.sentSince(bench.sent.length - 1), ["watch 30"]);
});

test("watch case 25: a bookmark from before what we have leads to a consistent list", () => {
  const bench = new Bench().watching(100, node("a", 90));
  bench.bookmark(40);
  bench.clock.advance(800);
  assert.deepEqual(bench.last, { kind: "page", atLeast: undefined, next: "", limit: 500 });
  bench.page({ items: [node("a", 20)], version: 40 });
  assert.equal(bench.store.epoch, 1);
});

test("watch case 26: a kind that is no more served is kept until it is back, then listed", () => {
  const bench = new Bench().watching(10, node("a", 1, "first"), node("b", 2));
  bench.clock.advance(2_000);
  bench.eof();
  const notFound = "404 page not found";
  const before = bench.sent.length;
  for (bench.refused(404, notFound); bench.nowMs < 180_000; bench.clock.advance(1_000)) {
    if (bench.reflector.phase.kind !== "waiting") bench.refused(404, notFound);
  }
  assert.deepEqual(bench.told, []);
  const asked = bench.sent.length - before;
  assert.ok(asked >= 180 / 12 && asked <= 180 / 5, `asked ${asked} times`);
  assert.ok(bench.store.freshness("node").ageMs > 170_000);
  bench.clock.advance(10_000);
  bench.page({ items: [node("a", 50, "second")], version: 60 });
  assert.deepEqual(bench.told, ["-a", "-b", "+a"]);
});

test("a missing IPReservation kind counts as empty; no other does", () => {
  const withKind = (kind: Kind) => {
    const bench = new Bench({ kind }).start();
    bench.refused(404, "404 page not found");
    return bench;
  };
  // The bench writes everything as nodes.
  assert.equal(withKind("reservation").store.freshness("node").synced, true);
  assert.match(withKind("reservation").reflector.problem ?? "", /404/);
  assert.equal(withKind("config").store.freshness("node").synced, false);
});

test("watch case 27: a changed CRD closes its watches and is away for a moment: no list, few requests", () => {
  const bench = new Bench().watching(10, node("a", 1));
  bench.clock.advance(60_000);
  const before = bench.sent.length;
  bench.eof();
  bench.refused(503);
  bench.clock.advance(2_000);
  bench.refused(429, "", "1");
  bench.clock.advance(5_000);
  bench.opened();
  bench.put(node("a", 11));
  assert.deepEqual(bench.sentSince(before), ["watch 10", "watch 10", "watch 10"]);
  assert.deepEqual(bench.told, ["~a"]);
});

test("watch case 29: rights taken away are asked for twice a minute at most, and the data stays", () => {
  const bench = new Bench().watching(10, node("a", 1));
  bench.clock.advance(60_000);
  bench.eof();
  const before = bench.sent.length;
  for (const from = bench.nowMs; bench.nowMs < from + 120_000; bench.clock.advance(1_000)) {
    if (bench.reflector.phase.kind !== "waiting") bench.refused(403, status(403, "Forbidden"));
  }
  assert.ok(bench.sent.length - before <= 4);
  assert.match(bench.reflector.problem ?? "", /403 Forbidden/);
  assert.deepEqual(bench.told, []);
  assert.equal(bench.store.freshness("node").synced, true);
  bench.clock.advance(60_000);
  bench.opened();
  bench.bookmark(12);
  assert.equal(bench.reflector.problem, undefined);
});

test("watch case 28: when a fresh token is refused as well, it is tried again after a pause, and nothing is lost", () => {
  const bench = new Bench().watching(10, node("a", 1));
  bench.refused(401, status(401, "Unauthorized"));
  assert.equal(bench.restarts.at(-1)?.reason, "forbidden");
  bench.clock.advance(800);
  assert.deepEqual(bench.sentSince(2), ["watch 10"]);
  assert.deepEqual(bench.told, []);
});

test("watch case 30: who was turned away tries again soon after somebody else got through, at different moments", () => {
  const delays = [1, 2, 3, 4, 5].map((seed) => {
    const bench = new Bench({ seed }).watching(10);
    bench.clock.advance(60_000);
    bench.broken();
    for (let i = 0; i < 6; i++) {
      bench.clock.advance(limits.longestPauseMs);
      bench.broken();
    }
    const before = bench.sent.length;
    const at = bench.nowMs;
    bench.feed({ kind: "reachable" });
    bench.clock.advance(1_000);
    assert.deepEqual(bench.sentSince(before), ["watch 10"]);
    return (bench.sent.at(-1)?.atMs ?? 0) - at;
  });
  assert.ok(new Set(delays).size > 3, `${delays}`);
});

test("watch case 30: who was asked to wait is not woken by the luck of others", () => {
  const bench = new Bench().watching(10);
  bench.refused(429, "", "20");
  bench.feed({ kind: "reachable" });
  bench.clock.advance(19_000);
  assert.equal(bench.sent.length, 2);
});

test("watch case 30: a list waits for its turn, and gives it back however it ends", () => {
  const bench = new Bench();
  bench.givesTurns = false;
  bench.start();
  bench.clock.advance(600_000);
  assert.equal(bench.sent.length, 0);
  bench.turnsHeld++;
  bench.feed({ kind: "turn" });
  assert.equal(bench.last.kind, "page");
  bench.broken();
  assert.equal(bench.turnsHeld, 0);
});

test("watch case 31: internal errors are retried at the same version five times, then listed; for ever with growing pauses", () => {
  const bench = new Bench().watching(10);
  for (let i = 0; i < 6; i++) {
    bench.errorEvent(status(500, "InternalError"));
    bench.clock.advance(limits.longestPauseMs);
    if (bench.last.kind === "watch") bench.opened();
  }
  assert.deepEqual(bench.sentSince(2), [...Array(5).fill("watch 10"), "page"]);
  for (let i = 0; i < 10; i++) {
    const before = bench.nowMs;
    bench.refused(500, status(500, "InternalError"));
    bench.clock.advance(limits.longestPauseMs / 2 - 1);
    assert.ok((bench.sent.at(-1)?.atMs ?? 0) <= before);
    bench.clock.advance(limits.longestPauseMs / 2);
  }
  assert.match(bench.reflector.problem ?? "", /500 InternalError/);
});

test("watch case 31: an error without a code, and one that is no Status, are internal errors too", () => {
  for (const object of [{ kind: "Status", message: "?" }, null, "boom"]) {
    const bench = new Bench().watching(10);
    bench.errorEvent(object);
    bench.clock.advance(5_000);
    assert.deepEqual(bench.sentSince(2), ["watch 10"]);
  }
});

test("watch case 34: a timer that is late because the process stood still grants the stream another period", () => {
  const bench = new Bench().watching(10);
  const late = bench.clock.monotonic() + 600_000;
  const moment = { now: late as Instant, random: bench.random };
  const effects = step(bench.reflector, { kind: "woken" }, moment);
  assert.deepEqual(effects, [{ kind: "wake", delayMs: limits.silenceMs }]);
  const then = { now: (late + limits.silenceMs) as Instant, random: bench.random };
  const [abandon] = step(bench.reflector, { kind: "woken" }, then);
  assert.deepEqual(abandon, { kind: "abandon" }, "but no second one");
});

test("watch case 40: after an hour streaming lists are tried again, and one refusal among many servers counts for an hour", () => {
  const streaming = unknownStreaming();
  const bench = new Bench({ streaming }).start();
  bench.refused(422, noStreaming);
  bench.page({ items: [], version: 10 });
  bench.opened();
  const relist = () => {
    bench.errorEvent(expired);
    bench.clock.advance(5_000);
  };
  bench.clock.advance(60_000);
  bench.bookmark(11);
  relist();
  assert.equal(bench.last.kind, "page");
  bench.page({ items: [], version: 20 });
  bench.opened();
  for (let minute = 0; minute <= 60; minute++) {
    bench.clock.advance(60_000);
    bench.bookmark(21);
  }
  relist();
  assert.equal(bench.last.kind, "stream");
  bench.bookmark(30, true);
  assert.equal(streaming.support, "yes");
});

test("the version of a watch is told on only after what carried it", () => {
  const bench = new Bench().watching(10);
  const moment = { now: bench.clock.monotonic(), random: bench.random };
  const event: StreamEvent<"node"> = {
    kind: "put",
    type: "added",
    item: { legible: true, object: node("a", 11) },
    whole: false,
  };
  const effects = step(bench.reflector, { kind: "stream", request: bench.reflector.request, event }, moment);
  assert.deepEqual(
    effects.map(({ kind }) => kind),
    ["put", "advance"],
  );
});

test("what an abandoned request still brings does not count", () => {
  const bench = new Bench().watching(10);
  const { request } = bench.reflector;
  bench.broken();
  bench.feed({ kind: "stream", request, event: { kind: "removed", meta: node("a", 11) } });
  bench.clock.advance(800);
  const before = bench.sent.length;
  bench.feed({ kind: "ended", request, how: "broken", message: "late" });
  assert.equal(bench.sent.length, before);
  assert.equal(bench.reflector.version, "10");
});

test("watches ask for 300 to 600 seconds, not all for the same", () => {
  const wishes = Array.from({ length: 20 }, (_, seed) => new Bench({ seed }).watching(10).last).map((what) =>
    what.kind === "watch" ? what.timeoutSeconds : 0,
  );
  assert.ok(wishes.every((seconds) => seconds >= 300 && seconds <= 600));
  assert.ok(new Set(wishes).size > 10);
});

/** A correct but unlucky API server: whatever goes wrong, once it behaves again the store has its state, by true differences only. */
test("property: after any faults the store becomes what the API server has, and holds one turn or none throughout", () => {
  const faults = [
    "eof",
    "broken",
    "gone",
    "lag",
    "500",
    "503",
    "429",
    "403",
    "404",
    "junk",
    "young",
    "silent",
  ] as const;
  const moves = fc.array(
    fc.record({
      changes: fc.array(fc.tuple(fc.constantFrom("a", "b", "c"), fc.constantFrom("put", "remove")), { maxLength: 4 }),
      seen: fc.boolean(),
      fault: fc.constantFrom(...faults),
    }),
    { maxLength: 12 },
  );
  fc.assert(
    fc.property(moves, fc.boolean(), fc.nat(), (history, streams, seed) => {
      const bench = new Bench({ seed, ...(streams && { streaming: unknownStreaming() }) }).start();
      let version = 1;
      const cluster = new Map<string, Node>();
      const serve = () => {
        // Answers whatever was asked last, correctly, as of now.
        for (let i = 0; i < 10 && bench.reflector.phase.kind !== "watching"; i++) {
          const { kind } = bench.reflector.phase;
          if (kind === "paging") bench.page({ items: [...cluster.values()], version });
          else if (kind === "streaming") {
            for (const one of cluster.values()) bench.put(one, "added");
            bench.bookmark(version, true);
          } else bench.clock.advance(60_000);
        }
        bench.opened();
        for (const one of cluster.values()) bench.put(one);
        for (const name of ["a", "b", "c"]) {
          if (!cluster.has(name))
            bench.removed({ ...node(name, version), uid: bench.store.get("node", name)?.uid ?? ("none" as Uid) });
        }
      };
      for (const { changes, seen, fault } of history) {
        for (const [name, what] of changes) {
          version++;
          if (what === "put") cluster.set(name, node(name, version, cluster.get(name)?.uid ?? `uid ${version}`));
          else cluster.delete(name);
        }
        if (seen) serve();
        if (fault === "eof") bench.eof();
        if (fault === "broken") bench.broken();
        if (fault === "gone") bench.refused(410, expired);
        if (fault === "lag") bench.refused(504, tooLarge);
        if (fault === "500") bench.errorEvent(status(500, "InternalError"));
        if (fault === "503") bench.refused(503);
        if (fault === "429") bench.refused(429, "", "3");
        if (fault === "403") bench.refused(403);
        if (fault === "404") bench.refused(404);
        if (fault === "junk") bench.junk(true);
        if (fault === "silent") bench.clock.advance(limits.streamLongestMs);
        assert.ok(bench.turnsHeld === 0 || bench.turnsHeld === 1);
        bench.clock.advance(10_000);
      }
      serve();
      assert.deepEqual(new Map(bench.store.all("node")), cluster);
      assert.equal(bench.turnsHeld, 0);
      assert.equal(bench.store.epoch, 0);
      assert.equal(bench.reflector.problem, undefined);
    }),
  );
});
