// The chart's pods as rendered, without their image, on a real API server under the chart's own roles: they become ready and serve pods.
import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { chartFolder } from "../chart/values-schema.ts";
import { allocations } from "../cluster/allocations.ts";
import { type Manifest, until } from "../cluster/api.ts";
import { ipPool } from "../cluster/cluster.ts";
import { freePort, temporaryFolder } from "../cluster/daemon.ts";
import { installCrds } from "../cluster/install.ts";
import { newSandbox, Runtime } from "../cluster/runtime.ts";
import { startControlPlane } from "./control-plane.ts";
import { helm, namespace, type Values, valueFlags } from "./helm.ts";
import { Pod } from "./pod.ts";

test("given the chart, when its pods run as rendered on three nodes, then they become ready, and a pod on each gets an address", async () => {
  await using parts = new AsyncDisposableStack();
  const plane = parts.adopt(await startControlPlane(), (started) => started.stop());
  const { admin } = plane;
  const folder = await temporaryFolder("ct");
  const kubeconfig = join(folder, "kubeconfig");
  await writeFile(kubeconfig, admin.kubeconfig(), { mode: 0o600 });
  await installCrds(admin, "crd");
  const ready = { clusterGUID: "a44cf4ff6a8b4d8f9a4d4d9a3a5c2f1e", datastoreReady: true };
  const information = { apiVersion: "crd.projectcalico.org/v1", kind: "ClusterInformation" };
  await admin.create({ ...information, metadata: { name: "default" }, spec: ready });
  await admin.create(ipPool("pool", "10.64.0.0/22"));
  const nodes = ["node-a", "node-b", "node-c"];
  for (const name of nodes) await admin.create({ apiVersion: "v1", kind: "Node", metadata: { name } });
  for (const name of [namespace, "demo"])
    await admin.create({ apiVersion: "v1", kind: "Namespace", metadata: { name } });

  // All of them are on this machine: ports that are free here, and no admin port that two agents would share.
  const [stream, http, agentHttp] = [await freePort(), await freePort(), await freePort()];
  const values: Values = {
    server: { ports: { stream, http, admin: 0 } },
    agent: { ports: { http: agentHttp, admin: 0 } },
  };
  await helm("install", "cattail", chartFolder, "--kubeconfig", kubeconfig, "-n", namespace, ...valueFlags(values));
  const workload = async (kind: "deployments" | "daemonsets", name: string): Promise<Manifest> =>
    (await admin.must("GET", `/apis/apps/v1/namespaces/${namespace}/${kind}/${name}`)) as Manifest;
  const api = new URL(plane.url);
  const services = {
    KUBERNETES_SERVICE_HOST: api.hostname,
    KUBERNETES_SERVICE_PORT: api.port,
    CATTAIL_SERVER_SERVICE_HOST: "127.0.0.1", // what kube-proxy would lead to
  };
  const start = async (own: string, manifest: Manifest, hostIp: string): Promise<Pod> => {
    const files = join(folder, own);
    await mkdir(files);
    const pod = new Pod({ admin, ca: plane.ca, workload: manifest, folder: files, node: own, hostIp, services });
    const calico = pod.hostPath("/opt/cni/bin/calico-ipam");
    await mkdir(join(calico, ".."), { recursive: true });
    await writeFile(calico, "calico's own", { mode: 0o755 });
    await pod.start();
    return parts.adopt(pod, (started) => started.stop());
  };
  const server = await start("server", await workload("deployments", "cattail-server"), "127.0.0.1");
  await server.ready();
  const daemonSet = await workload("daemonsets", "cattail-agent");
  const agents = await Promise.all(nodes.map((node, index) => start(node, daemonSet, `127.0.0.${index + 2}`)));
  await Promise.all(agents.map((agent) => agent.ready()));

  for (const [index, agent] of agents.entries()) {
    const executable = agent.hostPath("/opt/cni/bin/calico-ipam");
    const isInstalled = async () => (await readFile(executable, "latin1")) !== "calico's own";
    await until("the executable is installed", isInstalled);
    assert.equal(await readFile(`${executable}.before-cattail`, "utf8"), "calico's own");
    const runtime = new Runtime({
      executable,
      socket: agent.hostPath("/run/cattail/agent.sock"),
      spool: agent.hostPath("/var/lib/cattail/spool"),
      nodeName: nodes[index] ?? "",
      ipam: {},
    });
    const added = await runtime.add(newSandbox("demo", `pod-${index}`));
    assert.ok(added.ok, JSON.stringify(added));
  }
  await until("the API server has their addresses", async () => {
    const { owners } = await allocations(admin);
    return [...owners.values()].filter((handle) => handle.startsWith("k8s-pod-network.")).length === nodes.length;
  });
});
