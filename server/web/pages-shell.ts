// The server's pages on its admin port: its state and its objects for programs (/api/v1/…), and the same for people (/).
// Leaves HTTP and who may read it to shared/process; names of nodes are in it, so it is not for the network port.

import { json, objectsPage, type Page } from "../../shared/process/http.ts";
import type { Clock } from "../../shared/world.ts";
import type { Store } from "../store/store.ts";
import type { ClientStatus } from "../stream/hub-shell.ts";
import type { KindStatus } from "../upstream/upstream-shell.ts";

export interface Sources {
  readonly clock: Clock;
  readonly replica: string;
  readonly version: string;
  readonly store: Store;
  /** Undefined: not known yet. */
  readonly apiGroup: () => string | undefined;
  readonly streamUrl: () => string | undefined;
  readonly resources: () => readonly KindStatus[];
  readonly clients: () => readonly ClientStatus[];
  readonly commit: () => CommitStatus;
}

export interface CommitStatus {
  readonly inFlight: number;
  readonly limit: number;
  /** Requests to the API server that wait for their turn. */
  readonly queued: number;
  /** Agents' commits that wait for a write of the same block. */
  readonly waitingForBlocks: number;
  /** Nodes whose claims are under way. */
  readonly claims: number;
}

export function statusPages(sources: Sources): ReadonlyMap<string, Page> {
  return new Map<string, Page>([
    ["/api/v1/status", { get: () => json(200, statusOf(sources)) }],
    ["/api/v1/objects", objectsPage((kind) => sources.store.all(kind))],
    ["/", { get: () => ({ status: 200, contentType: "text/html; charset=utf-8", body: page(statusOf(sources)) }) }],
  ]);
}

type Status = ReturnType<typeof statusOf>;

function statusOf(sources: Sources) {
  const { store, clock } = sources;
  const cluster = store.get("cluster", "default");
  return {
    apiVersion: "cattail.io/v1",
    kind: "Status",
    asOf: new Date(clock.wall()).toISOString(),
    replica: sources.replica,
    version: sources.version,
    apiGroup: sources.apiGroup(),
    stream: sources.streamUrl(),
    datastore: { ready: cluster?.datastoreReady ?? false, clusterGuid: cluster?.clusterGuid },
    resources: sources.resources(),
    commit: sources.commit(),
    clients: sources.clients(),
  };
}

/** One document without anything from elsewhere. */
function page(status: Status): string {
  const { commit, datastore } = status;
  const facts: [string, string][] = [
    ["As of", status.asOf],
    ["Version", status.version],
    ["Stream", status.stream ?? "not open"],
    ["Calico's resources", status.apiGroup ?? "not known yet"],
    ["Datastore", datastore.ready ? "ready" : "locked or unknown: nothing is written"],
    ["Requests to the API server", `${commit.inFlight} of ${commit.limit} under way, ${commit.queued} waiting`],
    ["Commits", `${commit.waitingForBlocks} waiting for their block`],
    ["Claims", `${commit.claims} under way`],
  ];
  const resources = status.resources.map(({ kind, objects, unread, synced, ageMs, version, problem }) => [
    kind,
    String(objects),
    String(unread),
    synced ? "yes" : "no",
    seconds(ageMs / 1000),
    version,
    problem ?? "",
  ]);
  const clients = status.clients.map((client) => [
    client.node ?? `${client.user} (observer)`,
    client.state,
    client.version,
    seconds(client.connectedSeconds),
    seconds(client.silentSeconds),
    String(client.behindKeys),
    String(client.bufferedBytes),
    String(client.outstanding),
  ]);
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Cattail server ${escaped(status.replica)}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 0 0 2rem }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #8884; vertical-align: top }
</style>
<h1>Cattail server ${escaped(status.replica)}</h1>
<table>${facts.map(([name, value]) => `<tr><th scope="row">${escaped(name)}<td>${escaped(value)}`).join("\n")}</table>
<h2>Resources</h2>
${table(["Resource", "Objects", "Unreadable", "Synced", "Age", "Version", "Problem"], resources)}
<h2>Clients (${clients.length})</h2>
${table(["Node", "State", "Version", "Connected", "Silent", "Keys behind", "Bytes buffered", "Requests open"], clients)}
</html>
`;
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const head = heads.map((name) => `<th scope="col">${escaped(name)}`).join("");
  const body = rows.map((row) => `<tr>${row.map((cell) => `<td>${escaped(cell)}`).join("")}`).join("\n");
  return `<table><thead><tr>${head}</thead><tbody>${body}</tbody></table>`;
}

function seconds(value: number): string {
  return `${value.toFixed(1)} s`;
}

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
