// Who may clean up: one at a time, whatever is lost, late or decided at the same moment, and whatever the servers' clocks say.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { microTime } from "../../shared/calico/timestamps.ts";
import type { Instant, UnixMs } from "../../shared/kinds.ts";
import { Election, leaseName, readLease, roundMs, termMs } from "./election.ts";

const terms = { grantMs: 2_700_000, owedMs: 2_700_000 };
const at = (ms: number): Instant => ms as Instant;
const wall = Date.parse("2030-01-01T00:00:00Z") as UnixMs;

/** The Lease as an API server keeps it: compare-and-swap on its version. */
class Stored {
  object: Record<string, Record<string, unknown>> | undefined;
  #version = 0;

  write(body: unknown): Record<string, Record<string, unknown>> | undefined {
    const { metadata, spec } = body as Record<string, Record<string, unknown>>;
    if (metadata?.resourceVersion !== this.object?.metadata?.resourceVersion) return undefined;
    const resourceVersion = String(++this.#version);
    this.object = {
      metadata: { ...this.object?.metadata, ...metadata, resourceVersion },
      spec: { ...this.object?.spec, ...spec },
    };
    return this.object;
  }
}

function round(election: Election, stored: Stored, now: number): void {
  if (election.next(at(now)) === "read") election.read(readLease(stored.object), at(now));
  const step = election.next(at(now));
  if (step === "read") return;
  const lease = readLease(stored.write(election.body(step, terms, wall)));
  if (lease === undefined) election.failed();
  else election.written(lease, at(now), at(now));
}

test("given no Lease, then the first server makes it and leads, and the second one waits", () => {
  const stored = new Stored();
  const [first, second] = [new Election("a"), new Election("b")];
  round(first, stored, 0);
  round(second, stored, 1);
  assert.deepEqual([first.leads(at(1)), second.leads(at(1))], [true, false]);
  assert.deepEqual(stored.object, {
    metadata: {
      name: leaseName,
      resourceVersion: "1",
      annotations: { "cattail.io/offline-limit-ms": "2700000", "cattail.io/offline-limit-owed-ms": "2700000" },
    },
    spec: {
      holderIdentity: "a",
      leaseDurationSeconds: 60,
      acquireTime: "2030-01-01T00:00:00.000000Z",
      renewTime: "2030-01-01T00:00:00.000000Z",
      leaseTransitions: 0,
    },
  });
  assert.deepEqual(readLease(stored.object)?.terms, terms);
});

test("given a leader that falls silent, then it stops leading before another takes over, a whole term after it was seen last", () => {
  const stored = new Stored();
  const [first, second] = [new Election("a"), new Election("b")];
  round(first, stored, 0);
  let now = 0;
  for (; !second.leads(at(now)); now += roundMs) round(second, stored, now);
  assert.equal(now - roundMs, termMs + roundMs);
  assert.ok(!first.leads(at(40_000)));
  assert.equal(stored.object?.spec?.leaseTransitions, 1);
  round(first, stored, now);
  assert.equal(first.leads(at(now)), false);
});

test("given a leader that renews, then nobody takes over, however wrong the times in the Lease are", () => {
  const stored = new Stored();
  const [first, second] = [new Election("a"), new Election("b")];
  for (let now = 0; now < 600_000; now += roundMs) {
    round(first, stored, now);
    if (stored.object?.spec) stored.object.spec.renewTime = microTime(0 as UnixMs);
    round(second, stored, now);
    assert.deepEqual([first.leads(at(now)), second.leads(at(now))], [true, false]);
  }
});

test("given a leader that goes, then the next one need not wait", () => {
  const stored = new Stored();
  const [first, second] = [new Election("a"), new Election("b")];
  round(first, stored, 0);
  round(second, stored, 0);
  stored.write(first.resignation(at(10)));
  assert.equal(first.leads(at(10)), false);
  assert.equal(first.resignation(at(10)), undefined);
  round(second, stored, 20);
  assert.equal(second.leads(at(20)), true);
});

test("a Lease of somebody else's making has no terms; what is no Lease is none", () => {
  assert.equal(readLease({ metadata: { resourceVersion: "1" } })?.terms, undefined);
  assert.equal(
    readLease({ metadata: { resourceVersion: "1", annotations: { "cattail.io/offline-limit-ms": "x" } } })?.terms,
    undefined,
  );
  assert.equal(readLease({ spec: [] }), undefined);
  assert.equal(readLease("?"), undefined);
});

test("whatever is lost or late, no two servers lead at once", () => {
  const move = fc.record({
    passMs: fc.integer({ min: 0, max: 30_000 }),
    who: fc.constantFrom(0, 1, 2),
    fate: fc.constantFrom("done", "done", "answer lost", "request lost", "late"),
  });
  fc.assert(
    fc.property(fc.array(move, { maxLength: 200 }), (moves) => {
      const stored = new Stored();
      const servers = ["a", "b", "c"].map((name) => ({ election: new Election(name), late: [] as unknown[] }));
      let now = 0;
      for (const { passMs, who, fate } of moves) {
        now += passMs;
        const server = servers[who];
        assert.ok(server);
        const { election, late } = server;
        for (const body of late.splice(0)) stored.write(body);
        if (election.next(at(now)) === "read") election.read(readLease(stored.object), at(now));
        const step = election.next(at(now));
        if (step !== "read") {
          const sentAt = now;
          const body = election.body(step, terms, wall);
          if (fate === "late") late.push(body);
          const answer = fate === "done" || fate === "answer lost" ? stored.write(body) : undefined;
          now += passMs % 5_000;
          const lease = fate === "done" ? readLease(answer) : undefined;
          if (lease === undefined) election.failed();
          else election.written(lease, at(sentAt), at(now));
        }
        assert.ok(servers.filter(({ election: one }) => one.leads(at(now))).length <= 1);
      }
    }),
    { numRuns: 500 },
  );
});
