// Who may do what, and what the record of requests shows of it: tests for any API server, so that the embedded one cannot lie.
// Holds the chart's access rules to the letter as well. How the API server is started is left to whoever declares the tests.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { tokenVerifier } from "../../server/stream/identity.ts";
import { ClusterKeys } from "../../server/stream/signing-keys-shell.ts";
import { apiPath } from "../../shared/calico/names.ts";
import { createApi } from "../../shared/kube/client-shell.ts";
import { Http } from "../../shared/kube/http-shell.ts";
import { createLog } from "../../shared/log.ts";
import { systemClock, systemRandom } from "../../shared/process/world.ts";
import type { Answer, ApiClient, TestApi } from "./api.ts";
import { agentAccount, installAccess, installCrds, type ServiceAccount, serverAccount, userOf } from "./install.ts";

/** `start` is called before the first test; its API server is stopped after the last. */
export function accessTests(start: () => Promise<TestApi>): void {
  let api: TestApi;
  let server: ApiClient;
  let agent: ApiClient;

  before(async () => {
    api = await start();
    await installCrds(api.admin, "crd");
    await installCrds(api.admin, "v3");
    await installAccess(api.admin);
    server = await clientOf(api.admin, serverAccount);
    agent = await clientOf(api.admin, agentAccount);
  });

  after(() => api?.stop());

  test("given the chart's role, then the server may do what it says, verb by verb, and nothing else", async () => {
    for (const [resource, expected] of Object.entries(serverMay)) {
      assert.deepEqual(await allowedVerbs(server, resource), expected, resource);
    }
  });

  test("given the chart's role, then of Leases the server has only its own, which it cannot delete", async () => {
    const { namespace } = serverAccount;
    const leases = "leases.coordination.k8s.io";
    const own = { namespace, name: "cattail-reaper" };
    assert.deepEqual(await allowedVerbs(server, leases, own), ["get", "create", "patch"]);
    assert.deepEqual(await allowedVerbs(server, leases, { namespace, name: "another" }), ["create"]);
    assert.deepEqual(await allowedVerbs(server, leases, { namespace: "default", name: "cattail-reaper" }), []);
    assert.deepEqual(await allowedVerbs(agent, leases, own), []);
  });

  test("given the chart's role, then of Secrets and ConfigMaps the server has only its authority, which it cannot delete", async () => {
    const { namespace } = serverAccount;
    for (const resource of ["secrets", "configmaps"]) {
      const own = { namespace, name: "cattail-authority" };
      assert.deepEqual(await allowedVerbs(server, resource, own), ["get", "patch"]);
      assert.deepEqual(await allowedVerbs(server, resource, { namespace, name: "another" }), []);
      assert.deepEqual(await allowedVerbs(server, resource, { namespace: "default", name: "cattail-authority" }), []);
      assert.deepEqual(await allowedVerbs(agent, resource, own), []);
    }
  });

  test("given the agent's account, then it may do nothing", async () => {
    for (const resource of Object.keys(serverMay)) assert.deepEqual(await allowedVerbs(agent, resource), [], resource);
  });

  for (const group of ["crd", "v3"] as const) {
    test(`given requests by server and agent in group ${group}, then the record shows each with its outcome`, async () => {
      const pools = apiPath(group, "pool");
      const handle = { ...someHandle, apiVersion: pools.slice("/apis/".length, pools.lastIndexOf("/")) };
      const path = apiPath(group, "handle", handle.metadata.name);
      const mark = await api.mark();
      assert.equal((await server.call("GET", pools)).status, 200);
      assert.equal((await server.call("POST", apiPath(group, "handle"), handle)).status, 201);
      assert.equal((await server.call("PATCH", path, { spec: { deleted: true } })).status, 200);
      assert.equal((await server.call("DELETE", path)).status, 200);
      assertForbidden(await server.call("PUT", path, handle));
      assertForbidden(await server.call("POST", pools, {}));
      assertForbidden(await agent.call("GET", pools));
      const seen = await api.requests(mark);
      assert.deepEqual(
        seen.map(({ user, verb, resource, name, code }) => [user, verb, resource, name, code]),
        [
          [userOf(serverAccount), "list", "ippools", "", 200],
          [userOf(serverAccount), "create", "ipamhandles", "", 201],
          [userOf(serverAccount), "patch", "ipamhandles", "some-handle", 200],
          [userOf(serverAccount), "delete", "ipamhandles", "some-handle", 200],
          [userOf(serverAccount), "update", "ipamhandles", "some-handle", 403],
          [userOf(serverAccount), "create", "ippools", "", 403],
          [userOf(agentAccount), "list", "ippools", "", 403],
        ],
      );
      const groupName = handle.apiVersion.split("/")[0];
      assert.ok(seen.every((request) => request.client === "cattail-test" && request.group === groupName));
    });
  }

  test("given an agent's token bound to its pod, then only its audience accepts it, and review and signature name the node", async () => {
    const { namespace, name: serviceAccountName } = agentAccount;
    await api.admin.create({ apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } });
    const spec = { nodeName: "node-a", serviceAccountName, containers: [{ name: "agent", image: "cattail" }] };
    const metadata = { name: "agent-a", namespace };
    const pod = await api.admin.create({ apiVersion: "v1", kind: "Pod", metadata, spec });
    const boundObject = { apiVersion: "v1", kind: "Pod", name: "agent-a", uid: String(pod.metadata.uid) };
    const token = await api.admin.createToken(namespace, serviceAccountName, {
      audiences: ["cattail-server"],
      boundObject,
    });

    assert.equal((await api.admin.as(token).call("GET", "/api")).status, 401);
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview" };
    const asked = { ...review, spec: { token, audiences: ["cattail-server"] } };
    const { status } = (await server.must("POST", "/apis/authentication.k8s.io/v1/tokenreviews", asked)) as {
      status: { authenticated: boolean; user: { username: string; extra: Record<string, string[]> } };
    };
    assert.equal(status.authenticated, true);
    assert.equal(status.user.username, userOf(agentAccount));
    assert.deepEqual(status.user.extra["authentication.kubernetes.io/node-name"], ["node-a"]);

    // The server, with its own rights alone, reads the same out of the token: once it has the keys, without asking anybody.
    const authorization = `Bearer ${server.token}`;
    const connection = {
      server: new URL(server.url),
      credentials: async () => ({ authorization, tls: { ca: server.ca } }),
      refresh: async () => false,
    };
    const http = new Http({ connection, userAgent: "cattail-test", clock: systemClock });
    try {
      const serverApi = createApi(http);
      const { logger } = createLog({ level: "error", format: "json", clock: systemClock, write: () => {} });
      const keys = new ClusterKeys({ api: serverApi, clock: systemClock, logger });
      await keys.prefetch();
      const agents = [`${namespace}/${serviceAccountName}`];
      const rules = { audience: "cattail-server", agents, observers: [] };
      const verifier = tokenVerifier({ api: serverApi, clock: systemClock, random: systemRandom, keys, rules });
      const mark = await api.mark();
      const verdict = await verifier.verify(token);
      const forged = await verifier.verify(`${token.slice(0, -8)}AAAAAAAA`);
      assert.deepEqual(await api.requests(mark), []);
      assert.ok(verdict.kind === "known", JSON.stringify(verdict));
      assert.equal(verdict.identity.node, "node-a");
      const node = (await api.admin.must("GET", "/api/v1/nodes/node-a")) as { metadata: { uid: string } };
      assert.equal(verdict.identity.nodeUid, node.metadata.uid);
      assert.ok(forged.kind === "refused" && /signature is wrong/.test(forged.message), JSON.stringify(forged));
    } finally {
      http.stop();
    }
  });
}

async function clientOf(admin: ApiClient, { namespace, name }: ServiceAccount): Promise<ApiClient> {
  return admin.as(await admin.createToken(namespace, name));
}

const verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

const serverMay: Readonly<Record<string, readonly string[]>> = {
  nodes: ["list", "watch"],
  namespaces: ["list", "watch"],
  pods: [],
  secrets: [],
  events: [],
  "events.events.k8s.io": ["create", "patch"],
  "leases.coordination.k8s.io": [],
  "tokenreviews.authentication.k8s.io": ["create"],
  "clusterrolebindings.rbac.authorization.k8s.io": [],
  ...calicoRules("crd.projectcalico.org"),
  ...calicoRules("projectcalico.org"),
};

function calicoRules(group: string): Record<string, readonly string[]> {
  const read = ["ippools", "ipreservations", "ipamconfigs", "ipamconfigurations", "clusterinformations"];
  const written = ["ipamblocks", "blockaffinities", "ipamhandles"];
  return Object.fromEntries([
    ...read.map((resource) => [`${resource}.${group}`, ["list", "watch"]]),
    ...written.map((resource) => [`${resource}.${group}`, ["get", "list", "watch", "create", "patch", "delete"]]),
  ]);
}

async function allowedVerbs(
  client: ApiClient,
  resourceAndGroup: string,
  object: { readonly namespace?: string; readonly name?: string } = {},
): Promise<string[]> {
  const [resource = "", ...group] = resourceAndGroup.split(".");
  const may = await Promise.all(
    verbs.map(async (verb) => {
      const spec = { resourceAttributes: { verb, resource, group: group.join("."), ...object } };
      const review = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec };
      const answer = await client.must("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review);
      return (answer as { status: { allowed: boolean } }).status.allowed;
    }),
  );
  return verbs.filter((_, at) => may[at]);
}

const someHandle = {
  kind: "IPAMHandle",
  metadata: { name: "some-handle" },
  spec: { handleID: "some-handle", block: { "10.0.0.0/26": 1 }, deleted: false },
};

function assertForbidden({ status, body }: Answer): void {
  assert.equal(status, 403);
  assert.equal((body as { reason: string }).reason, "Forbidden");
}
