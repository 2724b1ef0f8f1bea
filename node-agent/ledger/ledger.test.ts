import assert from "node:assert/strict";
import { test } from "node:test";
import { podHandle } from "../../shared/calico/attributes.ts";
import { collect, freeOrdinals } from "../../shared/calico/block.ts";
import type { Block } from "../../shared/calico/resources.ts";
import { contains } from "../../shared/ip/cidr.ts";
import type { BlockCidr, CidrText, Instant, NodeName, PoolName, UnixMs } from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import { CalicoApi } from "../../test/model/calico-api.ts";
import { trouble } from "../trouble.ts";
import { serverPatienceMs } from "./adding.ts";
import { answerOverdueMs } from "./commits.ts";
import { gcBlindMax, gcGraceMs, releasePatienceMs } from "./leaving.ts";
import { check, type LedgerEvent, nextWake, replay, step } from "./ledger.ts";
import { decodeRows, type JournalRow } from "./record.ts";
import { attachmentId, type CallId, createLedger, type Ledger, type Placement, type Wanted } from "./state.ts";
import type { Effect } from "./turn.ts";

const node = "n1" as NodeName;
const pools = [
  { name: "blue", cidr: "10.0.0.0/28" as CidrText, blockSize: 30 },
  { name: "six", cidr: "fd00::/124" as CidrText, blockSize: 126 },
];
const [b0, v6] = ["10.0.0.0/30", "fd00::/126"] as [BlockCidr, BlockCidr];

const rules = { strict: false };

/** Ordinals that time alone has made free. */
const cooled: number[] = [];

const placement: Placement = {
  wanted: ({ families, requested }) => {
    const asked = requested.map(
      (address) => ({ kind: "address", family: 4, address, block: b0, pool: "blue" }) as Wanted,
    );
    if (asked.length > 0) return asked;
    return [
      ...(families.ipv4 ? [{ kind: "any" as const, family: 4 as const, pools: ["blue" as PoolName] }] : []),
      ...(families.ipv6 ? [{ kind: "any" as const, family: 6 as const, pools: ["six" as PoolName] }] : []),
    ];
  },
  poolOf: (block) => pools.find(({ cidr }) => contains(cidr, block))?.name as PoolName | undefined,
  freeOrdinals: (block) => [...freeOrdinals(collect(block, { now: 0 as UnixMs, cooldownSeconds: 0 })), ...cooled],
  forbids: () => (rules.strict ? trouble("StrictAffinity", "not ours", { code: 102 }) : undefined),
  usual: () => [{ kind: "any", family: 4, pools: ["blue" as PoolName] }],
  isReserved: () => false,
  cooldownMs: () => 0,
  verdict: (reason) => `pool blue: ${reason}`,
};

type Of<K extends Effect["kind"]> = Extract<Effect, { kind: K }>;

/** A ledger whose disk and server do nothing by themselves. */
class Bench {
  readonly api = new CalicoApi(pools);
  readonly disk = new Map<string, JournalRow>();
  ledger: Ledger;
  now = 1_000;
  #calls = 0;

  constructor() {
    this.ledger = createLedger(
      { node, handles: "eager", placement, handleDelayMs: undefined, warm: () => undefined },
      this.now as Instant,
    );
  }

  send(event: LedgerEvent): Effect[] {
    const effects = step(this.ledger, event, this.now as Instant);
    for (const { rows } of effects.filter((effect) => effect.kind === "journal")) {
      for (const row of rows) {
        if (row.value === null) this.disk.delete(`${row.table} ${row.key}`);
        else this.disk.set(`${row.table} ${row.key}`, row);
      }
    }
    return effects;
  }

  /** With blocks of these pools, everything seen. */
  online(...claimed: string[]): this {
    for (const pool of claimed) this.seen(this.api.claim(node, pool));
    this.send({ kind: "online" });
    return this;
  }

  seen(block: Block | undefined): Effect[] {
    assert.ok(block);
    return this.send({ kind: "block", cidr: block.cidr, block });
  }

  add(container: string, more: Partial<AddRequest> = {}): Effect[] {
    const ask = { ...request(container, this.now), ...more };
    const owner = { handle: podHandle("net", container), attributes: { node, pod: container } };
    const deadline = (this.now + 30_000) as Instant;
    return this.send({
      kind: "add",
      call: this.#call(),
      id: attachmentId(ask),
      ask,
      owner,
      addedAt: this.now as UnixMs,
      deadline,
    });
  }

  del(container: string, more: Partial<Extract<LedgerEvent, { kind: "del" }>> = {}): Effect[] {
    const parts = { network: "net", containerId: container, ifname: "eth0" };
    return this.send({
      kind: "del",
      call: this.#call(),
      id: attachmentId(parts),
      parts,
      handles: [podHandle("net", container)],
      startedAt: this.now as UnixMs,
      deadline: (this.now + 15_000) as Instant,
      undoes: undefined,
      spooled: false,
      ...more,
    });
  }

  gc(...valid: string[]): Effect[] {
    const ids = valid.map((containerId) => attachmentId({ network: "net", containerId, ifname: "eth0" }));
    const times = { now: this.now as UnixMs, startedAt: this.now as UnixMs, deadline: (this.now + 15_000) as Instant };
    return this.send({ kind: "gc", call: this.#call(), network: "net", valid: new Set(ids), ...times });
  }

  /** All records so far reach the disk. */
  fsync(): Effect[] {
    return this.send({ kind: "journalled", upTo: this.ledger.lastRecord });
  }

  diskFails(): Effect[] {
    return this.send({ kind: "journal-failed", upTo: this.ledger.lastRecord });
  }

  /** The server carries a commit out and answers it. */
  serve(effects: readonly Effect[]): Effect[] {
    return this.answer(only(effects, "commit"));
  }

  answer({ commit: { id, block, intents } }: Of<"commit">): Effect[] {
    return this.send({ kind: "acknowledged", id, ...this.api.commit(node, block as BlockCidr, intents) });
  }

  /** An ADD all the way. */
  granted(container: string, more: Partial<AddRequest> = {}): string[] {
    this.add(container, more);
    const commits = this.fsync().filter((effect) => effect.kind === "commit");
    for (const commit of commits) this.answer(commit);
    return only(this.fsync(), "granted").places.map(({ address }) => address);
  }

  wait(ms: number): Effect[] {
    this.now += ms;
    return this.send({ kind: "tick" });
  }

  restart(): this {
    this.ledger = createLedger(
      { node, handles: "eager", placement, handleDelayMs: undefined, warm: () => undefined },
      this.now as Instant,
    );
    replay(this.ledger, decodeRows(this.disk.values()), this.now as Instant, this.now as UnixMs);
    return this;
  }

  #call(): CallId {
    this.#calls += 1;
    return this.#calls as CallId;
  }
}

function request(containerId: string, startedAt: number): AddRequest {
  return {
    verb: "ADD",
    protocol: 1,
    request: `r-${containerId}`,
    network: "net",
    cniVersion: "1.0.0",
    containerId,
    ifname: "eth0",
    podNamespace: "shop",
    podName: containerId,
    podUid: "",
    startedAt,
    deadline: startedAt + 30_000,
    ifnameIsFirst: true,
    netns: "",
    families: { ipv4: true, ipv6: false },
    pools: { ipv4: [], ipv6: [] },
    requested: [],
    dropIn: true,
    result: { prefix: "block", gateway: "" },
  };
}

const dual = { families: { ipv4: true, ipv6: true } };

function only<K extends Effect["kind"]>(effects: readonly Effect[], kind: K): Of<K> {
  const found = effects.filter((effect): effect is Of<K> => effect.kind === kind);
  assert.equal(found.length, 1, `one ${kind} among ${effects.map((effect) => effect.kind).join(", ") || "nothing"}`);
  return found[0] as Of<K>;
}

function kindsOf(effects: readonly Effect[]): string[] {
  return effects.map(({ kind }) => kind);
}

test("given a block with room, when a pod is added, then disk, server and disk again come before the answer", () => {
  const bench = new Bench().online("blue");
  assert.deepEqual(kindsOf(bench.add("a")), ["journal"]);
  const sent = bench.fsync();
  assert.deepEqual(only(sent, "commit").commit, {
    id: 1,
    block: b0,
    handles: "eager",
    intents: [{ ordinal: 0, expect: null, become: { handle: "net.a", attributes: { node, pod: "a" } } }],
  });
  assert.deepEqual(kindsOf(bench.serve(sent)), ["journal"]);
  const { call, places, path } = only(bench.fsync(), "granted");
  assert.deepEqual([call, places.map(({ address, block }) => [address, block]), path], [1, [["10.0.0.0", b0]], "wait"]);
});

test("given a commit under way, when more pods come, then all of them travel in the next one, and are answered in their order", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  const first = bench.fsync();
  bench.add("b");
  bench.add("c");
  assert.deepEqual(bench.fsync(), []);
  const second = bench.serve(first);
  assert.deepEqual(
    only(second, "commit").commit.intents.map(({ ordinal }) => ordinal),
    [1, 2],
  );
  bench.serve(second);
  const answered = bench.fsync().filter((effect) => effect.kind === "granted");
  assert.deepEqual(
    answered.map(({ call }) => call),
    [1, 2, 3],
  );
});

test("given no room, when pods are added, then one claim is made for all, and the block serves them in their order", () => {
  const bench = new Bench().online();
  assert.deepEqual(only(bench.add("a"), "claim"), { kind: "claim", id: 1, pools: ["blue"], full: [], borrow: true });
  assert.deepEqual(bench.add("b"), []);
  const block = bench.api.claim(node, "blue");
  assert.ok(block);
  bench.send({ kind: "claimed", id: 1, block: { cidr: block.cidr, block } });
  const { intents } = only(bench.fsync(), "commit").commit;
  assert.deepEqual(
    intents.map(({ become }) => become?.handle),
    ["net.a", "net.b"],
  );
});

test("given a full block, when a pod is added, then the claim names it", () => {
  const bench = new Bench().online("blue");
  for (const container of ["a", "b", "c", "d"]) bench.granted(container);
  assert.deepEqual(only(bench.add("e"), "claim").full, [b0]);
});

test("given that the server has no block, when it says so, then the ADD is refused with the verdict on each pool", () => {
  const bench = new Bench().online();
  bench.add("a");
  const problem = { reason: "PoolExhausted", message: "every block belongs to a node" };
  const { trouble: told } = only(bench.send({ kind: "claimed", id: 1, problem }), "refused");
  assert.deepEqual(
    [told.code, told.reason, told.why, told.details],
    [100, "PoolExhausted", problem.message, "pool blue: PoolExhausted"],
  );
});

test("given a claim that came too late at the server, when its time has come, then it is made again", () => {
  const bench = new Bench().online();
  bench.add("a");
  const problem = { reason: "CommitTimeout", message: "too slow", retryAfterMs: 700 };
  assert.deepEqual(bench.send({ kind: "claimed", id: 1, problem }), []);
  assert.equal(nextWake(bench.ledger), bench.now + 700);
  assert.equal(only(bench.wait(700), "claim").id, 2);
});

test("given an ordinal that another writer took, when the server says so, then the ADD takes the next one", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.api.takeFor(b0, "other", "n2");
  const again = bench.serve(bench.fsync());
  assert.deepEqual(kindsOf(again), ["journal"]);
  bench.serve(bench.fsync());
  assert.deepEqual(
    only(bench.fsync(), "granted").places.map(({ address }) => address),
    ["10.0.0.1"],
  );
});

test("given a live attachment, when its ADD is repeated, then it gets the same address at once", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  const [answer, ...rest] = bench.add("a");
  assert.deepEqual(rest, []);
  assert.ok(answer?.kind === "granted" && answer.path === "replay");
  assert.equal(answer.places[0]?.address, "10.0.0.0");
});

test("given a live attachment, when it is added with other families or pools, then it is refused and nothing is taken", () => {
  const bench = new Bench().online("blue", "six");
  bench.granted("a");
  assert.equal(only(bench.add("a", dual), "refused").trouble.reason, "BadRequest");
  assert.equal(only(bench.add("a", { pools: { ipv4: ["red"], ipv6: [] } }), "refused").trouble.reason, "BadRequest");
  assert.equal(bench.ledger.unconfirmed.length, 0);
});

test("given two calls of one ADD, when it is done, then both are answered with one address", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.add("a");
  bench.serve(bench.fsync());
  const answered = bench.fsync().filter((effect) => effect.kind === "granted");
  assert.deepEqual(
    answered.map(({ call, places }) => [call, places[0]?.address]),
    [
      [1, "10.0.0.0"],
      [2, "10.0.0.0"],
    ],
  );
});

test("given both families, when both have room, then IPv4 comes first in the answer", () => {
  assert.deepEqual(new Bench().online("six", "blue").granted("a", dual), ["10.0.0.0", "fd00::"]);
});

test("given both families, when one has no room, then nothing is taken of the other", () => {
  const bench = new Bench().online("blue");
  assert.deepEqual(kindsOf(bench.add("a", dual)), ["claim"]);
  const problem = { reason: "PoolExhausted", message: "no block" };
  assert.deepEqual(kindsOf(bench.send({ kind: "claimed", id: 1, problem })), ["refused"]);
  assert.equal(bench.ledger.lanes.get(b0)?.holdings.size, 0);
});

test("given one family taken and the other lost to other writers, when no room is left, then the one is given back", () => {
  const bench = new Bench().online("blue", "six");
  bench.add("a", dual);
  for (let i = 0; i < 4; i++) bench.api.takeFor(v6, `other.${i}`, "n2");
  const [four, six] = bench.fsync().filter((effect) => effect.kind === "commit");
  assert.ok(four && six);
  bench.answer(four);
  const { id } = only(bench.answer(six), "claim");
  const refused = bench.send({ kind: "claimed", id, problem: { reason: "PoolExhausted", message: "no block" } });
  assert.equal(only(refused, "refused").trouble.reason, "PoolExhausted");
  bench.serve(bench.fsync());
  assert.deepEqual(
    [...bench.api.holders().values()].filter((handle) => handle === "net.a"),
    [],
  );
});

test("given a DEL during its ADD, when the reserve turns out to be done, then the ADD is refused and the address released", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  const sent = bench.fsync();
  assert.deepEqual(only(bench.del("a"), "refused").trouble.code, 11);
  bench.serve(sent);
  const release = bench.fsync();
  assert.deepEqual(only(release, "commit").commit.intents[0]?.become, null);
  const answered = bench.serve(release);
  assert.equal(only(answered, "done").call, 2);
  assert.equal(bench.api.holders().size, 0);
});

test("given a DEL before the ADD was sent, when it is journalled, then nothing is sent at all", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.del("a");
  assert.deepEqual(kindsOf(bench.fsync()), ["done"]);
});

test("given a tombstone, when an ADD comes whose process started before, then it is refused; a later one is served", () => {
  const bench = new Bench().online("blue");
  const before = bench.now;
  bench.now += 10;
  bench.del("a");
  assert.equal(only(bench.add("a", { startedAt: before }), "refused").trouble.code, 11);
  bench.now += 1;
  assert.deepEqual(bench.granted("a"), ["10.0.0.0"]);
});

test("given a live attachment, when it is deleted, then disk, release and answer follow in this order", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  assert.deepEqual(kindsOf(bench.del("a")), ["journal"]);
  const release = bench.fsync();
  assert.deepEqual(kindsOf(release), ["commit"]);
  assert.deepEqual(kindsOf(bench.serve(release)), ["journal", "done"]);
  assert.deepEqual(kindsOf(bench.fsync()), []);
});

test("given a server that does not answer, when a DEL has waited long enough, then the journal's word is enough", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.del("a");
  bench.fsync();
  assert.deepEqual(bench.wait(releasePatienceMs - 1), []);
  assert.deepEqual(kindsOf(bench.wait(1)), ["done"]);
});

test("given no server, when a pod is deleted, then it is answered once the journal has it, and released when a server is back", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.send({ kind: "offline" });
  assert.deepEqual(kindsOf(bench.del("a")), ["journal"]);
  assert.deepEqual(kindsOf(bench.fsync()), ["done"]);
  assert.equal(only(bench.send({ kind: "online" }), "commit").commit.intents[0]?.become, null);
});

test("given no server, when a pod is added, then it is refused after its patience and nothing is left of it", () => {
  const bench = new Bench().online("blue");
  bench.send({ kind: "offline" });
  bench.add("a");
  bench.fsync();
  const { trouble: told } = only(bench.wait(serverPatienceMs), "refused");
  assert.deepEqual([told.code, told.reason], [11, "ServerAway"]);
  assert.equal(bench.ledger.attachments.size + bench.ledger.departing.size, 0);
});

test("given an ADD at its deadline, when the server has told why it cannot write, then that is what it is blamed on", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  const { commit } = only(bench.fsync(), "commit");
  bench.send({
    kind: "acknowledged",
    id: commit.id,
    problem: { reason: "CommitTimeout", message: "the API server is slow" },
  });
  assert.equal(only(bench.wait(30_000), "refused").trouble.why, "the API server is slow");
});

test("given a server that may not write, when it says so, then the ADD is refused at once", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  const { commit } = only(bench.fsync(), "commit");
  const problem = { reason: "Forbidden", message: "403", retryAfterMs: 10_000 };
  const told = bench.send({ kind: "acknowledged", id: commit.id, problem });
  assert.equal(only(told, "refused").trouble.reason, "Forbidden");
});

test("given a reserve sent, when the connection is lost, then its ordinal is nobody else's and it is sent again", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.fsync();
  bench.send({ kind: "offline" });
  bench.add("b");
  bench.fsync();
  const { intents } = only(bench.send({ kind: "online" }), "commit").commit;
  assert.deepEqual(
    intents.map(({ ordinal, become }) => [ordinal, become?.handle]),
    [
      [0, "net.a"],
      [1, "net.b"],
    ],
  );
});

test("given a reserve sent before a crash, when the ADD is asked again, then it is settled and answered with that address", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.api.commit(node, b0, only(bench.fsync(), "commit").commit.intents);
  bench.restart();
  bench.add("a", { startedAt: 1_000 });
  bench.seen(bench.api.blocks.get(b0));
  bench.send({ kind: "online" });
  assert.equal(only(bench.fsync(), "granted").places[0]?.address, "10.0.0.0");
});

test("given an ADD interrupted by a crash, when nobody comes back for it, then what it took is released", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.api.commit(node, b0, only(bench.fsync(), "commit").commit.intents);
  bench.restart().online();
  bench.seen(bench.api.blocks.get(b0));
  assert.deepEqual(kindsOf(bench.wait(30_000)), ["journal"]);
  bench.send({ kind: "offline" });
  bench.fsync();
  bench.serve(bench.send({ kind: "online" }));
  assert.equal(bench.api.holders().size, 0);
});

test("given a restart, when not everything has been seen, then no ADD is answered; afterwards those that wait are", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.restart();
  assert.deepEqual(bench.add("a"), []);
  assert.equal(only(bench.send({ kind: "online" }), "granted").places[0]?.address, "10.0.0.0");
});

test("given a view that starts afresh, when a pod is added meanwhile, then it waits for the whole", () => {
  const bench = new Bench().online("blue");
  bench.send({ kind: "incomplete" });
  assert.deepEqual(bench.add("a"), []);
  assert.deepEqual(kindsOf(bench.send({ kind: "online" })), ["journal"]);
});

test("given an address of calico-ipam, when its pod is deleted, then it is released by its handle, others' addresses are not", () => {
  const bench = new Bench().online("blue");
  bench.api.takeFor(b0, "net.old", node);
  bench.api.takeFor(b0, "net.other", node);
  bench.seen(bench.api.blocks.get(b0));
  bench.granted("a");
  bench.del("old");
  bench.serve(bench.fsync());
  assert.deepEqual(
    [...bench.api.holders()],
    [
      ["10.0.0.1", "net.other"],
      ["10.0.0.2", "net.a"],
    ],
  );
});

test("given a DEL for a stranger before everything was seen, when its block turns up, then its address is released", () => {
  const bench = new Bench();
  bench.del("old");
  assert.deepEqual(kindsOf(bench.fsync()), ["done"]);
  bench.api.claim(node, "blue");
  bench.api.takeFor(b0, "net.old", node);
  assert.deepEqual(kindsOf(bench.seen(bench.api.blocks.get(b0))), ["journal"]);
  bench.fsync();
  bench.serve(bench.send({ kind: "online" }));
  assert.equal(bench.api.holders().size, 0);
});

test("given two interfaces of one container, when one is deleted, then the other keeps its address", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.granted("a", { ifname: "net1" });
  const parts = { network: "net", containerId: "a", ifname: "net1" };
  bench.del("a", { parts, id: attachmentId(parts) });
  bench.serve(bench.fsync());
  assert.deepEqual([...bench.api.holders()], [["10.0.0.0", "net.a"]]);
  assert.equal(check(bench.ledger, attachmentId({ ...parts, ifname: "eth0" }), ["10.0.0.0"]), undefined);
});

test("given a failing disk, when a pod is added, then it is refused, and its ordinal is suspect until a record says otherwise", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  const { trouble: told } = only(bench.diskFails(), "refused");
  assert.deepEqual([told.code, told.reason], [11, "DiskFull"]);
  assert.equal(bench.ledger.lanes.get(b0)?.holdings.get(0)?.state.kind, "suspect");
  assert.equal(only(bench.add("b"), "refused").trouble.reason, "DiskFull");
  bench.fsync();
  assert.equal(bench.ledger.lanes.get(b0)?.holdings.size, 0);
  assert.deepEqual(bench.granted("c"), ["10.0.0.0"]);
});

test("given a failing disk, when a pod is deleted, then it is answered only once a repeated record is on disk", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.del("a");
  assert.deepEqual(bench.diskFails(), []);
  assert.deepEqual(kindsOf(bench.wait(1_000)), ["journal"]);
  bench.serve(bench.fsync());
  assert.equal(bench.ledger.dels.size, 0);
});

test("given a failing disk, when a DEL has waited for it long enough, then it is told so and may be asked again", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.del("a");
  const asked = bench.now;
  let told = bench.diskFails();
  while (!kindsOf(told).includes("refused")) {
    bench.diskFails();
    const due = nextWake(bench.ledger);
    assert.ok(due !== undefined && due > bench.now);
    told = bench.wait(due - bench.now);
  }
  assert.equal(only(told, "refused").trouble.reason, "DiskFull");
  assert.equal(bench.now, asked + releasePatienceMs);
});

test("given a disk that is slow but does not fail, when a DEL is waited for, then it is so until its deadline", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.del("a");
  assert.deepEqual(bench.wait(14_999), []);
  assert.equal(only(bench.wait(1), "refused").trouble.reason, "DiskFull");
});

test("given a live address that another writer released, when the block shows it, then it is taken back", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.api.releaseAllOf("net.a");
  const seen = bench.seen(bench.api.blocks.get(b0));
  assert.equal(only(seen, "conflict").what, "released");
  bench.serve(bench.fsync());
  assert.deepEqual([...bench.api.holders()], [["10.0.0.0", "net.a"]]);
});

test("given a live address that another writer took, when the block shows it, then CHECK fails and nothing of it is released", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.api.releaseAllOf("net.a");
  for (let i = 0; i < 4; i++) bench.api.takeFor(b0, `other.${i}`, "n2");
  assert.equal(only(bench.seen(bench.api.blocks.get(b0)), "conflict").what, "taken");
  const id = attachmentId({ network: "net", containerId: "a", ifname: "eth0" });
  assert.match(check(bench.ledger, id, ["10.0.0.0"]) ?? "", /taken by another writer/);
  bench.del("a");
  assert.deepEqual(kindsOf(bench.fsync()), ["done"]);
});

test("given a version of the block from before an address was ours, when it is seen late, then nothing is concluded from it", () => {
  const bench = new Bench().online("blue");
  const old = bench.api.blocks.get(b0);
  bench.granted("a");
  assert.deepEqual(bench.seen(old), []);
});

test("given data set back to before an address was ours, when all is told anew, then it is asserted again", () => {
  const bench = new Bench().online("blue");
  const old = bench.api.blocks.get(b0);
  bench.granted("a");
  const wasHeld = bench.api.holders();
  assert.ok(old);
  bench.api.blocks.set(b0, old);
  bench.send({ kind: "offline" });
  bench.send({ kind: "incomplete" });
  bench.seen(old);
  bench.send({ kind: "online" });
  bench.serve(bench.fsync());
  assert.deepEqual(bench.api.holders(), wasHeld);
});

test("given a block that is gone with a pod's address, then this very block is claimed and the address asserted again, as often as it takes", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  const wasHeld = bench.api.holders();
  bench.api.blocks.delete(b0);
  const first = only(bench.send({ kind: "block", cidr: b0, block: undefined }), "claim-block");
  assert.deepEqual([first.block, first.pool], [b0, "blue"]);
  bench.send({ kind: "claimed", id: first.id, problem: { reason: "Forbidden", message: "403" } });
  const again = nextWake(bench.ledger);
  assert.ok(again !== undefined && again > bench.now && again <= bench.now + 60_000);
  const second = only(bench.wait(again - bench.now), "claim-block");
  bench.send({ kind: "claimed", id: second.id, block: { cidr: b0, block: bench.api.claim(node, "blue") } });
  bench.serve(bench.fsync());
  assert.deepEqual(bench.api.holders(), wasHeld);
});

test("given a block that is gone with a pod's address, when another has that address by now, then it is lost, and seldom asked for", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.api.blocks.delete(b0);
  let { id } = only(bench.send({ kind: "block", cidr: b0, block: undefined }), "claim-block");
  const block = bench.api.claim("n2" as NodeName, "blue");
  bench.api.takeFor(b0, "other", "n2");
  const shown = { cidr: b0, block: bench.api.blocks.get(b0) ?? block };
  for (let round = 0; round < 3; round++) {
    assert.deepEqual(kindsOf(bench.send({ kind: "claimed", id, block: shown })), []);
    // It does not concern this node any more, which is told.
    assert.deepEqual(kindsOf(bench.send({ kind: "block", cidr: b0, block: undefined })), []);
    const again = nextWake(bench.ledger);
    assert.ok(again !== undefined && again >= bench.now + 10_000);
    id = only(bench.wait(again - bench.now), "claim-block").id;
  }
});

test("given an address that is asked for, when it is free, then exactly it is given, beside what the attachment holds", () => {
  const bench = new Bench().online("blue");
  assert.deepEqual(bench.granted("a", { requested: ["10.0.0.2"] }), ["10.0.0.2"]);
  assert.deepEqual(bench.granted("a", { requested: ["10.0.0.3"] }), ["10.0.0.3"]);
  bench.del("a");
  bench.serve(bench.fsync());
  assert.equal(bench.api.holders().size, 0);
});

test("given an address that is asked for, when it is another's, then the ADD is refused with Calico's sentence in it", () => {
  const bench = new Bench().online("blue");
  bench.api.takeFor(b0, "other", "n2");
  bench.add("a", { requested: ["10.0.0.0"] });
  const { trouble: told } = only(bench.serve(bench.fsync()), "refused");
  assert.deepEqual([told.code, told.reason], [101, "AddressInUse"]);
  assert.match(told.details ?? "", /^resource already exists: 10\.0\.0\.0 with error/);
});

test("given an address in a block that was never seen, when it is asked for, then the server is asked for that block first", () => {
  const bench = new Bench().online();
  assert.deepEqual(only(bench.add("a", { requested: ["10.0.0.1"] }), "claim-block"), {
    kind: "claim-block",
    id: 1,
    block: b0,
    pool: "blue",
  });
  const block = bench.api.claim(node, "blue");
  bench.send({ kind: "claimed", id: 1, block: { cidr: b0, block } });
  bench.serve(bench.fsync());
  assert.deepEqual(
    only(bench.fsync(), "granted").places.map(({ address }) => address),
    ["10.0.0.1"],
  );
});

test("given an address in another node's block, when it is asked for, then it is taken there, unless affinity is strict", (t) => {
  t.after(() => {
    rules.strict = false;
  });
  const bench = new Bench().online();
  const block = bench.api.claim("n2" as NodeName, "blue");
  bench.add("a", { requested: ["10.0.0.1"] });
  bench.send({ kind: "claimed", id: 1, block: { cidr: b0, block } });
  bench.serve(bench.fsync());
  assert.equal(only(bench.fsync(), "granted").places[0]?.address, "10.0.0.1");
  rules.strict = true;
  const { id } = only(bench.add("b", { requested: ["10.0.0.2"] }), "claim-block");
  const told = only(
    bench.send({ kind: "claimed", id, block: { cidr: b0, block: bench.api.blocks.get(b0) } }),
    "refused",
  );
  assert.deepEqual([told.trouble.code, told.trouble.reason], [102, "StrictAffinity"]);
});

test("given that the server lends another node's block, then its addresses serve who waited, and go back to free", () => {
  const bench = new Bench().online();
  const block = bench.api.claim("n2" as NodeName, "blue");
  bench.add("a");
  bench.send({ kind: "claimed", id: 1, block: { cidr: b0, block } });
  bench.serve(bench.fsync());
  assert.equal(only(bench.fsync(), "granted").places[0]?.address, "10.0.0.0");
  assert.deepEqual(kindsOf(bench.add("b")), ["claim"], "a borrowed block is for whoever it was shown to");
  bench.del("a");
  bench.serve(bench.fsync());
  assert.equal(bench.api.holders().size, 0);
});

test("given two blocks with addresses of one handle, when its attachment is deleted, then both are released", () => {
  const bench = new Bench().online("blue", "six");
  bench.granted("a");
  bench.api.takeFor(v6, "net.a", node);
  bench.seen(bench.api.blocks.get(v6));
  bench.del("a");
  for (const commit of bench.fsync().filter((effect) => effect.kind === "commit")) bench.answer(commit);
  assert.equal(bench.api.holders().size, 0);
});

test("given a caller that is gone, when its ADD was alone, then what it took goes back; with company it stays", () => {
  const bench = new Bench().online("blue");
  bench.add("a");
  bench.add("a");
  bench.send({ kind: "caller-gone", call: 1 as CallId });
  assert.equal(bench.ledger.adds.size, 1);
  bench.send({ kind: "caller-gone", call: 2 as CallId });
  assert.deepEqual(bench.fsync(), []);
  assert.equal(bench.ledger.attachments.size, 0);
});

test("given an answer that reached nobody, when it was the only one, then its address is released", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  const id = attachmentId({ network: "net", containerId: "a", ifname: "eth0" });
  bench.send({ kind: "undelivered", id, request: "r-a" });
  bench.serve(bench.fsync());
  assert.equal(bench.api.holders().size, 0);
});

test("given an answer that reached nobody, when another call has the same one, then the address stays", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.add("a");
  const id = attachmentId({ network: "net", containerId: "a", ifname: "eth0" });
  bench.send({ kind: "undelivered", id, request: "r-a" });
  assert.equal(check(bench.ledger, id, ["10.0.0.0"]), undefined);
});

test("given an ADD that is undone, when an earlier one of the attachment lives, then only its own address goes", () => {
  const bench = new Bench().online("blue");
  bench.granted("a", { request: "first", requested: ["10.0.0.1"] });
  bench.granted("a", { request: "second", requested: ["10.0.0.2"] });
  bench.del("a", { undoes: "second" });
  bench.serve(bench.fsync());
  assert.deepEqual([...bench.api.holders().keys()], ["10.0.0.1"]);
});

test("given a spooled DEL, when the attachment that lives was added after it, then it is void", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  assert.deepEqual(kindsOf(bench.del("a", { spooled: true, startedAt: 999 as UnixMs })), ["done"]);
  assert.equal(bench.ledger.attachments.size, 1);
});

test("given a list of valid attachments, when garbage is collected, then the rest goes, but for what is young", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.granted("b");
  bench.now += gcGraceMs;
  bench.granted("young");
  assert.deepEqual(kindsOf(bench.gc("a")), ["journal"]);
  const collected = bench.fsync();
  assert.deepEqual(kindsOf(collected).sort(), ["commit", "done"]);
  bench.serve(collected);
  assert.deepEqual([...bench.api.holders().values()], ["net.a", "net.young"]);
});

test("given nothing to collect, when garbage is collected, then it is answered at once", () => {
  const bench = new Bench().online("blue");
  assert.deepEqual(kindsOf(bench.gc()), ["done"]);
});

test("given an empty list and many attachments, when garbage is collected, then it is refused and nothing is released", () => {
  const bench = new Bench().online("blue", "blue", "blue", "blue", "six");
  for (let i = 0; i < gcBlindMax; i++) bench.granted(`c${i}`);
  bench.granted("one more", { families: { ipv4: false, ipv6: true } });
  bench.now += gcGraceMs;
  assert.equal(only(bench.gc(), "refused").trouble.code, 7);
});

test("given a server that owes an answer for too long, then another connection is asked for", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.del("a");
  bench.fsync();
  assert.deepEqual(kindsOf(bench.wait(answerOverdueMs)), ["reconnect", "done"]);
  assert.equal(nextWake(bench.ledger), bench.now + answerOverdueMs);
});

test("given a journal that was set aside, when calls come, then no ADD is answered, and DEL still releases by handle", () => {
  const bench = new Bench();
  const closed = { trouble: trouble("AgentStarting", "the journal is unreadable"), isLoss: true, verdict: undefined };
  bench.ledger = createLedger(
    { node, handles: "eager", placement, handleDelayMs: undefined, warm: () => undefined },
    0 as Instant,
    closed,
  );
  bench.api.claim(node, "blue");
  bench.api.takeFor(b0, "net.old", node);
  bench.seen(bench.api.blocks.get(b0));
  bench.online();
  assert.deepEqual(only(bench.add("a"), "refused").trouble, closed.trouble);
  bench.del("old");
  bench.serve(bench.fsync());
  assert.equal(bench.api.holders().size, 0);
});

test("given a block that became another node's, when a pod is added, then it is passed over", () => {
  const bench = new Bench().online("blue", "blue");
  const block = bench.api.blocks.get(b0);
  assert.ok(block);
  bench.seen({ ...block, affinity: "host:n2" });
  assert.deepEqual(bench.granted("a"), ["10.0.0.4"]);
});

test("given a full block in which an address cools down, when it has, then it is taken without a new version of the block", () => {
  const bench = new Bench().online("blue");
  for (const container of ["a", "b", "c"]) bench.granted(container);
  bench.api.takeFor(b0, "cooling", "n2");
  bench.seen(bench.api.blocks.get(b0));
  const { id } = only(bench.add("d"), "claim");
  bench.send({ kind: "claimed", id, problem: { reason: "CommitTimeout", message: "slow", retryAfterMs: 2_000 } });
  cooled.push(3);
  assert.deepEqual(kindsOf(bench.wait(2_000)), ["journal"]);
  cooled.length = 0;
});

const locked = { reason: "DatastoreLocked", message: "locked", retryAfterMs: 60_000 };

test("given a release that was put off as the datastore was locked, when it is unlocked, then all is written at once", () => {
  for (const order of ["asked while locked", "asked when unlocked"] as const) {
    const bench = new Bench().online("blue");
    bench.granted("a");
    bench.del("a");
    bench.send({ kind: "acknowledged", id: only(bench.fsync(), "commit").commit.id, problem: locked });
    bench.now += 1;
    if (order === "asked while locked") {
      bench.add("b");
      assert.deepEqual(kindsOf(bench.fsync()), [], "the datastore is locked");
      const { commit } = only(bench.send({ kind: "unlocked" }), "commit");
      assert.equal(commit.intents.length, 2);
    } else {
      assert.deepEqual(kindsOf(bench.send({ kind: "unlocked" })), ["commit"]);
    }
  }
});

test("given a claim that was put off, when the datastore is unlocked, then it is made again at once", () => {
  const bench = new Bench().online();
  const { id } = only(bench.add("a"), "claim");
  bench.send({ kind: "claimed", id, problem: { reason: "CommitTimeout", message: "slow", retryAfterMs: 60_000 } });
  assert.deepEqual(kindsOf(bench.send({ kind: "unlocked" })), ["claim"]);
});

test("given nothing that was put off, when the datastore is unlocked, then nothing happens", () => {
  const bench = new Bench().online("blue");
  bench.granted("a");
  bench.add("b");
  bench.fsync();
  assert.deepEqual(kindsOf(bench.send({ kind: "unlocked" })), [], "what is under way is not sent twice");
});
