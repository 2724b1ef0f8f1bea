// What the embedded API server can do beyond a real one: faults on demand, a log to ask, history to lose, a past to go back to.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { manualClock } from "../manual-world.ts";
import { calicoDefinitions } from "./calico-shell.ts";
import { Client, take } from "./conformance-client-shell.ts";
import type { FaultEffect } from "./faults.ts";
import { asObject, type JsonObject } from "./json.ts";
import { type KubeApi, type KubeApiOptions, startKubeApi } from "./shell.ts";

const nodes = "/api/v1/nodes";

async function running(
  run: (api: KubeApi, client: Client) => Promise<void>,
  options: KubeApiOptions = {},
): Promise<void> {
  const api = await startKubeApi(options);
  const client = new Client({ url: api.url, token: api.adminToken, ca: api.ca });
  try {
    await run(api, client);
  } finally {
    client.close();
    await api.stop();
  }
}

function node(name: string, labels: JsonObject = {}): JsonObject {
  return { apiVersion: "v1", kind: "Node", metadata: { name, labels } };
}

function versionOf(object: unknown): string {
  return String(asObject(asObject(object).metadata).resourceVersion);
}

async function listNames(client: Client, path = nodes): Promise<string> {
  const { items } = (await client.get(path)).object;
  return (Array.isArray(items) ? items : []).map((item) => asObject(asObject(item).metadata).name).join(" ");
}

/** Resolves once the next watch runs. Call it before the watch is asked for. */
function watchBegins(api: KubeApi): Promise<void> {
  return new Promise((resolve) => {
    const stop = api.log.listen((entry) => {
      if (entry.verb !== "watch") return;
      stop();
      resolve();
    });
  });
}

test("a fault meets the requests it is for, as often as it is to, and then no more", () =>
  running(async (api, client) => {
    const fault = api.faults.add({
      match: { verb: ["create", "update"], resource: "nodes" },
      effect: { kind: "status", code: 429, retryAfterSeconds: 7 },
      skip: 1,
      times: 2,
    });
    const codes = [];
    for (const name of ["a", "b", "c", "d"]) codes.push((await client.post(nodes, node(name))).code);
    assert.deepEqual([codes, fault.used, (await client.get(nodes)).code], [[201, 429, 429, 201], 2, 200]);
    assert.equal(await listNames(client), "a d");
    api.faults.add({
      match: { resource: "nodes", name: /^a/ },
      effect: { kind: "status", code: 503, text: "upstream is away" },
    });
    const refused = await client.get(`${nodes}/a`);
    assert.deepEqual([refused.code, refused.text], [503, "upstream is away"]);
    api.faults.clear();
    assert.equal((await client.get(`${nodes}/a`)).code, 200);
  }));

test("a connection can be lost before a write takes effect, and after", () =>
  running(async (api, client) => {
    const dropped = async (name: string, when: "before" | "after"): Promise<void> => {
      api.faults.add({ match: { verb: "create" }, effect: { kind: "drop", when }, times: 1 });
      await assert.rejects(client.post(nodes, node(name)), { code: "ECONNRESET" });
    };
    await dropped("lost", "before");
    await dropped("kept", "after");
    assert.equal(await listNames(client), "kept");
    assert.equal(api.log.since().count({ verb: "create", code: 0 }), 2);
  }));

test("an answer can stop half way, cleanly or not", () =>
  running(async (api, client) => {
    await client.post(nodes, node("a"));
    const whole = (await client.get(nodes)).text;
    api.faults.add({ match: { verb: "list" }, effect: { kind: "truncate", afterBytes: 40, clean: true }, times: 1 });
    await assert.rejects(client.get(nodes), SyntaxError);
    api.faults.add({ match: { verb: "list" }, effect: { kind: "truncate", afterBytes: 40 }, times: 1 });
    await assert.rejects(client.get(nodes), { code: "ECONNRESET" });
    assert.equal((await client.get(nodes)).text, whole);
  }));

test("a watch can end, break, turn into an error, or fall silent", () =>
  running(async (api, client) => {
    for (const name of ["a", "b", "c"]) await client.post(nodes, node(name));
    const watch = () => client.watch(`${nodes}?watch=true&timeoutSeconds=20`);
    const during = (effect: FaultEffect) => api.faults.add({ match: { verb: "watch" }, effect, times: 1 });
    during({ kind: "cut-watch", afterLines: 2 });
    assert.equal((await take(watch(), 9)).length, 2);
    during({ kind: "cut-watch", afterLines: 0 });
    assert.equal((await take(watch(), 9)).length, 0);
    during({ kind: "cut-watch", afterLines: 2, reset: true });
    await assert.rejects(take(watch(), 9), { code: "ECONNRESET" });
    during({ kind: "error-event", code: 410, reason: "Expired" });
    const [error] = await take(watch(), 9);
    assert.deepEqual([error?.type, error?.object.code, error?.object.reason], ["ERROR", 410, "Expired"]);
    during({ kind: "black-hole" });
    const begun = watchBegins(api);
    const silent = take(watch(), 1);
    await begun;
    const first = await Promise.race([silent, client.post(nodes, node("d")).then(() => "nothing")]);
    assert.equal(first, "nothing");
    api.disconnectAll();
    await assert.rejects(silent, { code: "ECONNRESET" });
  }));

test("the log says who asked for what, and what has come since", () =>
  running(async (api, client) => {
    await client.post(nodes, node("a"));
    const mark = api.log.mark();
    await client.get(`${nodes}?limit=5`);
    await client.get(`${nodes}/a`);
    await client.get(`${nodes}/none`);
    await client.get("/version");
    const since = api.log.since(mark);
    assert.deepEqual(since.by("verb", "resource", "code"), {
      "list nodes 200": 1,
      "get nodes 200": 1,
      "get nodes 404": 1,
      "get /version 200": 1,
    });
    assert.deepEqual(
      [since.count({ client: "conformance", user: "kubernetes-admin" }), since.where({ name: "none" }).total],
      [4, 1],
    );
    assert.equal(since.entries[0]?.query, "limit=5");
    assert.equal(api.log.since().total, 5);
  }));

test("compaction makes old versions, pages and watches expire", () =>
  running(async (api, client) => {
    for (const name of ["a", "b", "c"]) await client.post(nodes, node(name));
    const page = await client.get(`${nodes}?limit=1`);
    await client.post(nodes, node("d"));
    api.compact();
    const { continue: token, resourceVersion } = asObject(page.object.metadata);
    const rest = await client.get(`${nodes}?limit=2&continue=${String(token)}`);
    assert.deepEqual([rest.code, rest.object.reason], [410, "Expired"]);
    const inconsistent = String(asObject(rest.object.metadata).continue);
    assert.equal(await listNames(client, `${nodes}?limit=2&continue=${inconsistent}`), "b c");
    const exact = await client.get(`${nodes}?resourceVersion=${String(resourceVersion)}&resourceVersionMatch=Exact`);
    assert.deepEqual([exact.code, exact.object.reason], [410, "Expired"]);
    const [event] = await take(client.watch(`${nodes}?watch=true&resourceVersion=${String(resourceVersion)}`), 2);
    assert.deepEqual([event?.type, event?.object.code], ["ERROR", 410]);
  }));

test("set back, it knows nothing of what came later, and watches end", () =>
  running(
    async (api, client) => {
      await client.post(nodes, node("a"));
      const then = api.version();
      await client.post(nodes, node("b"));
      await client.delete(`/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ippools.crd.projectcalico.org`);
      const begun = watchBegins(api);
      const watch = take(client.watch(`${nodes}?watch=true&resourceVersion=${then}`), 9);
      await begun;
      api.restoreTo(then);
      await watch;
      assert.equal(await listNames(client), "a");
      assert.equal(versionOf((await client.get(nodes)).object), String(then));
      assert.equal((await client.get("/apis/crd.projectcalico.org/v1/ippools")).code, 200, "the definition is back");
      assert.equal((await client.post(nodes, node("b"))).code, 201);
    },
    { seed: calicoDefinitions("crd") },
  ));

test("a watch is served at its reader's pace, however large the state", () =>
  running(async (api, client) => {
    const big = { note: "x".repeat(20_000) };
    api.seed(Array.from({ length: 2000 }, (_, at) => ({ ...node(`n${at}`), status: big })));
    const query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    const events = await take(client.watch(`${nodes}?${query}`), 2001);
    assert.deepEqual([events.length, events.at(-1)?.type], [2001, "BOOKMARK"]);
  }));

test("bookmarks and deadlines follow the given clock", async () => {
  const clock = manualClock();
  await running(
    async (_api, client) => {
      const watch = client.watch(`${nodes}?watch=true&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=300`);
      await client.post(nodes, node("a"));
      assert.equal((await watch.next()).value?.type, "ADDED");
      clock.advance(60_000);
      assert.equal((await watch.next()).value?.type, "BOOKMARK");
      clock.advance(240_000);
      const types = [];
      for await (const event of watch) types.push(event.type);
      assert.deepEqual(types, ["BOOKMARK", "BOOKMARK", "BOOKMARK", "BOOKMARK"]);
    },
    { clock },
  );
  assert.equal(clock.pending(), 0);
});

test("a changed definition cuts its watches, a deleted one takes its objects along", () =>
  running(
    async (api, client) => {
      const definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipreservations.crd.projectcalico.org";
      const path = "/apis/crd.projectcalico.org/v1/ipreservations";
      const object = {
        apiVersion: "crd.projectcalico.org/v1",
        kind: "IPReservation",
        metadata: { name: "a" },
        spec: {},
      };
      await client.post(path, object);
      const from = `${path}?watch=true&resourceVersion=${api.version()}`;
      const first = watchBegins(api);
      const cut = take(client.watch(from), 9);
      await first;
      await client.patch(definition, { spec: { names: { shortNames: ["ipres"] } } });
      assert.deepEqual(await cut, []);
      const second = watchBegins(api);
      const gone = take(client.watch(from), 9);
      await second;
      await client.delete(definition);
      assert.deepEqual(
        (await gone).map((event) => event.type),
        ["DELETED"],
      );
      assert.equal((await client.get(path)).code, 404);
    },
    { seed: calicoDefinitions("crd") },
  ));

test("a namespace takes along what lies in it", () =>
  running(async (api, client) => {
    await client.post("/api/v1/namespaces", { metadata: { name: "shop" } });
    await client.post("/api/v1/namespaces/shop/configmaps", { metadata: { name: "a" }, data: {} });
    assert.equal((await client.delete("/api/v1/namespaces/shop")).code, 200);
    assert.deepEqual([(await client.get("/api/v1/namespaces/shop")).code, api.objects("configmaps").length], [404, 0]);
    assert.equal((await client.delete("/api/v1/namespaces/kube-system")).code, 403);
  }));

test("a kubeconfig names the server, its certificate and a token", async () => {
  const folder = await mkdtemp(join(tmpdir(), "cattail-kube-api-"));
  try {
    await running(
      async (api) => {
        const config = asObject(JSON.parse(await readFile(await api.kubeconfig(join(folder, "config")), "utf8")));
        const text = JSON.stringify(config);
        assert.ok(text.includes(api.url) && text.includes(api.adminToken));
        assert.ok(text.includes(Buffer.from(api.ca ?? "none").toString("base64")));
      },
      { tls: true },
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});
