// Two whole servers at one API server, on a clock of our own: a Node vanishes, its warm addresses are freed in time and not before, even
// when the server that leads goes meanwhile. On the embedded API server, since no other can be given a clock.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { apiPath, warmHandle } from "../../shared/calico/names.ts";
import type { NodeName } from "../../shared/kinds.ts";
import type { Intent, ServerMessage } from "../../shared/protocol/stream.ts";
import { type ManualClock, manualClock } from "../manual-world.ts";
import { StreamClient } from "../stream-client.ts";
import { agentToken, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { type EmbeddedApi, startEmbedded } from "./embedded.ts";
import { type ServerInProcess, serverInProcess } from "./server-in-process.ts";

const minute = 60_000;
const warmAttributes = { node: "node-a", type: "cattail-warm", "cattail.io/incarnation": "i1" };

let api: EmbeddedApi;
let clock: ManualClock;
let servers: ServerInProcess[];
let client: StreamClient;

before(async () => {
  clock = manualClock();
  api = await startEmbedded({ clock, bookmarkEveryMs: 20_000 });
  const pools = [ipPool("pool-v4", "10.10.0.0/24", { blockSize: 29 })];
  await prepare({ api, folder: await temporaryFolder("ct"), nodes: ["node-a", "node-b"], pools, namespace: "demo" });
  const flags = ["--offline-limit", "5m"];
  servers = [await serverInProcess(api.admin, flags, clock)];
  await passUntil("the first server leads", async () => (await holder()) !== "");
  servers.push(await serverInProcess(api.admin, flags, clock));
  await passUntil("both are ready", async () => servers.every((server) => server.problems().length === 0));
});

after(async () => {
  client?.ws.terminate();
  const stopped = Promise.all(servers.map((server) => server.stop()));
  await passWhile(stopped);
  await api.stop();
});

test("given a Node that vanishes and a leader that goes, then its warm addresses are freed twice the limit later", async () => {
  const [first, second] = servers;
  assert.ok(first && second);
  const token = await agentToken(api.admin, "node-a");
  client = await passWhile(StreamClient.connect({ url: second.streamUrl, token }));
  await client.hello("node-a");
  const block = (await passWhile(client.claim(["pool-v4"]))).block?.cidr ?? "";
  const become = { handle: warmHandle("node-a" as NodeName), attributes: warmAttributes };
  const pod = { handle: "net.c1", attributes: { node: "node-a", pod: "p", namespace: "demo" } };
  const wishes: Intent[] = [
    { ordinal: 0, expect: null, become },
    { ordinal: 1, expect: null, become },
    { ordinal: 2, expect: null, become: pod },
  ];
  assert.deepEqual((await passWhile(client.commit(block, wishes))).results, ["applied", "applied", "applied"]);
  assert.deepEqual(await beatTo(1), { lease: { limitMs: 5 * minute }, node: "present" });

  await api.admin.must("DELETE", "/api/v1/nodes/node-a");
  const deletedAt = clock.monotonic();
  await passUntil("the agent is told", async () =>
    client.messages.some((message) => isBeat(message) && message.node === "gone"),
  );
  assert.deepEqual(await beatTo(2), { lease: undefined, node: "gone" });

  await pass(2 * minute);
  const leader = await holder();
  const stopped = first.stop();
  await passWhile(stopped);
  servers.shift();
  await passUntil("the other server leads", async () => !["", leader].includes(await holder()));

  await pass(deletedAt + 10 * minute - 1000 - clock.monotonic());
  assert.deepEqual(await owners(block), [become.handle, become.handle, "net.c1"]);
  await passUntil("they are freed", async () => (await owners(block)).join() === ",,net.c1");
  const tookMinutes = (clock.monotonic() - deletedAt) / minute;
  assert.ok(tookMinutes <= 15, `${tookMinutes} min`);
  const events = api.kube
    .objects("events", "events.k8s.io")
    .map((event) => `${event.reason} ${Object(event.regarding).name}`);
  assert.deepEqual(events, ["NodeAddressesReleased node-a"]);
});

const isBeat = (message: ServerMessage): message is Extract<ServerMessage, { type: "beat" }> => message.type === "beat";

/** The last answer to a ping, once nothing is undecided any more. */
async function beatTo(sent: number): Promise<{ lease: unknown; node: unknown }> {
  client.send({ type: "ping", sent });
  const find = (): Extract<ServerMessage, { type: "beat" }> | undefined =>
    client.messages.filter(isBeat).findLast(({ echo, node }) => echo === sent && node !== undefined);
  await passUntil("the ping is answered", async () => find() !== undefined);
  return { lease: find()?.lease, node: find()?.node };
}

async function holder(): Promise<string> {
  const path = "/apis/coordination.k8s.io/v1/namespaces/cattail-system/leases/cattail-reaper";
  const { body } = await api.admin.call("GET", path);
  return (body as { spec?: { holderIdentity?: string } }).spec?.holderIdentity ?? "";
}

/** Of the first three addresses. */
async function owners(cidr: string): Promise<string[]> {
  const { spec } = (await api.admin.must("GET", apiPath("crd", "block", cidr.replaceAll(/[./]/g, "-")))) as {
    spec: { allocations: (number | null)[]; attributes: { handle_id: string }[] };
  };
  return spec.allocations.slice(0, 3).map((index) => (index === null ? "" : (spec.attributes[index]?.handle_id ?? "")));
}

/** What is under way is carried out before more time passes: a request of our own is answered after those sent before it. */
async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= stepMs) {
    for (let turn = 0; turn < 3; turn++) await api.admin.call("GET", "/version");
    clock.advance(Math.min(left, stepMs));
  }
}
const stepMs = 2_000;

async function passUntil(what: string, holds: () => Promise<boolean>): Promise<void> {
  for (let passed = 0; !(await holds()); passed += stepMs) {
    assert.ok(passed < 20 * minute, `in vain until ${what}`);
    await pass(stepMs);
  }
}

async function passWhile<T>(work: Promise<T>): Promise<T> {
  let isDone = false;
  const done = work.finally(() => {
    isDone = true;
  });
  done.catch(() => {});
  await passUntil("it is done", async () => isDone);
  return done;
}
