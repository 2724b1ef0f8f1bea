// What an operator has applied before Cattail runs: Calico's kinds and the access rules of our chart.
// Works on any API server (api.ts); the objects themselves stand in test/data/crds and charts/cattail.
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { ApiGroup } from "../../shared/calico/resources.ts";
import { type Answer, type ApiClient, type Manifest, readManifests, until } from "./api.ts";

export interface ServiceAccount {
  readonly namespace: string;
  readonly name: string;
}

export const serverAccount: ServiceAccount = { namespace: "cattail-system", name: "cattail-server" };
export const agentAccount: ServiceAccount = { namespace: "cattail-system", name: "cattail-agent" };

/** The name under which access rules and request logs know it. */
export function userOf({ namespace, name }: ServiceAccount): string {
  return `system:serviceaccount:${namespace}:${name}`;
}

/** Calico's CustomResourceDefinitions of one group; returns once objects of them can be written. */
export async function installCrds(admin: ApiClient, group: ApiGroup): Promise<void> {
  const folder = join(import.meta.dirname, "../data/crds", group);
  const files = (await readdir(folder)).filter((file) => file.endsWith(".yaml")).map((file) => join(folder, file));
  const crds = (await Promise.all(files.map(readManifests))).flat();
  await Promise.all(crds.map((crd) => admin.ensure(crd)));
  for (const crd of crds)
    await until(`${crd.metadata.name} is served`, async () => (await list(admin, crd)).status === 200);
}

function list(admin: ApiClient, crd: Manifest): Promise<Answer> {
  const spec = crd.spec as { group: string; names: { plural: string }; versions: { name: string }[] };
  return admin.call("GET", `/apis/${spec.group}/${spec.versions[0]?.name}/${spec.names.plural}?limit=1`);
}

/** Namespace, accounts and roles; returns once they are in force. */
export async function installAccess(admin: ApiClient): Promise<void> {
  await admin.ensure({ apiVersion: "v1", kind: "Namespace", metadata: { name: serverAccount.namespace } });
  await admin.ensureFrom(join(import.meta.dirname, "../../charts/cattail/files/rbac.yaml"));
  const { namespace } = serverAccount;
  const lease = { group: "coordination.k8s.io", resource: "leases", namespace, name: "cattail-reaper" };
  for (const action of [
    { verb: "list", resource: "nodes" },
    { verb: "patch", ...lease },
  ]) {
    await until(`the server may ${action.verb} ${action.resource}`, () =>
      isAllowed(admin, userOf(serverAccount), action),
    );
  }
}

async function isAllowed(admin: ApiClient, user: string, resourceAttributes: object): Promise<boolean> {
  const review = { apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview" };
  const spec = { user, resourceAttributes };
  const answer = await admin.must("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", { ...review, spec });
  return (answer as { status: { allowed: boolean } }).status.allowed;
}
