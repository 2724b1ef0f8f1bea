// What an agent says that cannot reach its server, or that its callers cannot reach: to a waiting pod, and to whoever asks if it is ready.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, renameSync, rmSync } from "node:fs";
import { createServer as createPlainServer } from "node:http";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { loadConfig } from "../shared/config/load.ts";
import { type OpenFrame, openFrame } from "../shared/process/frame.ts";
import type { AgentReply } from "../shared/protocol/socket.ts";
import { type ManualClock, manualClock } from "../test/manual-world.ts";
import { CalicoApi } from "../test/model/calico-api.ts";
import { objects, pool } from "../test/model/one-pool.ts";
import { StreamServer } from "../test/model/stream-server.ts";
import { startAgent } from "./agent-shell.ts";

interface Bench {
  readonly frame: OpenFrame<"agent">;
  readonly clock: ManualClock;
  readonly socket: string;
  /** Resolves when a line with this text has been logged. */
  logged(text: string): Promise<void>;
}

async function start(t: TestContext, server: string): Promise<Bench> {
  const folder = mkdtempSync(join(tmpdir(), "cattail-unreachable-"));
  const socket = join(folder, "agent.sock");
  const places = ["--state-dir", join(folder, "state"), "--socket", socket, "--ports-http", "0", "--ports-admin", "0"];
  const argv = ["--node-name", "n1", "--server", server, "--commit", "sync", ...places];
  const loaded = loadConfig("agent", { argv, env: {}, readFile: () => "" });
  assert.ok(loaded.kind === "loaded");
  const waiting: { readonly text: string; readonly tell: () => void }[] = [];
  const lines: string[] = [];
  const write = (line: string): void => {
    lines.push(line);
    for (const { text, tell } of waiting) if (line.includes(text)) tell();
  };
  const inputs = { argv, env: {}, readFile: () => "" };
  const frame = await openFrame("agent", loaded, { inputs, write, isTerminal: false });
  const clock = manualClock();
  const agent = await startAgent({ ...frame, clock });
  t.after(async () => {
    const stopped = agent.stop();
    clock.advance(60_000); // whoever is still served is cut off
    await stopped;
    await frame.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const logged = (text: string): Promise<void> =>
    new Promise((tell) => {
      if (lines.some((line) => line.includes(text))) tell();
      else waiting.push({ text, tell });
    });
  return { frame, clock, socket, logged };
}

function readiness({ frame }: Bench): string {
  return frame.health.report("ready").text;
}

async function add(path: string, clock: ManualClock): Promise<AgentReply> {
  const now = clock.wall();
  const socket = connect(path);
  socket.write(
    `${JSON.stringify({
      ...{ verb: "ADD", protocol: 1, request: "7f3a91c2", network: "net", cniVersion: "1.0.0" },
      ...{ containerId: "c1", ifname: "eth0", ifnameIsFirst: true, netns: "", requested: [], dropIn: true },
      ...{ podNamespace: "shop", podName: "cart", podUid: "", startedAt: now, deadline: now + 59_000 },
      ...{ families: { ipv4: true, ipv6: false }, pools: { ipv4: [], ipv6: [] } },
      result: { prefix: "block", gateway: "" },
    })}\n`,
  );
  let text = "";
  for await (const chunk of socket) text += chunk;
  return JSON.parse(text);
}

/** A way to the server that can freeze: its connections stay, and nothing comes through any more. */
async function relay(t: TestContext, port: number): Promise<{ readonly url: string; freeze(): void }> {
  const sockets = new Set<Socket>();
  let isFrozen = false;
  const server: Server = createServer((near) => {
    sockets.add(near.on("error", () => {}));
    if (isFrozen) return;
    const far = connect(port, "127.0.0.1").on("error", () => {});
    sockets.add(far);
    near.pipe(far).pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    freeze: () => {
      isFrozen = true;
      for (const socket of sockets) socket.unpipe().pause();
    },
  };
}

test("a pod that waits when the way to the server freezes is told within 20 s that no server answers", async (t) => {
  const api = new CalicoApi([pool]);
  const server = await StreamServer.start(api, objects);
  t.after(() => server.stop());
  const way = await relay(t, server.port);
  const bench = await start(t, way.url);
  const connected = bench.logged("Connected to a server");
  bench.clock.advance(0);
  await connected;
  server.fault = "stuck";
  const asked = server.asked("claim");
  const answer = add(bench.socket, bench.clock);
  await asked;
  way.freeze();
  bench.clock.advance(20_000);
  const reply = await answer;
  assert.ok(!reply.ok && reply.code === 11, JSON.stringify(reply));
  assert.match(reply.msg, /no cache server answers this node's agent.*reason ServerAway/);
  assert.match(
    readiness(bench),
    /server failed: none is connected.*the last attempt: the server did not answer in time/,
  );
});

test("an agent that is refused says why when it is asked if it is ready", async (t) => {
  const server = createPlainServer();
  const body = "the API server does not know this token";
  server.on("upgrade", (_, socket) => {
    socket.on("error", () => {}).resume();
    socket.end(`HTTP/1.1 401 Unauthorized\r\nContent-Length: ${body.length}\r\n\r\n${body}`, () => socket.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const bench = await start(t, `ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const refused = bench.logged("Was refused by a server");
  bench.clock.advance(0);
  await refused;
  assert.match(readiness(bench), /server failed: none is connected.*: 401 the API server does not know this token/);
});

test("an agent whose socket somebody else has taken says so when it is asked if it is ready", async (t) => {
  const bench = await start(t, "ws://127.0.0.1:1");
  assert.match(readiness(bench), /\[\+\]socket ok/);
  const taken = bench.logged("another agent answers");
  const other = createServer((socket) => socket.on("error", () => {}).end());
  other.listen(`${bench.socket}.other`);
  await once(other, "listening");
  renameSync(`${bench.socket}.other`, bench.socket);
  await taken;
  assert.match(readiness(bench), /\[-\]socket failed: another agent answers on/);
  other.close();
  await once(other, "close");
  const back = bench.logged("Put the socket in its place again");
  bench.clock.advance(2_000);
  await back;
  assert.match(readiness(bench), /\[\+\]socket ok/);
});
