// How each node stands to Cattail, as this replica sees it: the streams it has, and the marks that agents leave in the blocks.
// Another replica's clients are not known here: to it they are served, and not connected.
import type { NodeName } from "../../shared/kinds.ts";
import type { Store } from "../store/store.ts";
import type { Census } from "./census.ts";
import type { NodeState } from "./measure.ts";

/** What is asked of a stream. */
export interface Contact {
  readonly node: string | undefined;
  readonly silentSeconds: number;
  readonly behindSeconds: number;
}

/** Three signs of life missed, or so far behind that what it knows is no longer what is. */
const staleAfterSeconds = 30;
const behindAfterSeconds = 5;

export function standingOf(census: Census, node: NodeName, client: Contact | undefined): NodeState {
  if (client !== undefined) {
    const isStale = client.silentSeconds > staleAfterSeconds || client.behindSeconds > behindAfterSeconds;
    return isStale ? "stale" : "connected";
  }
  // Only an agent keeps addresses in stock.
  return census.node(node).warm > 0 ? "offline" : "calico";
}

export function countStandings(store: Store, census: Census, clients: readonly Contact[]): Record<NodeState, number> {
  const counts = { connected: 0, stale: 0, offline: 0, calico: 0 };
  const byNode = clientsByNode(clients);
  for (const name of store.all("node").keys()) counts[standingOf(census, name as NodeName, byNode.get(name))] += 1;
  return counts;
}

export function clientsByNode<C extends Contact>(clients: readonly C[]): ReadonlyMap<string, C> {
  return new Map(clients.flatMap((client) => (client.node === undefined ? [] : [[client.node, client] as const])));
}
