// What agents may have said in the server's name, and that a slow or unwilling API server costs Events and nothing else.
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Pool } from "../../shared/calico/resources.ts";
import type { NodeName, ResourceVersion, Uid } from "../../shared/kinds.ts";
import { createLog } from "../../shared/log.ts";
import type { Report } from "../../shared/protocol/stream.ts";
import { type DirectApi, directApi } from "../../test/direct-api.ts";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { Recorder } from "./recorder.ts";

const node = "node-a" as NodeName;

function world(t: TestContext, enabled = true) {
  const clock = manualClock();
  const random = seededRandom(1);
  const api: DirectApi = directApi(clock, random);
  for (const name of ["default", "shop", "cattail-system"])
    api.server.seed([{ apiVersion: "v1", kind: "Namespace", metadata: { name } }]);
  const store = new Store(clock);
  const meta = (name: string) => ({ name, uid: `uid-${name}` as Uid, resourceVersion: "1" as ResourceVersion });
  store.put("node", { ...meta("node-a"), name: node, labels: {} });
  store.put("pool", meta("blue") as Pool);
  let dropped = 0;
  const { logger } = createLog({ level: "error", format: "json", clock, write: () => {} });
  const recorder = new Recorder({
    enabled,
    api,
    store,
    clock,
    logger,
    random,
    group: "crd",
    replica: "server-1",
    namespace: "cattail-system",
    onDropped: () => void dropped++,
  });
  t.after(() => recorder.stop());
  const events = (): string[] =>
    api.server.objects("events", "events.k8s.io").map((event) => {
      const { reason, regarding } = event as { reason: string; regarding: Record<string, string> };
      return `${reason} ${regarding.kind} ${regarding.name} ${regarding.uid}`;
    });
  return { api, clock, recorder, events, dropped: () => dropped };
}

const report: Report = {
  type: "report",
  reason: "AddressConflict",
  kind: "pod",
  namespace: "shop",
  name: "cart",
  note: "taken",
};

test("given what an agent may say, then the API server takes it as an Event, with what is known of its object", async (t) => {
  const { recorder, events, dropped } = world(t);
  recorder.report(node, { ...report, uid: "uid-1" });
  recorder.report(node, { ...report, reason: "JournalRebuilt", kind: "node", namespace: undefined, name: node });
  recorder.report(node, { ...report, reason: "PoolExhausted", kind: "ippool", namespace: undefined, name: "blue" });
  recorder.aboutServer("UpstreamForbidden", "403");
  await recorder.idle();
  assert.deepEqual(events().sort(), [
    "AddressConflict Pod cart uid-1",
    "JournalRebuilt Node node-a uid-node-a",
    "PoolExhausted IPPool blue uid-blue",
    "UpstreamForbidden Deployment cattail-server undefined",
  ]);
  assert.equal(dropped(), 0);
});

test("given what is not an agent's to say, then it is dropped and counted", async (t) => {
  const { recorder, events, dropped } = world(t);
  const wrong: Partial<Report>[] = [
    { reason: "Whatever" },
    { reason: "toString" },
    { reason: "UpstreamForbidden" },
    { kind: "node", name: node },
    { namespace: "" },
    { reason: "JournalRebuilt", kind: "node", namespace: undefined, name: "node-b" },
    { reason: "PoolExhausted", kind: "ippool", namespace: undefined, name: "no-such-pool" },
  ];
  for (const part of wrong) recorder.report(node, { ...report, ...part });
  await recorder.idle();
  assert.deepEqual([events(), dropped()], [[], wrong.length]);
});

test("given an API server that takes no Events, then they are dropped, and raised when they occur again", async (t) => {
  const { api, recorder, events, dropped } = world(t);
  api.faults.add({ match: { resource: "events" }, effect: { kind: "status", code: 403 }, times: 1 });
  recorder.report(node, report);
  await recorder.idle();
  assert.deepEqual([events(), dropped()], [[], 1]);
  recorder.report(node, report);
  await recorder.idle();
  assert.equal(events().length, 1);
});

test("given repetitions and time, then the Event that is there tells of them", async (t) => {
  const { api, clock, recorder } = world(t);
  recorder.aboutNode("AgentOffline", node, "silent");
  await recorder.idle();
  recorder.aboutNode("AgentOffline", node, "silent");
  clock.advance(10 * 60_000);
  await recorder.idle();
  const [event, ...more] = api.server.objects("events", "events.k8s.io");
  assert.deepEqual(more, []);
  assert.equal(Object(event?.series).count, 2);
});

test("given events.enabled false, then none is written and none is dropped", async (t) => {
  const { api, recorder, dropped } = world(t, false);
  recorder.report(node, report);
  recorder.aboutNode("AgentOffline", node, "silent");
  await recorder.idle();
  assert.deepEqual([api.requests, dropped()], [[], 0]);
});
