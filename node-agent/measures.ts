// What the ledger and the view look like in numbers, for the gauges (ux 3). Read just before a scrape, kept nowhere.
import { holderOf } from "../shared/calico/block.ts";
import { familyOf } from "../shared/ip/cidr.ts";
import type { Instant } from "../shared/kinds.ts";
import type { agentMetrics, MetricHandles } from "../shared/metrics.ts";
import { targetOf } from "./ledger/demand.ts";
import { type Holding, isOpen, isOwn, type Lane, type Ledger } from "./ledger/state.ts";

type Metrics = MetricHandles<typeof agentMetrics>;
type AddressState = "warm" | "held" | "owned" | "leaving" | "cooling" | "suspect";
const families = ["ipv4", "ipv6"] as const;
const addressStates = [
  "warm",
  "held",
  "owned",
  "leaving",
  "cooling",
  "suspect",
] as const satisfies readonly AddressState[];

export function measureLedger(metrics: Metrics, ledger: Ledger, now: Instant): void {
  const counts = new Map<string, number>();
  const count = (key: string, by = 1): void => void counts.set(key, (counts.get(key) ?? 0) + by);
  let [pending, oldest] = [0, now];
  for (const lane of ledger.lanes.values()) {
    const family = familyOf(lane.cidr) === 4 ? "ipv4" : "ipv6";
    if (lane.block) count(`${family} ${isOwn(ledger, lane) ? "affine" : "borrowed"}`);
    if (isOwn(ledger, lane)) count(`${family} cooling`, coolingIn(lane));
    for (const holding of lane.holdings.values()) {
      count(`${family} ${stateOf(holding)}`);
      if (!isOpen(holding)) continue;
      pending += 1;
      if (holding.since < oldest) oldest = holding.since;
    }
  }
  for (const address of ledger.strangers.keys()) count(`${familyOf(address) === 4 ? "ipv4" : "ipv6"} suspect`);
  for (const family of families) {
    for (const state of addressStates) metrics.addresses.set({ family, state }, counts.get(`${family} ${state}`) ?? 0);
    for (const kind of ["affine", "borrowed"] as const)
      metrics.blocks.set({ family, kind }, counts.get(`${family} ${kind}`) ?? 0);
  }
  measureStock(metrics, ledger, now);
  metrics.intentsPending.set(pending);
  metrics.intentOldest.set((now - oldest) / 1000);
}

function measureStock(metrics: Metrics, ledger: Ledger, now: Instant): void {
  const policy = ledger.warm();
  for (const family of families) {
    const demands = [...ledger.demands.values()].filter(({ want }) => want.family === (family === "ipv4" ? 4 : 6));
    const target = policy ? demands.reduce((sum, demand) => sum + targetOf(demand, policy, now), 0) : 0;
    metrics.warmTarget.set({ family }, target);
  }
  metrics.leaseRemaining.set(Math.max(0, ledger.lease.until - now) / 1000);
}

function stateOf({ state }: Holding): AddressState {
  switch (state.kind) {
    case "warm":
      return "warm";
    case "reserving":
    case "held":
      return "held";
    case "withdrawn":
    case "leaving":
      return "leaving";
    case "owned":
      return "owned";
    case "lost":
    case "suspect":
      return "suspect";
  }
}

/** Neither free nor anybody's. */
function coolingIn({ block }: Lane): number {
  if (!block) return 0;
  return block.allocations.filter((index, ordinal) => index !== null && holderOf(block, ordinal) === undefined).length;
}
