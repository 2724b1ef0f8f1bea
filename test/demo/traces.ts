// Removes from somebody's cluster what a demo created there, and nothing else: by name, and blocks by their pool's range.
import { canonicalCidr, contains } from "../../shared/ip/cidr.ts";
import type { ClusterOptions } from "../cluster/cluster.ts";

const crd = "/apis/crd.projectcalico.org/v1";

export async function removeTraces({
  api,
  nodes,
  pools,
}: Pick<ClusterOptions, "api" | "nodes" | "pools">): Promise<void> {
  const { admin } = api;
  const remove = (path: string) => admin.call("DELETE", path);
  for (const node of nodes) {
    await remove(`/api/v1/namespaces/cattail-system/pods/cattail-agent-${node}?gracePeriodSeconds=0`);
    await remove(`/api/v1/nodes/${node}`);
  }
  const ranges = pools
    .map((pool) => canonicalCidr((pool.spec as { cidr: string }).cidr))
    .filter((range) => range !== undefined);
  for (const plural of ["blockaffinities", "ipamblocks"]) {
    const { items } = (await admin.must("GET", `${crd}/${plural}`)) as {
      items: { metadata: { name: string }; spec: { cidr: string } }[];
    };
    for (const { metadata, spec } of items) {
      const cidr = canonicalCidr(spec.cidr);
      if (cidr !== undefined && ranges.some((range) => contains(range, cidr)))
        await remove(`${crd}/${plural}/${metadata.name}`);
    }
  }
  for (const pool of pools) await remove(`${crd}/ippools/${pool.metadata.name}`);
  await remove("/api/v1/namespaces/cattail-demo");
}
