// `cattail nodes [NAME...]`: which nodes Cattail serves, what they hold, and how far behind they are.
// Leaves to others: the counting (shared/calico/census.ts), what an agent itself says (explain.ts).
import * as v from "valibot";
import { blockOwner, holderOf, ownerAttributes } from "../shared/calico/block.ts";
import { stateOf } from "../shared/calico/census.ts";
import { byName } from "../shared/calico/pools.ts";
import type { Block } from "../shared/calico/resources.ts";
import { exitCode } from "../shared/exit-code.ts";
import { command, named } from "./command.ts";

export const nodes = command({
  name: "nodes",
  help: "Lists nodes: their blocks, their addresses, whether their agents are connected",
  usage: "[NAME]...",
  flags: {},
  async run({ sources, show, say }, words) {
    const [found, blocks, status] = await Promise.all([
      sources.objects("node"),
      sources.objects("block"),
      sources.server("/api/v1/status"),
    ]);
    const server = status === undefined ? undefined : v.parse(serverStatus, status);
    if (server === undefined) say("no server was asked, so what is said of agents is missing");
    const items = named("node", found.objects, words)
      .toSorted(byName)
      .map(({ name }) => nodeRow(name, blocks.objects, server));
    show(
      {
        kind: "NodeList",
        ...(server && { facts: { asOf: server.asOf, replica: server.replica } }),
        items,
        name: (row) => `node/${row.name}`,
        tone: (row) => (row.state === "away" && row.warm > 0 ? "doubtful" : undefined),
        columns: [
          ["NODE", (row) => row.name],
          ["STATE", (row) => row.state],
          ["BLOCKS", (row) => String(row.blocks)],
          ["OWNED", (row) => String(row.owned)],
          ["WARM", (row) => String(row.warm)],
          ["COOLING", (row) => String(row.cooling)],
          ["SILENT", (row) => (row.silentSeconds === undefined ? "-" : `${row.silentSeconds.toFixed(1)}s`)],
          ["VERSION", (row) => row.version || "-"],
        ],
        wide: [
          ["BORROWED", (row) => String(row.borrowed)],
          ["BEHIND", (row) => (row.behindKeys === undefined ? "-" : `${row.behindKeys} keys`)],
          ["REQUESTS", (row) => (row.outstanding === undefined ? "-" : String(row.outstanding))],
        ],
      },
      "There is no Node",
    );
    return exitCode.ok;
  },
});

const client = v.object({
  node: v.optional(v.string()),
  version: v.string(),
  state: v.string(),
  silentSeconds: v.number(),
  behindKeys: v.number(),
  outstanding: v.number(),
});
/** As far as it is needed here. */
export const serverStatus = v.object({
  asOf: v.string(),
  replica: v.string(),
  version: v.string(),
  clients: v.array(client),
});
export type ServerStatus = v.InferOutput<typeof serverStatus>;

/** `state` is as one server sees it: an agent that is connected to another one is away from it. */
function nodeRow(name: string, blocks: readonly Block[], server: ServerStatus | undefined) {
  const own = blocks.filter((block) => !block.deleted && isOf(block, name));
  const held = blocks.flatMap((block) => [...block.allocations.keys()].map((ordinal) => [block, ordinal] as const));
  const isHere = ([block, ordinal]: readonly [Block, number]): boolean => {
    if (holderOf(block, ordinal) === undefined)
      return stateOf(block, ordinal, false) === "cooling" && isOf(block, name);
    return ownerAttributes(block, ordinal)?.node === name;
  };
  const mine = held.filter(isHere).map(([block, ordinal]) => ({ block, state: stateOf(block, ordinal, false) }));
  const count = (state: string): number => mine.filter((place) => place.state === state).length;
  const connected = server?.clients.find((each) => each.node === name);
  return {
    name,
    state: server === undefined ? "unknown" : (connected?.state ?? "away"),
    blocks: own.length,
    owned: count("owned"),
    warm: count("warm"),
    cooling: count("cooling"),
    borrowed: mine.filter(({ block, state }) => state === "owned" && !isOf(block, name)).length,
    ...(connected && {
      silentSeconds: connected.silentSeconds,
      behindKeys: connected.behindKeys,
      outstanding: connected.outstanding,
    }),
    version: connected?.version ?? "",
  };
}

function isOf(block: Block, node: string): boolean {
  const owner = blockOwner(block);
  return owner?.type === "host" && owner.name === node;
}
