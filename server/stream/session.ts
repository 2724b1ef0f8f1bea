// One client's side of the stream: what it holds, what has changed since, and what goes out next when its socket has room.
// A set of dirty keys, not a queue of messages: a slow reader costs its keys. Leaves frames and sockets to hub-shell.ts.
import { compareVersions } from "../../shared/calico/resource-version.ts";
import type { Block, Objects } from "../../shared/calico/resources.ts";
import type { ResourceVersion } from "../../shared/kinds.ts";
import type { Hello, StreamedKind } from "../../shared/protocol/stream.ts";
import type { Store } from "../store/store.ts";
import type { Sight } from "../upstream/object-reader.ts";
import type { Audience, Member, Scope } from "./audience.ts";

export type Outgoing =
  | { readonly type: "put"; readonly kind: StreamedKind; readonly object: Objects[StreamedKind] }
  | { readonly type: "gone"; readonly kind: StreamedKind; readonly name: string }
  | { readonly type: "synced" };

type Key = `${StreamedKind}/${string}`;

export class Session implements Member {
  readonly scope: Scope;
  readonly #audience: Audience;
  readonly #store: Store;
  readonly #known = new Map<Key, ResourceVersion>();
  readonly #dirty = new Set<Key>();
  /** The client holds a newer version than this server has seen: nothing is said until the server has caught up. Never back in time. */
  readonly #ahead = new Set<Key>();
  readonly #onDirty: () => void;
  #synced = false;

  constructor(scope: Scope, audience: Audience, store: Store, have: Hello["have"], onDirty: () => void = () => {}) {
    this.scope = scope;
    this.#onDirty = onDirty;
    this.#audience = audience;
    this.#store = store;
    for (const [kind, name, version] of have) this.#known.set(`${kind}/${name}`, version as ResourceVersion);
    for (const [kind, name] of audience.wantedKeys(scope)) this.#dirty.add(`${kind}/${name}`);
    for (const key of this.#known.keys()) this.#dirty.add(key);
  }

  mark(kind: StreamedKind, name: string): void {
    this.#dirty.add(`${kind}/${name}`);
    this.#onDirty();
  }

  /** Keys whose newest state this client does not have yet. */
  get behind(): number {
    return this.#dirty.size + this.#ahead.size;
  }

  get synced(): boolean {
    return this.#synced;
  }

  /** What to send next; undefined = the client is up to date with this server. */
  next(): Outgoing | undefined {
    for (const key of this.#dirty) {
      this.#dirty.delete(key);
      const outgoing = this.#decide(key);
      if (outgoing !== undefined) return outgoing;
    }
    if (this.#synced || this.#ahead.size > 0) return undefined;
    this.#synced = true;
    return { type: "synced" };
  }

  /** The server may have caught up with what the client knew before it: look again. */
  reconsider(): void {
    for (const key of this.#ahead) this.#dirty.add(key);
    this.#ahead.clear();
  }

  /** What the client holds in a newer version than this server has seen. */
  ahead(): (readonly [StreamedKind, string])[] {
    return [...this.#ahead].map(partsOf);
  }

  /**
   * What the API server has shown of an object. True: the client is ahead even of that, so the data was set back to an older state,
   * and what the client holds is worth nothing.
   */
  learn(kind: StreamedKind, name: string, { version, dataVersion }: Sight): boolean {
    const key: Key = `${kind}/${name}`;
    const held = this.#known.get(key);
    if (held === undefined) return false;
    if (isNewer(held, version ?? dataVersion)) return true;
    // It is gone, and the watch may not say so for a while; taken for held as of then, it is withdrawn, or replaced by a new one.
    if (version === undefined && this.#ahead.has(key)) this.#known.set(key, this.#store.freshness(kind).version);
    this.#ahead.delete(key);
    this.mark(kind, name);
    return false;
  }

  /** The client forgets what it holds and gets everything anew. */
  startAfresh(): void {
    this.#known.clear();
    this.#ahead.clear();
    this.#dirty.clear();
    for (const [kind, name] of this.#audience.wantedKeys(this.scope)) this.#dirty.add(`${kind}/${name}`);
    this.#onDirty();
  }

  /**
   * An answer to this client is to carry the block, which is then not put as well. Gives the newest version that the server has, so
   * that an answer is never older than what was put before it; `isNews` false: the watch was quicker, and the client has it already.
   */
  answered(block: Block): { readonly block: Block; readonly isNews: boolean } {
    const key: Key = `block/${block.name}`;
    const seen = this.#store.get("block", block.name);
    const newest = seen !== undefined && isNewer(seen.resourceVersion, block.resourceVersion) ? seen : block;
    const isNews = this.#known.get(key) !== newest.resourceVersion;
    this.#known.set(key, newest.resourceVersion);
    this.#dirty.add(key); // with its last address given back, a borrowed block is no longer this client's
    return { block: newest, isNews };
  }

  #decide(key: Key): Outgoing | undefined {
    const [kind, name] = partsOf(key);
    const held = this.#known.get(key);
    const object = this.#audience.wanted(this.scope, kind, name);
    if (object === undefined) return this.#withdraw(key, kind, name, held);
    if (held === object.resourceVersion) return undefined;
    if (held !== undefined && isNewer(held, object.resourceVersion)) {
      this.#ahead.add(key);
      return undefined;
    }
    this.#known.set(key, object.resourceVersion);
    return { type: "put", kind, object };
  }

  #withdraw(key: Key, kind: StreamedKind, name: string, held: ResourceVersion | undefined): Outgoing | undefined {
    if (held === undefined) return undefined;
    const seen = this.#store.get(kind, name)?.resourceVersion ?? this.#store.freshness(kind).version;
    if (isNewer(held, seen)) {
      this.#ahead.add(key);
      return undefined;
    }
    this.#known.delete(key);
    return { type: "gone", kind, name };
  }
}

function partsOf(key: Key): readonly [StreamedKind, string] {
  const slash = key.indexOf("/");
  return [key.slice(0, slash) as StreamedKind, key.slice(slash + 1)];
}

/** Versions that cannot be compared are merely different: the server's word counts. */
function isNewer(one: ResourceVersion, other: ResourceVersion): boolean {
  return compareVersions(one, other) === 1;
}
