// The chart in the hands of the real Helm and a real API server: what it renders is accepted, what it installs is gone afterwards, and the
// command lines in it are those of executables that become ready.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chartFolder } from "../chart/values-schema.ts";
import { collectionPath, type Manifest } from "../cluster/api.ts";
import { temporaryFolder } from "../cluster/daemon.ts";
import { type ControlPlane, startControlPlane } from "./control-plane.ts";
import { helm, namespace, rendered, type Values, valueFlags } from "./helm.ts";

let plane: ControlPlane;
let kubeconfig: string;

before(async () => {
  plane = await startControlPlane();
  const folder = await temporaryFolder("cattail-chart");
  kubeconfig = join(folder, "kubeconfig");
  await writeFile(kubeconfig, plane.admin.kubeconfig(), { mode: 0o600 });
  await plane.admin.ensure({ apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } });
});
after(() => plane?.stop());

const matrix: Readonly<Record<string, Values>> = {
  "the defaults": {},
  "one server on the pod network": {
    server: { replicas: 1, hostNetwork: false, networkPolicy: { enabled: true }, strategy: { maxSurge: 1 } },
  },
  "servers by load, spread hard, on IPv6": {
    server: { autoscaling: { enabled: true }, topologySpread: "hard", service: { ipFamilies: ["IPv6"] } },
  },
  "no pages, no spread, no budget": {
    server: { ports: { http: 0, admin: 0 }, topologySpread: "off", pdb: { enabled: false } },
    agent: { ports: { http: 0, admin: 0 }, metricsBind: "all" },
  },
  "everything configured": {
    commonLabels: { team: "network" },
    commonAnnotations: { "example.com/owner": "network" },
    image: { registry: "registry.example.com", tag: "1.2.3" },
    global: { imagePullSecrets: [{ name: "pull" }] },
    resourceQuota: { enabled: true },
    server: {
      config: { commit: { maxInFlight: 64 }, offlineLimit: "30m", log: { level: "debug" }, apiGroup: "crd" },
      extraArgs: ["--v=4"],
      extraEnv: [{ name: "A", value: "b" }],
      extraVolumes: [{ name: "more", emptyDir: {} }],
      extraVolumeMounts: [{ name: "more", mountPath: "/more" }],
      podLabels: { a: "b" },
    },
    agent: {
      config: { warm: { floor: 8, ceiling: 32 }, commit: "sync", cni: { cacheDirs: ["/var/lib/cni", "/var/cni"] } },
      servers: ["wss://10.0.0.1:4480", "wss://[fd00::1]:4480"],
      install: { name: "cattail-ipam", patchConflist: "/etc/cni/net.d/10-main.conflist" },
      nodeSelector: null,
    },
    extraObjects: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "extra-{{ .Release.Name }}", namespace } }],
    metrics: { grafanaDashboards: { enabled: true } },
  },
  "certificates of one's own": { tls: { mode: "secret", secretName: "stream", caConfigMap: "stream-ca" } },
};

test("the chart passes Helm's lint, with every set of values", async () => {
  for (const values of Object.values(matrix)) await helm("lint", chartFolder, "--strict", ...valueFlags(values));
});

for (const [name, values] of Object.entries(matrix)) {
  test(`given ${name}, then the API server accepts every object, and finds no field in it that it does not know`, async () => {
    for (const manifest of await rendered(values)) {
      const path = `${collectionPath(manifest)}?dryRun=All&fieldValidation=Strict`;
      const { status, body } = await plane.admin.call("POST", path, manifest);
      const said = `${manifest.kind} ${manifest.metadata.name}: ${JSON.stringify(body)}`;
      // An address of the other family is refused by this cluster, which has one family; it is the only reason to.
      if (status === 422 && JSON.stringify(values).includes("IPv6")) assert.match(said, /ipFamilies\[0\]/);
      else assert.equal(status, 201, said);
    }
  });
}

test("given a name that is misspelt, or a value that is not allowed, then the schema refuses it and says where", async () => {
  const wrong: readonly (readonly [Values, RegExp])[] = [
    [{ servr: {} }, /servr/],
    [{ server: { replica: 2 } }, /replica/],
    [{ server: { config: { offLimit: "45m" } } }, /offLimit/],
    [{ server: { config: { namespace: "other" } } }, /namespace/],
    [{ agent: { config: { warm: { flor: 3 } } } }, /flor/],
    [{ agent: { config: { install: { enabled: true } } } }, /install/],
    [{ agent: { install: { name: "host-local" } } }, /name/],
    [{ tls: { mode: "none" } }, /mode/],
    [{ server: { ports: { stream: 0 } } }, /stream/],
  ];
  for (const [values, where] of wrong) await assert.rejects(rendered(values), where, JSON.stringify(values));
});

test("given something that needs what is not there, then one sentence says what", async () => {
  const cases: readonly (readonly [Values, RegExp])[] = [
    [{ tls: { mode: "secret" } }, /needs tls\.(secretName|caConfigMap)/],
    [
      { tls: { mode: "certManager", caConfigMap: "ca" } },
      /needs cert-manager\.io\/v1, which this cluster does not serve/,
    ],
    [{ metrics: { podMonitor: { enabled: true } } }, /needs monitoring\.coreos\.com\/v1, which this cluster/],
  ];
  for (const [values, sentence] of cases) await assert.rejects(rendered(values), sentence);
});

test("given the kinds of others, then what asks for them is rendered", async () => {
  const metrics = { podMonitor: { enabled: true }, serviceMonitor: { enabled: true } };
  const tls = { mode: "certManager", caConfigMap: "ca", certManager: { issuerRef: { name: "issuer" } } };
  const apis = ["monitoring.coreos.com/v1", "cert-manager.io/v1"].flatMap((api) => ["--api-versions", api]);
  const kinds = (await rendered({ metrics, tls }, ...apis)).map(({ kind }) => kind);
  for (const kind of ["PodMonitor", "ServiceMonitor", "Certificate"]) assert.ok(kinds.includes(kind), kind);
});

test("given an option that is taken over at run time, then only the others restart pods", async () => {
  const checksums = async (config: Values): Promise<unknown[]> => {
    const objects = await rendered({ server: { config }, agent: { config } });
    return objects.flatMap(({ spec }) => {
      const { template } = (spec ?? {}) as { template?: { metadata: { annotations: Values } } };
      return template === undefined ? [] : [template.metadata.annotations["checksum/config"]];
    });
  };
  const plain = await checksums({});
  assert.equal(plain.length, 2);
  assert.deepEqual(await checksums({ log: { level: "debug" }, offlineLimit: "20m" }), plain);
  const restarted = await checksums({ log: { format: "text" } });
  for (const [index, sum] of plain.entries()) assert.notEqual(restarted[index], sum);
});

test("given an installation that is upgraded and removed, then nothing of it is left, and what servers wrote lives until then", async () => {
  const at = ["--kubeconfig", kubeconfig, "-n", namespace];
  const before = await everything(await rendered({}));
  await helm("install", "cattail", chartFolder, ...at);
  const authority = `/api/v1/namespaces/${namespace}/secrets/cattail-authority`;
  await plane.admin.must("PATCH", authority, { data: { "ca.crt": "Y2E=" } });
  await helm("upgrade", "cattail", chartFolder, ...at, "--set", "server.replicas=3");
  const kept = (await plane.admin.must("GET", authority)) as { data: unknown };
  assert.deepEqual(kept.data, { "ca.crt": "Y2E=" });
  const deployment = `/apis/apps/v1/namespaces/${namespace}/deployments/cattail-server`;
  const { spec } = (await plane.admin.must("GET", deployment)) as { spec: { replicas: number } };
  assert.equal(String(spec.replicas), "3");
  await helm("rollback", "cattail", "1", ...at);
  await helm("uninstall", "cattail", ...at);
  assert.deepEqual(await everything(await rendered({})), before);
});

/** What exists of the kinds that are rendered, in our namespace or in none. */
async function everything(manifests: readonly Manifest[]): Promise<string[]> {
  const paths = new Set(manifests.map(collectionPath));
  const lists = [...paths].map(async (path) => {
    const { items } = (await plane.admin.must("GET", path)) as { items: readonly Manifest[] };
    return items.map(({ metadata }) => `${path}/${metadata.name}`);
  });
  return (await Promise.all(lists)).flat().sort();
}
