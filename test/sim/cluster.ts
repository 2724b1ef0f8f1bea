// One cluster's lifetime: servers and agents as they are, a kubelet and a disk per node, and what the promises say at every step.
// Leaves time to world.ts, the network to network.ts and the API server to test/kube-api.
import { EventEmitter } from "node:events";
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import { Agent, isSettled } from "../../node-agent/agent.ts";
import type { Meta } from "../../node-agent/ledger/journal.ts";
import { check } from "../../node-agent/ledger/ledger.ts";
import { decodeRows, type JournalRow } from "../../node-agent/ledger/record.ts";
import { attachmentId, type CallId, type RecordNumber } from "../../node-agent/ledger/state.ts";
import { eventOf, keepStream, type Line, type LineListener, type Stream } from "../../node-agent/sync/stream.ts";
import { View } from "../../node-agent/sync/view.ts";
import { FairLimiter } from "../../server/commit/fair-limiter.ts";
import { type Core, startCore } from "../../server/core-shell.ts";
import { Limits } from "../../server/reaper/limits.ts";
import { Store } from "../../server/store/store.ts";
import { podHandle } from "../../shared/calico/attributes.ts";
import { holderOf } from "../../shared/calico/block.ts";
import { readBlock } from "../../shared/calico/codec.ts";
import { warmHandle } from "../../shared/calico/names.ts";
import { addressAt } from "../../shared/ip/cidr.ts";
import { parseLossless } from "../../shared/json/lossless.ts";
import type { NodeName } from "../../shared/kinds.ts";
import { createApi } from "../../shared/kube/client-shell.ts";
import { agentMetrics, type MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { AddRequest, DelRequest } from "../../shared/protocol/socket.ts";
import { silent } from "../commit-world.ts";
import { directApi } from "../direct-api.ts";
import { ApiDoor, type ApiFaults } from "./api-door.ts";
import { Network } from "./network.ts";
import { Stranger } from "./stranger.ts";
import { Process, type World } from "./world.ts";

const nodeNames = ["n1", "n2", "n3"] as const;
const serverNames = ["s1", "s2"] as const;
const offlineLimitMs = 45 * 60_000;
const crd = "crd.projectcalico.org/v1";

const ignore = { inc: () => {}, set: () => {}, observe: () => {}, clear: () => {} };
const uncounted = Object.fromEntries(
  Object.keys({ ...serverMetrics, ...agentMetrics }).map((key) => [key, ignore]),
) as unknown as MetricHandles<typeof serverMetrics> & MetricHandles<typeof agentMetrics>;

/** One container's attachment, as its runtime knows it. */
interface Pod {
  readonly node: SimNode;
  readonly container: string;
  state: "asked" | "live" | "deleting" | "deleted";
  addresses: readonly string[];
}

export class Cluster {
  readonly world: World;
  readonly network: Network;
  readonly api;
  readonly faults: ApiFaults = { isDown: false, throttled: 0, failed: 0, lostAnswers: 0, watchDelayMs: 0 };
  readonly nodes: readonly SimNode[];
  readonly servers: readonly SimServer[];
  readonly pods = new Set<Pod>();
  readonly stranger: Stranger;
  readonly #holders = new Map<string, string>();
  readonly #inBlock = new Map<string, readonly string[]>();
  #made = 0;

  constructor(world: World) {
    this.world = world;
    this.network = new Network(world);
    const { clock } = new Process(world);
    const direct = directApi(clock, world.random);
    this.api = direct.server;
    this.api.seed([
      { apiVersion: crd, kind: "ClusterInformation", metadata: { name: "default" }, spec: { datastoreReady: true } },
      { apiVersion: "v1", kind: "Namespace", metadata: { name: "cattail-system" } },
      {
        apiVersion: crd,
        kind: "IPPool",
        metadata: { name: "blue" },
        spec: { cidr: "10.0.0.0/23", blockSize: 28, nodeSelector: "all()" },
      },
      ...nodeNames.map((name) => ({ apiVersion: "v1", kind: "Node", metadata: { name } })),
    ]);
    this.stranger = new Stranger(world, this.api);
    this.servers = serverNames.map((name) => new SimServer(this, name));
    this.nodes = nodeNames.map((name) => new SimNode(this, name));
    this.api.store.collection("crd.projectcalico.org/ipamblocks").watch({
      event: ({ type, entry }) => {
        this.#look(entry.key, type === "DELETED" ? undefined : entry.text);
        this.compare();
      },
      end: () => {},
    });
  }

  nextContainer(): string {
    this.#made += 1;
    return `c${this.#made}`;
  }

  /** Of one block of the API, by address, the handle that holds it. */
  #look(key: string, text: string | undefined): void {
    for (const address of this.#inBlock.get(key) ?? []) this.#holders.delete(address);
    this.#inBlock.delete(key);
    if (text === undefined) return;
    const block = readBlock(parseLossless(text), "crd");
    if (!block.ok) return this.world.violated(`a block that Calico could not read: ${block.problem}`);
    const { cidr, allocations } = block.object;
    const addresses = [...allocations.keys()].flatMap((ordinal) => {
      const holder = holderOf(block.object, ordinal);
      if (holder === undefined) return []; // it cools down
      const address = addressAt(cidr, ordinal);
      this.#holders.set(address, holder.handle);
      return [address];
    });
    this.#inBlock.set(key, addresses);
  }

  /** What the API says of the addresses of those that live. */
  compare(): void {
    const holders = this.#holders;
    for (const [address, handle] of this.stranger.held)
      if (holders.get(address) !== handle) this.world.violated(`${address} of another writer was changed`);
    for (const pod of this.pods) {
      if (pod.state !== "live") continue;
      for (const address of pod.addresses) {
        const holder = holders.get(address);
        if (holder !== podHandle("net", pod.container) && holder !== warmHandle(pod.node.name))
          this.world.violated(`${address} of ${pod.container} is held in the API by ${holder ?? "nobody"}`);
      }
    }
  }

  /** Another writer takes an address that the API shows free. */
  strangerTakes(): void {
    this.stranger.take((address) => {
      for (const { state, addresses, container } of this.pods)
        if (state === "live" && addresses.includes(address))
          this.world.violated(`${address} of ${container} was free for another writer`);
    });
  }

  granted(pod: Pod, addresses: readonly string[]): void {
    for (const other of this.pods) {
      if (other === pod || other.state !== "live") continue;
      for (const address of addresses)
        if (other.addresses.includes(address))
          this.world.violated(`${address} has two owners: ${other.container} and ${pod.container}`);
    }
    for (const address of addresses)
      if (this.stranger.held.has(address)) this.world.violated(`${address} for ${pod.container} is another writer's`);
    pod.state = "live";
    pod.addresses = addresses;
    this.compare();
  }

  /** With all faults ended: the API holds what lives and what is in stock, and nothing waits. */
  checkRest(): void {
    const { world } = this;
    const holders = this.#holders;
    const expected = new Map(this.stranger.held);
    for (const { state, addresses, container } of this.pods) {
      if (state === "live") for (const address of addresses) expected.set(address, podHandle("net", container));
      else if (state !== "deleted") world.violated(`${container} is still ${state}`);
    }
    for (const node of this.nodes) {
      const ledger = node.agent?.ledger;
      if (ledger === undefined) continue;
      if (!isSettled(ledger)) world.violated(`something of ${node.name} is still pending`);
      for (const { address } of ledger.stock) expected.set(address, warmHandle(node.name));
    }
    for (const [address, handle] of holders)
      if (expected.get(address) !== handle) world.violated(`${address} is left to ${handle} in the API`);
    for (const [address, handle] of expected)
      if (!holders.has(address)) world.violated(`${address} of ${handle} is not in the API`);
  }
}

export class SimServer {
  readonly name: string;
  readonly #cluster: Cluster;
  process: Process | undefined;
  core: Core | undefined;
  #store: Store | undefined;
  readonly #ends = new Set<() => void>();

  constructor(cluster: Cluster, name: string) {
    this.#cluster = cluster;
    this.name = name;
    this.start();
  }

  start(): void {
    const { world, api, network, faults } = this.#cluster;
    if (this.process?.isAlive) return;
    const process = new Process(world);
    const { clock } = process;
    const http = new ApiDoor(world, process, api, network, this.name, faults);
    const store = new Store(clock);
    const { random } = world;
    this.process = process;
    this.#store = store;
    this.core = startCore({
      http,
      api: createApi(http),
      group: "crd",
      store,
      limiter: new FairLimiter(32, clock),
      limits: new Limits(offlineLimitMs, undefined),
      clock,
      random,
      logger: silent,
      log: silent,
      metrics: uncounted,
      namespace: "cattail-system",
      replica: `${this.name}-${random.hex(2)}`,
      version: "sim",
      heartbeatMs: 10_000,
      hasEvents: false,
    });
  }

  crash(): void {
    if (!this.process?.isAlive) return;
    this.#cluster.world.note("server crashed", this.name);
    this.process.isAlive = false;
    void this.core?.upstream.stop();
    for (const end of this.#ends) end();
    this.#ends.clear();
  }

  /** Undefined: nobody is let in now. */
  accept(ws: EventEmitter, socket: EventEmitter, node: NodeName, end: () => void): boolean {
    const { core } = this;
    if (!this.process?.isAlive || !core || !this.#store?.synced() || core.hub.lineage === undefined) return false;
    this.#ends.add(end);
    // The two carry what the hub's clients use of theirs.
    const [line, bytes] = [ws as unknown as WebSocket, socket as unknown as Duplex];
    core.hub.accept(line, bytes, { user: "agent", node, expiresAt: undefined });
    return true;
  }

  ended(end: () => void): void {
    this.#ends.delete(end);
  }
}

export class SimNode {
  readonly name: NodeName;
  readonly #cluster: Cluster;
  readonly #rows = new Map<string, JournalRow>();
  readonly #meta = new Map<string, string>();
  #isNew = true;
  isDiskFull = false;
  /** When something is next being written: where the order of disk and answer shows. */
  diesWriting: (() => void) | undefined;
  #pending: { number: RecordNumber; rows: readonly JournalRow[] }[] = [];
  #process: Process | undefined;
  #calls = new Map<CallId, (answer: readonly string[] | "done" | "refused") => void>();
  #nextCall = 1;
  agent: Agent | undefined;
  #stream: Stream | undefined;
  #ends = new Set<() => void>();

  constructor(cluster: Cluster, name: string) {
    this.#cluster = cluster;
    this.name = name as NodeName;
    this.start();
  }

  start(): void {
    const { world, pods } = this.#cluster;
    if (this.#process?.isAlive) return;
    const process = new Process(world);
    const { clock } = process;
    const { random } = world;
    this.#process = process;
    const view = new View();
    const agent = new Agent({
      clock,
      random,
      logger: silent,
      metrics: uncounted,
      version: "sim",
      config: () => ({
        commit: "async",
        flushDelayMs: 10_000,
        handleDelayMs: 60_000,
        handles: "off",
        nodeName: this.name,
        offlineLimitMs,
        rebootGraceMs: 60_000,
        stateDir: "/",
        warm: { floor: 4, ceiling: 32 },
      }),
      uptimeMs: () => world.now,
      bootId: "boot",
      view,
      viewFile: { load: () => false, changed: () => {}, save: () => {} },
      replies: {
        granted: (call, places) =>
          this.#answer(
            call,
            places.map(({ address }) => address),
          ),
        done: (call) => this.#answer(call, "done"),
        refused: (call) => this.#answer(call, "refused"),
      },
      stream: () => this.#stream,
      findWitnesses: async () => ({ seen: [], gap: undefined }),
    });
    this.agent = agent;
    const meta: Meta = { ...Object.fromEntries(this.#meta), bootId: "boot", ...(this.#isNew && { isNew: "true" }) };
    agent.open({
      meta,
      records: decodeRows([...this.#rows.values()]),
      append: (number, rows) => this.#append(process, number, rows),
      putMeta: (more) => {
        for (const [key, value] of Object.entries(more)) this.#meta.set(key, value);
        if (more.isNew === "") this.#isNew = false;
      },
    });
    for (const pod of pods) {
      if (pod.node !== this || pod.state !== "live") continue;
      const why = check(agent.ledger, idOf(pod.container), pod.addresses);
      if (why !== undefined) world.violated(`the answered ADD of ${pod.container} was forgotten: ${why}`);
    }
    this.#stream = keepStream({
      urls: serverNames,
      dial: (url, listener) => this.#dial(url, listener, process),
      hello: () => agent.hello(),
      clock,
      random,
      logger: silent,
      deliver: (message) => agent.deliver(message),
      online: () => agent.online(),
      offline: (reason) => agent.offline(reason),
    });
    agent.start();
  }

  /** What was being written is on disk as a whole or not at all. */
  crash(): void {
    if (!this.#process?.isAlive) return;
    const { world } = this.#cluster;
    world.note("agent crashed", this.name);
    this.#process.isAlive = false;
    if (world.happens(500)) this.#write();
    this.#pending = [];
    for (const answer of this.#calls.values()) answer("refused");
    this.#calls.clear();
    for (const end of this.#ends) end();
    this.#ends.clear();
  }

  add(): void {
    const { world, pods } = this.#cluster;
    const pod: Pod = { node: this, container: this.#cluster.nextContainer(), state: "asked", addresses: [] };
    pods.add(pod);
    this.#ask(addRequest(pod.container, this.#clock), (answer) => {
      if (pod.state !== "asked") return;
      if (typeof answer === "string") {
        world.note("ADD refused", pod.container);
        return this.del(pod);
      }
      world.note("ADD answered", `${pod.container} ${answer.join(" ")}`);
      this.#cluster.granted(pod, answer);
    });
    // The runtime gives up, and deletes what it does not know the fate of.
    world.after(world.happens(50) ? world.between(1, 20) : 60_000, () => {
      if (pod.state !== "asked") return;
      world.note("DEL overtakes ADD", pod.container);
      this.del(pod);
    });
  }

  delOne(): void {
    const live = [...this.#cluster.pods].filter(({ node, state }) => node === this && state === "live");
    const pod = live[this.#cluster.world.random.below(Math.max(1, live.length))];
    if (pod) this.del(pod);
  }

  del(pod: Pod): void {
    const { world } = this.#cluster;
    pod.state = "deleting";
    pod.addresses = [];
    this.#ask(delRequest(pod.container, this.#clock), (answer) => {
      if (pod.state !== "deleting") return;
      if (answer === "done") {
        world.note("DEL answered", pod.container);
        pod.state = "deleted";
      } else world.after(2_000, () => this.del(pod));
    });
  }

  get #clock() {
    return this.#process?.clock ?? new Process(this.#cluster.world).clock;
  }

  #ask(request: AddRequest | DelRequest, told: (answer: readonly string[] | "done" | "refused") => void): void {
    const { world } = this.#cluster;
    world.after(world.between(0, 3), () => {
      if (!this.#process?.isAlive) return told("refused");
      const call = this.#nextCall++ as CallId;
      this.#calls.set(call, told);
      this.agent?.take(request, call);
    });
  }

  #answer(call: CallId, answer: readonly string[] | "done" | "refused"): void {
    const told = this.#calls.get(call);
    this.#calls.delete(call);
    told?.(answer);
  }

  /** One fsync for all that came while the last one ran. */
  #append(process: Process, number: RecordNumber, rows: readonly JournalRow[]): void {
    const { world } = this.#cluster;
    this.#pending.push({ number, rows });
    const { diesWriting } = this;
    this.diesWriting = undefined;
    if (diesWriting) world.after(world.between(0, 4), diesWriting);
    if (this.#pending.length > 1) return;
    world.after(world.between(1, 5), () => {
      const upTo = this.#pending.at(-1)?.number;
      if (!process.isAlive || upTo === undefined) return;
      if (this.isDiskFull) {
        world.note("journal failed", this.name);
        if (world.happens(300)) this.#write();
      } else this.#write();
      this.#pending = [];
      this.agent?.handle({ kind: this.isDiskFull ? "journal-failed" : "journalled", upTo });
    });
  }

  #write(): void {
    for (const row of this.#pending.flatMap(({ rows }) => rows)) {
      const key = `${row.table} ${row.key}`;
      if (row.value === null) this.#rows.delete(key);
      else this.#rows.set(key, row);
    }
  }

  #dial(name: string, listener: LineListener, process: Process): Line {
    const { network, world, servers } = this.#cluster;
    const server = servers.find((one) => one.name === name);
    const [there, back] = [network.way(this.name, name), network.way(name, this.name)];
    const [ws, socket] = [new EventEmitter(), new EventEmitter()];
    let [isOpen, isOver] = [false, false];
    const tell = (event: Parameters<LineListener["happened"]>[0]): void =>
      back.send(() => {
        if (process.isAlive) listener.happened(event);
      });
    const endThere = (): void =>
      there.send(() => {
        if (isOver) return;
        isOver = true;
        server?.ended(endHere);
        Object.assign(socket, { writable: false });
        if (server?.process?.isAlive) ws.emit("close");
      });
    const endHere = (): void => {
      isOpen = false;
      tell({ kind: "ended", reason: "closed" });
    };
    Object.assign(ws, {
      ping: () => tell({ kind: "heard" }),
      close: () => {
        endHere();
        endThere();
      },
      terminate: () => {
        endHere();
        endThere();
      },
    });
    Object.assign(socket, {
      writable: true,
      writableLength: 0,
      write: (frame: Buffer) => tell(eventOf(textOf(frame), silent)),
    });
    there.send(() => {
      if (!server?.accept(ws, socket, this.name, endHere)) return tell({ kind: "ended", reason: "refused" });
      isOpen = true;
      tell({ kind: "opened" });
    });
    this.#ends.add(endThere);
    const say = (event: string, text?: string): void =>
      there.send(() => {
        if (!isOver && server?.process?.isAlive) ws.emit(event, text);
      });
    return {
      get isOpen() {
        return isOpen && process.isAlive;
      },
      send: (text) => say("message", text),
      ping: () => {
        say("ping");
        world.after(2, () => tell({ kind: "heard" }));
      },
      terminate: () => {
        this.#ends.delete(endThere);
        isOpen = false;
        endThere();
      },
    };
  }
}

/** Without the head that the hub's frames begin with. */
function textOf(frame: Buffer): string {
  const length = frame[1] ?? 0;
  return frame.subarray(length < 126 ? 2 : length === 126 ? 4 : 10).toString();
}

function idOf(containerId: string) {
  return attachmentId({ network: "net", containerId, ifname: "eth0" });
}

function common(containerId: string, clock: Process["clock"]) {
  const startedAt = clock.wall();
  const parts = { protocol: 1, request: `r${containerId}`, network: "net", cniVersion: "1.0.0", containerId } as const;
  const pod = { ifname: "eth0", podNamespace: "", podName: "", podUid: "" };
  return { ...parts, ...pod, startedAt, deadline: startedAt + 30_000 };
}

function addRequest(containerId: string, clock: Process["clock"]): AddRequest {
  const result = { prefix: "block", gateway: "" } as const;
  const wish = { families: { ipv4: true, ipv6: false }, pools: { ipv4: [], ipv6: [] }, requested: [] };
  return { verb: "ADD", ...common(containerId, clock), ...wish, ifnameIsFirst: true, netns: "", dropIn: true, result };
}

function delRequest(containerId: string, clock: Process["clock"]): DelRequest {
  return { verb: "DEL", ...common(containerId, clock) };
}
