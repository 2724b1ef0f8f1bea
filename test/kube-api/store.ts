// The versioned store under the API: objects by key, one counter of versions for all, a bounded history, and watches on it.
// Decides only what etcd and the watch cache decide; what an object is, and who may write it, is left to the API above.
import { invariant } from "../../shared/kinds.ts";

export interface Entry {
  /** Position in lists, bytewise; unique in its collection. */
  readonly key: string;
  readonly version: number;
}

export interface StoreEvent<E extends Entry> {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  /** For DELETED: the last state, carrying the version of the deletion. */
  readonly entry: E;
  readonly before: E | undefined;
}

export interface Watcher<E extends Entry> {
  event(event: StoreEvent<E>): void;
  /** The collection ends this watch: its type changed or went away, or the store was set back. */
  end(): void;
}

/** The version asked for is no longer known. `oldest` is the first one from which the history is complete. */
export interface Expired {
  readonly expired: true;
  readonly oldest: number;
}

/** Snapshots kept for lists that are being paged; a further one is rebuilt from the history. */
const snapshotLimit = 4;
/** Events kept per collection; the real watch cache keeps 100 to 102,400 (kube-watch 4). */
export const defaultHistoryLimit = 10_000;

export class Store<E extends Entry> {
  #version = 0;
  readonly #collections = new Map<string, Collection<E>>();
  readonly #historyLimit: number;

  constructor(historyLimit = defaultHistoryLimit) {
    this.#historyLimit = historyLimit;
  }

  /** The version of the newest write. */
  get version(): number {
    return this.#version;
  }

  /** Claims the version of the write that follows at once. */
  next(): number {
    this.#version += 1;
    return this.#version;
  }

  collection(name: string): Collection<E> {
    let found = this.#collections.get(name);
    if (found === undefined) {
      found = new Collection<E>(this.#historyLimit, this.#version);
      this.#collections.set(name, found);
    }
    return found;
  }

  /** Forgets history up to and including `version`, as etcd's compaction does. */
  compact(version = this.#version): void {
    for (const collection of this.#collections.values()) collection.compact(version);
  }

  /** Sets everything back to how it was at `version`, which later writes count on from: an etcd restored from a backup. */
  restoreTo(version: number): void {
    invariant(version <= this.#version, `version ${version} is in the future`);
    for (const collection of this.#collections.values()) collection.restoreTo(version);
    this.#version = version;
  }
}

export class Collection<E extends Entry> {
  readonly #entries = new Map<string, E>();
  readonly #watchers = new Set<Watcher<E>>();
  readonly #snapshots = new Map<number, readonly E[]>();
  readonly #historyLimit: number;
  #history: StoreEvent<E>[] = [];
  /** Nothing was in it before this version. */
  #born: number;
  /** From here on events can be told; as in a watch cache, not from before it was there. */
  #oldest: number;
  /** From here on former states are known. */
  #compacted = 0;
  #keys: readonly string[] = [];
  /** Keys that came since `#keys` was sorted; `undefined` list = something changed since it was made. */
  #added: string[] = [];
  #removed = false;
  #list: readonly E[] | undefined = [];

  constructor(historyLimit: number, version: number) {
    this.#historyLimit = historyLimit;
    this.#born = version;
    this.#oldest = version;
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): E | undefined {
    return this.#entries.get(key);
  }

  put(entry: E): void {
    const before = this.#entries.get(entry.key);
    this.#entries.set(entry.key, entry);
    if (before === undefined) this.#added.push(entry.key);
    this.#record({ type: before === undefined ? "ADDED" : "MODIFIED", entry, before });
  }

  /** `tombstone` is the last state under the version of the deletion. */
  remove(tombstone: E): void {
    const before = this.#entries.get(tombstone.key);
    invariant(before !== undefined, `${tombstone.key} is not stored`);
    this.#entries.delete(tombstone.key);
    this.#removed = true;
    this.#record({ type: "DELETED", entry: tombstone, before });
  }

  /** All entries in the order of their keys. The result does not change afterwards. */
  list(): readonly E[] {
    if (this.#list === undefined) {
      this.#sortKeys();
      this.#list = this.#keys.flatMap((key) => this.#entries.get(key) ?? []);
    }
    return this.#list;
  }

  /** The list as it was at `version`. */
  listAt(version: number): readonly E[] | Expired {
    if (version < this.#compacted) return { expired: true, oldest: this.#compacted };
    if (version < this.#born) return [];
    const newest = this.#history.at(-1)?.entry.version ?? this.#oldest;
    if (version >= newest) return this.list();
    return this.#snapshots.get(version) ?? this.#keep(version, this.#undo(version));
  }

  /** Keeps the present list for pages that will be asked for later. */
  pin(version: number): void {
    this.#keep(version, this.list());
  }

  since(version: number): readonly StoreEvent<E>[] | Expired {
    if (version < this.#oldest) return { expired: true, oldest: this.#oldest };
    return this.#history.slice(this.#firstAfter(version));
  }

  watch(watcher: Watcher<E>): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  endWatches(): void {
    for (const watcher of [...this.#watchers]) watcher.end();
  }

  compact(version: number): void {
    this.#history = this.#history.slice(this.#firstAfter(version));
    this.#oldest = Math.max(this.#oldest, version);
    this.#compacted = Math.max(this.#compacted, version);
    for (const pinned of this.#snapshots.keys()) if (pinned < version) this.#snapshots.delete(pinned);
  }

  restoreTo(version: number): void {
    const then = this.listAt(version);
    invariant(!("expired" in then), `version ${version} was compacted away`);
    this.#history.length = this.#firstAfter(version);
    this.#oldest = Math.min(this.#oldest, version);
    this.#born = Math.min(this.#born, version);
    this.#snapshots.clear();
    this.#entries.clear();
    for (const entry of then) this.#entries.set(entry.key, entry);
    this.#keys = then.map((entry) => entry.key);
    this.#added = [];
    this.#removed = false;
    this.#list = then;
    this.endWatches();
  }

  #record(event: StoreEvent<E>): void {
    this.#list = undefined;
    this.#history.push(event);
    // Twice the limit before cutting: one copy per `historyLimit` writes.
    if (this.#history.length >= 2 * this.#historyLimit) {
      this.compact(this.#history[this.#history.length - this.#historyLimit - 1]?.entry.version ?? event.entry.version);
    }
    for (const watcher of [...this.#watchers]) watcher.event(event);
  }

  /** One merge instead of a sort: a list after few changes among many objects stays cheap. */
  #sortKeys(): void {
    if (this.#added.length === 0 && !this.#removed) return;
    const added = [...new Set(this.#added)].sort();
    const merged: string[] = [];
    let next = 0;
    for (const key of this.#keys) {
      for (; next < added.length && (added[next] ?? "") < key; next += 1) merged.push(added[next] ?? "");
      if (added[next] === key) next += 1;
      merged.push(key);
    }
    this.#keys = merged.concat(added.slice(next)).filter((key) => this.#entries.has(key));
    this.#added = [];
    this.#removed = false;
  }

  #undo(version: number): readonly E[] {
    const then = new Map(this.#entries);
    for (let at = this.#history.length - 1; at >= 0; at -= 1) {
      const event = this.#history[at];
      if (event === undefined || event.entry.version <= version) break;
      if (event.before === undefined) then.delete(event.entry.key);
      else then.set(event.entry.key, event.before);
    }
    return [...then.values()].sort(byKey);
  }

  #keep(version: number, list: readonly E[]): readonly E[] {
    this.#snapshots.delete(version);
    this.#snapshots.set(version, list);
    for (const oldest of this.#snapshots.keys()) {
      if (this.#snapshots.size <= snapshotLimit) break;
      this.#snapshots.delete(oldest);
    }
    return list;
  }

  #firstAfter(version: number): number {
    let low = 0;
    let high = this.#history.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#history[middle]?.entry.version ?? 0) <= version) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function byKey(one: Entry, other: Entry): number {
  return one.key < other.key ? -1 : one.key > other.key ? 1 : 0;
}
