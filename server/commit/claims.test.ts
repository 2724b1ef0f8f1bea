// Claims against the embedded API server: Calico's two phases, its crash leftovers, and two claimants at once.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { newBlock } from "../../shared/calico/block.ts";
import { newAffinityObject, newBlockObject } from "../../shared/calico/codec.ts";
import { resourceOf } from "../../shared/calico/names.ts";
import type { AffinityState, Kind } from "../../shared/calico/resources.ts";
import { printLossless } from "../../shared/json/lossless.ts";
import type { BlockCidr, NodeName, PoolName, Sequence, UnixMs } from "../../shared/kinds.ts";
import { type CommitWorld, commitWorld, type Replica } from "../../test/commit-world.ts";
import type { ClaimAnswer } from "./claims.ts";

const first = 1_787_405_600_123_456_789n as Sequence;
const claimedAt = Date.parse("2026-01-02T03:04:05Z") as UnixMs;
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
  });
