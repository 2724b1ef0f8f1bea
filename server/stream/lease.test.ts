// Whose lease may be renewed: rule by rule. That no lease meets the reaper is shown in server/reaper and, whole, in test/cluster.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure, type NodeName, type ResourceVersion, type Uid } from "../../shared/kinds.ts";
import { manualClock } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { strangerReason, Tenancy } from "./lease.ts";

const node = "node-a" as NodeName;

function world() {
  const clock = manualClock();
  const store = new Store(clock);
  let version = 1;
  const next = (): ResourceVersion => String(++version) as ResourceVersion;
  /** What the API server has, which the store learns of by `see` or by a read. */
  const truth: { uid: string | undefined; isAway: boolean } = { uid: "uid-1", isAway: false };
  let reads = 0;
  const see = (): void => {
    const known = store.get("node", node);
    if (known !== undefined && known.uid !== truth.uid)
      store.remove("node", node, { uid: known.uid, resourceVersion: next() });
    if (truth.uid !== undefined)
      store.put("node", { name: node, uid: truth.uid as Uid, resourceVersion: next(), labels: {} });
  };
  const parts = {
    store,
    grantMs: (): number | undefined => world.grantMs,
    refresh: async () => {
      reads++;
      await Promise.resolve();
      if (truth.isAway) throw new Failure("api-unavailable", "no answer");
      see();
    },
  };
  store.replace("node", [], next());
  store.opened("node");
  const world = {
    clock,
    store,
    truth,
    see,
    parts,
    grantMs: 2_700_000 as number | undefined,
    reads: () => reads,
    agent: (leaseExpired = false, nodeUid: string | undefined = "uid-1") =>
      new Tenancy(parts, node, { nodeUid: nodeUid as Uid | undefined }, leaseExpired),
  };
  return world;
}

test("given a Node that this server sees, then its agent's lease is renewed, for as long as may be granted", () => {
  const { agent, see } = world();
  see();
  assert.deepEqual([agent().standing(), agent().renewal(), agent().isUndecided], ["present", 2_700_000, false]);
  assert.equal(agent(false, undefined).renewal(), 2_700_000, "an old API server's tokens name no uid");
});

test("given that nobody knows what the reaper waits for, then no lease is renewed", () => {
  const the = world();
  the.see();
  the.grantMs = undefined;
  assert.deepEqual([the.agent().standing(), the.agent().renewal()], ["present", undefined]);
});

test("given a stale view, then it renews nobody and says of no Node that it is there or gone", () => {
  const { clock, store, see, agent } = world();
  see();
  const mine = agent();
  assert.equal(mine.standing(), "present");
  store.closed("node", clock.monotonic());
  clock.advance(15_000);
  assert.equal(mine.renewal(), 2_700_000);
  clock.advance(1);
  assert.deepEqual([mine.standing(), mine.renewal(), mine.isUndecided], [undefined, undefined, false]);
  store.opened("node");
  assert.equal(mine.renewal(), 2_700_000);
});

test("given a Node that vanishes, then its agent is told so at once and its lease is not renewed", () => {
  const { truth, see, agent } = world();
  see();
  const mine = agent();
  assert.equal(mine.standing(), "present");
  truth.uid = undefined;
  see();
  assert.deepEqual([mine.standing(), mine.renewal(), mine.isUndecided], ["gone", undefined, false]);
});

test("given a Node that is there and cannot be read, then it is neither said to be gone nor renewed", () => {
  const { store, see, agent } = world();
  see();
  const mine = agent();
  assert.equal(mine.standing(), "present");
  store.hold("node", {
    name: node,
    uid: "uid-2" as Uid,
    resourceVersion: "99" as ResourceVersion,
    problem: "labels are numbers",
  });
  assert.deepEqual([mine.standing(), mine.renewal()], [undefined, undefined]);
});

test("given an agent that comes before this server has seen its Node, then the Node is read before anything is said", async () => {
  const { agent, reads } = world();
  const mine = agent();
  assert.deepEqual([mine.standing(), mine.isUndecided], [undefined, true]);
  await Promise.all([mine.check(), mine.check()]);
  assert.deepEqual([mine.standing(), mine.renewal(), reads()], ["present", 2_700_000, 1]);
});

test("given an agent whose Node was deleted before it came, then it is told so once that was read", async () => {
  const { truth, agent } = world();
  truth.uid = undefined;
  const mine = agent();
  assert.equal(mine.standing(), undefined);
  await mine.check();
  assert.deepEqual([mine.standing(), mine.renewal(), mine.isUndecided], ["gone", undefined, false]);
});

test("given an expired lease, then what this server has seen before counts for nothing until a read shows the Node", async () => {
  const { truth, see, agent } = world();
  see();
  const mine = agent(true);
  assert.deepEqual([mine.standing(), mine.renewal(), mine.isUndecided], ["present", undefined, true]);
  truth.isAway = true;
  await assert.rejects(mine.check(), Failure);
  assert.deepEqual([mine.renewal(), mine.isUndecided], [undefined, true]);
  truth.isAway = false;
  await mine.check();
  assert.deepEqual([mine.renewal(), mine.isUndecided], [2_700_000, false]);
});

test("given an expired lease and a Node of which this server has not seen the end, then it is not renewed", async () => {
  const { truth, see, agent } = world();
  see();
  truth.uid = undefined;
  const mine = agent(true);
  assert.equal(mine.renewal(), undefined);
  await mine.check();
  assert.deepEqual([mine.standing(), mine.renewal()], ["gone", undefined]);
});

test("given a Node made anew under the same name, then an agent with the old one's token is not renewed", async () => {
  const { truth, see, agent } = world();
  see();
  const old = agent();
  assert.equal(old.standing(), "present");
  truth.uid = "uid-2";
  see();
  assert.deepEqual([old.standing(), old.renewal(), old.isUndecided], [undefined, undefined, true]);
  await old.check();
  assert.deepEqual([old.standing(), old.renewal()], ["gone", undefined]);
  assert.equal(agent(false, "uid-2").renewal(), 2_700_000);
});

test("a token of another Node of that name is known as such, unless it is this server that is behind", async () => {
  const { truth, see, parts, reads } = world();
  const identity = (nodeUid?: string) => ({
    user: "agent",
    node,
    expiresAt: undefined,
    nodeUid: nodeUid as Uid | undefined,
  });
  assert.equal(await strangerReason(parts, identity("uid-1")), undefined, "no Node yet");
  see();
  assert.equal(await strangerReason(parts, identity()), undefined);
  assert.equal(await strangerReason(parts, identity("uid-1")), undefined);
  assert.equal(reads(), 0);
  truth.uid = "uid-2";
  assert.equal(await strangerReason(parts, identity("uid-2")), undefined);
  assert.match((await strangerReason(parts, identity("uid-1"))) ?? "", /^the token is of an earlier Node named node-a/);
  truth.isAway = true;
  await assert.rejects(strangerReason(parts, identity("uid-3")), Failure);
});
