// The rules by which addresses are kept in stock and handed out, one test each. That they suffice is for the property test, and for
// the model in which they were found.
import assert from "node:assert/strict";
import { test } from "node:test";
import { podHandle } from "../../shared/calico/attributes.ts";
import { collect, freeOrdinals, holderOf } from "../../shared/calico/block.ts";
import { warmHandle } from "../../shared/calico/names.ts";
import type { Address, CidrText, Instant, NodeName, PoolName, UnixMs } from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import { CalicoApi } from "../../test/model/calico-api.ts";
import { trouble } from "../trouble.ts";
import { shortMs } from "./demand.ts";
import { evidenceRetryMs } from "./evidence.ts";
import { resumeLease } from "./lease.ts";
import { type LedgerEvent, nextWake, replay, step } from "./ledger.ts";
import type { Boot } from "./reboot.ts";
import { decodeRows, type JournalRow } from "./record.ts";
import { attachmentId, type CallId, createLedger, type Incarnation, type Ledger, type Placement } from "./state.ts";
import type { Effect } from "./turn.ts";

const node = "n1" as NodeName;
const stock = warmHandle(node);
const blue = { name: "blue", cidr: "10.0.0.0/26" as CidrText, blockSize: 28 };
const leaseMs = 60_000;
const flushDelayMs = 5_000;

/** A ledger with a lease, whose server does what it is asked when it is told to. */
class Bench {
  readonly api = new CalicoApi([blue]);
  readonly disk = new Map<string, JournalRow>();
  readonly rules = { reserved: "", cooldownMs: 0, pools: ["blue"] };
  ledger: Ledger;
  now = 1_000;
  incarnation: Incarnation = { journal: "j", number: 1, timestamp: "t1" };
  commits: Extract<Effect, { kind: "commit" }>["commit"][] = [];
  claims: Extract<Effect, { kind: "claim" }>[] = [];
  #calls = 0;

  constructor(journal = "j") {
    this.incarnation = { ...this.incarnation, journal };
    this.ledger = this.create();
  }

  create(): Ledger {
    const ledger = createLedger(
      {
        node,
        handles: "off",
        handleDelayMs: 60_000,
        placement: this.#placement(),
        warm: () => ({ floor: 4, ceiling: 8, flushDelayMs }),
      },
      this.now as Instant,
    );
    resumeLease(ledger, this.incarnation, undefined, this.now as Instant);
    return ledger;
  }

  /** Connected, under a lease, with the floor in stock. */
  stocked(): this {
    this.send({ kind: "online" });
    this.lease();
    return this.progress();
  }

  lease(): Effect[] {
    return this.send({ kind: "leased", until: (this.now + leaseMs) as Instant, limitMs: leaseMs, timestamp: "t2" });
  }

  send(event: LedgerEvent): Effect[] {
    const effects = step(this.ledger, event, this.now as Instant);
    for (const effect of effects) {
      if (effect.kind === "commit") this.commits.push(effect.commit);
      else if (effect.kind === "claim") this.claims.push(effect);
      else if (effect.kind === "incarnation") this.incarnation = effect.incarnation;
      else if (effect.kind === "journal") this.#write(effect.rows);
    }
    return effects;
  }

  #write(rows: readonly JournalRow[]): void {
    for (const row of rows) {
      if (row.value === null) this.disk.delete(`${row.table} ${row.key}`);
      else this.disk.set(`${row.table} ${row.key}`, row);
    }
  }

  fsync(): Effect[] {
    return this.send({ kind: "journalled", upTo: this.ledger.lastRecord });
  }

  /** Disk and server have done all that they were asked. */
  progress(): this {
    for (let round = 0; round < 6; round++) {
      this.fsync();
      for (const { id, pools } of this.claims.splice(0)) {
        const block = this.api.claim(node, pools[0] ?? "");
        const problem = { reason: "PoolExhausted", message: "no block left" };
        this.send({ kind: "claimed", id, ...(block ? { block: { cidr: block.cidr, block } } : { problem }) });
      }
      for (const commit of this.commits.splice(0)) this.answer(commit);
    }
    this.fsync();
    return this;
  }

  answer({ id, block, intents }: Bench["commits"][number]): Effect[] {
    return this.send({ kind: "acknowledged", id, ...this.api.commit(node, block as never, intents) });
  }

  look(): Effect[] {
    return [...this.api.blocks.values()].flatMap((block) => this.send({ kind: "block", cidr: block.cidr, block }));
  }

  wait(ms: number): Effect[] {
    this.now += ms;
    return this.send({ kind: "tick" });
  }

  add(containerId: string, more: Partial<AddRequest> = {}): Effect[] {
    const ask = { ...request(containerId, this.now), ...more };
    const stamp = ask.ifnameIsFirst ? { pod: containerId } : { "cattail.io/interface": ask.ifname };
    const owner = { handle: podHandle("net", containerId), attributes: { node, ...stamp } };
    const at = { addedAt: this.now as UnixMs, deadline: (this.now + 30_000) as Instant };
    this.#calls += 1;
    return this.send({ kind: "add", call: this.#calls as CallId, id: attachmentId(ask), ask, owner, ...at });
  }

  /** An ADD that is answered as soon as the disk has it. */
  granted(containerId: string, more: Partial<AddRequest> = {}): string {
    this.add(containerId, more);
    const granted = this.fsync().find((effect) => effect.kind === "granted");
    assert.ok(granted, `${containerId} is not answered from stock`);
    assert.equal(granted.path, "warm");
    return granted.places[0]?.address ?? "";
  }

  del(containerId: string): Effect[] {
    const parts = { network: "net", containerId, ifname: "eth0" };
    this.#calls += 1;
    this.now += 1;
    return this.send({
      kind: "del",
      call: this.#calls as CallId,
      id: attachmentId(parts),
      parts,
      handles: [podHandle("net", containerId)],
      startedAt: this.now as UnixMs,
      deadline: (this.now + 15_000) as Instant,
      undoes: undefined,
      spooled: false,
    });
  }

  restart(until?: number, boot?: Boot): this {
    this.ledger = this.create();
    if (boot) this.ledger.boot = boot;
    resumeLease(this.ledger, this.incarnation, until as Instant | undefined, this.now as Instant);
    replay(this.ledger, decodeRows(this.disk.values()), this.now as Instant, this.now as UnixMs);
    this.commits = [];
    return this;
  }

  /** How many addresses the API shows for this handle. */
  shown(handle: string): number {
    return [...this.api.holders().values()].filter((holder) => holder === handle).length;
  }

  marks(): string[] {
    const blocks = [...this.api.blocks.values()];
    return blocks.flatMap(({ attributes }) =>
      attributes.flatMap(({ secondary }) => secondary?.["cattail.io/incarnation"] ?? []),
    );
  }

  #placement(): Placement {
    const want = (): ReturnType<Placement["usual"]> => [
      { kind: "any", family: 4, pools: this.rules.pools as PoolName[] },
    ];
    return {
      wanted: ({ requested }) =>
        requested.length === 0
          ? want()
          : requested.map((address) => ({
              kind: "address",
              family: 4,
              address: address as never,
              block: "10.0.0.0/28" as never,
              pool: "blue" as PoolName,
            })),
      usual: want,
      poolOf: () => "blue" as PoolName,
      freeOrdinals: (block) => freeOrdinals(collect(block, { now: 0 as UnixMs, cooldownSeconds: 0 })),
      isReserved: (address) => address === this.rules.reserved,
      cooldownMs: () => this.rules.cooldownMs,
      forbids: () => undefined,
      verdict: () => "",
    };
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
    podNamespace: "",
    podName: "",
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

function kindsOf(effects: readonly Effect[]): string[] {
  return effects.map(({ kind }) => kind);
}

test("journal-first: an ADD from stock is on disk before it is answered, and asks nobody", () => {
  const bench = new Bench().stocked();
  assert.equal(bench.shown(stock), 4);
  assert.deepEqual(kindsOf(bench.add("a")), ["journal"]);
  assert.deepEqual(kindsOf(bench.fsync()), ["granted"]);
  assert.deepEqual(bench.commits, []);
});

test("flush-delay: what nobody waits for is written together, once for a block", () => {
  const bench = new Bench().stocked();
  bench.granted("a");
  bench.granted("b");
  bench.wait(flushDelayMs - 1);
  assert.deepEqual(bench.commits, []);
  assert.equal(nextWake(bench.ledger), bench.now + 1);
  bench.wait(1);
  bench.fsync();
  assert.equal(bench.commits.length, 1);
  bench.progress();
  assert.deepEqual([bench.shown("net.a"), bench.shown("net.b"), bench.shown(stock)], [1, 1, 4]);
});

test("settle: a pod that dies before its retag is sent costs no write, and its address goes to the end of the queue", () => {
  const bench = new Bench().stocked();
  const first = bench.granted("a");
  bench.del("a");
  assert.deepEqual(kindsOf(bench.fsync()), ["done"]);
  assert.notEqual(bench.granted("b"), first);
  assert.deepEqual(bench.commits, []);
});

test("leaving: an address whose retag was sent is nobody's until a later write to it is acknowledged", () => {
  const bench = new Bench().stocked();
  const address = bench.granted("a");
  bench.wait(flushDelayMs);
  bench.send({ kind: "offline" });
  bench.del("a");
  bench.fsync();
  const given = ["b", "c", "d"].map((name) => bench.granted(name));
  assert.ok(!given.includes(address));
  bench.add("e");
  assert.ok(!kindsOf(bench.fsync()).includes("granted"), "an address was given while a retag of it may be under way");
});

test("expect-seq: a retag names the handle and the sequence that the block shows", () => {
  const bench = new Bench().stocked();
  bench.granted("a");
  bench.wait(flushDelayMs);
  const [intent] = bench.commits[0]?.intents ?? [];
  const block = [...bench.api.blocks.values()][0];
  assert.ok(block && intent);
  const sequence = String(holderOf(block, intent.ordinal)?.sequence);
  assert.deepEqual(intent.expect, { handle: stock, sequence });
});

test("lease: without one nothing is handed out from stock, and an earlier answer is not repeated until it is written", () => {
  const bench = new Bench().stocked();
  bench.granted("a");
  bench.send({ kind: "offline" });
  bench.wait(leaseMs);
  const refused = bench.add("b").find((effect) => effect.kind === "refused");
  assert.deepEqual([refused?.trouble.code, refused?.trouble.reason], [11, "LeaseExpired"]);
  assert.equal(bench.add("a").find((effect) => effect.kind === "refused")?.trouble.reason, "LeaseExpired");
  bench.del("a");
  assert.deepEqual(kindsOf(bench.fsync()), ["done"]);
});

test("lease: one that runs out while an ADD is on its way to the disk leaves that ADD unanswered", () => {
  const bench = new Bench().stocked();
  bench.send({ kind: "offline" });
  bench.now += leaseMs - 1;
  bench.add("a");
  bench.wait(1);
  assert.ok(!kindsOf(bench.fsync()).includes("granted"));
});

test("lease: one that runs out while connected asks for another connection, whose hello tells of it", () => {
  const bench = new Bench().stocked();
  assert.ok(kindsOf(bench.wait(leaseMs)).includes("reconnect"));
  assert.equal(bench.ledger.lease.standing, "ran-out");
  bench.send({ kind: "node-gone" });
  assert.equal(bench.ledger.lease.standing, "ran-out");
});

test("lease: a server that says that the Node is gone ends it", () => {
  const bench = new Bench().stocked();
  bench.send({ kind: "node-gone" });
  bench.add("a");
  assert.ok(!kindsOf(bench.fsync()).includes("granted"));
});

test("incarnation: after a lease ran out, stock is marked anew, acknowledged, before it is handed out", () => {
  const bench = new Bench().stocked();
  bench.wait(leaseMs);
  bench.send({ kind: "online" });
  assert.ok(kindsOf(bench.lease()).includes("incarnation"));
  bench.add("a");
  assert.ok(!kindsOf(bench.fsync()).includes("granted"));
  bench.wait(flushDelayMs);
  bench.progress();
  assert.deepEqual(new Set(bench.marks()), new Set(["j.2"]));
  bench.granted("b");
});

test("contact: a restart goes on under what is left of the lease, and renews nothing", () => {
  const bench = new Bench().stocked();
  const until = bench.now + leaseMs;
  bench.now += 1_000;
  bench.restart(until);
  bench.look();
  bench.send({ kind: "remembered" });
  bench.granted("a");
  bench.restart(bench.now);
  bench.look();
  bench.send({ kind: "remembered" });
  assert.equal(bench.add("b").find((effect) => effect.kind === "refused")?.trouble.reason, "LeaseExpired");
});

/** An agent with a new journal on a node whose old one had four addresses in stock, 10.0.0.0 to 10.0.0.3. */
function successor(): Bench {
  const bench = new Bench("other").stocked();
  const mine = new Bench("mine");
  for (const [cidr, block] of bench.api.blocks) mine.api.blocks.set(cidr, block);
  mine.look();
  return mine.stocked();
}

const theirs = [0, 1, 2, 3].map((ordinal) => `10.0.0.${ordinal}` as Address);

/** Under its lease all the time. True: what runs was looked for. */
function passQuarantine(bench: Bench): boolean {
  const effects: Effect[] = [];
  for (let passed = 0; passed <= 2 * leaseMs; passed += leaseMs / 2) {
    bench.now += leaseMs / 2;
    effects.push(...bench.lease(), ...bench.wait(0));
    bench.progress();
  }
  return kindsOf(effects).includes("seek-evidence");
}

function witness(containerId: string, addresses: readonly string[]) {
  return {
    attachment: { network: "net", containerId, ifname: "eth0" },
    pod: { namespace: "shop", name: containerId },
    owner: { handle: podHandle("net", containerId), attributes: { node, pod: containerId } },
    addresses: addresses as readonly Address[],
  };
}

function evidence(bench: Bench, found: Readonly<Record<string, readonly Address[]>>, gap?: string) {
  const seen = Object.entries(found).map(([containerId, addresses]) => witness(containerId, addresses));
  const effects = bench.send({ kind: "evidence", seen, gap, at: bench.now as UnixMs });
  bench.fsync();
  bench.wait(flushDelayMs);
  bench.progress();
  return effects.find((effect) => effect.kind === "judged");
}

function ofOthers(bench: Bench): number {
  return [...bench.api.blocks.values()]
    .flatMap(({ allocations, attributes }) => allocations.map((index) => attributes[index ?? -1]?.secondary))
    .filter((stamp) => stamp?.["cattail.io/incarnation"]?.startsWith("other.")).length;
}

test("own-journal: stock of another journal is never handed out, and looked into only after the quarantine", () => {
  const bench = successor();
  assert.equal(bench.shown(stock), 8);
  assert.equal(bench.ledger.strangers.size, 4);
  for (const name of ["a", "b", "c", "d"]) assert.ok(!theirs.includes(bench.granted(name) as Address));
  assert.equal(evidence(bench, { a: [] }), undefined, "in quarantine");
  assert.ok(passQuarantine(bench));
  assert.equal(ofOthers(bench), 4);
});

test("evidence: of a lost journal's stock, what somebody has becomes his, and what nobody is seen with is released once all is read", () => {
  const bench = successor();
  const own = bench.granted("a") as Address;
  passQuarantine(bench);
  const judged = evidence(bench, { a: [own], alive: ["10.0.0.2" as Address] });
  assert.deepEqual([judged?.doubt, judged?.kept, judged?.released.length], [undefined, [], 3]);
  assert.equal(ofOthers(bench), 0);
  assert.equal(bench.api.holders().get("10.0.0.2" as Address), "net.alive");
  bench.del("alive");
  bench.wait(flushDelayMs);
  bench.progress();
  assert.equal(bench.shown("net.alive"), 0);
});

test("evidence: an address that two are seen with is neither's, and kept", () => {
  const bench = successor();
  const own = bench.granted("a") as Address;
  passQuarantine(bench);
  const judged = evidence(bench, { a: [own], b: ["10.0.0.2" as Address], c: ["10.0.0.2" as Address] });
  assert.deepEqual(judged?.kept, ["10.0.0.2"]);
  assert.equal(bench.shown(stock), [...bench.ledger.stock].length + 1);
});

/** As `successor`, at its first start: the old journal had also given 10.0.0.0 to `alive` and said so to nobody. */
function rebuilding(): Bench {
  const before = new Bench("other").stocked();
  before.granted("owner");
  before.granted("secondary", { ifname: "net1", ifnameIsFirst: false });
  before.wait(flushDelayMs);
  before.progress();
  assert.equal(before.granted("alive"), "10.0.0.2");
  const bench = new Bench("mine");
  bench.ledger.closed = { trouble: trouble("AgentStarting", "new"), isLoss: true, verdict: undefined };
  for (const [cidr, block] of before.api.blocks) bench.api.blocks.set(cidr, block);
  return bench;
}

test("reboot: what an earlier boot left is released after the grace, unless its runtime comes back for it", () => {
  const bench = new Bench();
  bench.ledger.boot = { id: "b1", graceMs: 0 };
  bench.stocked();
  for (const name of ["gone", "added", "valid", "deleted"]) bench.granted(name);
  bench.wait(flushDelayMs);
  bench.progress();
  bench.restart(bench.now + leaseMs, { id: "b2", graceMs: 20_000 });
  bench.look();
  bench.send({ kind: "online" });
  bench.del("deleted");
  const replay = bench.add("added");
  assert.ok(!kindsOf(replay).includes("granted"), "that it came back is not on disk yet");
  assert.ok(kindsOf(bench.fsync()).includes("granted"));
  const valid = new Set([attachmentId({ network: "net", containerId: "valid", ifname: "eth0" })]);
  const times = { now: bench.now as UnixMs, startedAt: bench.now as UnixMs, deadline: bench.now as Instant };
  bench.send({ kind: "gc", call: 99 as CallId, network: "net", valid, ...times });
  bench.wait(19_000);
  bench.progress();
  assert.deepEqual([bench.shown("net.gone"), bench.shown("net.deleted")], [1, 0]);
  bench.wait(1_000);
  bench.fsync();
  bench.wait(flushDelayMs);
  bench.progress();
  const left = ["gone", "added", "valid"].map((name) => bench.shown(`net.${name}`));
  assert.deepEqual(left, [0, 1, 1]);
  // A later start of the agent in the same boot, or one that cannot tell the boot, ends nothing.
  for (const id of ["b2", ""]) {
    bench.restart(bench.now + leaseMs, { id, graceMs: 0 });
    assert.equal(bench.ledger.leftOver.size, 0);
  }
});

test("rebuild: a new journal answers no ADD until all blocks and what runs here were seen and are on disk", () => {
  const bench = rebuilding();
  const isRefused = (): boolean => kindsOf(bench.add("new")).includes("refused");
  bench.look();
  assert.ok(isRefused());
  assert.ok(kindsOf(bench.send({ kind: "online" })).includes("seek-evidence"));
  bench.lease();
  assert.ok(isRefused());
  bench.fsync();
  const seen = [witness("alive", ["10.0.0.2"]), witness("owner", ["10.0.0.0"])];
  assert.ok(!kindsOf(bench.send({ kind: "evidence", seen, gap: undefined, at: 1 as UnixMs })).includes("rebuilt"));
  assert.ok(isRefused());
  const rebuilt = bench.fsync().find((effect) => effect.kind === "rebuilt");
  assert.deepEqual([rebuilt?.isLoss, rebuilt?.adopted], [true, 2]);
  bench.wait(0);
  bench.progress();
  assert.notEqual(bench.granted("new"), "10.0.0.2");
});

test("rebuild: what the runtime names is taken over, so that the same ADD gets the same address and the DEL releases it", () => {
  const bench = rebuilding();
  bench.look();
  bench.stocked();
  evidence(bench, { alive: ["10.0.0.2" as Address], owner: ["10.0.0.0" as Address] });
  assert.equal(bench.api.holders().get("10.0.0.2" as Address), "net.alive");
  for (const [name, address] of [
    ["alive", "10.0.0.2"],
    ["owner", "10.0.0.0"],
  ] as const) {
    const granted = bench.add(name).find((effect) => effect.kind === "granted");
    assert.deepEqual([granted?.places[0]?.address, granted?.path], [address, "replay"]);
    bench.del(name);
  }
  bench.fsync();
  bench.wait(flushDelayMs);
  bench.progress();
  assert.equal(bench.shown("net.alive") + bench.shown("net.owner"), 0);
});

test("rebuild: a DEL is answered all the time, and wins over what the runtime still names", () => {
  const bench = rebuilding();
  bench.look();
  bench.send({ kind: "online" });
  bench.del("owner");
  assert.ok(kindsOf(bench.fsync()).includes("done"));
  evidence(bench, { owner: ["10.0.0.0" as Address] });
  assert.equal(bench.shown("net.owner"), 0);
  assert.equal(bench.ledger.closed, undefined);
});

test("rebuild: without a whole account of what runs here ADDs are answered as well, from other addresses", () => {
  const bench = rebuilding();
  bench.look();
  bench.stocked();
  evidence(bench, {}, "/var/lib/cni/results cannot be read");
  bench.wait(0);
  bench.progress();
  for (const name of ["a", "b", "c", "d"]) assert.ok(!bench.ledger.strangers.has(bench.granted(name) as Address));
  assert.deepEqual(
    [...bench.ledger.strangers.keys()],
    [2, 3, 4, 5].map((ordinal) => `10.0.0.${ordinal}`),
  );
});

test("rebuild: an empty node waits for nothing", () => {
  const bench = new Bench();
  bench.ledger.closed = { trouble: trouble("AgentStarting", "new"), isLoss: false, verdict: undefined };
  const rebuilt = bench.send({ kind: "online" }).find((effect) => effect.kind === "rebuilt");
  assert.equal(rebuilt?.isLoss, false);
});

test("rebuild: an ADD of a secondary interface finds its address by the interface stamped on it, answered from disk", () => {
  const bench = rebuilding();
  bench.look();
  bench.stocked();
  evidence(bench, {});
  const ask = { ifname: "net1", ifnameIsFirst: false };
  assert.ok(!kindsOf(bench.add("secondary", ask)).includes("granted"));
  const granted = bench.fsync().find((effect) => effect.kind === "granted");
  assert.deepEqual([granted?.places[0]?.address, granted?.path], ["10.0.0.1", "replay"]);
  assert.notEqual(bench.granted("secondary", { ifname: "net2", ifnameIsFirst: false }), "10.0.0.1");
});

test("evidence: nothing is released when a part was not read, and it is looked for again later", () => {
  const bench = successor();
  bench.granted("a");
  passQuarantine(bench);
  const judged = evidence(bench, { a: [] }, "results/x is no whole entry");
  assert.deepEqual([judged?.doubt, judged?.released.length], ["results/x is no whole entry", 0]);
  bench.progress();
  assert.equal(ofOthers(bench), 4);
  assert.ok(!kindsOf(bench.wait(1)).includes("seek-evidence"));
  assert.ok(kindsOf(bench.wait(evidenceRetryMs)).includes("seek-evidence"));
});

for (const [what, found] of Object.entries({
  "that are empty": {},
  "of pods unknown here": { z: ["10.9.9.9" as Address] },
})) {
  test(`evidence: nothing follows from records of the runtime ${what}`, () => {
    const bench = successor();
    bench.granted("a");
    passQuarantine(bench);
    assert.match(evidence(bench, found)?.doubt ?? "", /none of the pods/);
    assert.equal(ofOthers(bench), 4);
  });
}

test("own-journal: stock that a late reserve of ours has made is taken over", () => {
  const bench = new Bench();
  bench.send({ kind: "online" });
  bench.lease();
  for (const { id } of bench.claims.splice(0)) {
    const block = bench.api.claim(node, "blue");
    bench.send({ kind: "claimed", id, block: block && { cidr: block.cidr, block } });
  }
  bench.fsync();
  const [commit] = bench.commits;
  assert.ok(commit);
  bench.progress();
  const block = [...bench.api.blocks.values()][0];
  assert.ok(block);
  for (const name of ["a", "b", "c", "d"]) bench.granted(name);
  bench.wait(flushDelayMs);
  bench.progress();
  bench.api.releaseAllOf("net.a");
  bench.look();
  bench.del("a");
  bench.wait(flushDelayMs);
  bench.progress();
  bench.api.commit(node, block.cidr, commit.intents);
  bench.look();
  bench.progress();
  assert.equal(bench.shown(stock), [...bench.ledger.stock].length);
});

test("cool-down: an address that a container had rests as long as it would in the block", () => {
  const bench = new Bench().stocked();
  bench.rules.cooldownMs = 30_000;
  const first = bench.granted("a");
  bench.del("a");
  bench.fsync();
  const others = ["b", "c", "d"].map((name) => bench.granted(name));
  assert.ok(!others.includes(first));
  bench.send({ kind: "offline" });
  bench.add("e");
  assert.ok(!kindsOf(bench.fsync()).includes("granted"));
  assert.ok(!kindsOf(bench.wait(20_000)).includes("granted"));
});

test("demand: stock grows as pods come faster, up to the ceiling, and shrinks when they do not come any more", () => {
  const bench = new Bench().stocked();
  for (const name of ["a", "b", "c", "d", "e", "f"]) {
    bench.add(name);
    bench.progress();
  }
  assert.equal(bench.ledger.stock.size, 8);
  for (let passed = 0; passed < 12; passed++) {
    bench.lease();
    bench.wait(10_000);
    bench.progress();
  }
  assert.ok(bench.ledger.stock.size <= 6, `${bench.ledger.stock.size} are still in stock`);
  assert.equal(bench.shown(stock), bench.ledger.stock.size);
});

test("demand: at rest one pod after the other costs two writes, one for its coming and one for its going", () => {
  const bench = new Bench().stocked();
  let writes = 0;
  const flush = (): void => {
    bench.lease();
    bench.wait(flushDelayMs);
    bench.fsync();
    writes += bench.commits.length;
    bench.progress();
  };
  for (let pod = 0; pod < 20; pod++) {
    bench.granted(`p${pod}`);
    flush();
    bench.wait(25_000);
    bench.del(`p${pod}`);
    bench.fsync();
    flush();
    bench.wait(25_000);
  }
  assert.ok(writes <= 2 * 20 + 2, `${writes} writes`);
});

test("demand: a pool that has no more to give keeps the floor only, and is left alone for a while", () => {
  const bench = new Bench().stocked();
  for (let pod = 0; pod < 70; pod++) {
    bench.add(`p${pod}`);
    bench.progress();
  }
  assert.equal(bench.api.blocks.size, 4);
  const asked = bench.claims.length;
  bench.wait(10);
  assert.equal(bench.claims.filter(({ borrow }) => !borrow).length, asked);
  const demand = [...bench.ledger.demands.values()][0];
  assert.ok(demand && demand.shortUntil > bench.now && demand.shortUntil <= bench.now + shortMs);
});

test("drain: stock of a pool that pods may not use any more, and a reserved address, go back", () => {
  const bench = new Bench().stocked();
  bench.rules.reserved = "10.0.0.0";
  bench.send({ kind: "rules-changed" });
  bench.wait(flushDelayMs);
  bench.progress();
  assert.equal(bench.api.holders().get("10.0.0.0" as never), undefined);
  bench.rules.pools = ["red"];
  bench.send({ kind: "rules-changed" });
  bench.wait(flushDelayMs);
  bench.progress();
  assert.equal(bench.shown(stock), 0);
});

test("fixed: an address that was asked for by its number is given from stock, and goes back to free", () => {
  const bench = new Bench().stocked();
  assert.equal(bench.granted("a", { requested: ["10.0.0.2"] }), "10.0.0.2");
  bench.wait(flushDelayMs);
  bench.progress();
  bench.del("a");
  bench.fsync();
  bench.wait(flushDelayMs);
  bench.progress();
  assert.equal(bench.api.holders().get("10.0.0.2" as never), undefined);
});

test("conflict: a foreign writer that releases or takes stock is noticed, and the address is not handed out", () => {
  const bench = new Bench().stocked();
  bench.api.releaseAllOf(stock);
  const taken = bench.api.takeFor("10.0.0.0/28" as never, "other", "n2");
  assert.equal(bench.look().filter(({ kind }) => kind === "conflict").length, 4);
  bench.add("a");
  bench.progress();
  assert.notEqual(bench.api.holders().get(taken ?? ("" as never)), "net.a");
});

test("conflict: what another writer released under a pod that is not written yet is taken back for it", () => {
  const bench = new Bench().stocked();
  const address = bench.granted("a");
  bench.api.releaseAllOf(stock);
  bench.look();
  bench.progress();
  assert.equal(bench.api.holders().get(address as never), "net.a");
});

test("late handles: a pod that has lived long enough has its handle written, one that died before never does", () => {
  const bench = new Bench().stocked();
  bench.granted("a");
  bench.granted("b");
  bench.wait(flushDelayMs);
  bench.progress();
  bench.del("b");
  bench.lease();
  const asked = bench.wait(60_000).find((effect) => effect.kind === "index");
  assert.deepEqual(asked?.handles, ["net.a"]);
  bench.send({ kind: "indexed", id: asked?.id ?? 0, done: true });
  assert.deepEqual([...bench.ledger.unindexed.keys()], []);
});
