// Server and stream against an API server: who may come in, what a node is told, what its wishes leave in Calico's objects.
// Agents are played by test/stream-client.ts; the chain with real agents is in chain-suite.ts.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { apiPath } from "../../shared/calico/names.ts";
import type { Intent } from "../../shared/protocol/stream.ts";
import { Refused, StreamClient } from "../stream-client.ts";
import { type ApiClient, type RequestMark, type TestApi, until } from "./api.ts";
import { ipPool, prepare, tokenAudience } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { agentAccount, serverAccount, userOf } from "./install.ts";
import { type ServerInProcess, serverAt, serverInProcess } from "./server-in-process.ts";

const nodes = ["node-a", "node-b", "node-c", "node-d"];
const blockOfNodeA = "10.10.0.80/29";
const nameOfBlock = "10-10-0-80-29";

export function streamTests(start: () => Promise<TestApi>): void {
  describe("the stream", { timeout: 120_000 }, () => {
    let api: TestApi;
    let server: ServerInProcess;
    let other: ServerInProcess;
    const clients: StreamClient[] = [];

    before(async () => {
      api = await start();
      const pools = [ipPool("pool-v4", "10.10.0.0/24", { blockSize: 29 })];
      await prepare({ api, folder: await temporaryFolder("ct"), nodes, pools, namespace: "demo" });
      [server, other] = await Promise.all([serverInProcess(api.admin), serverInProcess(api.admin)]);
      await Promise.all([server.ready(), other.ready()]);
    });

    after(async () => {
      for (const client of clients) client.ws.terminate();
      await Promise.all([server?.stop(), other?.stop()]);
      await api?.stop();
    });

    async function connect(node: string, to = server): Promise<StreamClient> {
      const client = await StreamClient.connect({ url: to.streamUrl, token: await tokenOf(api.admin, node) });
      clients.push(client);
      return client;
    }

    async function greeted(node: string, to = server): Promise<StreamClient> {
      const client = await connect(node, to);
      await client.hello(node);
      await client.next("synced");
      return client;
    }

    async function object(kind: "block" | "affinity" | "handle", name: string): Promise<Stored | undefined> {
      const answer = await api.admin.call("GET", apiPath("crd", kind, name));
      return answer.status === 200 ? (answer.body as Stored) : undefined;
    }

    async function writesSince(mark: RequestMark): Promise<string[]> {
      const seen = await api.requests(mark);
      return seen
        .filter(({ user, verb }) => user === userOf(serverAccount) && verb !== "watch" && verb !== "list")
        .filter(({ resource }) => resource !== "leases")
        .map(({ verb, resource, code }) => `${verb} ${resource} ${code}`);
    }

    test("given a token that is not an agent's, then the server says why", async () => {
      const refused = async (token?: string): Promise<Refused> => {
        const options = token === undefined ? {} : { token };
        return StreamClient.connect({ url: server.streamUrl, ...options }).then(
          () => assert.fail("was let in"),
          (error: Refused) => error,
        );
      };
      const { namespace, name } = agentAccount;
      assert.equal((await refused()).status, 401);
      assert.equal((await refused("not-a-token")).status, 401);
      assert.equal((await refused(await api.admin.createToken(namespace, name))).status, 401);
      const audiences = [tokenAudience];
      const foreign = await refused(
        await api.admin.createToken(serverAccount.namespace, serverAccount.name, { audiences }),
      );
      assert.equal(foreign.status, 403);
      assert.match(foreign.message, /cattail-system\/cattail-agent \(option auth.agents\)/);
      const unbound = await refused(await api.admin.createToken(namespace, name, { audiences }));
      assert.equal(unbound.status, 403);
      assert.match(unbound.message, /names no node: it must be a pod's own, from a projected volume/);
    });

    test("given a node's token, then no other node can be spoken for", async () => {
      const client = await connect("node-b");
      client.hello("node-a").catch(() => {});
      assert.equal((await client.closed).code, 4403);
    });

    test("one pod's address: block claimed, handle and address written, both given back, in Calico's order and with no read", async () => {
      const client = await greeted("node-a");
      let mark = await api.mark();
      const claimed = await client.claim(["pool-v4"]);
      assert.equal(claimed.block?.cidr, blockOfNodeA, JSON.stringify(claimed.problem));
      assert.deepEqual(await writesSince(mark), [
        "create blockaffinities 201",
        "create ipamblocks 201",
        "patch blockaffinities 200",
      ]);
      assert.deepEqual((await object("affinity", "node-a-10-10-0-80-29"))?.spec, {
        cidr: blockOfNodeA,
        deleted: "false",
        node: "node-a",
        state: "confirmed",
        type: "host",
      });

      mark = await api.mark();
      const attributes = { node: "node-a", pod: "p1", namespace: "demo", timestamp: "2026-12-01 14:56:31.9 +0000 UTC" };
      const reserve: Intent = { ordinal: 0, expect: null, become: { handle: "k8s-pod-network.c1", attributes } };
      const reserved = await client.commit(blockOfNodeA, [reserve]);
      assert.deepEqual(reserved.results, ["applied"], JSON.stringify(reserved.problem));
      assert.deepEqual(await writesSince(mark), ["create ipamhandles 201", "patch ipamblocks 200"]);
      const block = await object("block", nameOfBlock);
      const started = BigInt(claimed.block?.sequenceNumber ?? 0);
      assert.deepEqual(block?.spec, {
        affinity: "host:node-a",
        affinityClaimTime: claimed.block?.affinityClaimTime,
        allocations: [0, null, null, null, null, null, null, null],
        attributes: [{ handle_id: "k8s-pod-network.c1", secondary: attributes }],
        cidr: blockOfNodeA,
        deleted: false,
        sequenceNumber: started + 1n,
        sequenceNumberForAllocation: { "0": started },
        strictAffinity: false,
        unallocated: [1, 2, 3, 4, 5, 6, 7],
      });
      assert.deepEqual(block?.metadata.annotations, { "projectcalico.org/metadata": "{}" });
      assert.deepEqual((await object("handle", "k8s-pod-network.c1"))?.spec, {
        block: { [blockOfNodeA]: 1 },
        deleted: false,
        handleID: "k8s-pod-network.c1",
      });

      mark = await api.mark();
      const expect = { handle: "k8s-pod-network.c1", sequence: String(started) };
      const released = await client.commit(blockOfNodeA, [{ ordinal: 0, expect, become: null }]);
      assert.deepEqual(released.results, ["applied"], JSON.stringify(released.problem));
      await server.idle();
      assert.deepEqual(await writesSince(mark), ["patch ipamblocks 200", "delete ipamhandles 200"]);
      const freed = (await object("block", nameOfBlock))?.spec;
      assert.deepEqual([freed?.attributes, freed?.unallocated], [[], [1, 2, 3, 4, 5, 6, 7, 0]]);
      assert.equal(await object("handle", "k8s-pod-network.c1"), undefined);
      // With an answer or by itself, when the watch was quicker, but never both.
      for (const answer of [reserved, released]) {
        const told = client.messages.filter((message) => message.type === "put" && message.object.name === nameOfBlock);
        const version = answer.block?.resourceVersion;
        assert.ok(told.every((message) => message.type !== "put" || message.object.resourceVersion !== version));
      }
      assert.deepEqual(client.block(nameOfBlock)?.unallocated, [1, 2, 3, 4, 5, 6, 7, 0]);
    });

    test("what others change reaches whom it concerns, at every server", async () => {
      const [here, there, bystander] = [
        await greeted("node-b"),
        await greeted("node-b", other),
        await greeted("node-c"),
      ];
      const claimed = (await here.claim(["pool-v4"])).block;
      assert.ok(claimed);
      await there.until(() => there.block(claimed.name));
      await api.admin.must("PATCH", apiPath("crd", "pool", "pool-v4"), { spec: { disabled: true } });
      await Promise.all(
        [there, bystander].map((client) =>
          client.until(() => Object(client.holds.get("pool/pool-v4")).disabled === true),
        ),
      );
      await api.admin.must("PATCH", apiPath("crd", "pool", "pool-v4"), { spec: { disabled: false } });
      await api.admin.must("DELETE", apiPath("crd", "block", claimed.name));
      await there.until(() => there.block(claimed.name) === undefined);
      assert.equal(bystander.block(claimed.name), undefined);
      await api.admin.must("DELETE", apiPath("crd", "affinity", `node-b-${claimed.name}`));
    });

    test("given two servers and every node at both, then blocks have one owner and addresses one holder", async () => {
      const pairs = await Promise.all(
        nodes.map(async (node) => ({ node, at: [await greeted(node), await connectAgain(node)] })),
      );
      async function connectAgain(node: string): Promise<StreamClient> {
        return greeted(node, other);
      }
      const held: string[] = [];
      await Promise.all(
        pairs.flatMap(({ node, at }) =>
          at.map(async (client, replica) => {
            const claimed = await client.claim(["pool-v4"]);
            assert.ok(claimed.block, JSON.stringify(claimed.problem));
            assert.equal(claimed.block.affinity, `host:${node}`);
            const wishes = [0, 1, 2, 3].map((ordinal): Intent => {
              const handle = `net.${node}-${replica}-${ordinal}`;
              return {
                ordinal,
                expect: null,
                become: { handle, attributes: { node, pod: handle, namespace: "demo" } },
              };
            });
            const block = claimed.block.cidr;
            const acks = await Promise.all(wishes.map((intent) => client.commit(block, [intent])));
            acks.forEach((ack, ordinal) => {
              if (ack.results?.[0] === "applied") held.push(`${block} ${ordinal}`);
              else assert.deepEqual(ack.results, ["expectation"], JSON.stringify(ack.problem));
            });
          }),
        ),
      );
      assert.equal(held.length, nodes.length * 4);
      assert.equal(new Set(held).size, held.length);
    });

    test("given a locked datastore, then nothing is written and the agent is told why", async () => {
      const client = await greeted("node-d");
      const lock = async (datastoreReady: boolean): Promise<void> => {
        await api.admin.must("PATCH", apiPath("crd", "cluster", "default"), { spec: { datastoreReady } });
        await client.until(() => Object(client.holds.get("cluster/default")).datastoreReady === datastoreReady);
      };
      await lock(false);
      const mark = await api.mark();
      const refused = await client.commit("10.10.0.0/29", [{ ordinal: 7, expect: null, become: null }]);
      assert.equal(refused.problem?.reason, "DatastoreLocked");
      assert.equal((await client.claim(["pool-v4"], [])).problem?.reason, "DatastoreLocked");
      assert.deepEqual(await writesSince(mark), []);
      await lock(true);
    });

    test("given an agent's ping, then its lease is renewed, by whichever server, for as long as the leader's Lease says", async () => {
      for (const to of [server, other]) {
        const client = await greeted("node-c", to);
        client.send({ type: "ping", sent: 5 });
        const beat = await client.until(() =>
          client.messages.find(
            (message) => message.type === "beat" && message.echo === 5 && message.node === "present",
          ),
        );
        assert.deepEqual(Object(beat).lease, { limitMs: 45 * 60_000 });
      }
      const path = "/apis/coordination.k8s.io/v1/namespaces/cattail-system/leases/cattail-reaper";
      const { metadata, spec } = (await api.admin.must("GET", path)) as { metadata: object; spec: object };
      assert.match(String(Object(spec).holderIdentity), /_[0-9a-f]{16}$/);
      assert.equal(Object(metadata).annotations["cattail.io/offline-limit-ms"], String(45 * 60_000));
    });

    test("given what an agent has to report, then an Event says so", async () => {
      const client = await greeted("node-c");
      const about = { kind: "pod", namespace: "demo", name: "cart", uid: "uid-1" } as const;
      client.send({
        type: "report",
        reason: "AddressConflict",
        ...about,
        note: "10.10.0.7 was taken by another writer",
      });
      const events = async (): Promise<unknown[]> => {
        const list = await api.admin.must("GET", "/apis/events.k8s.io/v1/namespaces/demo/events");
        return (list as { items: { reason: string }[] }).items.filter(({ reason }) => reason === "AddressConflict");
      };
      await until("the Event is there", async () => (await events()).length > 0);
      const [event] = (await events()) as { regarding: object; note: string; type: string }[];
      assert.deepEqual(
        [event?.regarding, event?.note, event?.type],
        [{ apiVersion: "v1", ...about, kind: "Pod" }, "10.10.0.7 was taken by another writer", "Warning"],
      );
    });

    test("given handles to be written late, then they are, from what the node's blocks say", async () => {
      const client = await greeted("node-c");
      const claimed = (await client.claim(["pool-v4"])).block;
      assert.ok(claimed);
      const become = { handle: "net.late", attributes: { node: "node-c", pod: "late", namespace: "demo" } };
      const ordinal = claimed.unallocated[0] ?? 0;
      const [reserve]: Intent[] = [{ ordinal, expect: null, become }];
      assert.ok(reserve);
      assert.deepEqual((await client.commit(claimed.cidr, [reserve], "off")).results, ["applied"]);
      assert.equal(await object("handle", "net.late"), undefined);
      client.send({ type: "index", id: 77, handles: ["net.late", "net.gone"] });
      await client.until(() => client.messages.find((message) => message.type === "indexed" && message.id === 77));
      assert.deepEqual((await object("handle", "net.late"))?.spec.block, { [claimed.cidr]: 1 });
      assert.equal(await object("handle", "net.gone"), undefined);
    });

    test("given a Node that is deleted and made again, then its agent is told, and the old token lets nobody in any more", async () => {
      const name = "node-z";
      const node = { apiVersion: "v1", kind: "Node", metadata: { name } };
      await api.admin.create(node);
      const token = await tokenOf(api.admin, name);
      const client = await StreamClient.connect({ url: server.streamUrl, token });
      clients.push(client);
      await client.hello(name);
      client.send({ type: "ping", sent: 1 });
      await client.until(() =>
        client.messages.some((message) => message.type === "beat" && message.lease !== undefined),
      );
      await api.admin.must("DELETE", `/api/v1/nodes/${name}`);
      await client.until(() => client.messages.some((message) => message.type === "beat" && message.node === "gone"));
      await api.admin.create(node);
      assert.deepEqual(await client.closed, { code: 4401, reason: "the Node of this name is another one now" });
      const refused = await StreamClient.connect({ url: other.streamUrl, token }).catch((error: Refused) => error);
      assert.ok(refused instanceof Refused);
      assert.equal(refused.status, 403);
      assert.match(refused.message, /the token is of an earlier Node named node-z/);
      await api.admin.must("DELETE", `/api/v1/nodes/${name}`);
    });

    test("given a client that comes back to another server, then it is sent only what differs", async () => {
      const client = await greeted("node-a");
      const have = [...client.holds].map(([key, { name, resourceVersion }]): [never, string, string] => [
        key.slice(0, key.indexOf("/")) as never,
        name,
        resourceVersion,
      ]);
      const { lineage } = await client.next("welcome");
      await client.close();
      const again = await connect("node-a", other);
      await again.hello("node-a", { lineage, have });
      await again.next("synced");
      assert.deepEqual(
        again.messages.map(({ type }) => type).filter((type) => type !== "beat"),
        ["welcome", "synced"],
      );
    });

    test("given a server that stops, then its clients are told, and those that come are turned away", async () => {
      const third = await serverInProcess(api.admin);
      await third.ready();
      const client = await greeted("node-a", third);
      const stopped = third.stop();
      assert.deepEqual(third.problems(), ["[-]streams failed: draining"]);
      assert.equal((await client.next("bye")).reason, "this server stops");
      assert.equal((await client.closed).code, 1001);
      await stopped;
      await assert.rejects(connect("node-a", third));
    });

    test("given no API server, then the server runs, says what it waits for, and lets nobody in", async () => {
      const lonely = await serverAt("http://127.0.0.1:1", {});
      assert.match(
        lonely.problems().join("\n"),
        /\[-\]discovery failed: .*\n\[-\]synced failed: not read yet: pool, block/,
      );
      const error = await StreamClient.connect({ url: lonely.streamUrl, token: "any" }).catch(
        (error: Refused) => error,
      );
      assert.ok(error instanceof Refused);
      assert.deepEqual([error.status, error.message], [503, "this server has not reached the API server yet\n"]);
      await lonely.stop();
    });
  });
}

interface Stored {
  readonly metadata: { readonly annotations?: unknown };
  readonly spec: Readonly<Record<string, unknown>>;
}

/** As kubelet projects it into the agent's pod on this node. */
async function tokenOf(admin: ApiClient, node: string): Promise<string> {
  const { namespace, name: serviceAccountName } = agentAccount;
  const name = `agent-${node}`;
  const metadata = { name, namespace };
  const spec = { nodeName: node, serviceAccountName, containers: [{ name: "agent", image: "cattail" }] };
  const pods = `/api/v1/namespaces/${namespace}/pods`;
  await admin.call("POST", pods, { apiVersion: "v1", kind: "Pod", metadata, spec });
  const pod = (await admin.must("GET", `${pods}/${name}`)) as { metadata: { uid: string } };
  const boundObject = { apiVersion: "v1", kind: "Pod", name, uid: pod.metadata.uid };
  return admin.createToken(namespace, serviceAccountName, { audiences: [tokenAudience], boundObject });
}
