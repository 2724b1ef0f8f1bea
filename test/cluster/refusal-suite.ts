// What a user is told when an address cannot be had, end to end and for any API server: the code, the reason, the numbers, the next step.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { allocations } from "./allocations.ts";
import type { TestApi } from "./api.ts";
import { Cluster, calicosDurability, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { type CniError, type CniOutcome, newSandbox, type Runtime } from "./runtime.ts";
import { settled } from "./settled.ts";

const information = "/apis/crd.projectcalico.org/v1/clusterinformations/default";

export function refusalTests(start: () => Promise<TestApi>): void {
  describe("refusals", { timeout: 120_000 }, () => {
    let api: TestApi;
    let cluster: Cluster;
    let runtime: Runtime;

    before(async () => {
      api = await start();
      const pools = [ipPool("tiny", "10.20.0.0/30", { blockSize: 30 })];
      const [folder, agentFlags] = [await temporaryFolder("ct"), calicosDurability];
      const options = { api, folder, nodes: ["node-a"], pools, namespace: "demo", agentFlags };
      await prepare(options);
      cluster = await Cluster.start(options);
      runtime = cluster.agent("node-a").runtime();
    });

    after(async () => {
      await cluster?.stop();
      await api?.stop();
    });

    test("given a pool of 4 addresses that are held, then the fifth ADD is refused with code 100, the pool's numbers and the next step", async () => {
      const sandboxes = [1, 2, 3, 4].map((index) => newSandbox("demo", `pod-${index}`));
      for (const sandbox of sandboxes) assert.ok((await runtime.add(sandbox)).ok);
      const { code, msg, details = "" } = errorOf(await runtime.add(newSandbox("demo", "pod-5")));
      assert.equal(code, 100);
      assert.match(msg, /^no address for pod demo\/pod-5: .*\(reason PoolExhausted, request [0-9a-f]{8}\)\. \S/);
      assert.match(details, /tiny/);
      for (const sandbox of sandboxes) assert.ok((await runtime.del(sandbox)).ok);
      await settled(async () => assert.equal((await allocations(api.admin)).owners.size, 0));
    });

    test("given a locked datastore, then nothing is written: ADD is refused with code 11, DEL succeeds and is written once it is unlocked", async () => {
      const held = newSandbox("demo", "before");
      assert.ok((await runtime.add(held)).ok);
      await api.admin.must("PATCH", information, { spec: { datastoreReady: false } });
      await settled(async () => {
        const { code, msg } = errorOf(await runtime.add(newSandbox("demo", "during")));
        assert.equal(code, 11);
        assert.match(msg, /\(reason DatastoreLocked, request [0-9a-f]{8}\)/);
      });
      const locked = await allocations(api.admin);
      assert.ok((await runtime.del(held)).ok);
      assert.deepEqual(await allocations(api.admin), locked);

      await api.admin.must("PATCH", information, { spec: { datastoreReady: true } });
      await settled(async () => assert.deepEqual(await allocations(api.admin), { owners: new Map(), handles: [] }));
    });
  });
}

function errorOf(outcome: CniOutcome): CniError {
  assert.ok(!outcome.ok, JSON.stringify(outcome));
  return outcome.error;
}
