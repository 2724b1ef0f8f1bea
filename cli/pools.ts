// `cattail pools [NAME...]`: how full each pool is, and what it is for. Leaves the counting to shared/calico/census.ts.
import { addressStates, blocksOfPool, type Census, censusOfPool } from "../shared/calico/census.ts";
import { byName } from "../shared/calico/pools.ts";
import type { Block, Pool, Reservation } from "../shared/calico/resources.ts";
import { exitCode } from "../shared/exit-code.ts";
import { cidrOf, familyOf, overlaps, sizeOf } from "../shared/ip/cidr.ts";
import { command, countOf, named } from "./command.ts";

export const pools = command({
  name: "pools",
  help: "Lists pools: how many of their addresses are in which state",
  usage: "[NAME]...",
  flags: {},
  async run({ sources, show }, words) {
    const [found, blocks, reservations] = await Promise.all([
      sources.objects("pool"),
      sources.objects("block"),
      sources.objects("reservation"),
    ]);
    const items = named("pool", found.objects, words)
      .toSorted(byName)
      .map((pool) => poolRow(pool, blocks.objects, reservations.objects));
    show(
      {
        kind: "PoolList",
        items,
        name: (row) => `pool/${row.name}`,
        tone: (row) => (row.usedPercent >= 100 ? "bad" : row.usedPercent >= fillingPercent ? "doubtful" : undefined),
        columns: [
          ["POOL", (row) => row.name],
          ["CIDR", (row) => row.cidr],
          ["SIZE", (row) => String(row.size)],
          ["USED", (row) => `${row.usedPercent}%`],
          ...addressStates.map(
            (state) => [state.toUpperCase(), (row: PoolRow) => String(row.addresses[state])] as const,
          ),
          ["STATUS", (row) => row.status],
        ],
        wide: [
          ["BLOCK SIZE", (row) => `/${row.blockSize}`],
          ["AFFINE", (row) => String(row.blocks.affine)],
          ["OWNERLESS", (row) => String(row.blocks.ownerless)],
          ["UNCLAIMED", (row) => String(row.blocks.unclaimed)],
          ["NODES", (row) => row.nodeSelector || "all"],
          ["NAMESPACES", (row) => row.namespaceSelector || "all"],
        ],
      },
      "There is no IPPool: no pod can get an address before there is one",
    );
    return exitCode.ok;
  },
});

/** As the alert CattailPoolFilling. */
const fillingPercent = 85;

type PoolRow = ReturnType<typeof poolRow>;

export function poolRow(pool: Pool, blocks: readonly Block[], reservations: readonly Reservation[]) {
  const own = blocks.filter((block) => !block.deleted && overlaps(pool.cidr, block.cidr));
  const census = censusOfPool(
    pool,
    own,
    reservations.flatMap(({ cidrs }) => cidrs),
  );
  const counts = blocksOfPool(pool, own);
  const size = sizeOf(cidrOf(pool.cidr));
  return {
    name: pool.name,
    cidr: pool.cidr,
    family: familyOf(pool.cidr),
    size: countOf(size),
    usedPercent: usedPercent(census, size),
    addresses: countsOf(census),
    status: statusOf(pool, census),
    blockSize: pool.blockSize,
    blocks: { ...counts, unclaimed: countOf(counts.unclaimed) },
    nodeSelector: pool.nodeSelector,
    namespaceSelector: pool.namespaceSelector,
  };
}

export function countsOf(census: Census): Readonly<Record<keyof Census, number | string>> {
  const { owned, warm, cooling, tunnel, foreign, reserved, free } = census;
  return {
    owned: countOf(owned),
    warm: countOf(warm),
    cooling: countOf(cooling),
    tunnel: countOf(tunnel),
    foreign: countOf(foreign),
    reserved: countOf(reserved),
    free: countOf(free),
  };
}

/** Full only when nothing is free: rounded down. */
function usedPercent({ free }: Census, size: bigint): number {
  return Number(((size - free) * 100n) / size);
}

function statusOf(pool: Pool, { free }: Census): string {
  if (pool.deleting) return "deleting";
  if (pool.disabled) return "disabled";
  if (!pool.allocatable) return "not allocatable";
  return free === 0n ? "exhausted" : "enabled";
}
