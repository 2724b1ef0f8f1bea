// The server's copy of the cluster: every watched object, projected, with the indexes that decisions need. Pure; fed by server/upstream
// and by the answers to our own writes. Leaves to others where objects come from and who is told what (server/stream).
import { blockOwner, isIdle } from "../../shared/calico/block.ts";
import { blockName, handleName } from "../../shared/calico/names.ts";
import { compareVersions } from "../../shared/calico/resource-version.ts";
import {
  type Block,
  type Handle,
  type Kind,
  kinds,
  type Meta,
  type Objects,
  type Pool,
} from "../../shared/calico/resources.ts";
import { blockAtIndex, indexOfBlock } from "../../shared/calico/walk.ts";
import { cidrOf } from "../../shared/ip/cidr.ts";
import {
  type BlockCidr,
  type CidrText,
  type HandleId,
  type Instant,
  invariant,
  type NodeName,
  type ResourceVersion,
  type Uid,
} from "../../shared/kinds.ts";
import type { Clock } from "../../shared/world.ts";
import { FreeSpace } from "./free-space.ts";
import { Multimap } from "./multimap.ts";
import { OrderedBlocks } from "./ordered-blocks.ts";
import { sameValue } from "./same-value.ts";

/** One object became another; without `before` it is new, without `after` it is gone. Another uid is told as gone, then new. */
export type Change<K extends Kind = Kind> = {
  [P in K]: {
    readonly kind: P;
    readonly name: string;
    readonly before: Objects[P] | undefined;
    readonly after: Objects[P] | undefined;
  };
}[K];

/** An object that exists and could not be read: its name is taken, and for a block its addresses are too, where its CIDR is legible. */
export interface Unread extends Meta {
  readonly problem: string;
  readonly cidr?: CidrText;
}

export interface Freshness {
  readonly version: ResourceVersion;
  /** How long our view may have been behind: 0 while a watch is open and speaks as often as a healthy one does. */
  readonly ageMs: number;
  readonly synced: boolean;
  /** Since when every change has been seen: the last list. What came and went before it was not. */
  readonly wholeSince: Instant;
}

/** A healthy watch carries a bookmark about once a minute (kube-watch 4); silence up to this is no sign of anything. */
const quietLimitMs = 75_000;
/** Removals remembered per kind, so that an answer or a list made before one does not undo it. Beyond: such an object flickers. */
const maxRemoved = 4096;
const never = "0" as ResourceVersion;

interface Table<K extends Kind> {
  readonly objects: Map<string, Objects[K]>;
  unread: Map<string, Unread>;
  /** Oldest first. */
  readonly removed: Map<string, { readonly uid: Uid; readonly resourceVersion: ResourceVersion }>;
  sorted: readonly Objects[K][] | undefined;
  version: ResourceVersion;
  synced: boolean;
  open: boolean;
  heardAt: Instant;
  listedAt: Instant;
}

export class Store {
  /** +1 whenever the API server went back in time (kube-watch 7): whoever holds copies must compare them afresh. */
  epoch = 0;
  /** Calls of listeners that threw. */
  listenerFailures = 0;

  readonly #clock: Clock;
  readonly #onListenerFailure: (error: unknown) => void;
  readonly #tables: { readonly [K in Kind]: Table<K> };
  readonly #stakes = new Multimap<BlockCidr>();
  readonly #owners = new Multimap<BlockCidr>();
  readonly #affinities = new Multimap<string>();
  readonly #space = new FreeSpace();
  readonly #roomy = new OrderedBlocks();
  readonly #idle = new OrderedBlocks();
  readonly #marked = new OrderedBlocks();
  readonly #listeners = new Set<(change: Change) => void>();
  readonly #untold: Change[] = [];
  #telling = false;

  constructor(clock: Clock, onListenerFailure: (error: unknown) => void = () => {}) {
    this.#clock = clock;
    this.#onListenerFailure = onListenerFailure;
    const now = clock.monotonic();
    this.#tables = {
      pool: emptyTable(now),
      block: emptyTable(now),
      affinity: emptyTable(now),
      handle: emptyTable(now),
      config: emptyTable(now),
      reservation: emptyTable(now),
      node: emptyTable(now),
      namespace: emptyTable(now),
      cluster: emptyTable(now),
    };
  }

  get<K extends Kind>(kind: K, name: string): Objects[K] | undefined {
    return this.#table(kind).objects.get(name);
  }

  /** Live: changes with the store. */
  all<K extends Kind>(kind: K): ReadonlyMap<string, Objects[K]> {
    return this.#table(kind).objects;
  }

  /** Bytewise by name, the order in which the API server lists and Calico decides (spec 1.2). */
  sorted<K extends Kind>(kind: K): readonly Objects[K][] {
    const table = this.#table(kind);
    table.sorted ??= [...table.objects.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    return table.sorted;
  }

  /** Live: what exists and could not be read. */
  unread(kind: Kind): ReadonlyMap<string, Unread> {
    return this.#table(kind).unread;
  }

  /** From the watch or from the answer to an own write, in any order: whichever is newer stays. True = listeners were told. */
  put<K extends Kind>(kind: K, object: Objects[K]): boolean {
    if (!this.#isNews(kind, object)) return false;
    const changes = this.#set(kind, object);
    this.#tell(changes);
    return changes.length > 0;
  }

  /** The object is there but illegible. Its last legible version stays, if it is the same object. True = this is a new problem. */
  hold(kind: Kind, unread: Unread): boolean {
    if (!this.#isNews(kind, unread)) return false;
    const known = this.#table(kind).unread.get(unread.name);
    this.#setUnread(kind, unread.name, unread);
    const stored = this.get(kind, unread.name);
    if (stored !== undefined && stored.uid !== unread.uid) this.#tell(this.#delete(kind, stored.name));
    return known?.problem !== unread.problem;
  }

  /** `at`: what was removed, and the version of that removal or of what we removed; something newer under that name stays. */
  remove(kind: Kind, name: string, at?: { readonly uid: Uid; readonly resourceVersion: ResourceVersion }): boolean {
    const stored = this.get(kind, name);
    if (at !== undefined) this.#remember(kind, name, at);
    const unread = this.#table(kind).unread.get(name);
    if (unread !== undefined && !outlives(unread, at)) this.#setUnread(kind, name, undefined);
    if (stored === undefined || outlives(stored, at)) return false;
    this.#tell(this.#delete(kind, name));
    return true;
  }

  /** The whole of a kind as of `version`, from a consistent list. Listeners are told the difference: first what is gone, then the rest. */
  replace<K extends Kind>(
    kind: K,
    objects: readonly Objects[K][],
    version: ResourceVersion,
    unread: readonly Unread[] = [],
  ): void {
    const table = this.#table(kind);
    const wentBack = isBefore(version, table.version);
    if (wentBack) {
      this.epoch++;
      table.removed.clear();
    }
    const listed = new Map<string, Meta>();
    for (const item of objects) listed.set(item.name, item);
    for (const item of unread) listed.set(item.name, item);

    const gone: Change[] = [];
    const rest: Change[] = [];
    for (const stored of [...table.objects.values()]) {
      // Newer than the list: our own write, of which the watch will tell next.
      if (!wentBack && isBefore(version, stored.resourceVersion)) continue;
      const item = listed.get(stored.name);
      if (item?.uid === stored.uid) continue;
      this.#remember(kind, stored.name, { uid: stored.uid, resourceVersion: version });
      gone.push(...this.#delete(kind, stored.name));
    }
    for (const name of [...table.unread.keys()]) this.#setUnread(kind, name, undefined);
    for (const item of unread) this.#setUnread(kind, item.name, item);
    for (const item of objects) if (wentBack || this.#isNews(kind, item)) rest.push(...this.#set(kind, item));

    table.version = version;
    table.synced = true;
    table.listedAt = this.#clock.monotonic();
    table.heardAt = table.listedAt;
    this.#tell([...gone, ...rest]);
  }

  /** The watch has told everything up to this version. */
  bookmark(kind: Kind, version: ResourceVersion): void {
    const table = this.#table(kind);
    if (!isBefore(version, table.version)) table.version = version;
    table.heardAt = this.#clock.monotonic();
  }

  /** The kind's watch is open. */
  opened(kind: Kind): void {
    const table = this.#table(kind);
    table.open = true;
    table.heardAt = this.#clock.monotonic();
  }

  /** The kind's watch has ended; its other end was last known to be there at `heardAt`. */
  closed(kind: Kind, heardAt: Instant): void {
    const table = this.#table(kind);
    table.open = false;
    table.heardAt = heardAt;
  }

  /** Called with every change, in order, after the store and its indexes have it. One that throws is counted and does not disturb the others. */
  listen(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  blockAt(cidr: BlockCidr): Block | undefined {
    return this.get("block", blockName(cidr));
  }

  /** Blocks that are the node's (`host:<node>`) or in which an address is its; live. */
  blocksWithStake(node: NodeName): ReadonlySet<BlockCidr> {
    return this.#stakes.get(node);
  }

  /** By the block's own word: `host:<node>`, `virtual:load-balancer`; live. */
  blocksOwnedBy(affinity: string): ReadonlySet<BlockCidr> {
    return this.#owners.get(affinity);
  }

  /** Names of the BlockAffinity objects with this `spec.node`, of either type; live. */
  affinitiesOf(node: string): ReadonlySet<string> {
    return this.#affinities.get(node);
  }

  handleById(id: HandleId): Handle | undefined {
    const handle = this.get("handle", handleName(id));
    return handle?.handleId === id ? handle : undefined;
  }

  /** The first block of the pool's size, from index `from` on and around, that overlaps no existing block object, soft-deleted and unread ones included. */
  nextFreeBlock(pool: Pool, from: bigint): BlockCidr | undefined {
    const unread = this.unread("block");
    let start = from;
    // An unread block without a legible CIDR is known by its name alone: one more try for each of them at most.
    for (let tries = 0; tries <= unread.size; tries++) {
      const found = this.#space.firstFree(pool.cidr, pool.blockSize, start);
      if (found === undefined) return undefined;
      if (!unread.has(blockName(found.cidr))) return found.cidr;
      start = found.index + 1n;
    }
    return undefined;
  }

  /**
   * Blocks of the pool's size that have a free address or will have when one has cooled down, whoever owns them and if nobody does; once
   * around from this index on, as Calico looks for one to borrow from. Load-balancer blocks are nobody's to borrow from (trap 83).
   */
  blocksWithRoom(pool: Pool, from: bigint): Iterable<Block> {
    return this.#blocksOf(pool, from, this.#roomy);
  }

  /** Blocks of the pool's size that a node owns and nobody uses, or will have stopped to use when what cools down has. In the same order. */
  idleBlocks(pool: Pool, from: bigint): Iterable<Block> {
    return this.#blocksOf(pool, from, this.#idle);
  }

  /** Blocks in the pool, of any size, that somebody marked as deleted and has not deleted yet. */
  markedBlocks(pool: Pool): Iterable<Block> {
    return this.#found(this.#marked.around(pool.cidr, cidrOf(pool.cidr).base));
  }

  *#blocksOf(pool: Pool, from: bigint, blocks: OrderedBlocks): Generator<Block> {
    const start = cidrOf(blockAtIndex(pool, from)).base;
    for (const block of this.#found(blocks.around(pool.cidr, start))) {
      if (indexOfBlock(pool, block.cidr) !== undefined) yield block;
    }
  }

  *#found(cidrs: Iterable<BlockCidr>): Generator<Block> {
    for (const cidr of cidrs) {
      const block = this.blockAt(cidr);
      if (block !== undefined) yield block;
    }
  }

  /** A block object overlaps this range, whatever its size, soft-deleted and unread ones included. */
  isTaken(range: BlockCidr): boolean {
    return (
      this.#space.firstFree(range, cidrOf(range).prefix, 0n) === undefined || this.unread("block").has(blockName(range))
    );
  }

  freshness(kind: Kind): Freshness {
    const { version, open, heardAt, synced, listedAt: wholeSince } = this.#table(kind);
    const silenceMs = this.#clock.monotonic() - heardAt;
    return { version, ageMs: open && silenceMs <= quietLimitMs ? 0 : silenceMs, synced, wholeSince };
  }

  /** Every kind has been listed once. */
  synced(): boolean {
    return kinds.every((kind) => this.#table(kind).synced);
  }

  #table<K extends Kind>(kind: K): Table<K> {
    return this.#tables[kind];
  }

  #isNews(kind: Kind, item: Meta): boolean {
    const { objects, unread, removed } = this.#table(kind);
    const gone = removed.get(item.name);
    if (gone?.uid === item.uid && !isBefore(gone.resourceVersion, item.resourceVersion)) return false;
    const known = [objects.get(item.name), unread.get(item.name)];
    return known.every((one) => one === undefined || !isSameOrBefore(item.resourceVersion, one.resourceVersion));
  }

  #set<K extends Kind>(kind: K, after: Objects[K]): Change[] {
    const table = this.#table(kind);
    this.#setUnread(kind, after.name, undefined);
    table.removed.delete(after.name);
    const stored = table.objects.get(after.name);
    const changes = stored !== undefined && stored.uid !== after.uid ? this.#delete(kind, after.name) : [];
    const before = table.objects.get(after.name);
    table.objects.set(after.name, after);
    table.sorted = undefined;
    // Equal but for its version: an own write come back, or a change of something we do not keep.
    if (before !== undefined && sameValue({ ...before, resourceVersion: after.resourceVersion }, after)) return changes;
    return [...changes, this.#changed(kind, after.name, before, after)];
  }

  #delete(kind: Kind, name: string): Change[] {
    const table = this.#table(kind);
    const before = table.objects.get(name);
    if (before === undefined) return [];
    table.objects.delete(name);
    table.sorted = undefined;
    return [this.#changed(kind, name, before, undefined)];
  }

  #changed<K extends Kind>(
    kind: K,
    name: string,
    before: Objects[K] | undefined,
    after: Objects[K] | undefined,
  ): Change {
    // The compiler does not see that kind, before and after are of one K.
    const change = { kind, name, before, after } as unknown as Change;
    this.#index(change);
    return change;
  }

  #index(change: Change): void {
    if (change.kind === "block") this.#indexBlock(change);
    if (change.kind === "affinity") {
      this.#affinities.move(change.name, setOf(change.before?.node), setOf(change.after?.node));
    }
  }

  #indexBlock({ before, after }: Change<"block">): void {
    if (after !== undefined) invariant(after.name === blockName(after.cidr), `block ${after.name} is at ${after.cidr}`);
    if (before !== undefined && before.cidr !== after?.cidr) this.#moveBlock(before.cidr, before, undefined);
    if (after !== undefined) this.#moveBlock(after.cidr, before?.cidr === after.cidr ? before : undefined, after);
  }

  #moveBlock(cidr: BlockCidr, before: Block | undefined, after: Block | undefined): void {
    this.#owners.move(cidr, setOf(before?.affinity), setOf(after?.affinity));
    this.#stakes.move(cidr, stakesIn(before), stakesIn(after));
    if (before === undefined) this.#space.add(cidr);
    if (after === undefined) this.#space.remove(cidr);
    list(this.#roomy, cidr, after !== undefined && mayHaveRoom(after));
    list(this.#idle, cidr, after !== undefined && mayBeIdle(after));
    list(this.#marked, cidr, after?.deleted === true);
  }

  #setUnread(kind: Kind, name: string, unread: Unread | undefined): void {
    const table = this.#table(kind);
    const before = table.unread.get(name);
    if (before?.cidr !== undefined) this.#space.remove(before.cidr);
    if (unread?.cidr !== undefined) this.#space.add(unread.cidr);
    if (unread === undefined) table.unread.delete(name);
    else table.unread.set(name, unread);
  }

  #remember(kind: Kind, name: string, at: { readonly uid: Uid; readonly resourceVersion: ResourceVersion }): void {
    const { removed } = this.#table(kind);
    removed.delete(name);
    removed.set(name, at);
    if (removed.size <= maxRemoved) return;
    for (const oldest of removed.keys()) {
      removed.delete(oldest);
      return;
    }
  }

  /** Changes that a listener causes are told after the present one has been told to all. */
  #tell(changes: readonly Change[]): void {
    this.#untold.push(...changes);
    if (this.#telling) return;
    this.#telling = true;
    for (let change = this.#untold.shift(); change !== undefined; change = this.#untold.shift()) {
      for (const listener of this.#listeners) this.#call(listener, change);
    }
    this.#telling = false;
  }

  #call(listener: (change: Change) => void, change: Change): void {
    try {
      listener(change);
    } catch (error) {
      this.listenerFailures++;
      this.#onListenerFailure(error);
    }
  }
}

function emptyTable<K extends Kind>(now: Instant): Table<K> {
  return {
    objects: new Map(),
    unread: new Map(),
    removed: new Map(),
    sorted: undefined,
    version: never,
    synced: false,
    open: false,
    heardAt: now,
    listedAt: now,
  };
}

/** Unordered versions (kube-watch 7) are before nothing. */
function isBefore(a: ResourceVersion, b: ResourceVersion): boolean {
  return compareVersions(a, b) === -1;
}

function isSameOrBefore(a: ResourceVersion, b: ResourceVersion): boolean {
  return a === b || isBefore(a, b);
}

/** Whether a removal concerns something older than this. */
function outlives(
  item: Meta,
  at: { readonly uid: Uid; readonly resourceVersion: ResourceVersion } | undefined,
): boolean {
  if (at === undefined) return false;
  const order = compareVersions(item.resourceVersion, at.resourceVersion);
  return order === undefined ? item.uid !== at.uid : order > 0;
}

/** The nodes that a block concerns: its owner, and whoever has an address in it. */
export function stakesIn(block: Block | undefined): ReadonlySet<NodeName> {
  const nodes = new Set<NodeName>();
  if (block?.affinity?.startsWith("host:")) nodes.add(block.affinity.slice("host:".length) as NodeName);
  for (const { secondary } of block?.attributes ?? []) {
    if (secondary?.node !== undefined) nodes.add(secondary.node as NodeName);
  }
  return nodes;
}

function setOf(key: string | undefined): ReadonlySet<string> {
  return new Set(key === undefined ? [] : [key]);
}

function list(blocks: OrderedBlocks, cidr: BlockCidr, belongs: boolean): void {
  if (belongs) blocks.add(cidr);
  else blocks.remove(cidr);
}

function mayHaveRoom(block: Block): boolean {
  if (block.deleted || blockOwner(block)?.type === "virtual") return false;
  return block.unallocated.length > 0 || block.attributes.some(({ releasedAt }) => releasedAt !== undefined);
}

function mayBeIdle(block: Block): boolean {
  // What cools down counts as free here: no index follows the clock.
  return !block.deleted && blockOwner(block)?.type === "host" && isIdle(block);
}
