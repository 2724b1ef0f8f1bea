// The machine itself, shown with host-local in our place: whatever fails here is not ours.
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type ControlPlane, startControlPlane } from "../real/control-plane.ts";
import { Machine } from "./machine.ts";
import { addressesOf, assertPing, Pods } from "./pods.ts";

let api: ControlPlane;
let machine: Machine;

before(async () => {
  api = await startControlPlane();
  await api.admin.ensure({ apiVersion: "v1", kind: "Namespace", metadata: { name: "demo" } });
  machine = await Machine.start();
});
after(async () => {
  await machine?.stop();
  await api?.stop();
});

test("given host-local under ptp, when pods are started and deleted, then they ping each other and their addresses return", async (t) => {
  const dataDir = join(machine.folder, "host-local");
  const ipam = { type: "host-local", subnet: "10.80.0.0/20", dataDir, routes: [{ dst: "0.0.0.0/0" }] };
  await machine.setNetwork({ cniVersion: "1.0.0", name: "test", plugins: [{ type: "ptp", ipam }] });
  await machine.startKubelet(api, "node-a");
  const pods = await Pods.watch(api.admin, "demo");
  t.after(() => pods.close());
  const names = ["a", "b", "c"];
  await pods.create("node-a", names);
  const running = await pods.running(names);
  const reserved = async () => (await readdir(join(dataDir, "test"))).filter((name) => /^\d/.test(name)).sort();
  assert.deepEqual(await reserved(), running.flatMap(addressesOf).sort());
  await assertPing(machine, running);
  await pods.delete(names);
  await pods.gone(names);
  assert.deepEqual(await reserved(), []);
});
