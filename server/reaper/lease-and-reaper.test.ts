// The one promise for which lease, limits and reaper exist: while an agent may hand out a warm address, nobody frees it. Two servers whose
// watches lag and whose configuration changes, a Node that comes and goes, an agent that is cut off and moves between them.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assign, newBlock } from "../../shared/calico/block.ts";
import { newBlockObject, readBlock } from "../../shared/calico/codec.ts";
import { blockName, warmHandle } from "../../shared/calico/names.ts";
import type { Block } from "../../shared/calico/resources.ts";
import { type BlockCidr, invariant, type NodeName, type Sequence, type Uid, type UnixMs } from "../../shared/kinds.ts";
import { type CommitWorld, commitWorld, type Replica, silent } from "../../test/commit-world.ts";
import { seededRandom } from "../../test/manual-world.ts";
import { Tenancy } from "../stream/lease.ts";
import { ObjectReader } from "../upstream/object-reader.ts";
import { Limits } from "./limits.ts";
import { Reaper } from "./reaper.ts";

const minute = 60_000;
const stepMs = 20_000;
/** What a watch may be silent before it counts as stale, in whole steps. */
const mostLagMs = 60_000;
const node = "node-a" as NodeName;
const cidr = "10.0.0.0/29" as BlockCidr;
const ordinals = [0, 1, 2];

class Server {
  readonly replica: Replica;
  readonly limits = new Limits(5 * minute, undefined);
  readonly reader: ObjectReader;
  readonly reaper: Reaper;
  laggingSince: number | undefined;

  constructor(world: CommitWorld, leads: () => boolean) {
    this.replica = world.replica();
    this.reader = new ObjectReader({ api: world.api, group: "crd", store: this.replica.store, clock: world.clock });
    this.reaper = new Reaper({
      ...this.replica,
      events: { aboutNode: () => {} },
      leads,
      reapAfterMs: () => this.limits.reapAfter(world.clock.monotonic()),
      refresh: (name) => this.reader.refreshNode(name),
      random: seededRandom(1),
      logger: silent,
      metrics: { reaped: { inc: () => {} } },
    });
    this.replica.watch();
  }

  /** Its watches tell it everything, unless they lag; blocks are told at once even then, the worst there is. */
  look(now: number): void {
    if (this.laggingSince !== undefined && now - this.laggingSince >= mostLagMs) this.laggingSince = undefined;
    if (this.laggingSince === undefined) this.replica.watch();
    else this.replica.watch("block", "affinity", "handle");
  }

  tenancy(uid: string, leaseExpired: boolean, now: () => number): Tenancy {
    const grantMs = (): number | undefined => this.limits.grant(now() as Parameters<Limits["grant"]>[0]);
    const parts = { store: this.replica.store, grantMs, refresh: (name: NodeName) => this.reader.refreshNode(name) };
    return new Tenancy(parts, node, { nodeUid: uid as Uid }, leaseExpired);
  }
}

/** What it believes to be its own to hand out, and until when. */
class Agent {
  leaseUntil = 0;
  incarnation = 0;
  believed = new Map<number, string>();
  server: Server | undefined;
  tenancy: Tenancy | undefined;
}

async function play(
  operations: readonly {
    readonly steps: number;
    readonly what: string;
    readonly at: 0 | 1;
    readonly minutes: number;
  }[],
) {
  const warm = assign(
    newBlock({ cidr, affinity: `host:${node}`, now: 0 as UnixMs, sequence: 100n as Sequence }),
    ordinals,
    {
      handle: warmHandle(node),
      secondary: { node, type: "cattail-warm", "cattail.io/incarnation": "0" },
    },
  );
  const world = commitWorld([
    {
      apiVersion: "crd.projectcalico.org/v1",
      kind: "IPPool",
      metadata: { name: "pool" },
      spec: { cidr: "10.0.0.0/24", blockSize: 29 },
    },
    { apiVersion: "v1", kind: "Node", metadata: { name: node } },
    newBlockObject("crd", cidr, warm),
  ]);
  const { api, clock } = world;
  const now = (): number => clock.monotonic();
  let leader = 0;
  let frees = 0;
  const servers = [new Server(world, () => leader === 0), new Server(world, () => leader === 1)] as const;
  const agent = new Agent();
  const nodeUid = (): string | undefined => {
    const [object] = api.server.objects("nodes");
    return object === undefined ? undefined : String(Object(object.metadata).uid);
  };
  const block = (): Block => {
    const reading = readBlock(api.server.objects("ipamblocks")[0], "crd");
    invariant(reading.ok, "the block is there");
    return reading.object;
  };
  const isWarm = (state: Block, ordinal: number): boolean =>
    state.attributes[state.allocations[ordinal] ?? -1]?.handle_id === warmHandle(node);
  const sequenceOf = (state: Block, ordinal: number): string => String(state.sequenceNumberForAllocation.get(ordinal));

  const exchange = (): void => {
    const at = clock.monotonic();
    const terms = servers[leader === 0 ? 0 : 1].limits.terms(at);
    servers[leader === 0 ? 0 : 1].limits.said(terms, at);
    servers[leader === 0 ? 1 : 0].limits.told(terms, at);
  };

  const ping = async (): Promise<void> => {
    const { tenancy } = agent;
    if (tenancy === undefined) return;
    const sentAt = now();
    if (tenancy.isUndecided) await tenancy.check();
    const limitMs = tenancy.renewal();
    if (limitMs === undefined) return;
    if (sentAt >= agent.leaseUntil) await renewIncarnation();
    agent.leaseUntil = Math.max(agent.leaseUntil, sentAt + limitMs);
  };

  /** After a lease that has run out every address is taken over anew, or taken, before one is handed out. */
  const renewIncarnation = async (): Promise<void> => {
    agent.incarnation++;
    const { server } = agent;
    invariant(server !== undefined, "only a connected agent is renewed");
    server.replica.watch("block");
    const before = block();
    const attributes = { node, type: "cattail-warm", "cattail.io/incarnation": String(agent.incarnation) };
    const intents = ordinals.map((ordinal) => ({
      ordinal,
      expect: isWarm(before, ordinal) ? { handle: warmHandle(node), sequence: sequenceOf(before, ordinal) } : null,
      become: { handle: warmHandle(node), attributes },
    }));
    await server.replica.committer.commit({ node, block: cidr, intents, handles: "off" });
    const after = block();
    const own = ordinals.filter((ordinal) => isWarm(after, ordinal));
    agent.believed = new Map(own.map((ordinal) => [ordinal, sequenceOf(after, ordinal)]));
  };

  const connect = (at: 0 | 1, uid: string): void => {
    const expired = now() >= agent.leaseUntil;
    agent.server = servers[at];
    agent.tenancy = servers[at].tenancy(uid, expired, now);
  };

  const check = (): void => {
    const state = block();
    for (const [ordinal, sequence] of agent.believed) {
      const isStill = isWarm(state, ordinal) && sequenceOf(state, ordinal) === sequence;
      if (!isStill) frees++;
      assert.ok(
        isStill || now() >= agent.leaseUntil,
        `${ordinal} was freed at ${now()} under a lease until ${agent.leaseUntil}`,
      );
      if (!isStill) agent.believed.delete(ordinal);
    }
  };

  exchange();
  connect(0, nodeUid() ?? "");
  for (const { steps, what, at, minutes } of operations) {
    for (let step = 0; step < steps; step++) {
      clock.advance(stepMs);
      exchange();
      for (const server of servers) server.look(now());
      await ping();
      if (step % 3 === 0) for (const { reaper } of servers) await reaper.pass();
      check();
      // An agent notices by itself that its lease has run out, and says so when it comes again.
      if (agent.server !== undefined && now() >= agent.leaseUntil)
        connect(agent.server === servers[0] ? 0 : 1, nodeUid() ?? "none");
    }
    const uid = nodeUid();
    if (what === "delete" && uid !== undefined) await api.remove(`/api/v1/nodes/${node}`, { uid });
    if (what === "create" && uid === undefined)
      await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata: { name: node } });
    if (what === "cut off") agent.tenancy = undefined;
    if (what === "cut off") agent.server = undefined;
    if (what === "connect") connect(at, nodeUid() ?? "none");
    if (what === "lag") servers[at].laggingSince ??= now();
    if (what === "lead") leader = at;
    if (what === "configure") servers[at].limits.configure(minutes * minute, undefined);
  }
  assert.equal(blockName(cidr), block().name);
  return frees;
}

test("given a Node that is deleted while its agent is cut off, then its addresses are freed after the lease has ended", async () => {
  const idle = { at: 0, minutes: 5 } as const;
  const frees = await play([
    { ...idle, steps: 10, what: "cut off" },
    { ...idle, steps: 1, what: "delete" },
    { ...idle, steps: 60, what: "none" },
  ]);
  assert.equal(frees, ordinals.length);
});

test("whatever happens to Node, agent, watches, leader and limits, no address is freed under a lease", async () => {
  const operation = fc.record({
    steps: fc.integer({ min: 0, max: 45 }),
    what: fc.constantFrom("delete", "delete", "create", "cut off", "connect", "lag", "lag", "lead", "configure"),
    at: fc.constantFrom<0 | 1>(0, 1),
    minutes: fc.integer({ min: 5, max: 15 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { minLength: 4, maxLength: 24 }), async (operations) => {
      await play(operations);
    }),
    { numRuns: 40 },
  );
});
