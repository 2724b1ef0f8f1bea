// Two servers and one Lease at the embedded API server: who leads, what happens when that one goes, and what a server may say meanwhile.
import assert from "node:assert/strict";
import { test } from "node:test";
import { silent } from "../../test/commit-world.ts";
import { directApi } from "../../test/direct-api.ts";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { Elector } from "./elector.ts";
import { Limits } from "./limits.ts";

const limitMs = 2_700_000;

function world() {
  const clock = manualClock();
  const random = seededRandom(1);
  const api = directApi(clock, random);
  api.server.seed([{ apiVersion: "v1", kind: "Namespace", metadata: { name: "cattail-system" } }]);
  const forbidden: string[] = [];
  const server = (replica: string, configuredMs = limitMs) => {
    const limits = new Limits(configuredMs, undefined);
    const onForbidden = (message: string): void => void forbidden.push(message);
    const elector = new Elector({
      api,
      clock,
      random,
      logger: silent,
      namespace: "cattail-system",
      replica,
      limits,
      onForbidden,
    });
    elector.start();
    return { elector, limits, grant: () => limits.grant(clock.monotonic()) };
  };
  /** Rounds of all servers: what was asked is answered before more time passes. */
  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 1000) {
      await new Promise(setImmediate);
      clock.advance(1000);
    }
    await new Promise(setImmediate);
  };
  const lease = () =>
    api.server.objects("leases", "coordination.k8s.io")[0] as { spec: Record<string, unknown> } | undefined;
  return { api, clock, server, pass, lease, forbidden };
}

test("given two servers, then one leads and renews every quarter of a minute, and both know what may be granted", async () => {
  const { api, server, pass, lease } = world();
  const first = server("one");
  await pass(1000);
  const second = server("two");
  await pass(1000);
  assert.deepEqual([first.elector.leads(), second.elector.leads()], [true, false]);
  assert.deepEqual([first.grant(), second.grant()], [limitMs, limitMs]);
  api.requests.length = 0;
  await pass(600_000);
  assert.deepEqual([first.elector.leads(), second.elector.leads()], [true, false]);
  assert.deepEqual([first.grant(), second.grant()], [limitMs, limitMs]);
  assert.match(String(lease()?.spec.holderIdentity), /^one_[0-9a-f]{16}$/);
  assert.ok(api.requests.length <= 80, `${api.requests.length} requests in ten minutes`);
  await Promise.all([first.elector.stop(), second.elector.stop()]);
});

test("given two servers that start at once, then both know at once what may be granted, though only one leads", async () => {
  const { server, pass } = world();
  const both = [server("one"), server("two")];
  await pass(1000);
  assert.deepEqual(both.map(({ elector }) => elector.leads()).sort(), [false, true]);
  assert.deepEqual(
    both.map(({ grant }) => grant()),
    [limitMs, limitMs],
  );
  for (const { elector } of both) await elector.stop();
});

test("given a leader that stops, then it gives the Lease back and another one takes it at its next look", async () => {
  const { server, pass, lease } = world();
  const first = server("one");
  await pass(1000);
  const second = server("two");
  await first.elector.stop();
  assert.equal(lease()?.spec.holderIdentity, "");
  await pass(19_000);
  assert.equal(second.elector.leads(), true);
  await second.elector.stop();
});

test("given a leader that cannot write, then it stops leading, and with the other one nobody's lease is renewed for long", async () => {
  const { api, server, pass } = world();
  const first = server("one");
  await pass(1000);
  const fault = api.faults.add({ match: { resource: "leases" }, effect: { kind: "drop", when: "before" } });
  await pass(41_000);
  assert.equal(first.elector.leads(), false);
  assert.equal(first.grant(), limitMs);
  await pass(300_000);
  assert.equal(first.grant(), undefined);
  fault.remove();
  await pass(20_000);
  assert.deepEqual([first.elector.leads(), first.grant()], [true, limitMs]);
  await first.elector.stop();
});

test("given servers of different limits, then agents get the lower one and the reaper waits for the higher", async () => {
  const { server, pass, clock } = world();
  const first = server("one", limitMs);
  await pass(1000);
  const second = server("two", 2 * limitMs);
  await pass(20_000);
  assert.deepEqual([first.grant(), second.grant()], [limitMs, limitMs]);
  await first.elector.stop();
  await pass(40_000);
  assert.equal(second.elector.leads(), true);
  assert.deepEqual([second.grant(), second.limits.reapAfter(clock.monotonic())], [2 * limitMs, 4 * limitMs]);
  await second.elector.stop();
});

test("given a Lease that somebody deletes, then it is made again", async () => {
  const { api, server, pass, lease } = world();
  const first = server("one");
  await pass(1000);
  const { uid } = (lease() as unknown as { metadata: { uid: string } }).metadata;
  await api.remove("/apis/coordination.k8s.io/v1/namespaces/cattail-system/leases/cattail-reaper", { uid });
  await pass(40_000);
  assert.ok(lease());
  assert.equal(first.elector.leads(), true);
  await first.elector.stop();
});

test("given no permission, then that is told, and nobody leads", async () => {
  const { api, server, pass, forbidden } = world();
  api.faults.add({ match: { resource: "leases" }, effect: { kind: "status", code: 403, reason: "Forbidden" } });
  const first = server("one");
  await pass(40_000);
  assert.deepEqual([first.elector.leads(), first.grant()], [false, undefined]);
  assert.ok(forbidden.length >= 2);
  await first.elector.stop();
});
