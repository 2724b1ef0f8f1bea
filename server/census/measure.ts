// The census as gauges, set just before a scrape (ux 3): sums only, no node, block or address.
// Leaves the counting to census.ts.
import { familyOf } from "../../shared/ip/cidr.ts";
import type { clusterMetrics, MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import { type Census, type FindingReason, findingReasons } from "./census.ts";
import { addressStates } from "./tally.ts";

export type NodeState = "connected" | "stale" | "offline" | "calico";
export const nodeStates = ["connected", "stale", "offline", "calico"] as const satisfies readonly NodeState[];

/** An invalid block may hide anything; the rest costs addresses. */
export const severityOf: Readonly<Record<FindingReason, "error" | "warning">> = {
  AddressLeaked: "warning",
  WarmStale: "warning",
  HandleOrphan: "warning",
  BlockInvalid: "error",
  BlockOrphan: "warning",
  ClaimHalfDone: "warning",
};

export type CensusMetrics = MetricHandles<typeof clusterMetrics> &
  Pick<MetricHandles<typeof serverMetrics>, "checkFindings">;

export function measureCensus(
  metrics: CensusMetrics,
  census: Census,
  nodes: Readonly<Record<NodeState, number>>,
): void {
  const perPool = [
    metrics.poolAddresses,
    metrics.poolBlocks,
    metrics.poolInfo,
    metrics.poolStranded,
    metrics.poolBorrowed,
    metrics.poolLeakSuspects,
  ];
  // Series of pools that are gone go with them.
  for (const gauge of perPool) gauge.clear();
  for (const { pool, states, blocks, stranded, borrowed, suspects } of census.pools()) {
    const { name, cidr, blockSize } = pool;
    const family = familyOf(cidr) === 4 ? "ipv4" : "ipv6";
    for (const state of addressStates) metrics.poolAddresses.set({ pool: name, family, state }, states[state]);
    for (const state of ["affine", "ownerless", "unclaimed"] as const)
      metrics.poolBlocks.set({ pool: name, state }, blocks[state]);
    const enabled = pool.disabled || pool.deleting ? "false" : "true";
    metrics.poolInfo.set({ pool: name, cidr, block_size: String(blockSize), enabled }, 1);
    metrics.poolStranded.set({ pool: name }, stranded);
    metrics.poolBorrowed.set({ pool: name }, borrowed);
    metrics.poolLeakSuspects.set({ pool: name }, suspects);
  }
  for (const state of nodeStates) metrics.nodes.set({ state }, nodes[state]);
  const { used, orphan } = census.handles();
  metrics.handles.set({ state: "used" }, used);
  metrics.handles.set({ state: "orphan" }, orphan);
  const findings = census.findings();
  for (const reason of findingReasons)
    metrics.checkFindings.set({ reason, severity: severityOf[reason] }, findings[reason]);
}
