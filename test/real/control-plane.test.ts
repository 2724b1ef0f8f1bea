// What the real control plane adds to what every API server shows: it loses nothing when it is killed, its record of requests included.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../cluster/api.ts";
import { startControlPlane } from "./control-plane.ts";

test("given an open watch, when the API server is killed and started again, then the watch is on record and all that was written is there", async (t) => {
  const plane = await startControlPlane();
  t.after(() => plane.stop());
  const mark = await plane.mark();
  await plane.admin.create({ apiVersion: "v1", kind: "Namespace", metadata: { name: "kept" } });
  const cut = assert.rejects(plane.admin.call("GET", "/api/v1/namespaces?watch=true"));
  const watched = async () => (await plane.requests(mark)).some((request) => request.verb === "watch");
  await until("the watch has begun", watched);
  await plane.stopApiServer();
  await cut;
  await assert.rejects(plane.admin.call("GET", "/api"));
  await plane.startApiServer();
  assert.equal((await plane.admin.call("GET", "/api/v1/namespaces/kept")).status, 200);
  assert.deepEqual(
    (await plane.requests(mark)).map(({ verb, resource, code }) => [verb, resource, code]),
    [
      ["create", "namespaces", 201],
      ["watch", "namespaces", 200],
      ["get", "namespaces", 200],
    ],
  );
});
