// The lists of pools, blocks and nodes, by the executable as a person starts it, on the embedded API server and on a running cluster.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { cattail, kubeconfigFor } from "../test/cluster/cattail.ts";
import { Cluster, ipPool, prepare } from "../test/cluster/cluster.ts";
import { temporaryFolder } from "../test/cluster/daemon.ts";
import { type EmbeddedApi, startEmbedded } from "../test/cluster/embedded.ts";
import { agentAccount } from "../test/cluster/install.ts";
import { newSandbox } from "../test/cluster/runtime.ts";
import { settled } from "../test/cluster/settled.ts";

let api: EmbeddedApi;
let cluster: Cluster;
let config: string;

before(
  async () => {
    api = await startEmbedded();
    const folder = await temporaryFolder("ct");
    const pools = [ipPool("blue", "10.20.0.0/24"), ipPool("off", "10.30.0.0/24", { disabled: true })];
    const options = { api, folder, nodes: ["node-a", "node-b"], pools, namespace: "demo" };
    await prepare(options);
    cluster = await Cluster.start(options);
    config = await kubeconfigFor(api, folder);
    assert.ok((await cluster.agent("node-a").runtime().add(newSandbox("demo", "web"))).ok);
    await settled(async () => assert.ok(((await blue()).warm ?? 0) > 0));
  },
  { timeout: 60_000 },
);

after(async () => {
  await cluster?.stop();
  await api?.stop();
});

async function blue(...flags: string[]) {
  const { status, stdout, stderr } = await cattail([
    "pools",
    "blue",
    "-ojson",
    "--kubeconfig",
    config,
    "--direct",
    ...flags,
  ]);
  assert.equal(status, 0, stderr);
  const { items } = JSON.parse(stdout);
  return (items as { addresses: Record<string, number> }[])[0]?.addresses ?? {};
}

test("the states of a pool's addresses sum to its size, and are the same from the API server and from a server", async () => {
  await settled(async () => {
    const direct = await blue();
    assert.equal(
      Object.values(direct).reduce((sum, count) => sum + count, 0),
      256,
    );
    assert.equal(direct.owned, 1);
    const { stdout } = await cattail(["pools", "blue", "-ojson", "--server", cluster.server.adminUrl]);
    assert.deepEqual(JSON.parse(stdout).items[0].addresses, direct);
  });
});

test("given a server's word, then nodes are live, and without it they are unknown and that is said", async () => {
  const asked = await cattail(["nodes", "--no-headers", "--kubeconfig", config, "--server", cluster.server.adminUrl]);
  assert.match(asked.stdout, /^node-a +live +1 +1 +\d+ +0 +\d+\.\ds +\d+\.\d+\.\d+\nnode-b +live +/);
  const direct = await cattail(["nodes", "node-b", "--no-headers", "--kubeconfig", config, "--direct"]);
  assert.match(direct.stdout, /^node-b +unknown +/);
  assert.match(direct.stderr, /no server was asked/);
});

test("blocks are listed by node and by pool, in any form, and an empty list says so", async () => {
  const list = (...flags: string[]) => cattail(["blocks", "--kubeconfig", config, "--direct", ...flags]);
  assert.match(
    (await list("--node", "node-a", "-owide")).stdout,
    /^BLOCK .*BORROWERS\n10\.20\.0\.\d+\/26 +node-a +blue .*\n$/,
  );
  assert.match((await list("--node=node-a", "-oname")).stdout, /^block\/10-20-0-\d+-26\n$/);
  const { status, stdout, stderr } = await list("--pool", "off");
  assert.deepEqual([status, stdout], [0, ""]);
  assert.match(stderr, /No block is so/);
});

test("a name that nothing has ends with 2, a cluster that is not there with 3, one that refuses us with 4", async () => {
  const wrong = await cattail(["pools", "bule", "--kubeconfig", config, "--direct"]);
  assert.equal(wrong.status, 2);
  assert.match(wrong.stderr, /there is no pool "bule" \(reason BadRequest\)\. Did you mean "blue"\?/);
  assert.equal((await cattail(["pools", "--server", "http://127.0.0.1:1"])).status, 3);
  const stranger = await kubeconfigFor(api, await temporaryFolder("ct"), agentAccount);
  assert.equal((await cattail(["pools", "--kubeconfig", stranger, "--direct", "--api-group", "crd"])).status, 4);
});
