// The ledger's promises under every order of events that a seed can make: crashes, lost connections, commits carried out late or never,
// other writers. Against the server's own rules for intents, on a model of the blocks.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { podHandle } from "../../shared/calico/attributes.ts";
import { collect, freeOrdinals, holderOf } from "../../shared/calico/block.ts";
import { warmHandle } from "../../shared/calico/names.ts";
import { compareVersions } from "../../shared/calico/resource-version.ts";
import type { Block } from "../../shared/calico/resources.ts";
import { contains } from "../../shared/ip/cidr.ts";
import type {
  Address,
  AttachmentId,
  BlockCidr,
  CidrText,
  Instant,
  NodeName,
  PoolName,
  UnixMs,
} from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import type { Intent } from "../../shared/protocol/stream.ts";
import { CalicoApi } from "../../test/model/calico-api.ts";
import { trouble } from "../trouble.ts";
import { resumeLease } from "./lease.ts";
import { check, type LedgerEvent, nextWake, replay, step } from "./ledger.ts";
import { decodeRows, type JournalRow } from "./record.ts";
import {
  attachmentId,
  type CallId,
  createLedger,
  type Incarnation,
  type Ledger,
  type Placement,
  type RecordNumber,
  type WarmPolicy,
} from "./state.ts";
import type { Effect } from "./turn.ts";

const node = "n1" as NodeName;
const pools = [
  { name: "blue", cidr: "10.0.0.0/28" as CidrText, blockSize: 30 },
  { name: "six", cidr: "fd00::/124" as CidrText, blockSize: 126 },
];

const placement: Placement = {
  wanted: ({ families }) => [
    ...(families.ipv4 ? [{ kind: "any" as const, family: 4 as const, pools: ["blue" as PoolName] }] : []),
    ...(families.ipv6 ? [{ kind: "any" as const, family: 6 as const, pools: ["six" as PoolName] }] : []),
  ],
  poolOf: (block) => pools.find(({ cidr }) => contains(cidr, block))?.name as PoolName | undefined,
  freeOrdinals: (block) => freeOrdinals(collect(block, { now: 0 as UnixMs, cooldownSeconds: 0 })),
  forbids: () => undefined,
  usual: () => [{ kind: "any", family: 4, pools: ["blue" as PoolName] }],
  isReserved: () => false,
  cooldownMs: () => 0,
  verdict: () => "blue: full",
};

const leaseMs = 60_000;

type Commit = Extract<Effect, { kind: "commit" }>["commit"];
type Claim = Extract<Effect, { kind: "claim" }>;
/** Something on its way to a server; of an earlier connection it may still arrive, at any time. */
type UnderWay = { readonly connection: number } & (
  | { readonly kind: "commit"; readonly commit: Commit }
  /** Of the reaper, on any server. */
  | { readonly kind: "reap"; readonly block: BlockCidr; readonly intent: Intent }
  | { readonly kind: "claim"; readonly claim: Claim }
);

interface Pod {
  readonly ask: AddRequest;
  readonly id: AttachmentId;
  state: "asked" | "live" | "refused" | "deleting" | "deleted";
  addresses: readonly Address[];
}

/** One agent, its disk, its connection and its container runtime. */
class Rig {
  readonly api = new CalicoApi(pools);
  readonly disk = new Map<string, JournalRow>();
  readonly pods = new Map<AttachmentId, Pod>();
  /** Harmed by a writer that released what was not its own: what follows from that is not held against us. */
  readonly exempt = new Set<string>();
  now = 1_000;
  ledger: Ledger;
  #records: { number: RecordNumber; rows: readonly JournalRow[] }[] = [];
  #underWay: UnderWay[] = [];
  #inbox: LedgerEvent[] = [];
  #seen = new Map<BlockCidr, Block>();
  #connection = 0;
  #calls = new Map<CallId, Pod>();
  #nextCall = 1;
  #nextPod = 1;
  #toldOfEnd = false;
  /** The agent has asked for another connection. */
  #brokenOff = false;

  /** The journal knows nothing of what ran before it. */
  #isNew = false;
  /** Answered from a journal that was lost since. */
  readonly forgotten = new Set<AttachmentId>();
  #looking = false;
  /** Undefined: the Node is there. */
  nodeGoneSince: number | undefined;
  readonly #warm: WarmPolicy | undefined;
  #incarnation: Incarnation = { journal: "j", number: 1, timestamp: "" };
  #leaseOnDisk: Instant | undefined;

  constructor(warm?: WarmPolicy) {
    this.#warm = warm;
    this.ledger = this.#createLedger();
  }

  #createLedger(): Ledger {
    const ledger = createLedger(
      { node, handles: "off", placement, handleDelayMs: undefined, warm: () => this.#warm },
      this.now as Instant,
      this.#isNew ? { trouble: trouble("AgentStarting", "new"), isLoss: true, verdict: undefined } : undefined,
    );
    resumeLease(ledger, this.#incarnation, this.#leaseOnDisk, this.now as Instant);
    return ledger;
  }

  send(event: LedgerEvent): void {
    for (const effect of step(this.ledger, event, this.now as Instant)) this.#perform(effect);
  }

  #perform(effect: Effect): void {
    switch (effect.kind) {
      case "journal":
        this.#records.push(effect);
        return;
      case "commit":
        this.#underWay.push({ kind: "commit", commit: effect.commit, connection: this.#connection });
        return;
      case "claim":
        this.#underWay.push({ kind: "claim", claim: effect, connection: this.#connection });
        return;
      case "granted":
        return this.#granted(
          effect.call,
          effect.places.map(({ address }) => address),
        );
      case "refused":
        return this.#told(effect.call, "refused");
      case "done":
        return this.#told(effect.call, "deleted");
      case "judged":
      case "ended-left-over":
        return;
      case "seek-evidence":
        this.#looking = true;
        return;
      case "rebuilt":
        this.#isNew = false;
        return;
      case "claim-block":
      case "index":
        return assert.fail(`nobody asked for ${effect.kind}`);
      case "incarnation":
        this.#incarnation = effect.incarnation;
        return;
      case "conflict":
        return;
      case "reconnect":
        this.#brokenOff = true;
        return;
    }
  }

  #granted(call: CallId, addresses: readonly Address[]): void {
    const pod = this.#calls.get(call);
    assert.ok(pod);
    this.#calls.delete(call);
    if (pod.state === "deleting" || pod.state === "deleted") return; // its runtime has given up on it
    assert.equal(addresses.length, (pod.ask.families.ipv4 ? 1 : 0) + (pod.ask.families.ipv6 ? 1 : 0));
    for (const other of this.pods.values()) {
      if (other === pod || other.state !== "live") continue;
      for (const address of addresses) {
        if (!this.exempt.has(address)) assert.ok(!other.addresses.includes(address), `${address} has two owners`);
      }
    }
    const holders = this.api.holders();
    for (const address of addresses) {
      if (this.exempt.has(address)) continue;
      assert.ok(!holders.get(address)?.startsWith("other."), `${address} is another writer's`);
    }
    if (pod.state === "live") assert.deepEqual(addresses, pod.addresses, "a repeated ADD gave another address");
    const onDisk = decodeRows(this.disk.values()).holdings.filter(
      ({ attachment, state }) => attachment === pod.id && state.kind !== "withdrawn" && state.kind !== "leaving",
    );
    assert.deepEqual(
      onDisk.map(({ address }) => address).sort(),
      [...addresses].sort(),
      "answered before it was on disk",
    );
    pod.state = "live";
    pod.addresses = addresses;
  }

  #told(call: CallId, what: "refused" | "deleted"): void {
    const pod = this.#calls.get(call);
    this.#calls.delete(call);
    if (!pod) return;
    if (what === "deleted") {
      pod.state = "deleted";
      const rows = decodeRows(this.disk.values());
      assert.ok(!rows.attachments.some(({ id }) => id === pod.id), "answered a DEL before it was on disk");
    } else if (pod.state === "asked") pod.state = "refused";
  }

  #call(pod: Pod): CallId {
    const call = this.#nextCall++ as CallId;
    this.#calls.set(call, pod);
    return call;
  }

  add(ipv4: boolean, ipv6: boolean): void {
    const ask = addRequest({ containerId: `c${this.#nextPod++}`, families: { ipv4, ipv6 }, startedAt: this.now });
    const pod: Pod = { ask, id: attachmentId(ask), state: "asked", addresses: [] };
    this.pods.set(pod.id, pod);
    this.addAgain(pod);
  }

  addAgain(pod: Pod): void {
    // No runtime repeats an ADD that was answered; from one journal on it could.
    if ((pod.state !== "asked" && pod.state !== "live") || this.forgotten.has(pod.id)) return;
    const { ask, id } = pod;
    const owner = { handle: podHandle(ask.network, ask.containerId), attributes: { node, timestamp: ask.containerId } };
    const deadline = (this.now + 30_000) as Instant;
    this.send({ kind: "add", call: this.#call(pod), id, ask, owner, addedAt: this.now as UnixMs, deadline });
  }

  del(pod: Pod): void {
    if (pod.state !== "deleted") pod.state = "deleting";
    pod.addresses = [];
    const { ask, id } = pod;
    this.now += 1;
    this.send({
      kind: "del",
      call: this.#call(pod),
      id,
      parts: ask,
      handles: [podHandle(ask.network, ask.containerId)],
      startedAt: this.now as UnixMs,
      deadline: (this.now + 15_000) as Instant,
      undoes: undefined,
      spooled: false,
    });
  }

  /** The disk reports what it was given so far, as one group. */
  fsync(): void {
    const upTo = this.#records.at(-1)?.number;
    if (upTo === undefined) return;
    this.#write(this.#records.length);
    this.#records = [];
    this.send({ kind: "journalled", upTo });
  }

  /** It fails; some of it may be on disk all the same. */
  fsyncFails(written: number): void {
    const upTo = this.#records.at(-1)?.number;
    if (upTo === undefined) return;
    this.#write(written % (this.#records.length + 1));
    this.#records = [];
    this.send({ kind: "journal-failed", upTo });
  }

  #write(count: number): void {
    for (const { rows } of this.#records.slice(0, count)) {
      for (const row of rows) {
        const key = `${row.table} ${row.key}`;
        if (row.value === null) this.disk.delete(key);
        else this.disk.set(key, row);
      }
    }
  }

  crash(written: number): void {
    this.#write(written % (this.#records.length + 1));
    this.#records = [];
    this.#calls.clear(); // whoever waited has lost its connection
    this.#drop();
    this.ledger = this.#createLedger();
    replay(this.ledger, decodeRows(this.disk.values()), this.now as Instant, this.now as UnixMs);
    for (const { id, state, addresses } of this.pods.values()) {
      if (state !== "live" || this.forgotten.has(id) || addresses.some((address) => this.exempt.has(address))) continue;
      assert.equal(check(this.ledger, id, addresses), undefined, "an answered ADD was forgotten");
    }
  }

  /** Whoever ran keeps running; whoever was not answered yet, or was being deleted, has to try again. */
  loseJournal(): void {
    this.disk.clear();
    for (const { id, state } of this.pods.values()) if (state === "live") this.forgotten.add(id);
    this.#records = [];
    this.#incarnation = { journal: `${this.#incarnation.journal}+`, number: 1, timestamp: "" };
    this.#leaseOnDisk = undefined;
    this.#isNew = true;
    this.#calls.clear();
    this.#drop();
    this.ledger = this.#createLedger();
  }

  /** What the runtime has written down: of all that runs, and perhaps still of what was just deleted. */
  showEvidence(isWhole: boolean): void {
    if (!this.#looking) return;
    this.#looking = false;
    const running = [...this.pods.values()].filter(({ state }) => state === "live");
    const seen = running.map(({ ask, addresses }) => {
      const owner = {
        handle: podHandle(ask.network, ask.containerId),
        attributes: { node, timestamp: ask.containerId },
      };
      return { attachment: ask, pod: undefined, owner, addresses };
    });
    const gap = isWhole ? undefined : "a part could not be read";
    this.send({ kind: "evidence", seen: isWhole ? seen : seen.slice(1), gap, at: this.now as UnixMs });
  }

  disconnect(): void {
    this.#drop();
    this.send({ kind: "offline" });
  }

  /** A server that sees the Node answers a ping: at once, or one that was sent a while ago. */
  beat(agoMs: number): void {
    if (!this.ledger.online || this.nodeGoneSince !== undefined || this.#mayNotRenew) return;
    const until = (this.now - agoMs + leaseMs) as Instant;
    this.send({ kind: "leased", until, limitMs: leaseMs, timestamp: "" });
    if (until > this.now) this.#leaseOnDisk = until;
  }

  /** Only a hello tells a server that the lease had run out. */
  get #mayNotRenew(): boolean {
    return this.ledger.lease.standing === "ran-out" && !this.#toldOfEnd;
  }

  /** By the time that anybody may reap, nothing runs on a machine whose Node is gone (assumed, as Calico assumes). */
  deleteNode(): void {
    if ([...this.pods.values()].some(({ state }) => state === "live") || this.nodeGoneSince !== undefined) return;
    this.nodeGoneSince = this.now;
    this.disconnect();
  }

  createNode(): void {
    this.nodeGoneSince = undefined;
  }

  reap(): void {
    if (this.nodeGoneSince === undefined || this.nodeGoneSince + 2 * leaseMs > this.now) return;
    if ([...this.pods.values()].some(({ state }) => state === "live")) return;
    for (const block of this.api.blocks.values()) {
      for (const ordinal of block.allocations.keys()) {
        const holder = holderOf(block, ordinal);
        if (holder?.handle !== warmHandle(node)) continue;
        const expect = { handle: holder.handle, sequence: String(holder.sequence) };
        const intent: Intent = { ordinal, expect, become: null };
        this.#underWay.push({ kind: "reap", block: block.cidr, intent, connection: -1 });
      }
    }
  }

  /** What belongs to a pod that is gone. */
  collect(): void {
    for (const { state, ask } of this.pods.values()) {
      if (state === "deleted") this.api.releaseAllOf(podHandle("net", ask.containerId));
    }
  }

  otherTakes(cidr: BlockCidr, handle: string): void {
    const address = this.api.takeFor(cidr, handle, "n2");
    if (address === undefined || this.exempt.has(address)) return;
    const victim = [...this.pods.values()].find(
      ({ state, addresses }) => state === "live" && addresses.includes(address),
    );
    assert.equal(victim, undefined, `${address} of a live pod was free`);
  }

  #drop(): void {
    this.#inbox = [];
    this.#connection += 1;
    this.#seen.clear();
  }

  connect(): void {
    if (this.#brokenOff) {
      this.#brokenOff = false;
      this.disconnect();
    }
    if (this.ledger.online || this.nodeGoneSince !== undefined) return;
    this.#toldOfEnd = this.ledger.lease.standing === "ran-out";
    this.#look();
    for (const event of this.#inbox.splice(0)) this.send(event);
    this.send({ kind: "online" });
  }

  /** What the stream would bring: blocks of this node that are newer than what was seen. */
  #look(): void {
    for (const [cidr, block] of this.api.blocks) {
      const seen = this.#seen.get(cidr);
      if (seen && compareVersions(seen.resourceVersion, block.resourceVersion) !== -1) continue;
      this.#seen.set(cidr, block);
      this.#inbox.push({ kind: "block", cidr, block });
    }
  }

  /** A server carries out one of the requests under way, be its connection alive or not. */
  serve(which: number): void {
    const [served] = this.#underWay.splice(which % Math.max(1, this.#underWay.length), 1);
    if (!served) return;
    const replies = this.#serve(served);
    if (served.connection === this.#connection && this.ledger.online) this.#inbox.push(...replies);
  }

  #serve(served: UnderWay): LedgerEvent[] {
    if (served.kind === "reap") {
      this.api.commit(node, served.block, [served.intent]);
      return [];
    }
    if (served.kind === "claim") {
      const [pool] = served.claim.pools;
      const block = this.api.claim(node, pool ?? "");
      const problem = { reason: "PoolExhausted", message: "no block left" };
      const told = block ? { block: { cidr: block.cidr, block } } : { problem };
      return [{ kind: "claimed", id: served.claim.id, ...told }];
    }
    const { id, block: cidr, intents } = served.commit;
    const { results, block } = this.api.commit(node, cidr as BlockCidr, intents);
    if (block && served.connection === this.#connection) this.#seen.set(block.cidr, block);
    return [{ kind: "acknowledged", id, results, block }];
  }

  /** The server cannot tell; what it tried may or may not be done. */
  stumble(which: number, done: boolean): void {
    const [served] = this.#underWay.splice(which % Math.max(1, this.#underWay.length), 1);
    if (!served) return;
    if (done) this.#serve(served);
    if (served.connection !== this.#connection || !this.ledger.online) return;
    const problem = { reason: "CommitTimeout", message: "too slow", retryAfterMs: 500 };
    if (served.kind === "commit") this.#inbox.push({ kind: "acknowledged", id: served.commit.id, problem });
    else if (served.kind === "claim") this.#inbox.push({ kind: "claimed", id: served.claim.id, problem });
  }

  lose(which: number): void {
    const lost = this.#underWay[which % Math.max(1, this.#underWay.length)];
    if (lost && lost.connection !== this.#connection) this.#underWay.splice(this.#underWay.indexOf(lost), 1);
  }

  receive(): void {
    const event = this.#inbox.shift();
    if (event) this.send(event);
  }

  progress(): void {
    for (let round = 0; round < 3; round++) {
      this.fsync();
      while (this.#underWay.some(({ connection }) => connection === this.#connection)) this.serve(this.#mine());
      while (this.#inbox.length > 0) this.receive();
    }
    this.fsync();
  }

  #mine(): number {
    return this.#underWay.findIndex(({ connection }) => connection === this.#connection);
  }

  watch(): void {
    if (this.ledger.online) this.#look();
  }

  wait(ms: number): void {
    this.now += ms;
    this.send({ kind: "tick" });
  }

  harm(handle: string): void {
    for (const [address, holder] of this.api.holders()) if (holder === handle) this.exempt.add(address);
    this.api.releaseAllOf(handle);
  }

  /** Everything that can happen by itself has happened. */
  settle(): void {
    for (let round = 0; round < 600; round++) {
      this.fsync();
      this.createNode();
      this.connect();
      if (this.#warm) this.beat(0);
      this.watch();
      while (this.#inbox.length > 0) this.receive();
      this.showEvidence(true);
      if (this.#underWay.length > 0) this.serve(0);
      else if (this.#records.length === 0 && this.#inbox.length === 0) {
        const wake = nextWake(this.ledger);
        if (wake === undefined || (wake === this.ledger.lease.until && this.ledger.lease.standing === "runs")) return;
        this.now = Math.max(this.now, wake);
        this.send({ kind: "tick" });
      }
    }
    assert.fail("the ledger does not come to rest");
  }
}

function addRequest(parts: Pick<AddRequest, "containerId" | "families" | "startedAt">): AddRequest {
  return {
    ...parts,
    verb: "ADD",
    protocol: 1,
    request: `r-${parts.containerId}`,
    network: "net",
    cniVersion: "1.0.0",
    ifname: "eth0",
    podNamespace: "",
    podName: "",
    podUid: "",
    deadline: parts.startedAt + 30_000,
    ifnameIsFirst: true,
    netns: "",
    pools: { ipv4: [], ipv6: [] },
    requested: [],
    dropIn: true,
    result: { prefix: "block", gateway: "" },
  };
}

type Act = (rig: Rig, n: number, flag: boolean) => void;

function withPod(act: (rig: Rig, pod: Pod) => void): Act {
  return (rig, n) => {
    const pod = [...rig.pods.values()][n % Math.max(1, rig.pods.size)];
    if (pod) act(rig, pod);
  };
}

function withBlock(act: (rig: Rig, cidr: BlockCidr, n: number) => void): Act {
  return (rig, n) => {
    const cidr = [...rig.api.blocks.keys()][n % Math.max(1, rig.api.blocks.size)];
    if (cidr) act(rig, cidr, n);
  };
}

const acts: Readonly<Record<string, readonly [weight: number, act: Act]>> = {
  add: [6, (rig, n, ipv6) => rig.add(n % 4 > 0 || !ipv6, ipv6)],
  del: [5, withPod((rig, pod) => rig.del(pod))],
  "add-again": [2, withPod((rig, pod) => rig.addAgain(pod))],
  fsync: [8, (rig) => rig.fsync()],
  "fsync-fails": [1, (rig, n) => rig.fsyncFails(n)],
  crash: [2, (rig, n) => rig.crash(n)],
  disconnect: [2, (rig) => rig.disconnect()],
  connect: [5, (rig) => rig.connect()],
  serve: [8, (rig, n) => rig.serve(n)],
  stumble: [1, (rig, n, done) => rig.stumble(n, done)],
  lose: [1, (rig, n) => rig.lose(n)],
  receive: [8, (rig) => rig.receive()],
  // What the agent has begun so far is done, without time passing.
  progress: [4, (rig) => rig.progress()],
  watch: [3, (rig) => rig.watch()],
  wait: [3, (rig, n) => rig.wait([10, 700, 6_000, 31_000, 65_000][n % 5] ?? 10)],
  "other-takes": [2, withBlock((rig, cidr, n) => rig.otherTakes(cidr, `other.${n % 5}`))],
  collector: [1, (rig) => rig.collect()],
  beat: [4, (rig, n) => rig.beat([0, 0, 2_000, 45_000][n % 4] ?? 0)],
  "node-deleted": [1, (rig) => rig.deleteNode()],
  "node-created": [1, (rig) => rig.createNode()],
  reap: [1, (rig) => rig.reap()],
  "other-releases": [1, (rig, n) => rig.api.releaseAllOf(`other.${n % 5}`)],
  "other-rewrites": [1, withBlock((rig, cidr) => rig.api.touch(cidr))],
  evidence: [3, (rig, _, isWhole) => rig.showEvidence(isWhole)],
  "lose-journal": [0, (rig) => rig.loseJournal()],
  // A writer that releases what is not its own: its victim is taken back, or lost and never given to anybody else of ours.
  harm: [0, withPod((rig, pod) => rig.harm(podHandle("net", pod.ask.containerId)))],
};

/** One step; its text stands in a counterexample and in a test that replays one: `add 3 true`. */
interface Move {
  readonly name: string;
  readonly n: number;
  readonly flag: boolean;
}

function moves(rare?: "harm" | "lose-journal"): fc.Arbitrary<Move[]> {
  const weighted = Object.entries(acts).map(([name, [weight]]) => {
    const arbitrary = fc.tuple(fc.nat({ max: 1000 }), fc.boolean()).map(([n, flag]) => ({
      name,
      n,
      flag,
      [fc.toStringMethod]: () => `${name} ${n} ${flag}`,
    }));
    return { weight: name === rare ? 2 : weight, arbitrary };
  });
  return fc.array(fc.oneof(...weighted), { maxLength: 150, size: "max" });
}

function script(text: string): Move[] {
  return text.split(",").map((step) => {
    const [name = "", n, flag] = step.trim().split(" ");
    return { name, n: Number(n ?? 0), flag: flag === "true" };
  });
}

function run(sequence: readonly Move[], warm?: WarmPolicy): Rig {
  const rig = new Rig(warm);
  rig.connect();
  if (warm) rig.settle(); // until something is in stock
  for (const { name, n, flag } of sequence) {
    const act = acts[name]?.[1];
    assert.ok(act, `there is no act ${name}`);
    act(rig, n, flag);
  }
  rig.settle();
  return rig;
}

/** Allocations of the API by handle, without those of the other writer. */
function ours(rig: Rig): Map<string, string> {
  const holders = [...rig.api.holders()];
  return new Map(holders.filter(([, handle]) => !handle.startsWith("other.") && handle !== warmHandle(node)));
}

/** What the API shows in stock is what the ledger may hand out. */
function stockIsKnown(rig: Rig): void {
  const shown = [...rig.api.holders()].filter(([, handle]) => handle === warmHandle(node)).map(([address]) => address);
  const known = [...rig.ledger.stock].map(({ address }) => address);
  assert.deepEqual(shown.sort(), known.sort());
  for (const { state } of rig.ledger.stock) assert.equal(state.kind, "warm");
}

const warm: WarmPolicy = { floor: 3, ceiling: 6, flushDelayMs: 5_000 };

const runs = { numRuns: Number(process.env.CATTAIL_TEST_RUNS ?? 1500) };

function endsWithWhatLives(sequence: readonly Move[], warm?: WarmPolicy): void {
  const rig = run(sequence, warm);
  // What the runtime was refused or never told about, it deletes; a DEL without an answer it repeats.
  for (const pod of rig.pods.values()) if (pod.state !== "live" && pod.state !== "deleted") rig.del(pod);
  rig.settle();
  const expected = new Map<string, string>();
  for (const { state, addresses, ask } of rig.pods.values()) {
    if (state !== "live") continue;
    for (const address of addresses) expected.set(address, podHandle("net", ask.containerId));
  }
  assert.deepEqual(new Map([...ours(rig)].sort()), new Map([...expected].sort()));
  const live = [...rig.pods.values()].filter(({ state }) => state === "live");
  assert.equal(rig.ledger.attachments.size, live.length);
  assert.equal(rig.ledger.departing.size, 0);
  for (const lane of rig.ledger.lanes.values()) assert.equal(lane.due.size, 0);
  stockIsKnown(rig);
}

function endsEmptyOnceAllIsDeleted(sequence: readonly Move[], warm?: WarmPolicy): void {
  const rig = run(sequence, warm);
  for (const pod of rig.pods.values()) rig.del(pod);
  rig.settle();
  assert.deepEqual([...ours(rig)], []);
}

test("whatever happens in between, the API ends with exactly the addresses of the attachments that live", () => {
  fc.assert(
    fc.property(moves(), (sequence) => endsWithWhatLives(sequence)),
    runs,
  );
});

test("with stock: whatever happens in between, no address is owned twice, and the API ends with what lives and what is in stock", () => {
  fc.assert(
    fc.property(moves(), (sequence) => endsWithWhatLives(sequence, warm)),
    runs,
  );
});

test("with stock: a writer that releases what is not its own harms only the addresses that it released", () => {
  fc.assert(
    fc.property(moves("harm"), (sequence) => endsEmptyOnceAllIsDeleted(sequence, warm)),
    runs,
  );
});

test("with stock: whenever the journal is lost, no address of a pod that runs is given to another", () => {
  fc.assert(
    fc.property(moves("lose-journal"), (sequence) => {
      const rig = run(sequence, warm);
      const holders = rig.api.holders();
      for (const { id, state, addresses, ask } of rig.pods.values()) {
        if (state !== "live") continue;
        for (const address of addresses) {
          // What the runtime has not shown yet stays in the lost journal's stock, which nobody is given.
          const isKept = rig.forgotten.has(id) && rig.ledger.strangers.has(address);
          if (!isKept) assert.equal(holders.get(address), podHandle("net", ask.containerId));
        }
      }
    }),
    runs,
  );
});

test("a writer that releases what is not its own harms only the addresses that it released", () => {
  fc.assert(
    fc.property(moves("harm"), (sequence) => endsEmptyOnceAllIsDeleted(sequence)),
    runs,
  );
});

test("given a DEL whose record failed, when it is repeated, then the answer waits for what failed as well", () => {
  endsWithWhatLives(script("add, serve, receive, del, fsync-fails 271, del"));
});

test("given a reserve carried out again after its release, when the answers cross, then it is released once more", () => {
  endsWithWhatLives(
    script(
      "add, serve, receive, fsync, crash, connect, disconnect, serve, other-rewrites, add-again, connect, fsync-fails, fsync, serve 651",
    ),
  );
});

test("given a reserve in flight that the view has settled, when the attachment is deleted, then its late copy is released", () => {
  endsEmptyOnceAllIsDeleted(
    script(
      "add, crash, serve, add, connect, fsync, stumble 0 true, receive, add, other-takes, wait 153, add, add, watch, harm 76, receive, watch, receive, del 386",
    ),
  );
});

test("given a late copy found where another ADD was about to settle, when that one turns away, then the copy is released", () => {
  endsWithWhatLives(
    script(
      "add 0 true, serve, add, crash, serve, add, add, connect, add, add, fsync, wait 695, add, add 0 true, fsync, crash, connect, serve 186, add, stumble 111, serve 201, receive, fsync, serve 13, serve 446, disconnect, connect, fsync, crash",
    ),
  );
});
