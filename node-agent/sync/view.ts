// What this agent knows of the cluster: the newest version it was sent of everything that concerns its node. Never back in time.
// Keeps it over reconnects and says what it has. Leaves the connection to client.ts and what follows from a change to agent-shell.ts.
import { compareVersions } from "../../shared/calico/resource-version.ts";
import type { Block, Kind, Objects } from "../../shared/calico/resources.ts";
import { impossible, type ResourceVersion } from "../../shared/kinds.ts";
import {
  blockFromWire,
  type Hello,
  type StreamedKind,
  streamedKinds,
  type WireBlock,
} from "../../shared/protocol/stream.ts";

export type Change = { readonly [K in StreamedKind]: ChangeOf<K> }[StreamedKind];
interface ChangeOf<K extends StreamedKind> {
  readonly kind: K;
  readonly name: string;
  readonly before: Objects[K] | undefined;
  readonly after: Objects[K] | undefined;
}

type Tables = { readonly [K in StreamedKind]: Map<string, Objects[K]> };

/** With the longest names Kubernetes allows for these kinds, a hello of so many still fits a frame. */
export const maxTold = 10_000;

export class View {
  readonly #tables: Tables = {
    pool: new Map(),
    block: new Map(),
    config: new Map(),
    reservation: new Map(),
    node: new Map(),
    namespace: new Map(),
    cluster: new Map(),
  };
  /** Since a reset: what has been sent again. The rest goes when the server says that this was all. */
  #renewed: Set<string> | undefined;
  #lineage: string | undefined;

  get lineage(): string | undefined {
    return this.#lineage;
  }

  /** Between a reset and the end of what follows it, it holds parts of two. */
  get isComplete(): boolean {
    return this.#renewed === undefined;
  }

  /** True: what is held is of other data, and everything will be sent anew. */
  welcome(lineage: string): boolean {
    const isOther = this.#lineage !== undefined && this.#lineage !== lineage;
    this.#lineage = lineage;
    if (isOther) this.reset();
    return isOther;
  }

  get<K extends StreamedKind>(kind: K, name: string): Objects[K] | undefined {
    return this.#tables[kind].get(name);
  }

  all<K extends StreamedKind>(kind: K): ReadonlyMap<string, Objects[K]> {
    return this.#tables[kind];
  }

  /** Also for kinds that agents are not sent: there are none of them here. */
  held<K extends Kind>(kind: K): ReadonlyMap<string, Objects[K]> {
    const tables: { readonly [One in Kind]?: ReadonlyMap<string, Objects[One]> } = this.#tables;
    return tables[kind] ?? new Map<string, Objects[K]>();
  }

  /** For the hello: the server sends what differs. More than fits is not told, and everything sent anew. */
  have(): Hello["have"] {
    const held = streamedKinds.flatMap((kind) =>
      [...this.#tables[kind].values()].map(({ name, resourceVersion }): Hello["have"][number] => [
        kind,
        name,
        resourceVersion,
      ]),
    );
    if (held.length > maxTold) this.reset();
    return this.#renewed === undefined ? held : held.filter(([kind, name]) => this.#renewed?.has(keyOf(kind, name)));
  }

  put<K extends StreamedKind>(kind: K, object: Objects[K]): Change | undefined {
    const { name } = object;
    const table = this.#tables[kind];
    const before = table.get(name);
    const isRenewal = this.#renewed !== undefined && !this.#renewed.has(keyOf(kind, name));
    this.#renewed?.add(keyOf(kind, name));
    if (before !== undefined && !isRenewal && !isNewer(object, before)) return undefined;
    table.set(name, object);
    return change(kind, name, before, object);
  }

  /** What a server sent: our own server projected the object, so its shape is taken over, not checked again. */
  putWire(kind: StreamedKind, wire: object): Change | undefined {
    return kind === "block" ? this.putBlock(wire as WireBlock) : this.put(kind, wire as Objects[typeof kind]);
  }

  putBlock(wire: WireBlock): Change | undefined {
    return this.put("block", blockFromWire(wire));
  }

  gone(kind: StreamedKind, name: string): Change | undefined {
    const before = this.#tables[kind].get(name);
    if (before === undefined) return undefined;
    this.#tables[kind].delete(name);
    return change(kind, name, before, undefined);
  }

  /** The copies are of other data: they stay until the new ones are complete, so that nothing seems to vanish meanwhile. */
  reset(): void {
    this.#renewed = new Set();
  }

  /** Everything was sent; after a reset, what was not is gone. */
  synced(): Change[] {
    const renewed = this.#renewed;
    this.#renewed = undefined;
    if (renewed === undefined) return [];
    return streamedKinds.flatMap((kind) =>
      [...this.#tables[kind].keys()].flatMap((name) =>
        renewed.has(keyOf(kind, name)) ? [] : (this.gone(kind, name) ?? []),
      ),
    );
  }
}

/** The newest that is known of a block that an answer carries; undefined: it was not told, null: it is gone. */
export function takeBlock(view: View, wire: WireBlock | null | undefined, name: string): Block | null | undefined {
  if (wire === undefined) return undefined;
  if (wire === null) {
    view.gone("block", name);
    return null;
  }
  view.putBlock(wire);
  return view.get("block", wire.name) ?? null;
}

function keyOf(kind: StreamedKind, name: string): string {
  return `${kind}/${name}`;
}

interface Versioned {
  readonly resourceVersion: ResourceVersion;
}

/** Versions that cannot be compared are merely different: the server's word counts. */
function isNewer(one: Versioned, other: Versioned): boolean {
  const order = compareVersions(one.resourceVersion, other.resourceVersion);
  return order === undefined || order === 1;
}

function change<K extends StreamedKind>(
  kind: K,
  name: string,
  before: Objects[K] | undefined,
  after: Objects[K] | undefined,
): Change {
  return { kind, name, before, after } as Change; // one member of the union for each K
}

/** Does a change of this kind bear on where an ADD may take an address? */
export function concernsPlacement(kind: StreamedKind): boolean {
  switch (kind) {
    case "block":
      return false;
    case "pool":
    case "config":
    case "reservation":
    case "node":
    case "namespace":
    case "cluster":
      return true;
    default:
      return impossible(kind);
  }
}
