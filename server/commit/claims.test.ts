// Claims against the embedded API server: Calico's two phases, its crash leftovers, and two claimants at once.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  assign,
  checkBlock,
  disown,
  freeOrdinals,
  giveBack,
  holderOf,
  newBlock,
  numFree,
} from "../../shared/calico/block.ts";
import { newAffinityObject, newBlockObject, readBlock } from "../../shared/calico/codec.ts";
import { affinityName, resourceOf } from "../../shared/calico/names.ts";
import {
  type AffinityState,
  type Block,
  type BlockState,
  defaultIpamConfig,
  type Kind,
} from "../../shared/calico/resources.ts";
import { printLossless } from "../../shared/json/lossless.ts";
import type {
  BlockCidr,
  HandleId,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import { type CommitWorld, commitWorld, mortal, type Replica } from "../../test/commit-world.ts";
import type { ClaimAnswer } from "./claims.ts";

const first = 1_787_405_600_123_456_789n as Sequence;
const claimedAt = Date.parse("2026-01-02T03:04:05Z") as UnixMs;
const anyMeta = { name: "default", uid: "any" as Uid, resourceVersion: "9" as ResourceVersion };
/** Where Calico begins for node-a in a /24 of /29 blocks. */
const startOfNodeA = "10.10.0.80/29";

for (const group of ["crd", "v3"] as const)
  describe(`API group ${group}`, () => {
    function typeOf(kind: Kind): { apiVersion: string; kind: string } {
      const resource = resourceOf(group, kind);
      return { apiVersion: resource.apiVersion, kind: resource.kind };
    }

    function given(seed: readonly unknown[]): CommitWorld {
      return commitWorld(seed, 1, group);
    }

    /** As an affinity says it (trap 6). */
    function mark(deleted: boolean): string | boolean {
      return group === "crd" ? String(deleted) : deleted;
    }

    function pool(name = "pool-v4", cidr = "10.10.0.0/24", blockSize = 29): unknown {
      return { ...typeOf("pool"), metadata: { name }, spec: { cidr, blockSize } };
    }

    function config(spec: object): unknown {
      const defaults = { strictAffinity: false, autoAllocateBlocks: true };
      return {
        ...typeOf("config"),
        metadata: { name: "default" },
        spec: { ...defaults, ...spec },
      };
    }

    function reservation(...reservedCIDRs: string[]): unknown {
      const metadata = { name: "keep-out" };
      return { ...typeOf("reservation"), metadata, spec: { reservedCIDRs } };
    }

    function block(cidr: string, node: string): unknown {
      const at = cidr as BlockCidr;
      return newBlockObject(
        group,
        at,
        newBlock({ cidr: at, affinity: `host:${node}`, now: claimedAt, sequence: first }),
      );
    }

    function row(cidr: string, node: string, state: AffinityState): unknown {
      return newAffinityObject(group, { cidr: cidr as BlockCidr, node, state, type: "host" });
    }

    function claim(
      replica: Replica,
      more: { node?: string; pools?: string[]; full?: string[]; borrow?: boolean } = {},
    ) {
      const { node = "node-a", pools = ["pool-v4"], full = [], borrow = false } = more;
      return replica.claims.claim({
        node: node as NodeName,
        pools: pools as PoolName[],
        full: new Set(full as BlockCidr[]),
        borrow,
      });
    }

    function cidrOf(answer: ClaimAnswer): string {
      assert.equal(answer.kind, "claimed", printLossless(answer));
      return answer.block.cidr;
    }

    function reasonOf(answer: ClaimAnswer): string {
      assert.equal(answer.kind, "problem", printLossless(answer));
      return answer.problem.reason;
    }

    function rows(world: CommitWorld): Record<string, string> {
      return Object.fromEntries(
        world.api.server.objects("blockaffinities").map((raw) => [Object(raw.metadata).name, Object(raw.spec).state]),
      );
    }

    function blocks(world: CommitWorld): Record<string, string> {
      return Object.fromEntries(
        world.api.server.objects("ipamblocks").map((raw) => [Object(raw.spec).cidr, Object(raw.spec).affinity]),
      );
    }

    test("given no block, when a node claims one, then it costs three writes and no read, and the objects are Calico's", async () => {
      const world = given([pool()]);
      const answer = await claim(world.replica());
      assert.equal(cidrOf(answer), startOfNodeA);
      assert.deepEqual(world.api.requests, [
        "create blockaffinities/node-a-10-10-0-80-29",
        "create ipamblocks/10-10-0-80-29",
        "patch blockaffinities/node-a-10-10-0-80-29",
      ]);
      const [affinity] = world.api.server.objects("blockaffinities");
      assert.deepEqual(affinity?.spec, {
        cidr: startOfNodeA,
        deleted: mark(false),
        node: "node-a",
        state: "confirmed",
        type: "host",
      });
      const [made] = world.api.server.objects("ipamblocks");
      const { sequenceNumber, affinityClaimTime, ...spec } = Object(made?.spec);
      assert.deepEqual(spec, {
        affinity: "host:node-a",
        allocations: Array(8).fill(null),
        attributes: [],
        cidr: startOfNodeA,
        deleted: false,
        sequenceNumberForAllocation: {},
        strictAffinity: false,
        unallocated: [0, 1, 2, 3, 4, 5, 6, 7],
      });
      assert.equal(affinityClaimTime, "2030-01-01T14:00:00Z");
      assert.equal(sequenceNumber, BigInt(Date.parse("2030-01-01T14:00:00Z")) * 1_000_000n);
    });

    test("given an own block with room, then it is the answer and nothing is written", async () => {
      const world = given([pool()]);
      const replica = world.replica();
      await claim(replica);
      world.api.requests.length = 0;
      const answer = await claim(replica);
      assert.deepEqual([cidrOf(answer), answer.kind === "claimed" && answer.isNew], [startOfNodeA, false]);
      assert.deepEqual(world.api.requests, []);
    });

    test("given own blocks that the node calls full, then the next one in order is claimed", async () => {
      const world = given([pool()]);
      const replica = world.replica();
      assert.equal(cidrOf(await claim(replica)), startOfNodeA);
      assert.equal(cidrOf(await claim(replica, { full: [startOfNodeA] })), "10.10.0.88/29");
    });

    test("claims of one node that arrive together take one block", async () => {
      const world = given([pool()]);
      const replica = world.replica();
      const answers = await Promise.all([claim(replica), claim(replica), claim(replica)]);
      assert.deepEqual(answers.map(cidrOf), Array(3).fill(startOfNodeA));
      assert.equal(Object.keys(blocks(world)).length, 1);
    });

    test("claims at two servers at once end with one owner per block and no row left half made", async () => {
      const world = given([pool()]);
      const [one, other] = [world.replica(), world.replica()];
      const nodes = ["node-a", "node-b", "node-c", "node-d"];
      const answers = await Promise.all(nodes.flatMap((node) => [claim(one, { node }), claim(other, { node })]));
      answers.forEach((answer, index) => {
        const owner = nodes[Math.floor(index / 2)];
        assert.equal(blocks(world)[cidrOf(answer)], `host:${owner}`);
      });
      assert.deepEqual(new Set(Object.values(rows(world))), new Set(["confirmed"]));
      assert.equal(Object.keys(rows(world)).length, Object.keys(blocks(world)).length);
    });

    test("given a pending row without a block, then that claim is finished", async () => {
      const world = given([pool(), row("10.10.0.32/29", "node-a", "pending")]);
      assert.equal(cidrOf(await claim(world.replica())), "10.10.0.32/29");
      assert.deepEqual(rows(world), { "node-a-10-10-0-32-29": "confirmed" });
      assert.deepEqual(world.api.requests, [
        "create ipamblocks/10-10-0-32-29",
        "patch blockaffinities/node-a-10-10-0-32-29",
      ]);
    });

    test("given an own block whose row is not confirmed, then the block is rewritten before the row is", async () => {
      for (const state of ["pending", "pendingDeletion"] as const) {
        const world = given([pool(), block("10.10.0.32/29", "node-a"), row("10.10.0.32/29", "node-a", state)]);
        const answer = await claim(world.replica());
        assert.equal(cidrOf(answer), "10.10.0.32/29");
        assert.equal(answer.kind === "claimed" && answer.block.sequenceNumber, first + 1n);
        assert.deepEqual(rows(world), { "node-a-10-10-0-32-29": "confirmed" });
        assert.deepEqual(world.api.requests.slice(-2), [
          "patch ipamblocks/10-10-0-32-29",
          "patch blockaffinities/node-a-10-10-0-32-29",
        ]);
      }
    });

    test("given a row for a block that another node has, then the row goes and another block is claimed", async () => {
      const foreign = [block("10.10.0.32/29", "node-b"), row("10.10.0.32/29", "node-b", "confirmed")];
      const world = given([pool(), ...foreign, row("10.10.0.32/29", "node-a", "pending")]);
      assert.equal(cidrOf(await claim(world.replica())), startOfNodeA);
      assert.deepEqual(rows(world), { "node-a-10-10-0-80-29": "confirmed", "node-b-10-10-0-32-29": "confirmed" });
    });

    test("given an own block without a row, then it gets one", async () => {
      const world = given([pool(), block("10.10.0.8/29", "node-a")]);
      assert.equal(cidrOf(await claim(world.replica())), "10.10.0.8/29");
      assert.deepEqual(rows(world), { "node-a-10-10-0-8-29": "confirmed" });
    });

    test("given marks of deletion nobody followed up, then they are and the claim goes on", async () => {
      const marked = (raw: unknown, deleted: unknown): unknown => ({
        ...Object(raw),
        spec: { ...Object(raw).spec, deleted },
      });
      const world = given([
        pool(),
        marked(block("10.10.0.32/29", "node-a"), true),
        row("10.10.0.32/29", "node-a", "confirmed"),
        marked(row(startOfNodeA, "node-a", "pendingDeletion"), mark(true)),
      ]);
      const replica = world.replica();
      assert.equal(cidrOf(await claim(replica)), "10.10.0.32/29");
      assert.equal(cidrOf(await claim(replica, { full: ["10.10.0.32/29"] })), startOfNodeA);
      assert.deepEqual(new Set(Object.values(rows(world))), new Set(["confirmed"]));
    });

    test("given as many rows as a node may have, of whatever state, then no block is claimed", async () => {
      const world = given([
        pool(),
        config({ strictAffinity: true, maxBlocksPerHost: 2 }),
        block("10.10.0.0/29", "node-a"),
        row("10.10.0.0/29", "node-a", "confirmed"),
        row("10.10.0.8/29", "node-a", "pending"),
      ]);
      const full = ["10.10.0.0/29", "10.10.0.8/29"];
      assert.equal(reasonOf(await claim(world.replica(), { full })), "BlockLimitReached");
    });

    test("given autoAllocateBlocks false, then no block is claimed", async () => {
      const world = given([pool(), config({ strictAffinity: true, autoAllocateBlocks: false })]);
      assert.equal(reasonOf(await claim(world.replica())), "BlockLimitReached");
      assert.deepEqual(world.api.requests, []);
    });

    test("wholly reserved blocks are passed over, and a pool of nothing else is exhausted", async () => {
      const world = given([pool(), reservation(startOfNodeA)]);
      assert.equal(cidrOf(await claim(world.replica())), "10.10.0.88/29");
      const reserved = given([pool(), reservation("10.10.0.0/24")]);
      assert.equal(reasonOf(await claim(reserved.replica())), "PoolExhausted");
    });

    test("pools are tried in the order of the request, and only usable ones", async () => {
      const disabled = {
        ...Object(pool("pool-0", "10.9.0.0/24")),
        spec: { cidr: "10.9.0.0/24", blockSize: 29, disabled: true },
      };
      const world = given([disabled, pool("pool-a", "10.10.0.0/29"), pool("pool-b", "10.11.0.0/29")]);
      const replica = world.replica();
      const pools = ["pool-0", "pool-b", "pool-a"];
      assert.equal(cidrOf(await claim(replica, { pools })), "10.11.0.0/29");
      assert.equal(cidrOf(await claim(replica, { pools, full: ["10.11.0.0/29"] })), "10.10.0.0/29");
      const full = ["10.10.0.0/29", "10.11.0.0/29"];
      assert.equal(reasonOf(await claim(replica, { pools, full })), "PoolExhausted");
      assert.equal(reasonOf(await claim(replica, { pools: ["pool-0", "no-such"] })), "PoolDisabled");
    });

    test("a block that exists is passed over whatever its size", async () => {
      const world = given([pool(), block("10.10.0.80/30", "node-b")]);
      assert.equal(cidrOf(await claim(world.replica())), "10.10.0.88/29");
    });

    test("given another writer who takes the block first, then the next one is claimed", async () => {
      const world = given([pool()]);
      const replica = world.replica();
      world.api.before = (request) => {
        if (request !== "create ipamblocks/10-10-0-80-29") return;
        world.api.server.seed([block(startOfNodeA, "node-b"), row(startOfNodeA, "node-b", "confirmed")]);
        world.api.before = () => {};
      };
      assert.equal(cidrOf(await claim(replica)), "10.10.0.88/29");
      assert.deepEqual(rows(world), { "node-a-10-10-0-88-29": "confirmed", "node-b-10-10-0-80-29": "confirmed" });
    });

    test("given answers that are lost, before or after the write, then the claim comes to the same end", async () => {
      for (const verb of ["create", "patch", "get"]) {
        for (const when of ["before", "after"] as const) {
          for (const skip of [0, 1]) {
            const world = given([pool()]);
            world.api.faults.add({ match: { verb }, effect: { kind: "drop", when }, times: 1, skip });
            assert.equal(cidrOf(await claim(world.replica())), startOfNodeA, `${verb} ${when} ${skip}`);
            assert.deepEqual(rows(world), { "node-a-10-10-0-80-29": "confirmed" });
            assert.deepEqual(blocks(world), { [startOfNodeA]: "host:node-a" });
          }
        }
      }
    });

    test("given a locked datastore or no permission, then it is said and nothing is tried twice", async () => {
      const world = given([pool()]);
      const replica = world.replica();
      world.api.faults.add({ match: { verb: "create" }, effect: { kind: "status", code: 403 } });
      assert.equal(reasonOf(await claim(replica)), "Forbidden");
      assert.equal(world.api.requests.length, 1);
      replica.store.remove("cluster", "default");
      assert.equal(reasonOf(await claim(replica)), "DatastoreLocked");
      assert.equal(world.api.requests.length, 1);
    });

    test("given no free block, then another node's empty one is taken from it, step by step as Calico does", async () => {
      const world = given([pool("pool-v4", "10.10.0.0/29"), ...owned("10.10.0.0/29", "node-b")]);
      assert.equal(cidrOf(await claim(world.replica())), "10.10.0.0/29");
      assert.deepEqual(rows(world), { "node-a-10-10-0-0-29": "confirmed" });
      assert.deepEqual(blocks(world), { "10.10.0.0/29": "host:node-a" });
      const [block, row] = ["ipamblocks/10-10-0-0-29", "blockaffinities/node-b-10-10-0-0-29"];
      const taken = ["create blockaffinities/node-a-10-10-0-0-29", `create ${block}`];
      const confirmed = "patch blockaffinities/node-a-10-10-0-0-29";
      const steps = [`patch ${row}`, `patch ${block}`, `delete ${block}`, `patch ${row}`, `delete ${row}`];
      assert.deepEqual(world.api.requests, [...steps, ...taken, confirmed]);
    });

    test("not taken from its owner: what is in use, cools down, is new, is nobody's, or has no row", async () => {
      const at = "10.10.0.0/29";
      const state = newBlock({ cidr: at as BlockCidr, affinity: "host:node-b", now: claimedAt, sequence: first });
      const owner = { handle: "c1" as HandleId, secondary: { node: "node-b" } };
      const used = assign(state, [3], owner);
      const cooling = giveBack(used, [3], { now: Date.parse("2030-01-01T14:00:00Z") as UnixMs, cooldownSeconds: 60 });
      const cases: Record<string, BlockState> = {
        "in use": used,
        "cooling down": cooling,
        new: { ...state, affinityClaimTime: "2030-01-01T13:59:01Z" },
        "nobody's": disown(state),
      };
      for (const [what, state] of Object.entries(cases)) {
        const object = newBlockObject(group, at as BlockCidr, state);
        const more = [object, row(at, "node-b", "confirmed"), config({ ipCooldownSeconds: 60, strictAffinity: true })];
        const world = given([pool("pool-v4", at), ...more]);
        assert.equal(reasonOf(await claim(world.replica())), "PoolExhausted", what);
        assert.deepEqual(world.api.requests, [], what);
        if (what === "nobody's" || what === "in use") continue;
        world.clock.advance(62_000);
        assert.equal(cidrOf(await claim(world.replica())), at, what);
      }
      const world = given([pool("pool-v4", at), block(at, "node-b")]);
      assert.equal(reasonOf(await claim(world.replica())), "PoolExhausted");
    });

    test("given an owner who takes an address in the last moment, then the block and the address stay its", async () => {
      const at = "10.10.0.0/29" as BlockCidr;
      const world = given([pool("pool-v4", at), ...owned(at, "node-b")]);
      const owner = world.replica();
      const become = { handle: "c1", attributes: { node: "node-b" } };
      const intents = [{ ordinal: 0, expect: null, become }];
      let done = false;
      const ours = world.replica({
        ...world.api,
        patch: async (path, body) => {
          // The block has been looked at, its row says that it is about to go.
          if (path.includes("ipamblocks") && !done) {
            done = true;
            await owner.committer.commit({ node: "node-b" as NodeName, block: at, intents, handles: "off" });
          }
          return world.api.patch(path, body);
        },
      });
      assert.equal(reasonOf(await claim(ours)), "PoolExhausted");
      const [stored] = blockObjects(world);
      assert.ok(done && stored?.affinity === "host:node-b" && !stored.deleted);
      assert.equal(holderOf(stored, 0)?.handle, "c1");

      // Its owner's next write finds the row as the attempt has left it.
      owner.sync();
      const next = [{ ordinal: 1, expect: null, become: { ...become, handle: "c2" } }];
      await owner.committer.commit({ node: "node-b" as NodeName, block: at, intents: next, handles: "off" });
      assert.deepEqual(rows(world), { "node-b-10-10-0-0-29": "confirmed" });
    });

    test("a pool's start decides whose block is taken, and blocks of other sizes are left alone", async () => {
      const foreign = [0, 8, 88, 96].flatMap((last) => owned(`10.10.0.${last}/29`, "node-b"));
      const world = given([pool("pool-v4"), ...foreign, reservation("10.10.0.0/24")]);
      assert.equal(reasonOf(await claim(world.replica())), "PoolExhausted", "all reserved");
      const small = given([pool("pool-v4", "10.10.0.0/29"), ...owned("10.10.0.0/30", "node-b")]);
      assert.equal(reasonOf(await claim(small.replica(), { borrow: true })), "PoolExhausted");
      const others = Array.from({ length: 32 }, (_, index) => owned(`10.10.0.${8 * index}/29`, "node-b")).flat();
      const full = given([pool("pool-v4"), ...others]);
      assert.equal(cidrOf(await claim(full.replica())), startOfNodeA);
    });

    test("given nothing to claim, then a block with room is named to borrow from: another's or nobody's, in Calico's order", async () => {
      const at = (cidr: string, state: Partial<BlockState>): unknown => {
        const made = newBlock({ cidr: cidr as BlockCidr, affinity: "host:node-b", now: claimedAt, sequence: first });
        const used = assign(made, [0], { handle: "c1" as HandleId, secondary: { node: "node-b" } });
        return newBlockObject(group, cidr as BlockCidr, { ...used, ...state });
      };
      const lenders = [
        at("10.10.0.0/29", {}),
        at("10.10.0.8/29", { affinity: "virtual:load-balancer" }),
        at("10.10.0.16/29", { affinity: "" }),
        at("10.10.0.24/29", {}),
      ];
      const world = given([pool("pool-v4", "10.10.0.0/27"), ...lenders, reservation("10.10.0.25/32", "10.10.0.26/31")]);
      const replica = world.replica();
      assert.equal(reasonOf(await claim(replica)), "PoolExhausted", "nobody asked to borrow");
      const named: string[] = [];
      for (;;) {
        const answer = await claim(replica, { borrow: true, full: named });
        if (answer.kind === "problem") break;
        assert.ok(answer.isBorrowed);
        named.push(answer.block.cidr);
      }
      assert.deepEqual([...named].sort(), ["10.10.0.0/29", "10.10.0.16/29", "10.10.0.24/29"]);
      assert.deepEqual(world.api.requests, []);
      replica.store.put("config", { ...defaultIpamConfig, ...anyMeta, strictAffinity: true });
      assert.equal(reasonOf(await claim(replica, { borrow: true })), "PoolExhausted", "strict affinity");
    });

    test("given blocks marked as deleted where nothing else is left, then they are deleted and claimed", async () => {
      const [left] = owned("10.10.0.0/29", "node-b");
      const world = given([
        pool("pool-v4", "10.10.0.0/29"),
        { ...Object(left), spec: { ...Object(left).spec, deleted: true } },
      ]);
      assert.equal(cidrOf(await claim(world.replica())), "10.10.0.0/29");
      assert.deepEqual(blocks(world), { "10.10.0.0/29": "host:node-a" });
    });

    test("given an own empty block that its pool no longer chooses this node for, then it is given up with the next claim", async () => {
      const zoned = (name: string, cidr: string, zone: string): unknown => {
        const made = Object(pool(name, cidr));
        return { ...made, spec: { ...made.spec, nodeSelector: `zone == "${zone}"` } };
      };
      const node = { apiVersion: "v1", kind: "Node", metadata: { name: "node-a", labels: { zone: "b" } } };
      const pools = [zoned("pool-a", "10.20.0.0/28", "a"), zoned("pool-b", "10.20.1.0/28", "b")];
      const world = given([...pools, node, ...owned("10.20.0.0/29", "node-a")]);
      assert.equal(cidrOf(await claim(world.replica(), { pools: ["pool-b"] })), "10.20.1.8/29");
      assert.deepEqual(Object.keys(rows(world)), ["node-a-10-20-1-8-29"]);
    });

    test("a block asked for by its address is claimed if nobody has it, and else shown as it is", async () => {
      const manual = Object(pool("pool-m", "10.30.0.0/24"));
      const world = given([
        { ...manual, spec: { ...manual.spec, assignmentMode: "Manual", nodeSelector: "!all()" } },
        config({ strictAffinity: true, autoAllocateBlocks: false }),
        ...owned("10.30.0.8/29", "node-b"),
        ...owned("10.30.0.32/28", "node-b"),
        ...owned("10.30.0.68/30", "node-b"),
      ]);
      const replica = world.replica();
      const ask = (cidr: string, name = "pool-m") =>
        replica.claims.claimBlock({
          node: "node-a" as NodeName,
          pool: name as PoolName,
          block: cidr as BlockCidr,
        });
      const said = async (cidr: string) => {
        const answer = await ask(cidr);
        return [cidrOf(answer), answer.kind === "claimed" && answer.isBorrowed];
      };
      assert.deepEqual(await said("10.30.0.0/29"), ["10.30.0.0/29", false]);
      assert.deepEqual(rows(world)["node-a-10-30-0-0-29"], "confirmed");
      world.api.requests.length = 0;
      assert.deepEqual(await said("10.30.0.0/29"), ["10.30.0.0/29", false]);
      assert.deepEqual(await said("10.30.0.8/29"), ["10.30.0.8/29", true]);
      assert.deepEqual(await said("10.30.0.40/29"), ["10.30.0.32/28", true], "of the size the pool once had");
      assert.equal(reasonOf(await ask("10.30.0.64/29")), "AddressInUse", "a smaller block lies in it");
      assert.equal(reasonOf(await ask("10.31.0.0/29")), "PoolDisabled");
      assert.equal(reasonOf(await ask("10.30.0.16/29", "no-such")), "PoolDisabled");
      assert.deepEqual(world.api.requests, []);
    });

    const step = fc.record({
      node: fc.constantFrom("node-a", "node-b", "node-c"),
      what: fc.constantFrom("take", "take", "take", "give back", "wait"),
      deaths: fc.array(fc.record({ requests: fc.integer({ min: 1, max: 14 }), carriedOut: fc.boolean() }), {
        maxLength: 3,
      }),
    });

    test("nodes that take, give back and take over blocks, servers that die at any request: nobody loses an address, no block has two owners", async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 25, size: "max" }), async (steps) => {
          const world = given([pool("pool-v4", "10.10.0.0/28")]);
          const live = new Map<
            string,
            { readonly node: string; readonly block: BlockCidr; readonly ordinal: number }
          >();
          let made = 0;
          /** By servers that die on the way, then by one that lives. */
          const carriedOut = async <T>(
            deaths: (typeof steps)[number]["deaths"],
            work: (at: Replica) => Promise<T>,
          ): Promise<T> => {
            for (const { requests, carriedOut } of deaths) {
              const api = mortal(world.api, requests, carriedOut);
              await Promise.race([work(world.replica(api)), api.dead]);
            }
            return work(world.replica());
          };
          for (const { node, what, deaths } of steps) {
            if (what === "wait") world.clock.advance(61_000);
            if (what === "take") {
              const full = blockObjects(world)
                .filter((block) => numFree(block) === 0)
                .map(({ cidr }) => cidr);
              const answer = await carriedOut(deaths, (replica) => claim(replica, { node, full, borrow: true }));
              if (answer.kind === "problem") {
                assert.equal(answer.problem.reason, "PoolExhausted");
                continue;
              }
              const { cidr } = answer.block;
              const [ordinal] = freeOrdinals(answer.block);
              assert.ok(ordinal !== undefined);
              const handle = `c${made++}`;
              const intent = { ordinal, expect: null, become: { handle, attributes: { node } } };
              const done = await carriedOut(deaths, (replica) =>
                replica.committer.commit({ node: node as NodeName, block: cidr, intents: [intent], handles: "eager" }),
              );
              assert.ok(done.kind === "done" && done.results[0] !== "refused", printLossless(done));
              assert.ok(done.results[0] === "applied" || done.results[0] === "already");
              live.set(handle, { node, block: cidr, ordinal });
              const mine = blockObjects(world).find((block) => block.cidr === cidr);
              if (mine?.affinity === `host:${node}`) assert.equal(rows(world)[affinityName(node, cidr)], "confirmed");
            }
            const [handle, holding] = [...live].find(([, holding]) => holding.node === node) ?? [];
            if (what === "give back" && handle !== undefined && holding !== undefined) {
              const { block: cidr, ordinal } = holding;
              const block = blockObjects(world).find((block) => block.cidr === cidr);
              const sequence = String(block?.sequenceNumberForAllocation.get(ordinal));
              const intent = { ordinal, expect: { handle, sequence }, become: null };
              const done = await carriedOut(deaths, (replica) =>
                replica.committer.commit({ node: node as NodeName, block: cidr, intents: [intent], handles: "eager" }),
              );
              assert.ok(done.kind === "done", printLossless(done));
              live.delete(handle);
            }
            for (const [handle, { block: cidr, ordinal }] of live) {
              const block = blockObjects(world).find((block) => block.cidr === cidr);
              assert.ok(
                block && !block.deleted && holderOf(block, ordinal)?.handle === handle,
                `${handle} at ${cidr} ${ordinal}`,
              );
            }
            for (const block of blockObjects(world)) assert.deepEqual(checkBlock(block), []);
            const handles = world.api.server.objects("ipamhandles").map((raw) => Object(raw.spec).handleID);
            assert.deepEqual([...handles].sort(), [...live.keys()].sort());
          }
        }),
        { numRuns: 50 },
      );
    });

    /** A block and its owner's row. */
    function owned(cidr: string, node: string): unknown[] {
      return [block(cidr, node), row(cidr, node, "confirmed")];
    }

    function blockObjects(world: CommitWorld): Block[] {
      return world.api.server.objects("ipamblocks").map((raw) => {
        const reading = readBlock(raw, group);
        assert.ok(reading.ok);
        return reading.object;
      });
    }
  });
