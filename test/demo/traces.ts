// Care for somebody's cluster: a demo keeps off ranges that are in use there, and removes what it created, by name and by its pools' ranges.
import { canonicalCidr, contains, overlaps } from "../../shared/ip/cidr.ts";
import type { CidrText } from "../../shared/kinds.ts";
import type { Manifest } from "../cluster/api.ts";
import type { ClusterOptions } from "../cluster/cluster.ts";

const crd = "/apis/crd.projectcalico.org/v1";

/** Two pools of one range would give every address twice. */
export async function keepOffPoolsInUse({ api, pools }: Pick<ClusterOptions, "api" | "pools">): Promise<void> {
  const answer = await api.admin.call("GET", `${crd}/ippools`);
  if (answer.status === 404) return; // Calico's kinds are not there yet
  const { items } = answer.body as { items: { metadata: { name: string }; spec: { cidr: string } }[] };
  for (const ours of pools) {
    const range = rangeOf(ours);
    const taken = items.find(({ spec }) => overlaps(range, rangeOf({ spec })));
    if (!taken) continue;
    const { name } = taken.metadata;
    throw new Error(
      `IPPool ${name} (${taken.spec.cidr}) of this cluster overlaps the demo's ${range}: use a cluster without it`,
    );
  }
}

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
  const ranges = pools.map(rangeOf);
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

function rangeOf(pool: Manifest | { readonly spec: unknown }): CidrText {
  const { cidr } = pool.spec as { cidr: string };
  const range = canonicalCidr(cidr);
  if (range === undefined) throw new Error(`an IPPool has the range ${JSON.stringify(cidr)}, which is no CIDR`);
  return range;
}
