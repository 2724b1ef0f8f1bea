// Which occurrences become Events: one per object and reason, repetitions as a series, few in all and fewer of one source.
import assert from "node:assert/strict";
import { test } from "node:test";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { EventBook, type EventWrite, type Occurrence } from "./book.ts";

const minute = 60_000;

function world() {
  const clock = manualClock("2030-01-01T00:00:00Z");
  const random = seededRandom(1);
  let dropped = 0;
  const onDropped = (): void => void dropped++;
  const book = new EventBook({ group: "crd", random, replica: "server-1", onDropped });
  const note = (what: Partial<Occurrence> = {}): EventWrite | undefined =>
    book.note({ ...pod, ...what }, { at: clock.monotonic(), wall: clock.wall() });
  return { clock, book, note, dropped: () => dropped };
}

const pod: Occurrence = {
  reason: "AddressConflict",
  namespace: "shop",
  name: "cart",
  uid: "uid-1",
  note: "10.0.0.7 was taken",
  source: "node-a",
};

test("given something new, then an Event is made beside its object, as the API demands it", () => {
  const { note } = world();
  const write = note();
  assert.equal(write?.path, "/apis/events.k8s.io/v1/namespaces/shop/events");
  const body = write?.body as { metadata: { name: string } };
  assert.match(body.metadata.name, /^cart\.[0-9a-f]{16}$/);
  assert.deepEqual(body, {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name: body.metadata.name, namespace: "shop" },
    eventTime: "2030-01-01T00:00:00.000000Z",
    reportingController: "cattail.io/server",
    reportingInstance: "server-1",
    action: "Holding",
    reason: "AddressConflict",
    type: "Warning",
    regarding: { apiVersion: "v1", kind: "Pod", namespace: "shop", name: "cart", uid: "uid-1" },
    note: "10.0.0.7 was taken",
  });
});

test("given an object without a namespace, then its Event lies in default, and a vanished Node is known by its name", () => {
  const { note } = world();
  const regarding = (write: EventWrite | undefined): unknown => Object(write?.body).regarding;
  const node = note({ reason: "AgentOffline", namespace: "", name: "node-a", uid: undefined });
  assert.equal(node?.path, "/apis/events.k8s.io/v1/namespaces/default/events");
  assert.deepEqual(regarding(node), { apiVersion: "v1", kind: "Node", name: "node-a", uid: "node-a" });
  const pool = note({ reason: "PoolExhausted", namespace: "", name: "blue", uid: "uid-2" });
  assert.deepEqual(regarding(pool), {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPPool",
    name: "blue",
    uid: "uid-2",
  });
  const server = note({
    reason: "UpstreamForbidden",
    namespace: "cattail-system",
    name: "cattail-server",
    uid: undefined,
  });
  assert.deepEqual(regarding(server), {
    apiVersion: "apps/v1",
    kind: "Deployment",
    namespace: "cattail-system",
    name: "cattail-server",
  });
});

test("given repetitions, then the Event becomes a series, told every ten minutes at most", () => {
  const { clock, book, note } = world();
  const path = `${note()?.path}/${(Object(note({ name: "other" })?.body).metadata as { name: string }).name}`;
  for (let at = 0; at < 9; at++) {
    clock.advance(minute);
    assert.equal(note({ name: "other" }), undefined);
    assert.deepEqual(book.due(clock.monotonic()), []);
  }
  clock.advance(minute);
  const [series, ...rest] = book.due(clock.monotonic());
  assert.deepEqual(rest, [], "what was not repeated is not told again");
  assert.deepEqual([series?.kind, series?.path], ["patch", path]);
  assert.deepEqual(series?.body, { series: { count: 10, lastObservedTime: "2030-01-01T00:09:00.000000Z" } });
  assert.equal(note({ name: "other" }), undefined);
  clock.advance(10 * minute);
  assert.deepEqual(note({ name: "other" })?.body, {
    series: { count: 12, lastObservedTime: "2030-01-01T00:20:00.000000Z" },
  });
});

test("given an hour of silence, then the same is new again; so it is when its Event could not be written", () => {
  const { clock, book, note, dropped } = world();
  const first = note();
  clock.advance(61 * minute);
  assert.deepEqual(book.due(clock.monotonic()), []);
  const second = note();
  assert.equal(second?.kind, "create");
  assert.notEqual(Object(second?.body).metadata.name, Object(first?.body).metadata.name);
  assert.ok(second);
  book.failed(second);
  assert.equal(dropped(), 1);
  assert.equal(note()?.kind, "create");
});

test("given a storm, then so many a minute are raised, of one source fewer, and the others counted", () => {
  const { clock, note, dropped } = world();
  const raised = (source: string, count: number): number =>
    Array.from({ length: count }, (_, index) =>
      note({ source, name: `${source}-${index}-${clock.monotonic()}` }),
    ).filter(Boolean).length;
  assert.equal(raised("node-a", 100), 10);
  assert.equal(dropped(), 90);
  assert.deepEqual([raised("node-b", 10), raised("node-c", 20), raised("node-d", 1)], [10, 10, 0]);
  clock.advance(minute);
  assert.deepEqual([raised("node-d", 20), raised("node-a", 20)], [10, 10]);
});

test("names and notes stay within what the API takes", () => {
  const { note } = world();
  const body = Object(note({ name: "n".repeat(253), note: "x".repeat(5000) })?.body);
  assert.equal(body.metadata.name.length, 253);
  assert.equal(body.note.length, 1024);
});
