// The committer against the embedded API server: what is written, in which order, and what is answered when things go wrong.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { checkBlock, holderOf, newBlock } from "../../shared/calico/block.ts";
import { newAffinityObject, newBlockObject, readBlock } from "../../shared/calico/codec.ts";
import { resourceOf } from "../../shared/calico/names.ts";
import { type AffinityState, type Block, defaultIpamConfig, type Kind } from "../../shared/calico/resources.ts";
import { printLossless } from "../../shared/json/lossless.ts";
import type { BlockCidr, NodeName, PoolName, ResourceVersion, Sequence, Uid, UnixMs } from "../../shared/kinds.ts";
import type { Expectation, Intent, IntentResult } from "../../shared/protocol/stream.ts";
import { type CommitWorld, commitWorld, mortal, type Replica } from "../../test/commit-world.ts";
import type { CommitAnswer } from "./committer.ts";

const cidr = "10.0.0.0/29" as BlockCidr;
const name = "10-0-0-0-29";
const first = 1_787_405_600_123_456_789n as Sequence;

for (const group of ["crd", "v3"] as const)
  describe(`API group ${group}`, () => {
    function typeOf(kind: Kind): { apiVersion: string; kind: string } {
      const resource = resourceOf(group, kind);
      return { apiVersion: resource.apiVersion, kind: resource.kind };
    }

    function blockObject(affinity: string | null = "host:a", at = cidr): unknown {
      const state = newBlock({ cidr: at, affinity: affinity ?? "", now: 1_700_000_000_000 as UnixMs, sequence: first });
      const { affinity: _, affinityClaimTime: __, ...ownerless } = state;
      return newBlockObject(group, at, affinity === null ? ownerless : state);
    }

    /** A pool around the block, and both nodes' rows of it. */
    function given(seed: readonly unknown[]): CommitWorld {
      const rows = ["a", "b"].map((node) => newAffinityObject(group, { cidr, node, state: "confirmed", type: "host" }));
      return commitWorld([ipPool, ...rows, ...seed], 1, group);
    }

    const ipPool = {
      ...typeOf("pool"),
      metadata: { name: "pool" },
      spec: { cidr: "10.0.0.0/24", blockSize: 29 },
    };

    function pod(handle: string, node = "a"): NonNullable<Intent["become"]> {
      return { handle, attributes: { node, pod: handle, namespace: "demo" } };
    }

    function stored(world: CommitWorld, plural: string): Record<string, unknown>[] {
      return world.api.server.objects(plural);
    }

    function blockIn(world: CommitWorld): Block {
      const reading = readBlock(
        stored(world, "ipamblocks").find((raw) => Object(raw.metadata).name === name),
        group,
      );
      assert.ok(reading.ok);
      return reading.object;
    }

    function held(block: Block, ordinal: number): Expectation {
      const holder = holderOf(block, ordinal);
      return holder === undefined ? null : { handle: holder.handle, sequence: String(holder.sequence) };
    }

    function handleCounts(world: CommitWorld): Record<string, unknown> {
      return Object.fromEntries(
        stored(world, "ipamhandles").map((raw) => [Object(raw.spec).handleID, Object(raw.spec).block]),
      );
    }

    function commit(replica: Replica, intents: Intent[], more: { node?: string; handles?: "eager" | "off" } = {}) {
      const { node = "a", handles = "eager" } = more;
      return replica.committer.commit({ node: node as NodeName, block: cidr, intents, handles });
    }

    function reserve(ordinal: number, handle: string, node = "a"): Intent {
      return { ordinal, expect: null, become: pod(handle, node) };
    }

    function resultsOf(answer: CommitAnswer): readonly IntentResult[] {
      assert.equal(answer.kind, "done", printLossless(answer));
      return answer.results;
    }

    function reasonOf(answer: CommitAnswer): string {
      assert.equal(answer.kind, "problem", printLossless(answer));
      return answer.problem.reason;
    }

    test("given a free address, when it is reserved, then the handle is written before the block, each with one request", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      const answer = await commit(replica, [reserve(0, "k8s-pod-network.c1")]);
      assert.deepEqual(resultsOf(answer), ["applied"]);
      assert.deepEqual(world.api.requests, ["create ipamhandles/k8s-pod-network.c1", `patch ipamblocks/${name}`]);
      assert.deepEqual(handleCounts(world), { "k8s-pod-network.c1": { [cidr]: 1 } });
      assert.deepEqual(held(blockIn(world), 0), { handle: "k8s-pod-network.c1", sequence: String(first) });
      assert.ok(answer.kind === "done" && answer.block?.resourceVersion === blockIn(world).resourceVersion);
    });

    test("when an address is released, then the block is written before its handle is deleted, with one request", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1")]);
      world.api.requests.length = 0;
      const answer = await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      await replica.committer.idle();
      assert.deepEqual(resultsOf(answer), ["applied"]);
      assert.deepEqual(world.api.requests, [`patch ipamblocks/${name}`, "delete ipamhandles/c1"]);
      assert.deepEqual(handleCounts(world), {});
    });

    test("given a handle of two addresses, when one is released, then its count is lowered", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1"), reserve(1, "c1")]);
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 2 } });
      await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      await replica.committer.idle();
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
    });

    test("warm addresses have no handle object", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      const warm = { handle: "cattail-warm-a", attributes: { node: "a" } };
      await commit(replica, [{ ordinal: 0, expect: null, become: warm }]);
      assert.deepEqual(handleCounts(world), {});
      const expect = held(blockIn(world), 0);
      await commit(replica, [{ ordinal: 0, expect, become: pod("c1") }]);
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
      await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: warm }]);
      await replica.committer.idle();
      assert.deepEqual(handleCounts(world), {});
    });

    test("given handles off, then none is written, and one that exists is still lowered", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1")], { handles: "off" });
      assert.deepEqual(handleCounts(world), {});
      await commit(replica, [reserve(1, "c2")]);
      const expect = held(blockIn(world), 1);
      await commit(replica, [{ ordinal: 1, expect, become: null }], { handles: "off" });
      await replica.committer.idle();
      assert.deepEqual(handleCounts(world), {});
    });

    test("whatever arrives during a write travels in the next one", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      const answers = await Promise.all(
        [0, 1, 2, 3, 4].map((ordinal) => commit(replica, [reserve(ordinal, `c${ordinal}`)], { handles: "off" })),
      );
      assert.deepEqual(answers.flatMap(resultsOf), Array(5).fill("applied"));
      assert.deepEqual(world.api.requests, [`patch ipamblocks/${name}`, `patch ipamblocks/${name}`]);
    });

    test("given a foreign write the store has not seen, then the intent is based on it and nothing of it is lost", async () => {
      const world = given([blockObject()]);
      const [ours, other] = [world.replica(), world.replica()];
      await commit(other, [reserve(0, "x1")]);
      assert.deepEqual(resultsOf(await commit(ours, [reserve(1, "c1")])), ["applied"]);
      assert.deepEqual(
        [0, 1].map((ordinal) => held(blockIn(world), ordinal)?.handle),
        ["x1", "c1"],
      );
    });

    test("given a foreign write that took the address, then nothing changes and the raised handle is lowered again", async () => {
      const world = given([blockObject()]);
      const [ours, other] = [world.replica(), world.replica()];
      await commit(other, [reserve(0, "x1")]);
      assert.deepEqual(resultsOf(await commit(ours, [reserve(0, "c1")])), ["expectation"]);
      await ours.committer.idle();
      assert.deepEqual(handleCounts(world), { x1: { [cidr]: 1 } });
    });

    test("what an old copy says is not taken for an answer", async () => {
      const world = given([blockObject()]);
      const [ours, other] = [world.replica(), world.replica()];
      await commit(other, [reserve(0, "c1")]);
      // Ours still shows the address as free: released already, it would seem.
      const answer = await commit(ours, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      assert.deepEqual(resultsOf(answer), ["applied"]);
      assert.equal(held(blockIn(world), 0), null);
    });

    test("given an answer that is lost after the write, then it is found out and not written again", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      world.api.faults.add({ match: { verb: "patch" }, effect: { kind: "drop", when: "after" }, times: 1 });
      assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["applied"]);
      await replica.committer.idle();
      assert.deepEqual(world.api.requests, [
        "create ipamhandles/c1",
        `patch ipamblocks/${name}`,
        `get ipamblocks/${name}`,
      ]);
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
    });

    test("given a release whose answer is lost, then its handle is lowered all the same", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1")]);
      world.api.faults.add({ match: { verb: "patch" }, effect: { kind: "drop", when: "after" }, times: 1 });
      const answer = await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      assert.deepEqual(resultsOf(answer), ["applied"]);
      await replica.committer.idle();
      assert.deepEqual(handleCounts(world), {});
    });

    test("given requests that are lost before they take effect, then they are repeated", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      world.api.faults.add({
        match: { verb: ["patch", "get", "create"] },
        effect: { kind: "drop", when: "before" },
        times: 6,
      });
      assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["applied"]);
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
    });

    test("given an API server that answers nothing, then the outcome is unknown and the handle stays", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      world.api.faults.add({ match: { resource: "ipamblocks" }, effect: { kind: "drop", when: "before" } });
      assert.equal(reasonOf(await commit(replica, [reserve(0, "c1")])), "CommitTimeout");
      await replica.committer.idle();
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
    });

    test("given a write that is not permitted, then it is said at once and the handle is taken back", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      world.api.faults.add({ match: { verb: "patch", resource: "ipamblocks" }, effect: { kind: "status", code: 403 } });
      assert.equal(reasonOf(await commit(replica, [reserve(0, "c1")])), "Forbidden");
      await replica.committer.idle();
      assert.deepEqual(handleCounts(world), {});
      assert.equal(world.api.requests.filter((request) => request.startsWith("patch ipamblocks")).length, 1);
    });

    test("given a handle that the API server will not have, then the others of the write go on without it", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      const held0 = commit(replica, [reserve(0, "c0")]);
      const [bad, good] = [commit(replica, [reserve(1, "my_net.c1")]), commit(replica, [reserve(2, "c2")])];
      assert.deepEqual(resultsOf(await held0), ["applied"]);
      assert.equal(reasonOf(await bad), "BadRequest");
      assert.deepEqual(resultsOf(await good), ["applied"]);
      assert.equal(held(blockIn(world), 1), null);
    });

    test("given a handle somebody marked as deleted, then it is deleted and made anew", async () => {
      const marked = {
        ...typeOf("handle"),
        metadata: { name: "c1" },
        spec: { handleID: "c1", block: {}, deleted: true },
      };
      const world = given([blockObject(), marked]);
      const replica = world.replica();
      assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["applied"]);
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
    });

    test("given 429 with Retry-After, then nothing is sent until then", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      const effect = { kind: "status", code: 429, retryAfterSeconds: 3 } as const;
      world.api.faults.add({ match: { verb: "patch" }, effect, times: 1 });
      const before = world.clock.monotonic();
      assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["applied"]);
      assert.ok(world.clock.monotonic() - before >= 3000);
    });

    test("given a locked datastore, then nothing is written", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      const cluster = replica.store.get("cluster", "default");
      assert.ok(cluster);
      replica.store.remove("cluster", "default");
      assert.equal(reasonOf(await commit(replica, [reserve(0, "c1")])), "DatastoreLocked");
      assert.deepEqual(world.api.requests, []);
    });

    test("the release that empties a block without owner deletes the block", async () => {
      const world = given([blockObject(null)]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1")]);
      const answer = await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      await replica.committer.idle();
      assert.deepEqual(answer, { kind: "done", results: ["applied"], block: null });
      assert.deepEqual(stored(world, "ipamblocks"), []);
      assert.deepEqual(handleCounts(world), {});
    });

    test("given a block that is gone, then releases are done and reservations are not", async () => {
      const world = given([]);
      const replica = world.replica();
      const release: Intent = { ordinal: 0, expect: { handle: "c1", sequence: "1" }, become: null };
      const answer = await commit(replica, [release, reserve(1, "c2")]);
      assert.deepEqual(answer, { kind: "done", results: ["already", "expectation"], block: null });
    });

    const fault = fc.record({
      verb: fc.constantFrom("get", "create", "patch", "delete"),
      effect: fc.constantFrom(
        { kind: "drop", when: "before" } as const,
        { kind: "drop", when: "after" } as const,
        { kind: "status", code: 429, retryAfterSeconds: 1 } as const,
        { kind: "status", code: 503 } as const,
      ),
      times: fc.integer({ min: 1, max: 3 }),
      skip: fc.nat(5),
    });
    const order = fc.record({
      replica: fc.nat(1),
      node: fc.constantFrom("a", "b"),
      ordinal: fc.nat(3),
      release: fc.boolean(),
      sync: fc.boolean(),
    });
    const waves = fc.array(fc.array(order, { minLength: 1, maxLength: 6 }), { maxLength: 8, size: "max" });

    interface Done {
      readonly version: number;
      readonly handle: string | undefined;
    }

    test("two servers, two nodes, lost answers: what was acknowledged is so, no handle counts too little, blocks stay valid", async () => {
      await fc.assert(
        fc.asyncProperty(waves, fc.array(fault, { maxLength: 4 }), async (waves, faults) => {
          const world = given([blockObject()]);
          const replicas = [world.replica(), world.replica()] as const;
          for (const { verb, effect, times, skip } of faults)
            world.api.faults.add({ match: { verb }, effect, times, skip });
          const done = Array.from({ length: 8 }, (): Done[] => []);
          const unsure = new Set<number>();
          let made = 0;
          for (const wave of waves) {
            const block = blockIn(world);
            await Promise.all(
              wave.map(async ({ replica: index, node, ordinal, release, sync }) => {
                const replica = replicas[index === 0 ? 0 : 1];
                if (sync) replica.sync();
                const handle = `c${made++}`;
                const expect = release ? held(block, ordinal) : null;
                const answer = await commit(
                  replica,
                  [{ ordinal, expect, become: release ? null : pod(handle, node) }],
                  {
                    node,
                  },
                );
                if (answer.kind === "problem") unsure.add(ordinal);
                else if (answer.results[0] === "applied") {
                  const version = Number(answer.block?.resourceVersion);
                  done[ordinal]?.push({ version, handle: release ? undefined : handle });
                }
              }),
            );
          }
          world.api.faults.clear();
          await Promise.all(replicas.map(({ committer }) => committer.idle()));
          const block = blockIn(world);
          assert.deepEqual(checkBlock(block, world.clock.wall()), []);
          const counts = handleCounts(world);
          done.forEach((changes, ordinal) => {
            // Of one version: the release was an earlier write whose answer was lost, and is answered after its handle is lowered.
            changes.sort(
              (a, b) => a.version - b.version || Number(a.handle !== undefined) - Number(b.handle !== undefined),
            );
            const holder = held(block, ordinal)?.handle;
            if (holder !== undefined) assert.ok(Object(counts[holder])[cidr] >= 1, `${holder} is counted`);
            if (unsure.has(ordinal)) return;
            assert.equal(holder, changes.at(-1)?.handle, `ordinal ${ordinal} is as last acknowledged`);
            // With answers lost, a release may be found only after somebody else has the address.
            if (faults.length > 0) return;
            const taken = changes.map(({ handle }) => handle !== undefined);
            assert.deepEqual(
              taken,
              taken.map((_, index) => index % 2 === 0),
              "taken and given back in turn",
            );
          });
        }),
        { numRuns: 100 },
      );
    });

    test("given a write that may still come, then an intent that meanwhile may not be applied is not called refused", async () => {
      const world = given([blockObject("host:b")]);
      const replica = world.replica();
      world.api.faults.add({ match: { verb: "patch" }, effect: { kind: "drop", when: "before" }, times: 1 });
      world.api.before = (request) => {
        if (!request.startsWith("patch ipamblocks")) return;
        const meta = { name: "default", uid: "config" as Uid, resourceVersion: "9" as ResourceVersion };
        replica.store.put("config", { ...defaultIpamConfig, ...meta, strictAffinity: true });
      };
      assert.equal(reasonOf(await commit(replica, [reserve(0, "c1")])), "CommitTimeout");
    });

    test("given a release whose handle cannot be lowered, then it is not acknowledged, and sent again it heals the handle", async () => {
      const world = given([blockObject()]);
      const [ours, other] = [world.replica(), world.replica()];
      await commit(ours, [reserve(0, "c1")]);
      const release: Intent = { ordinal: 0, expect: held(blockIn(world), 0), become: null };
      const fault = world.api.faults.add({ match: { verb: "delete" }, effect: { kind: "drop", when: "before" } });
      assert.equal(reasonOf(await commit(ours, [release])), "CommitTimeout");
      assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1 } });
      fault.remove();
      assert.deepEqual(resultsOf(await commit(other, [release])), ["already"]);
      assert.deepEqual(handleCounts(world), {});
    });

    test("given a handle that counts wrongly, when its address is found as wished, then it is put right, either way", async () => {
      for (const count of [0, 3]) {
        const handle = {
          ...typeOf("handle"),
          metadata: { name: "c1" },
          spec: { handleID: "c1", block: { [cidr]: count, "10.9.0.0/29": 3 }, deleted: false },
        };
        const world = given([blockObject(), handle]);
        const replica = world.replica();
        await commit(replica, [reserve(0, "c1")], { handles: "off" });
        assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["already"]);
        assert.deepEqual(handleCounts(world), { c1: { [cidr]: 1, "10.9.0.0/29": 3 } }, `${count}`);
      }
    });

    test("given handles that differ in case, then their common object counts both", async () => {
      const world = given([blockObject()]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "Net.c1"), reserve(1, "net.c1")]);
      assert.deepEqual(handleCounts(world), { "Net.c1": { [cidr]: 2 } });
      await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      assert.deepEqual(handleCounts(world), { "Net.c1": { [cidr]: 1 } });
    });

    const change = fc.record({
      ordinal: fc.nat(5),
      handle: fc.constantFrom("c1", "c2", "C2", "c3"),
      toWarm: fc.boolean(),
    });
    const shift = fc.record({
      changes: fc.uniqueArray(change, { selector: ({ ordinal }) => ordinal, minLength: 1, maxLength: 4 }),
      /** Servers that die on the way, each after so many requests. */
      deaths: fc.array(fc.record({ requests: fc.integer({ min: 1, max: 7 }), carriedOut: fc.boolean() }), {
        maxLength: 3,
      }),
      isOld: fc.boolean(),
    });

    test("servers that die between any two requests: sent again to another one, a commit ends with handles that are as the block says", async () => {
      const elsewhere = { "10.9.0.0/29": 3 };
      const handle = {
        ...typeOf("handle"),
        metadata: { name: "c1" },
        spec: { handleID: "c1", block: elsewhere, deleted: false },
      };
      await fc.assert(
        fc.asyncProperty(fc.array(shift, { maxLength: 10, size: "max" }), async (shifts) => {
          const world = given([blockObject(), handle]);
          // A server whose watches bring nothing: all it knows beyond the start are the answers to its own requests.
          const old = world.replica();
          for (const { changes, deaths, isOld } of shifts) {
            const block = blockIn(world);
            const intents = changes.map(({ ordinal, handle, toWarm }): Intent => {
              const expect = held(block, ordinal);
              const warm = { handle: "cattail-warm-a", attributes: { node: "a" } };
              const become = expect === null || expect.handle === warm.handle ? pod(handle) : toWarm ? warm : null;
              return { ordinal, expect, become };
            });
            for (const { requests, carriedOut } of deaths) {
              const api = mortal(world.api, requests, carriedOut);
              await Promise.race([commit(world.replica(api), intents), api.dead]);
            }
            const answer = await commit(isOld ? old : world.replica(), intents);
            for (const result of resultsOf(answer)) assert.ok(result === "applied" || result === "already", result);

            const expected = new Map<string, number>();
            const now = blockIn(world);
            for (const ordinal of now.allocations.keys()) {
              const name = held(now, ordinal)?.handle.toLowerCase();
              if (name?.startsWith("c") && !name.startsWith("cattail"))
                expected.set(name, (expected.get(name) ?? 0) + 1);
            }
            const counted = Object.entries(handleCounts(world)).map(([id, counts]) => [id.toLowerCase(), counts]);
            const wanted: [string, object][] = [...expected].map(([name, count]) => [name, { [cidr]: count }]);
            const inAll: Record<string, object> = { ...Object.fromEntries(wanted) };
            inAll.c1 = { ...inAll.c1, ...elsewhere };
            assert.deepEqual(Object.fromEntries(counted), inAll);
          }
        }),
        { numRuns: 200 },
      );
    });

    /** A node's row as a crash or an old release may have left it; null: none. */
    function rowObject(state: AffinityState | null, more: { labels?: object; deleted?: boolean } = {}): unknown[] {
      if (state === null) return [];
      const made = Object(newAffinityObject(group, { cidr, node: "a", state, type: "host" }));
      const metadata = more.labels === undefined ? made.metadata : { name: made.metadata.name, labels: more.labels };
      const deleted = group === "crd" ? String(more.deleted ?? false) : (more.deleted ?? false);
      return [{ ...made, metadata, spec: { ...made.spec, deleted } }];
    }

    function rowsIn(world: CommitWorld): unknown[] {
      return stored(world, "blockaffinities").map(({ metadata, spec }) => [
        Object(spec).state,
        String(Object(spec).deleted),
        Object.keys(Object(metadata).labels ?? {}).length,
      ]);
    }

    test("given an affinity that is not settled, then it is before the first address is taken, and the block is rewritten", async () => {
      const cases: Record<string, unknown[]> = {
        missing: rowObject(null),
        pending: rowObject("pending"),
        "being deleted": rowObject("pendingDeletion"),
        "marked as deleted": rowObject("confirmed", { deleted: true }),
        "without state and labels": rowObject("", { labels: {} }),
      };
      for (const [what, rows] of Object.entries(cases)) {
        const world = commitWorld([ipPool, ...rows, blockObject()], 1, group);
        const replica = world.replica();
        assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["applied"], what);
        assert.deepEqual(rowsIn(world), [["confirmed", "false", 3]], what);
        assert.deepEqual(held(blockIn(world), 0), { handle: "c1", sequence: String(first + 1n) }, what);
        const ofBlock = world.api.requests.filter((request) => /blockaff|patch ipamblocks/.test(request)).slice(-3);
        const [row, block] = ["patch blockaffinities/a-10-0-0-0-29", `patch ipamblocks/${name}`];
        assert.deepEqual(ofBlock, [block, row, block], what);
        world.api.requests.length = 0;
        await commit(replica, [reserve(1, "c2")]);
        assert.equal(world.api.requests.length, 2, what);
      }
    });

    test("given a confirmed affinity without labels, then it gets them and the block is not rewritten for it", async () => {
      const world = commitWorld([ipPool, ...rowObject("confirmed", { labels: {} }), blockObject()], 1, group);
      await commit(world.replica(), [reserve(0, "c1")]);
      assert.deepEqual(rowsIn(world), [["confirmed", "false", 3]]);
      assert.equal(blockIn(world).sequenceNumber, first + 1n);
    });

    test("a release and a borrower leave the affinity alone", async () => {
      const world = commitWorld([ipPool, ...rowObject("pendingDeletion"), blockObject()], 1, group);
      const replica = world.replica();
      assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1", "b")], { node: "b" })), ["applied"]);
      const expect = held(blockIn(world), 0);
      assert.deepEqual(resultsOf(await commit(replica, [{ ordinal: 0, expect, become: null }], { node: "b" })), [
        "applied",
      ]);
      assert.deepEqual(rowsIn(world), [["pendingDeletion", "false", 3]]);
    });

    test("given an affinity that may not be written, then no address is taken and those that are released are", async () => {
      const world = commitWorld([ipPool, ...rowObject("confirmed"), blockObject()], 1, group);
      await commit(world.replica(), [reserve(0, "c1")]);
      world.api.server.seed(rowObject("pending"));
      const replica = world.replica();
      world.api.faults.add({ match: { resource: "blockaffinities" }, effect: { kind: "status", code: 403 } });
      const blocking = commit(replica, [reserve(5, "x1", "b")], { node: "b" });
      const taking = commit(replica, [reserve(1, "c2")]);
      const releasing = commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      assert.deepEqual(resultsOf(await blocking), ["applied"]);
      assert.equal(reasonOf(await taking), "Forbidden");
      assert.deepEqual(resultsOf(await releasing), ["applied"]);
      assert.equal(held(blockIn(world), 1), null);
    });

    test("given a pool that is disabled, terminating or gone, then no free address is taken from its blocks", async () => {
      const closed = {
        disabled: [{ ...ipPool, spec: { ...ipPool.spec, disabled: true } }],
        terminating: [{ ...ipPool, metadata: { name: "pool", deletionTimestamp: "2030-01-01T13:00:00Z" } }],
        gone: [],
      };
      for (const [what, pools] of Object.entries(closed)) {
        const world = commitWorld([...pools, ...rowObject("confirmed"), blockObject()], 1, group);
        assert.deepEqual(resultsOf(await commit(world.replica(), [reserve(0, "c1")])), ["refused"], what);
        assert.deepEqual(handleCounts(world), {}, what);
      }
    });

    test("given a pool that does not choose the node any more, then the block goes with its last address", async () => {
      const zoned = { ...ipPool, spec: { ...ipPool.spec, nodeSelector: 'zone == "a"' } };
      const node = { apiVersion: "v1", kind: "Node", metadata: { name: "a", labels: { zone: "b" } } };
      const world = commitWorld([zoned, node, ...rowObject("confirmed"), blockObject()], 1, group);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1"), reserve(1, "c2")]);
      await commit(replica, [{ ordinal: 0, expect: held(blockIn(world), 0), become: null }]);
      await replica.committer.idle();
      assert.equal(stored(world, "ipamblocks").length, 1);
      await commit(replica, [{ ordinal: 1, expect: held(blockIn(world), 1), become: null }]);
      await replica.committer.idle();
      assert.deepEqual([stored(world, "ipamblocks"), rowsIn(world), handleCounts(world)], [[], [], {}]);
    });

    test("given a pool that does not choose the node any more, then its empty block goes when the node writes another one", async () => {
      const spec = { cidr: "10.5.0.0/24", blockSize: 29, nodeSelector: "has(zone)" };
      const zoned = { ...typeOf("pool"), metadata: { name: "zoned" }, spec };
      const node = { apiVersion: "v1", kind: "Node", metadata: { name: "a" } };
      const other = "10.5.0.0/29" as BlockCidr;
      const row = newAffinityObject(group, { cidr: other, node: "a", state: "confirmed", type: "host" });
      const world = given([zoned, node, row, blockObject("host:a", other), blockObject()]);
      const replica = world.replica();
      await commit(replica, [reserve(0, "c1")]);
      await replica.committer.idle();
      assert.deepEqual(
        stored(world, "ipamblocks").map(({ spec }) => Object(spec).cidr),
        [cidr],
      );
      assert.equal(stored(world, "blockaffinities").length, 2);
    });

    test("given a claim that is under way, then a commit into its block waits for it and costs no more for it", async () => {
      const world = commitWorld([ipPool], 1, group);
      const replica = world.replica();
      const claim = replica.claims.claimBlock({ node: "a" as NodeName, pool: "pool" as PoolName, block: cidr });
      const made = new Promise<void>((resolve) => {
        world.api.before = (request) => request.startsWith("patch blockaffinities") && resolve();
      });
      await made;
      // The block is there, and every node that has a stake in it has been told; its row is not confirmed yet.
      assert.deepEqual(resultsOf(await commit(replica, [reserve(0, "c1")])), ["applied"]);
      await claim;
      const row = "blockaffinities/a-10-0-0-0-29";
      const commits = ["create ipamhandles/c1", `patch ipamblocks/${name}`];
      assert.deepEqual(world.api.requests, [`create ${row}`, `create ipamblocks/${name}`, `patch ${row}`, ...commits]);
    });
  });
