// Other writers of a cluster, writing as Calico writes (spec 2, 3, 6): calico-ipam of a node of its own, kube-controllers, calicoctl, an operator.
// Whole objects by PUT with the version that was read, so what Calico does not know is dropped (trap 17). What ours must make of it is left to the tests.
import assert from "node:assert/strict";
import {
  assign,
  blockOwner,
  bump,
  collect,
  disown,
  freeOrdinals,
  holderOf,
  isEmpty,
  newBlock,
  ordinalsOfHandle,
  releaseByHandle,
} from "../../shared/calico/block.ts";
import {
  type ApiObject,
  newAffinityObject,
  newBlockObject,
  newHandleObject,
  type Reading,
  readAffinity,
  readBlock,
  readHandle,
} from "../../shared/calico/codec.ts";
import { apiPath, blockName, handleName } from "../../shared/calico/names.ts";
import type { AffinityState, Block, BlockAttribute, BlockState, Kind } from "../../shared/calico/resources.ts";
import { candidateBlocks } from "../../shared/calico/walk.ts";
import { addressAt, contains } from "../../shared/ip/cidr.ts";
import { printLossless } from "../../shared/json/lossless.ts";
import type { Address, BlockCidr, CidrText, HandleId, Sequence, UnixMs } from "../../shared/kinds.ts";
import type { Random } from "../../shared/world.ts";
import type { ApiClient, Manifest } from "./api.ts";
import { versionOf } from "./history.ts";

/** Calico's own bound on every loop (spec appendix B). */
const tries = 100;

export interface CalicoPool {
  readonly name: string;
  readonly cidr: CidrText;
  readonly blockSize: number;
}

export class CalicoWriters {
  readonly node: string;
  /** What its pods hold, by its own books. */
  readonly held = new Map<Address, HandleId>();
  /** Every address that a pod of it ever had. */
  readonly had: { readonly address: Address; readonly handle: HandleId }[] = [];
  /** Versions of objects that it wrote. */
  readonly wrote = new Set<string>();
  readonly #admin: ApiClient;
  readonly #random: Random;
  readonly #pools: readonly CalicoPool[];

  constructor(admin: ApiClient, node: string, pools: readonly CalicoPool[], random: Random) {
    this.#admin = admin;
    this.node = node;
    this.#pools = pools;
    this.#random = random;
  }

  /** AutoAssign of one address: from an own block, else from one that it claims, else from anybody's (spec 2.6, 2.7, 2.13). */
  async assign(pools: readonly string[]): Promise<void> {
    const chosen = this.#pools.filter(({ name }) => pools.includes(name));
    for (const cidr of await this.#candidates(chosen)) if (await this.#assignFrom(cidr)) return;
  }

  /** As a DEL does (spec 3.3), of whatever it likes. */
  async release(): Promise<void> {
    const [address, handle] = [...this.held][this.#below(this.held.size)] ?? [];
    if (address === undefined || handle === undefined) return;
    this.held.delete(address);
    const { block } = read(readHandle, await this.#get("handle", handleName(handle)));
    for (const [cidr, count] of block) assert.equal(await this.#releaseIn(cidr, handle), count, `${handle} in ${cidr}`);
  }

  /** The controllers write a block whose cool-downs have ended, and nothing else changes (spec 6.6). */
  async touch(): Promise<void> {
    const block = await this.#anyBlock();
    if (block) await this.#putBlock(block, bump(collect(block, cooling())));
  }

  /** The controllers give up a block that has no address in it, whoever's it is (spec 6.6). */
  async giveUpEmpty(): Promise<void> {
    const empty = (await this.#blocks()).filter((block) => isEmpty(block) && block.affinity !== undefined);
    const block = empty[this.#below(empty.length)];
    if (block) await this.#releaseAffinity(block.cidr, "empty only");
  }

  async giveUpAllEmpty(): Promise<void> {
    for (const block of await this.#blocks()) await this.#releaseAffinity(block.cidr, "empty only");
  }

  /** What deleting a pool through Calico's client begins with (spec 6.12): the pool is disabled, and its blocks are nobody's. */
  async retire(pool: string): Promise<void> {
    await this.setDisabled(pool, true);
    const range = this.#pools.find(({ name }) => name === pool)?.cidr;
    for (const { cidr } of await this.#blocks()) {
      if (range !== undefined && contains(range, cidr)) await this.#releaseAffinity(cidr, "in use too");
    }
  }

  async setDisabled(name: string, disabled: boolean): Promise<void> {
    const path = apiPath("crd", "pool", name);
    const pool = (await this.#admin.must("GET", path)) as WithSpec;
    await this.#put("pool", { ...pool, spec: { ...pool.spec, disabled } });
  }

  /** Somebody who adds what neither Calico nor Cattail knows, and keeps the rest. */
  async annotate(): Promise<void> {
    const name = (await this.#anyBlock())?.name;
    const raw = name === undefined ? undefined : ((await this.#get("block", name)) as WithSpec | undefined);
    if (!raw) return;
    const mark = this.#random.hex(4);
    await this.#put("block", {
      ...raw,
      metadata: {
        ...raw.metadata,
        labels: { ...raw.metadata.labels, "example.com/mark": mark },
        annotations: { ...raw.metadata.annotations, "example.com/note": mark },
      },
      spec: { ...raw.spec, laterField: { mark, list: [1, { deep: mark }] } },
    });
  }

  async #candidates(pools: readonly CalicoPool[]): Promise<BlockCidr[]> {
    const blocks = await this.#blocks();
    const within = ({ cidr }: Block) => pools.some((pool) => contains(pool.cidr, cidr));
    const own = blocks.filter((block) => within(block) && blockOwner(block)?.name === this.node);
    const walk = pools.flatMap((pool) => [...candidateBlocks(pool, this.node, this.#random)]);
    const taken = new Set(blocks.map(({ cidr }) => cidr));
    const free = walk.filter((cidr) => !taken.has(cidr));
    return [...own.map(({ cidr }) => cidr), ...free, ...walk.filter((cidr) => taken.has(cidr))];
  }

  /** Handle first, block second; a lost race is taken back and decided afresh (spec 2.12). */
  async #assignFrom(cidr: BlockCidr): Promise<boolean> {
    const handle = `k8s-pod-network.${this.#random.hex(32)}` as HandleId;
    const secondary = { namespace: "theirs", node: this.node, pod: `pod-${this.#random.hex(4)}` };
    for (let left = tries; left > 0; left--) {
      const found = (await this.#block(cidr)) ?? (await this.#claim(cidr));
      const block = found && collect(found, cooling());
      const ordinal = block && freeOrdinals(block)[0];
      if (found === undefined || block === undefined || ordinal === undefined) return false;
      await this.#count(handle, cidr, 1);
      if (await this.#putBlock(found, bump(assign(block, [ordinal], { handle, secondary })))) {
        const address = addressAt(cidr, ordinal);
        this.held.set(address, handle);
        this.had.push({ address, handle });
        return true;
      }
      await this.#count(handle, cidr, -1);
    }
    return assert.fail(`${cidr}: ${tries} conflicts`);
  }

  /** How many addresses it had. */
  async #releaseIn(cidr: BlockCidr, handle: HandleId): Promise<number> {
    for (let left = tries; left > 0; left--) {
      const block = await this.#block(cidr);
      const count = block ? ordinalsOfHandle(block, handle).length : 0;
      if (!block || count === 0) return 0;
      const next = releaseByHandle(block, handle, cooling());
      const isOver = isEmpty(next) && next.affinity === undefined;
      if (!(await (isOver ? this.#deleteBlock({ ...block, ...next }) : this.#putBlock(block, bump(next))))) continue;
      await this.#count(handle, cidr, -count);
      return count;
    }
    return assert.fail(`${cidr}: ${tries} conflicts`);
  }

  /** Affinity, block, affinity (spec 2.11). Undefined: somebody else was quicker. */
  async #claim(cidr: BlockCidr): Promise<Block | undefined> {
    const row = await this.#row(cidr, this.node, "pending");
    if (!row) return undefined;
    const now = Date.now() as UnixMs;
    const sequence = (BigInt(now) * 1_000_000n + BigInt(this.#below(1_000_000))) as Sequence;
    const state = newBlock({ cidr, affinity: `host:${this.node}`, now, sequence });
    const made = await this.#post("block", newBlockObject("crd", cidr, state));
    const block = made ? read(readBlock, made) : await this.#block(cidr);
    const isOurs = block !== undefined && blockOwner(block)?.name === this.node;
    if (!isOurs) await this.#dropRow(row);
    return isOurs && (await this.#row(cidr, this.node, "confirmed")) ? block : undefined;
  }

  /** Spec 3.5. */
  async #releaseAffinity(cidr: BlockCidr, which: "empty only" | "in use too"): Promise<void> {
    const block = await this.#block(cidr);
    const owner = block && blockOwner(block);
    if (!block || !owner || (which === "empty only" && !isEmpty(block))) return;
    const row = await this.#row(cidr, owner.name, "pendingDeletion");
    if (!row) return;
    const isDone = isEmpty(block) ? await this.#deleteBlock(block) : await this.#putBlock(block, bump(disown(block)));
    if (isDone) await this.#dropRow(row);
  }

  /** Puts the row into that state and, if it is to be pending, makes it. Undefined: lost to another writer. */
  async #row(cidr: BlockCidr, node: string, state: AffinityState): Promise<Manifest | undefined> {
    const object = withMetadata(newAffinityObject("crd", { node, cidr, type: "host", state }), {});
    const raw = (await this.#get("affinity", object.metadata.name)) as Manifest | undefined;
    if (raw === undefined) return state === "pending" ? this.#post("affinity", object) : undefined;
    const row = read(readAffinity, raw);
    if (row.deleted) {
      await this.#delete("affinity", raw);
      return undefined;
    }
    // A confirmed row is nobody's to make pending again.
    if (state === "pending" && row.state === "confirmed") return raw;
    return this.#put("affinity", withMetadata(object, { resourceVersion: row.resourceVersion }));
  }

  async #dropRow(row: Manifest): Promise<void> {
    const marked = await this.#put("affinity", { ...row, spec: { ...(row as WithSpec).spec, deleted: "true" } });
    if (marked) await this.#delete("affinity", marked);
  }

  /** Any failure begins anew (spec 2.12); without a count left the object goes. */
  async #count(handle: HandleId, cidr: BlockCidr, change: number): Promise<void> {
    for (let left = tries; left > 0; left--) {
      const raw = await this.#get("handle", handleName(handle));
      const handleNow = raw === undefined ? undefined : read(readHandle, raw);
      const block = new Map(handleNow?.block);
      const count = (block.get(cidr) ?? 0) + change;
      if (count > 0) block.set(cidr, count);
      else block.delete(cidr);
      const object = newHandleObject("crd", handle, block);
      if (handleNow === undefined) {
        if (await this.#post("handle", object)) return;
        continue;
      }
      const { uid, resourceVersion } = handleNow;
      const next = withMetadata(object, { uid, resourceVersion });
      if (block.size > 0 ? await this.#put("handle", next) : await this.#softDelete("handle", next)) return;
    }
    assert.fail(`${handle}: ${tries} conflicts`);
  }

  /** A block that is marked as deleted is deleted by whoever reads it (spec 1.5). */
  async #block(cidr: BlockCidr): Promise<Block | undefined> {
    const raw = await this.#get("block", blockName(cidr));
    if (raw === undefined) return undefined;
    const block = read(readBlock, raw);
    if (!block.deleted) return block;
    await this.#deleteBlock(block);
    return undefined;
  }

  async #anyBlock(): Promise<Block | undefined> {
    const blocks = await this.#blocks();
    return blocks[this.#below(blocks.length)];
  }

  async #blocks(): Promise<Block[]> {
    const { items } = (await this.#admin.must("GET", apiPath("crd", "block"))) as { items: unknown[] };
    return items.map((raw) => read(readBlock, raw)).filter(({ deleted }) => !deleted);
  }

  async #putBlock(before: Block, state: BlockState): Promise<boolean> {
    return (await this.#put("block", blockObject(before, state))) !== undefined;
  }

  #deleteBlock(block: Block): Promise<boolean> {
    return this.#softDelete("block", blockObject(block, block));
  }

  /** Only the mark is compared and swapped; what follows knows the uid alone (spec 1.5). */
  async #softDelete(kind: "block" | "handle", object: WithSpec): Promise<boolean> {
    const marked = await this.#put(kind, { ...object, spec: { ...object.spec, deleted: true } });
    if (marked) await this.#delete(kind, marked);
    return marked !== undefined;
  }

  async #delete(kind: Kind, { metadata }: Manifest): Promise<void> {
    const answer = await this.#admin.call("DELETE", apiPath("crd", kind, metadata.name), {
      apiVersion: "v1",
      kind: "DeleteOptions",
      preconditions: { uid: metadata.uid },
    });
    assert.ok(answer.status < 300 || [404, 409].includes(answer.status), printLossless(answer));
  }

  async #get(kind: Kind, name: string): Promise<unknown> {
    const path = apiPath("crd", kind, name);
    const answer = await this.#admin.call("GET", path);
    if (answer.status === 404) return undefined;
    assert.equal(answer.status, 200, path);
    return answer.body;
  }

  #post(kind: Kind, object: unknown): Promise<Manifest | undefined> {
    return this.#write("POST", apiPath("crd", kind), object);
  }

  #put(kind: Kind, object: Manifest): Promise<Manifest | undefined> {
    return this.#write("PUT", apiPath("crd", kind, object.metadata.name), object);
  }

  /** Undefined: there is one already, it has another version by now, or it is gone. */
  async #write(method: string, path: string, object: unknown): Promise<Manifest | undefined> {
    const { status, body } = await this.#admin.call(method, path, object);
    if (status === 404 || status === 409) return undefined;
    if (status >= 300) assert.fail(`${method} ${path} was answered ${status}: ${printLossless(body)}`);
    this.wrote.add(versionOf(body as Manifest));
    return body as Manifest;
  }

  #below(limit: number): number {
    return limit === 0 ? 0 : this.#random.below(limit);
  }
}

/** As the API has it: held by that handle. */
export async function holds(admin: ApiClient, block: BlockCidr, ordinal: number, handle: string): Promise<boolean> {
  const answer = await admin.call("GET", apiPath("crd", "block", blockName(block)));
  return answer.status === 200 && holderOf(read(readBlock, answer.body), ordinal)?.handle === handle;
}

interface WithSpec extends Manifest {
  readonly metadata: Manifest["metadata"] & { readonly labels?: object; readonly annotations?: object };
  readonly spec: object;
}

function cooling(): { now: UnixMs; cooldownSeconds: number } {
  return { now: Date.now() as UnixMs, cooldownSeconds: 0 };
}

function blockObject(before: Block, state: BlockState): WithSpec {
  const object = newBlockObject("crd", before.cidr, { ...state, attributes: state.attributes.map(knownPart) });
  return withMetadata(object, { resourceVersion: before.resourceVersion });
}

function withMetadata(object: ApiObject, more: object): WithSpec {
  return { ...object, metadata: { ...(object.metadata as object), ...more } } as unknown as WithSpec;
}

/** Calico's types have no other fields. */
function knownPart({ handle_id, secondary, alternateOwnerAttrs, releasedAt }: BlockAttribute): BlockAttribute {
  return Object.fromEntries(
    Object.entries({ handle_id, secondary, alternateOwnerAttrs, releasedAt }).filter(
      ([, value]) => value !== undefined,
    ),
  );
}

function read<T>(reader: (raw: unknown, group: "crd") => Reading<T>, raw: unknown): T {
  const reading = reader(raw, "crd");
  return reading.ok ? reading.object : assert.fail(reading.problem);
}
