// Cattail's agents among writers that know nothing of it: what they write into the same blocks, rows, handles and pools, at random.
// Declared for any API server (api.ts). Judged by every version that a block has had, not by what is there in the end alone.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { blockOwner, checkBlock, holderOf, ordinalsPerHandle } from "../../shared/calico/block.ts";
import { readAffinity, readBlock, readHandle } from "../../shared/calico/codec.ts";
import { affinityName, apiPath, isWarmHandle, warmHandle } from "../../shared/calico/names.ts";
import type { Block, Handle, Kind, Objects } from "../../shared/calico/resources.ts";
import { addressAt, blockOf, familyOf, ordinalOf } from "../../shared/ip/cidr.ts";
import type { Address, CidrText, HandleId, NodeName } from "../../shared/kinds.ts";
import { seededRandom } from "../manual-world.ts";
import type { ApiClient, Manifest, TestApi } from "./api.ts";
import { CalicoWriters, holds } from "./calico-writers.ts";
import { Cluster, calicosDurability, ipPool, prepare } from "./cluster.ts";
import { temporaryFolder } from "./daemon.ts";
import { History, versionOf } from "./history.ts";
import { inParallel } from "./pool-of-work.ts";
import { newSandbox, type Runtime, type Sandbox } from "./runtime.ts";
import { settled } from "./settled.ts";

const nodes = ["node-a", "node-b"];
const calicoNode = "node-c";
/** Eight blocks of four addresses in each family: claims, borrowing and full pools all happen. */
const blockSize = { 4: 30, 6: 126 } as const;
const pools = [
  { name: "v4-a", cidr: "10.30.0.0/28" as CidrText, blockSize: blockSize[4] },
  { name: "v4-b", cidr: "10.30.1.0/28" as CidrText, blockSize: blockSize[4] },
  { name: "v6-a", cidr: "fd00:30::/124" as CidrText, blockSize: blockSize[6] },
  { name: "v6-b", cidr: "fd00:30:0:1::/124" as CidrText, blockSize: blockSize[6] },
];
/** Those that come and go; the others are left so that there is always some room. */
const fickle = ["v4-b", "v6-b"];
const hands = 5;
const podsAtMost = 10;
const calicoPodsAtMost = 8;

interface Pod {
  readonly runtime: Runtime;
  readonly sandbox: Sandbox;
  readonly addresses: readonly Address[];
}

/** How the agents are to answer: when all is written, or from a stock of addresses and on their journals' word. */
const durabilities = {
  "as Calico": calicosDurability,
  // Little stock, short delays: the pools are small and so is the time.
  "from stock": ["--commit", "async", "--flush-delay", "100ms", "--handle-delay", "500ms", "--warm-floor", "1"],
} as const;

export function foreignWriterTests(start: () => Promise<TestApi>, seconds: number): void {
  for (const durability of ["as Calico", "from stock"] as const) amongForeignWriters(start, seconds, durability);
}

function amongForeignWriters(
  start: () => Promise<TestApi>,
  seconds: number,
  durability: keyof typeof durabilities,
): void {
  const hasStock = durability === "from stock";
  describe(`among foreign writers, answering ${durability}`, { timeout: seconds * 1000 + 120_000 }, () => {
    const seed = Number(process.env.CATTAIL_TEST_SEED ?? randomInt(2 ** 31));
    const random = seededRandom(seed);
    let api: TestApi;
    let cluster: Cluster;
    let history: History;
    let calico: CalicoWriters;
    const live: Pod[] = [];
    const everAdded = new Set<string>();
    const answered: { readonly address: Address; readonly handle: HandleId }[] = [];
    /** Of those that are answered from stock some are gone before they are written: these were seen to be. */
    const seen = new Set<string>();
    const disabled = new Set<string>();

    before(async () => {
      api = await start();
      const made = pools.map(({ name, cidr, ...spec }) => ipPool(name, cidr, spec));
      const folder = await temporaryFolder("ct");
      const options = { api, folder, nodes, pools: made, namespace: "demo", agentFlags: durabilities[durability] };
      await prepare(options);
      history = await History.begin(api.admin, "block");
      calico = new CalicoWriters(api.admin, calicoNode, pools, random);
      cluster = await Cluster.start(options);
    });

    after(async () => {
      history?.stop();
      await cluster?.stop();
      await api?.stop();
    });

    test(`given Calico's writers at the same objects for ${seconds} s, then nobody loses an address or a field, and nothing is left over`, async (context) => {
      context.diagnostic(`CATTAIL_TEST_SEED=${seed}`);
      const end = performance.now() + seconds * 1000;
      const counts = new Map<string, number>();
      await inParallel(Array.from({ length: hands }), hands, async () => {
        while (performance.now() < end) {
          const what = await step();
          counts.set(what, (counts.get(what) ?? 0) + 1);
        }
      });
      context.diagnostic(JSON.stringify(Object.fromEntries([...counts].sort())));
      for (const pool of disabled) await calico.setDisabled(pool, false);

      await settled(() => history.isComplete());
      await whatIsHeldIsOnRecord();
      await nothingOfOursIsPending();
      for (const { runtime, sandbox } of live) assert.ok((await runtime.del(sandbox)).ok);
      while (calico.held.size > 0) await calico.release();
      await settled(async () => {
        await calico.giveUpAllEmpty();
        await nothingIsLeft();
      });
      await settled(() => history.isComplete());
      nobodyLostAnything();
    });

    /** One thing that happens, and its name. */
    async function step(): Promise<string> {
      const odds: readonly (readonly [number, string, () => Promise<unknown>])[] = [
        [live.length < podsAtMost ? 6 : 0, "add", addPod],
        [live.length > 0 ? 4 : 0, "delete", deletePod],
        [calico.held.size < calicoPodsAtMost ? 6 : 0, "calico add", () => calico.assign(oneFamily())],
        [5, "calico delete", () => calico.release()],
        [3, "touch", () => calico.touch()],
        [3, "annotate", () => calico.annotate()],
        [2, "give up empty", () => calico.giveUpEmpty()],
        [1, "switch pool", switchPool],
      ];
      let drawn = random.below(odds.reduce((sum, [weight]) => sum + weight, 0));
      for (const [weight, name, act] of odds) {
        drawn -= weight;
        if (drawn >= 0) continue;
        await act();
        return name;
      }
      return assert.fail("the odds do not add up");
    }

    async function addPod(): Promise<void> {
      const runtime = cluster.agent(pick(nodes)).runtime({ assign_ipv6: "true" });
      const sandbox = newSandbox("demo", `pod-${everAdded.size}`);
      const handle = handleOf(sandbox);
      everAdded.add(handle);
      const outcome = await runtime.add(sandbox);
      if (!outcome.ok) {
        // The pools are small: that there is no room is the one excuse.
        assert.equal(outcome.error.code, 100, JSON.stringify(outcome.error));
        assert.ok((await runtime.del(sandbox)).ok);
        return;
      }
      const addresses = outcome.addresses as readonly Address[];
      assert.equal(addresses.length, 2);
      answered.push(...addresses.map((address) => ({ address, handle })));
      live.push({ runtime, sandbox, addresses });
      if (!hasStock) await areHeld(addresses, handle);
    }

    async function deletePod(): Promise<void> {
      const [pod] = live.splice(random.below(live.length), 1);
      if (!pod) return;
      if (!hasStock || random.below(2) === 0) await areHeld(pod.addresses, handleOf(pod.sandbox));
      assert.ok((await pod.runtime.del(pod.sandbox)).ok);
    }

    async function switchPool(): Promise<void> {
      const pool = pick(fickle);
      if (disabled.delete(pool)) return calico.setDisabled(pool, false);
      disabled.add(pool);
      await (random.below(2) === 0 ? calico.retire(pool) : calico.setDisabled(pool, true));
    }

    function oneFamily(): string[] {
      const family = pick(["v4-a", "v6-a"]);
      return pools.map(({ name }) => name).filter((name) => name.startsWith(family.slice(0, 2)) && !disabled.has(name));
    }

    function pick<T>(items: readonly T[]): T {
      const item = items[random.below(items.length)];
      assert.ok(item !== undefined);
      return item;
    }

    async function areHeld(addresses: readonly Address[], handle: string): Promise<void> {
      for (const address of addresses) {
        const block = blockOf(address, blockSize[familyOf(address)]);
        const ordinal = ordinalOf(block, address);
        assert.ok(ordinal !== undefined);
        const isHeld = async (): Promise<void> => {
          assert.ok(await holds(api.admin, block, ordinal, handle), `${address} of ${handle}`);
        };
        await (hasStock ? settled(isHeld) : isHeld());
        seen.add(`${address} ${handle}`);
      }
    }

    /** Blocks say what runtimes and calico remember, and handles say what blocks say. */
    async function whatIsHeldIsOnRecord(): Promise<void> {
      const expected = new Map<string, string>(calico.held);
      for (const { addresses, sandbox } of live) for (const one of addresses) expected.set(one, handleOf(sandbox));
      await settled(async () => {
        const blocks = await all(api.admin, "block");
        const held = blocks.flatMap(heldIn).filter(([, handle]) => !isWarm(handle));
        assert.deepEqual(sorted(held), sorted(expected));
        const counted = (await all(api.admin, "handle")).flatMap(countsOf);
        assert.deepEqual(counted.sort(), blocks.flatMap(handleCountsOf).sort());
      });
    }

    /** Nothing at all, but for what lies in stock and the rows of its blocks. */
    async function nothingIsLeft(): Promise<void> {
      const blocks = await all(api.admin, "block");
      assert.deepEqual(await all(api.admin, "handle"), []);
      for (const block of blocks) {
        const holders = heldIn(block).map(([, handle]) => handle);
        assert.ok(holders.length > 0 && holders.every(isWarm), `${block.cidr}: ${holders.join(", ") || "empty"}`);
      }
      const rows = (await all(api.admin, "affinity")).map(({ name }) => name);
      assert.deepEqual(rows.sort(), blocks.flatMap(rowOf).sort());
    }

    function isWarm(handle: HandleId): boolean {
      return hasStock && nodes.some((node) => handle === warmHandle(node as NodeName));
    }

    function isOurs(handle: HandleId): boolean {
      return everAdded.has(handle) || isWarm(handle);
    }

    /** A row that is not confirmed, or belongs to no block, is left as another writer left it. */
    async function nothingOfOursIsPending(): Promise<void> {
      const rows = (await all(api.admin, "affinity")).filter(({ node }) => nodes.includes(node));
      const owned = new Set((await all(api.admin, "block")).flatMap(rowOf));
      const strange = rows.filter(({ state, deleted, name }) => state !== "confirmed" || deleted || !owned.has(name));
      assert.deepEqual(
        strange.filter(({ resourceVersion }) => !calico.wrote.has(resourceVersion)),
        [],
      );
    }

    function nobodyLostAnything(): void {
      const lives = new Map<string, number>();
      const last = new Map<string, Version>();
      for (const { type, object } of history.changes) {
        const next = { raw: object, block: parsed("block", object) };
        const previous = last.get(next.block.name);
        const earlier = previous?.block.uid === next.block.uid ? previous : undefined;
        if (type === "DELETED") {
          assert.deepEqual(heldIn(next.block), [], `${next.block.name} was deleted with addresses in it`);
          last.delete(next.block.name);
          continue;
        }
        last.set(next.block.name, next);
        assert.deepEqual(checkBlock(next.block), [], next.block.name);
        if (earlier) followsFrom(earlier, next);
        for (const key of begunIn(earlier?.block, next.block)) lives.set(key, (lives.get(key) ?? 0) + 1);
      }
      for (const key of [...seen, ...calico.had.map(keyOf)]) assert.equal(lives.get(key), 1, `${key}: without a break`);
      for (const key of answered.map(keyOf)) assert.ok((lives.get(key) ?? 0) <= 1, `${key}: without a break`);
    }

    function followsFrom(earlier: Version, next: Version): void {
      const said = `${next.block.name} at ${next.block.resourceVersion}, after ${earlier.block.resourceVersion}`;
      assert.ok(next.block.sequenceNumber >= earlier.block.sequenceNumber, said);
      if (calico.wrote.has(versionOf(next.raw))) return;
      assert.deepEqual(unknownParts(next.raw), unknownParts(earlier.raw), said);
      for (const ordinal of next.block.allocations.keys()) {
        const [was, is] = [holderOf(earlier.block, ordinal), holderOf(next.block, ordinal)];
        if (was !== undefined && !isOurs(was.handle)) {
          assert.deepEqual(is, was, `${said}, ordinal ${ordinal}`);
          assert.deepEqual(entryOf(next.block, ordinal), entryOf(earlier.block, ordinal), said);
        } else if (is !== undefined && was?.handle !== is.handle) {
          assert.ok(isOurs(is.handle), `${said}, ordinal ${ordinal} went to ${is.handle}`);
        }
      }
    }
  });
}

interface Version {
  readonly raw: Manifest;
  readonly block: Block;
}

function handleOf({ containerId }: Sandbox): HandleId {
  return `k8s-pod-network.${containerId}` as HandleId;
}

function keyOf({ address, handle }: { readonly address: Address; readonly handle: HandleId }): string {
  return `${address} ${handle}`;
}

function heldIn(block: Block): [Address, HandleId][] {
  return [...block.allocations.keys()].flatMap((ordinal) => {
    const holder = holderOf(block, ordinal);
    return holder ? [[addressAt(block.cidr, ordinal), holder.handle] as [Address, HandleId]] : [];
  });
}

/** Who came to hold what with this version. */
function begunIn(before: Block | undefined, block: Block): string[] {
  const known = new Set((before ? heldIn(before) : []).map(([address, handle]) => keyOf({ address, handle })));
  return heldIn(block)
    .map(([address, handle]) => keyOf({ address, handle }))
    .filter((key) => !known.has(key));
}

function countsOf({ handleId, block, deleted }: Handle): string[] {
  return [...block].map(([cidr, count]) => `${handleId} ${cidr} ${count}${deleted ? " deleted" : ""}`);
}

function handleCountsOf(block: Block): string[] {
  const handles = [...ordinalsPerHandle(block)].filter(([handle]) => !isWarmHandle(handle));
  return handles.map(([handle, count]) => `${handle} ${block.cidr} ${count}`);
}

function rowOf(block: Block): string[] {
  const owner = blockOwner(block);
  return owner && !block.deleted ? [affinityName(owner.name, block.cidr)] : [];
}

function entryOf(block: Block, ordinal: number): unknown {
  const index = block.allocations[ordinal];
  return typeof index === "number" ? block.attributes[index] : undefined;
}

/** What neither Calico nor Cattail knows. */
function unknownParts({ metadata, spec }: Manifest): unknown {
  const { labels, annotations, finalizers } = metadata as Record<string, unknown>;
  const { "projectcalico.org/metadata": _calicos, ...others } = (annotations ?? {}) as Record<string, unknown>;
  return { labels, annotations: others, finalizers, laterField: (spec as Record<string, unknown>).laterField };
}

function sorted(entries: Iterable<readonly [string, string]>): string[] {
  return [...entries].map(([address, handle]) => `${address} ${handle}`).sort();
}

const readers = { block: readBlock, affinity: readAffinity, handle: readHandle };

function parsed<K extends keyof typeof readers & Kind>(kind: K, raw: unknown): Objects[K] {
  const reading = readers[kind](raw, "crd");
  return reading.ok ? (reading.object as Objects[K]) : assert.fail(reading.problem);
}

async function all<K extends keyof typeof readers & Kind>(admin: ApiClient, kind: K): Promise<Objects[K][]> {
  const { items } = (await admin.must("GET", apiPath("crd", kind))) as { items: unknown[] };
  return items.map((raw) => parsed(kind, raw));
}
