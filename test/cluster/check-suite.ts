// `cattail check` on any API server: silence on a healthy cluster, faults made on purpose named, and repairs that never touch a live pod's address.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { assign, bump } from "../../shared/calico/block.ts";
import { blockPatch, newHandleObject, readBlock } from "../../shared/calico/codec.ts";
import type { Block } from "../../shared/calico/resources.ts";
import type { BlockCidr, HandleId } from "../../shared/kinds.ts";
import { allocations } from "./allocations.ts";
import type { Manifest, TestApi } from "./api.ts";
import { cattail, kubeconfigFor, type Said } from "./cattail.ts";
import { Cluster, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { newSandbox } from "./runtime.ts";
import { settled } from "./settled.ts";

const blocksPath = "/apis/crd.projectcalico.org/v1/ipamblocks";

interface Report {
  readonly summary: { readonly error: number; readonly warning: number; readonly info: number };
  readonly items: readonly { readonly reason: string; readonly address?: string; readonly handle?: string }[];
}

export function checkTests(start: () => Promise<TestApi>): void {
  describe("check", { timeout: 180_000 }, () => {
    let api: TestApi;
    let cluster: Cluster;
    let live: string;
    let common: string[];

    const check = (...flags: string[]): Promise<Said> => cattail(["check", ...common, "--again", "1s", ...flags]);
    const report = async (...flags: string[]): Promise<Report> => JSON.parse((await check("-ojson", ...flags)).stdout);

    before(async () => {
      api = await start();
      const folder = await temporaryFolder("ct");
      // A runtime that has written nothing down is a whole record.
      const agentFlags = ["--flush-delay", "0s", "--handles", "eager", "--cni-cache-dirs", `${folder}/cni`];
      const pools = [ipPool("blue", "10.20.0.0/26")];
      const options = { api, folder, nodes: ["node-a"], pools, namespace: "demo", agentFlags };
      await prepare(options);
      await mkdir(`${folder}/cni/results`, { recursive: true });
      cluster = await Cluster.start(options);
      common = ["--kubeconfig", await kubeconfigFor(api, folder), "--agent", cluster.agent("node-a").adminUrl];
      const added = await cluster.agent("node-a").runtime().add(newSandbox("demo", "web"));
      assert.ok(added.ok);
      live = added.addresses[0] ?? "";
      await createPod("web", live);
    });

    after(async () => {
      await cluster?.stop();
      await api?.stop();
    });

    async function createPod(name: string, podIP: string): Promise<void> {
      const path = "/api/v1/namespaces/demo/pods";
      const spec = { nodeName: "node-a", containers: [{ name: "c", image: "none", imagePullPolicy: "Never" }] };
      await api.admin.must("POST", path, {
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name, namespace: "demo" },
        spec,
      });
      const status = { phase: "Running", podIP, podIPs: [{ ip: podIP }] };
      await api.admin.must("PATCH", `${path}/${name}/status`, { status });
    }

    async function theBlock(): Promise<Block> {
      const { items } = (await api.admin.must("GET", blocksPath)) as { items: readonly unknown[] };
      const read = readBlock(items[0], "crd");
      assert.ok(read.ok);
      return read.object;
    }

    /** As calico-ipam would, for a pod that there is not. */
    async function leak(ordinal: number, pod: string): Promise<HandleId> {
      const handle = `k8s-pod-network.${pod}` as HandleId;
      const block = await theBlock();
      const owner = { handle, secondary: { namespace: "demo", node: "node-a", pod, timestamp: "then" } };
      await api.admin.must(
        "PATCH",
        `${blocksPath}/${block.name}`,
        blockPatch("crd", block, bump(assign(block, [ordinal], owner))),
      );
      return handle;
    }

    test("given a healthy cluster, then it says nothing and ends with 0", async () => {
      await settled(async () => {
        const { status, stdout, stderr } = await check();
        assert.deepEqual([status, stdout], [0, ""], stderr);
      });
    });

    test("given a leaked address and an orphan handle, then both are named, shown by a dry run, and repaired when agreed; the live pod keeps its own", async () => {
      const leaked = await leak(40, "gone");
      const orphan = "k8s-pod-network.orphan" as HandleId;
      await api.admin.create(
        newHandleObject("crd", orphan, new Map([["10.20.0.0/26" as BlockCidr, 1]])) as unknown as Manifest,
      );
      await settled(async () => {
        const { summary, items } = await report();
        assert.deepEqual(items.map(({ reason, address, handle }) => [reason, address ?? handle]).sort(), [
          ["AddressLeaked", "10.20.0.40"],
          ["HandleOrphan", orphan],
        ]);
        assert.deepEqual(summary, { error: 0, warning: 2, info: 0 });
      });
      assert.equal((await check()).status, 1);
      assert.equal((await check("--fix", "AddressLeaked", "--dry-run")).status, 1);
      assert.equal((await check("--fix", "AddressLeaked")).status, 6);
      assert.equal((await allocations(api.admin)).owners.get("10.20.0.40"), leaked);

      const fixed = await check("--fix", "AddressLeaked", "--yes");
      assert.equal(fixed.status, 0, fixed.stderr);
      assert.match(fixed.stderr, /^10\.20\.0\.40: repaired$/m);
      assert.equal((await check("--fix", "HandleOrphan", "--yes")).status, 0);
      const { owners, handles } = await allocations(api.admin);
      assert.ok(owners.has(live));
      assert.ok(!owners.has("10.20.0.40"));
      assert.ok(!handles.includes(orphan));
      assert.equal((await check()).status, 0);
    });

    test("given a pod that comes back between the look and the write, then its address is left alone", async () => {
      const handle = await leak(41, "back");
      const looked = Promise.withResolvers<void>();
      const flags = [...common, "--again", "3s", "--fix", "AddressLeaked", "--yes"];
      const fixing = cattail(["check", ...flags], (stderr) => {
        if (stderr.includes("looking again")) looked.resolve();
      });
      await looked.promise;
      await createPod("back", "10.20.0.41");
      const { stderr } = await fixing;
      assert.doesNotMatch(stderr, /10\.20\.0\.41: repaired/);
      assert.equal((await allocations(api.admin)).owners.get("10.20.0.41"), handle);
    });

    test("given a locked datastore, then nothing is repaired and it ends with 6", async () => {
      await leak(42, "locked");
      const information = "/apis/crd.projectcalico.org/v1/clusterinformations/default";
      await api.admin.must("PATCH", information, { spec: { datastoreReady: false } });
      const { status, stderr } = await check("--fix", "AddressLeaked", "--yes");
      assert.equal(status, 6, stderr);
      assert.match(stderr, /reason DatastoreLocked/);
      await api.admin.must("PATCH", information, { spec: { datastoreReady: true } });
    });

    test("given another writer who frees a live pod's address, then it is named with the pod", async () => {
      const block = await theBlock();
      const ordinal = Number(live.split(".")[3]);
      await cluster.agent("node-a").kill("SIGKILL"); // or it would take it back at once
      const { items } = await report("--direct");
      assert.ok(!items.some(({ address }) => address === live));
      const allocationsLeft = block.allocations.map((index, at) => (at === ordinal ? null : index));
      const spec = { allocations: allocationsLeft, unallocated: [...block.unallocated, ordinal] };
      await api.admin.must("PATCH", `${blocksPath}/${block.name}`, { spec });
      const after = await report("--direct");
      assert.ok(after.items.some(({ reason, address }) => reason === "AddressUnrecorded" && address === live));
    });
  });
}
