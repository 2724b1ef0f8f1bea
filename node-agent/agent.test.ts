// The agent as a whole, on a real disk and real sockets, against a server that fails when it is told to.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, watch, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { loadConfig } from "../shared/config/load.ts";
import type { Address } from "../shared/kinds.ts";
import { type OpenFrame, openFrame } from "../shared/process/frame.ts";
import type { AddRequest, AgentReply, AgentRequest } from "../shared/protocol/socket.ts";
import { CalicoApi } from "../test/model/calico-api.ts";
import { LibcniCache } from "../test/model/libcni-cache.ts";
import { objects, pool } from "../test/model/one-pool.ts";
import { StreamServer } from "../test/model/stream-server.ts";
import { type RunningAgent, startAgent } from "./agent-shell.ts";

class Node {
  readonly api = new CalicoApi([pool]);
  readonly folder: string;
  readonly lines: string[] = [];
  readonly server: StreamServer;
  #running: { agent: RunningAgent; close: () => Promise<void> } | undefined;
  #child: ChildProcess | undefined;

  private constructor(folder: string, api: CalicoApi, server: StreamServer) {
    this.folder = folder;
    this.api = api;
    this.server = server;
  }

  static async create(t: TestContext): Promise<Node> {
    const folder = mkdtempSync(join(tmpdir(), "cattail-agent-"));
    const api = new CalicoApi([pool]);
    const server = await StreamServer.start(api, objects);
    const node = new Node(folder, api, server);
    t.after(async () => {
      await node.stop();
      node.#child?.kill("SIGKILL");
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    });
    return node;
  }

  get socket(): string {
    return join(this.folder, "agent.sock");
  }

  get cache(): LibcniCache {
    return new LibcniCache(join(this.folder, "cni"));
  }

  get spool(): string {
    return join(this.folder, "state", "spool");
  }

  get #flags(): string[] {
    const places = ["--state-dir", join(this.folder, "state"), "--socket", this.socket];
    places.push("--cni-cache-dirs", this.cache.directory);
    return ["--node-name", "n1", "--server", this.server.url, ...places, "--ports-http", "0", "--ports-admin", "0"];
  }

  frame(write: (line: string) => void, how: readonly string[] = strict): Promise<OpenFrame<"agent">> {
    const inputs = { argv: [...this.#flags, ...how], env: {}, readFile: () => "" };
    const loaded = loadConfig("agent", inputs);
    assert.ok(loaded.kind === "loaded");
    return openFrame("agent", loaded, { inputs, write, isTerminal: false });
  }

  async start(...how: string[]): Promise<RunningAgent> {
    const frame = await this.frame((line) => this.lines.push(line), how.length > 0 ? how : strict);
    const agent = await startAgent(frame);
    this.#running = { agent, close: () => frame.close() };
    return agent;
  }

  async stop(): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    await running?.agent.stop();
    await running?.close();
  }

  /** As a process of its own, to be killed. Resolves when its socket is there. */
  async spawn(): Promise<ChildProcess> {
    const child = spawn(process.execPath, [join(import.meta.dirname, "main.ts"), ...this.#flags, ...strict], {
      stdio: "ignore",
    });
    this.#child = child;
    rmSync(this.socket, { force: true });
    const appeared = new Promise<void>((resolve) => {
      const watcher = watch(this.folder, () => {
        if (!existsSync(this.socket)) return;
        watcher.close();
        resolve();
      });
    });
    await appeared;
    return child;
  }

  add(container: string, more: Partial<AddRequest> = {}): Promise<AgentReply | undefined> {
    return ask(this.socket, { ...addRequest(container), ...more });
  }

  del(container: string): Promise<AgentReply | undefined> {
    return ask(this.socket, delRequest(container));
  }
}

const common = { protocol: 1, request: "r", network: "net", ifname: "eth0", cniVersion: "1.0.0" } as const;

function attachment(containerId: string) {
  const pod = { podNamespace: "shop", podName: containerId, podUid: "" };
  return { ...common, containerId, ...pod, startedAt: Date.now(), deadline: Date.now() + 20_000 };
}

function addRequest(container: string): AddRequest {
  return {
    verb: "ADD",
    ...attachment(container),
    request: `r-${container}`,
    ifnameIsFirst: true,
    netns: "",
    families: { ipv4: true, ipv6: false },
    pools: { ipv4: [], ipv6: [] },
    requested: [],
    dropIn: true,
    result: { prefix: "block", gateway: "" },
  };
}

function delRequest(container: string): AgentRequest {
  return { verb: "DEL", ...attachment(container) };
}

function call(path: string, request: AgentRequest): Socket {
  const socket = connect(path);
  socket.on("error", () => {}); // followed by a close
  socket.write(`${JSON.stringify(request)}\n`);
  return socket;
}

/** Undefined: hung up without an answer. */
async function ask(path: string, request: AgentRequest): Promise<AgentReply | undefined> {
  const socket = call(path, request);
  let text = "";
  socket.on("data", (chunk) => {
    text += chunk;
  });
  await new Promise<void>((resolve) => socket.once("close", () => resolve())); // also after an error
  return text === "" ? undefined : JSON.parse(text);
}

function addressOf(reply: AgentReply | undefined): string {
  assert.ok(reply?.ok, JSON.stringify(reply));
  return reply.ips?.[0]?.address ?? "";
}

function names(count: number, prefix = "c"): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}${index}`);
}

test("many pods at once get distinct addresses in few writes; deleted, nothing is left of them", async (t) => {
  const node = await Node.create(t);
  const agent = await node.start();
  await agent.ready;
  const replies = await Promise.all(names(150).map((name) => node.add(name)));
  assert.equal(new Set(replies.map(addressOf)).size, 150);
  assert.equal(node.api.blocks.size, 3);
  const deleted = await Promise.all(names(150).map((name) => node.del(name)));
  assert.ok(deleted.every((reply) => reply?.ok));
  await agent.idle();
  assert.equal(node.api.holders().size, 0);
});

test("a pod asked for before there is a server is served when one has told everything", async (t) => {
  const node = await Node.create(t);
  const port = node.server.port;
  await node.server.stop();
  await node.start();
  const waiting = node.add("early");
  const server = await StreamServer.start(node.api, objects, port);
  t.after(() => server.stop());
  assert.equal(addressOf(await waiting), "10.0.0.0/26");
});

test("after a restart what was answered is known, given again and released", async (t) => {
  const node = await Node.create(t);
  await (await node.start()).ready;
  const before = addressOf(await node.add("a"));
  await node.stop();
  const agent = await node.start();
  await agent.ready;
  assert.equal(addressOf(await node.add("a")), before);
  const previous = [before.replace(/\/.*/, "")];
  assert.deepEqual(await ask(node.socket, { verb: "CHECK", ...attachment("a"), previous }), { ok: true });
  assert.deepEqual(await node.del("a"), { ok: true });
  await agent.idle();
  assert.equal(node.api.holders().size, 0);
});

test("a second agent on the node says at once why it is not ready, and serves when the first one has gone", async (t) => {
  const node = await Node.create(t);
  await node.start();
  const waits = Promise.withResolvers<void>();
  const frame = await node.frame((line) => {
    if (line.includes("Waited for another agent")) waits.resolve();
  });
  const second = startAgent(frame);
  await waits.promise;
  assert.match(frame.health.report("ready").text, /journal failed: another agent holds it/);
  await node.stop();
  const agent = await second;
  await agent.ready;
  assert.ok((await node.add("a"))?.ok);
  await agent.stop();
  await frame.close();
});

test("a write whose answer was lost is recognised, not made a second time", async (t) => {
  const node = await Node.create(t);
  const agent = await node.start();
  await agent.ready;
  assert.ok((await node.add("first"))?.ok);
  node.server.fault = "done-not-told";
  const committed = node.server.asked("commit");
  const waiting = node.add("a");
  await committed;
  node.server.fault = "none";
  assert.equal(addressOf(await waiting), "10.0.0.1/26");
  assert.deepEqual([...node.api.holders().values()], ["net.first", "net.a"]);
});

test("a caller that dies while its ADD waits leaves nothing behind", async (t) => {
  const node = await Node.create(t);
  const agent = await node.start();
  await agent.ready;
  assert.ok((await node.add("first"))?.ok);
  node.server.fault = "stuck";
  const committed = node.server.asked("commit");
  const caller = call(node.socket, addRequest("a"));
  await committed;
  caller.destroy();
  await once(caller, "close");
  // Whatever order its end and the answer come in, the address is released.
  node.server.lift();
  await node.del("a");
  await agent.idle();
  assert.deepEqual([...node.api.holders().values()], ["net.first"]);
});

test("deletes left in the spool are done before the first pod is served", async (t) => {
  const node = await Node.create(t);
  await (await node.start()).ready;
  for (const name of names(3)) await node.add(name);
  await node.stop();
  mkdirSync(node.spool, { recursive: true });
  for (const [index, name] of names(3).entries()) {
    const record = { ...delRequest(name), spooledAt: index };
    writeFileSync(join(node.spool, `${String(index).padStart(13, "0")}-r-x.json`), JSON.stringify(record));
  }
  const agent = await node.start();
  assert.deepEqual(readdirSync(node.spool), []);
  await agent.ready;
  await agent.idle();
  assert.equal(node.api.holders().size, 0);
});

/** Everything is written before it is answered. */
const strict = ["--commit", "sync", "--handles", "eager"];

/** The writes that a pod must not wait for are far away. */
const async = ["--commit", "async", "--handles", "lazy", "--flush-delay", "5m"];

test("with addresses in stock, pods come and go without a server, also after a restart, and the API server ends with what lives", async (t) => {
  const node = await Node.create(t);
  const { port } = node.server;
  const stocked = node.server.asked("commit");
  const stocking = await node.start(...async, "--warm-floor", "8");
  await stocked;
  await stocking.idle();
  await node.server.stop();
  const first = await Promise.all(names(6).map((name) => node.add(name)));
  assert.equal(new Set(first.map(addressOf)).size, 6);
  assert.deepEqual(await node.del("c0"), { ok: true });
  await node.stop();
  await node.start(...async, "--warm-floor", "8");
  assert.equal(addressOf(await node.add("c1")), addressOf(first[1]), "the restart has forgotten an answer");
  assert.ok((await node.add("late"))?.ok);
  assert.deepEqual(await node.del("c2"), { ok: true });
  await node.stop();
  const server = await StreamServer.start(node.api, objects, port);
  t.after(() => server.stop());
  const last = await node.start("--commit", "sync");
  await last.ready;
  await last.idle();
  assert.deepEqual(
    [...node.api.holders().values()].sort(),
    ["c1", "c3", "c4", "c5", "late"].map((name) => `net.${name}`),
  );
});

test("when the state directory is emptied, running pods keep their addresses, which their DELs release, and a Kubernetes Event is asked for", async (t) => {
  const node = await Node.create(t);
  const stocked = node.server.asked("commit");
  const stocking = await node.start(...async, "--warm-floor", "8");
  await stocked;
  await stocking.idle();
  const given = new Map<string, string>();
  for (const name of ["shown", "unseen"]) given.set(name, addressOf(await node.add(name)));
  const { network, ifname } = common;
  const shown = { network, containerId: "shown", ifname, namespace: "shop", pod: "shown" };
  await node.cache.put(shown, [given.get("shown") ?? ""]);
  await node.stop();
  rmSync(join(node.folder, "state"), { recursive: true });
  const reported = node.server.asked("report");
  const agent = await node.start(...async.slice(0, -1), "0s");
  await reported;
  await agent.ready;
  assert.equal(addressOf(await node.add("shown")), given.get("shown"));
  const others = await Promise.all(names(20).map((name) => node.add(name)));
  for (const reply of others) assert.ok(![...given.values()].includes(addressOf(reply)), "it is a running pod's");
  await agent.idle();
  const address = (given.get("shown") ?? "").replace(/\/.*/, "") as Address;
  assert.equal(node.api.holders().get(address), "net.shown");
  assert.deepEqual(await node.del("shown"), { ok: true });
  await agent.idle();
  assert.ok(![...node.api.holders().values()].includes("net.shown"));
});

test("killed in the midst of many pods and started again, no address is given twice and none is left", async (t) => {
  const node = await Node.create(t);
  let child = await node.spawn();
  const live = new Map<string, string>();
  const answered = Promise.withResolvers<void>();
  const first = names(100, "a").map(async (name) => {
    const reply = await node.add(name);
    if (!reply?.ok) return;
    live.set(name, addressOf(reply));
    if (live.size === 20) answered.resolve();
  });
  await answered.promise;
  child.kill("SIGKILL");
  await Promise.all([once(child, "exit"), ...first]);
  child = await node.spawn();
  // The runtime deletes what it got no answer for, and tries again with new containers.
  const failed = names(100, "a").filter((name) => !live.has(name));
  await Promise.all(
    failed.map(async (name, index) => {
      assert.ok((await node.del(name))?.ok);
      live.set(`b${index}`, addressOf(await node.add(`b${index}`)));
    }),
  );
  assert.equal(live.size, 100);
  assert.equal(new Set(live.values()).size, 100, "two pods have one address");
  await Promise.all([...live.keys()].map((name) => node.del(name)));
  child.kill("SIGTERM");
  await once(child, "exit");
  const agent = await node.start();
  await agent.ready;
  await agent.idle();
  assert.deepEqual([...node.api.holders()], []);
});
