// `cattail blocks`: whose each block is, and how full. Leaves the counting to shared/calico/census.ts.
import { blockOwner } from "../shared/calico/block.ts";
import { type AddressState, addressStates, censusOfBlock } from "../shared/calico/census.ts";
import { byName } from "../shared/calico/pools.ts";
import type { Block, Pool, Reservation } from "../shared/calico/resources.ts";
import { exitCode } from "../shared/exit-code.ts";
import { cidrOf, contains } from "../shared/ip/cidr.ts";
import { command, noWords } from "./command.ts";
import { countsOf } from "./pools.ts";

export const blocks = command({
  name: "blocks",
  help: "Lists blocks: whose they are, and how many of their addresses are in which state",
  usage: "",
  flags: {
    node: { kind: "string", help: "Only blocks of this node, and those it has addresses in" },
    pool: { kind: "string", help: "Only blocks in this pool" },
  },
  async run({ sources, show }, words, { node, pool }) {
    noWords("blocks", words);
    const [found, pools, reservations] = await Promise.all([
      sources.objects("block"),
      sources.objects("pool"),
      sources.objects("reservation"),
    ]);
    const items = found.objects
      .filter((block) => !block.deleted && (node === undefined || concerns(block, node)))
      .map((block) => blockRow(block, pools.objects, reservations.objects))
      .filter((row) => pool === undefined || row.pool === pool)
      .toSorted((a, b) => byPlace(a.cidr, b.cidr));
    const column = (state: AddressState) =>
      [state.toUpperCase(), (row: (typeof items)[number]) => String(row.addresses[state])] as const;
    show(
      {
        kind: "BlockList",
        items,
        name: (row) => `block/${row.name}`,
        columns: [
          ["BLOCK", (row) => row.cidr],
          ["OWNER", (row) => row.owner || "nobody"],
          ["POOL", (row) => row.pool || "none"],
          ...addressStates.map(column),
        ],
        wide: [
          ["NAME", (row) => row.name],
          ["VERSION", (row) => row.resourceVersion],
          ["BORROWERS", (row) => row.borrowers.join(",") || "-"],
        ],
      },
      node === undefined && pool === undefined
        ? "There is no block: no pod has had an address yet"
        : "No block is so; cattail blocks lists them all",
    );
    return exitCode.ok;
  },
});

export function blockRow(block: Block, pools: readonly Pool[], reservations: readonly Reservation[]) {
  const owner = blockOwner(block);
  const nodes = block.attributes.flatMap(({ secondary }) => secondary?.node ?? []);
  return {
    name: block.name,
    cidr: block.cidr,
    owner: owner === undefined ? "" : owner.type === "host" ? owner.name : `${owner.type}:${owner.name}`,
    // Enabled or not: it is the pool's range all the same.
    pool: pools.toSorted(byName).find(({ cidr }) => contains(cidr, block.cidr))?.name ?? "",
    resourceVersion: block.resourceVersion,
    addresses: countsOf(
      censusOfBlock(
        block,
        reservations.flatMap(({ cidrs }) => cidrs),
      ),
    ),
    borrowers: [...new Set(nodes)].filter((name) => name !== owner?.name).sort(),
  };
}

function concerns(block: Block, node: string): boolean {
  return block.affinity === `host:${node}` || block.attributes.some(({ secondary }) => secondary?.node === node);
}

/** By number, IPv4 first. */
function byPlace(a: Block["cidr"], b: Block["cidr"]): number {
  const [one, other] = [cidrOf(a), cidrOf(b)];
  if (one.family !== other.family) return one.family - other.family;
  return one.base < other.base ? -1 : one.base > other.base ? 1 : one.prefix - other.prefix;
}
