// The Unix socket and the spool directory, on a real file system.
import assert from "node:assert/strict";
import { once } from "node:events";
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createLog } from "../../shared/log.ts";
import { type AgentReply, type AgentRequest, maxRequestBytes, type SpooledDel } from "../../shared/protocol/socket.ts";
import { manualClock } from "../../test/manual-world.ts";
import { type AgentSocket, type Connection, listenSocket, maxCalls } from "./server-shell.ts";
import { openSpool, type Spool } from "./spool-shell.ts";

const clock = manualClock();
const { logger } = createLog({ level: "error", format: "json", clock, write: () => {} });
const status = { verb: "STATUS", protocol: 1, request: "r", network: "net", cniVersion: "1.1.0", deadline: 1 };

function folder(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), "cattail-socket-"));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

async function listen(
  t: TestContext,
  path: string,
  take: (request: AgentRequest, connection: Connection) => void = (_, connection) => connection.reply({ ok: true }),
): Promise<AgentSocket> {
  const socket = await listenSocket({ path, clock, logger, take });
  t.after(async () => {
    await socket.stopListening();
    socket.close();
  });
  return socket;
}

async function say(path: string, text: string): Promise<AgentReply> {
  const socket = connect(path);
  socket.write(text);
  let received = "";
  for await (const chunk of socket) received += chunk;
  assert.ok(received.endsWith("\n"));
  return JSON.parse(received);
}

async function opened(path: string, text = ""): Promise<Socket> {
  const socket = connect(path);
  socket.on("error", () => {});
  await once(socket, "connect");
  if (text !== "") socket.write(text);
  return socket;
}

test("one request, one reply, and only root's to use", async (t) => {
  const path = join(folder(t), "run", "agent.sock");
  const seen: AgentRequest[] = [];
  await listen(t, path, (request, connection) => {
    seen.push(request);
    connection.reply({ ok: true });
  });
  assert.deepEqual(await say(path, `${JSON.stringify({ ...status, unknown: 1 })}\n`), { ok: true });
  assert.equal(seen[0]?.verb, "STATUS");
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.equal(statSync(join(path, "..")).mode & 0o777, 0o700);
});

test("what cannot be understood, or is too large, is answered with code 6", async (t) => {
  const path = join(folder(t), "agent.sock");
  await listen(t, path, () => assert.fail("must not be taken"));
  for (const text of [
    "no json\n",
    '{"verb":"FOO"}\n',
    `${JSON.stringify({ ...status, protocol: 2 })}\n`,
    "x".repeat(maxRequestBytes + 1),
  ]) {
    const reply = await say(path, text);
    assert.ok(!reply.ok && reply.code === 6, text.slice(0, 40));
  }
});

test("a request in pieces is put together", async (t) => {
  const path = join(folder(t), "agent.sock");
  await listen(t, path);
  const text = `${JSON.stringify(status)}\n`;
  const socket = await opened(path, text.slice(0, 20));
  setImmediate(() => socket.write(text.slice(20)));
  const [chunk] = await once(socket, "data");
  assert.equal(String(chunk), '{"ok":true}\n');
});

test("a caller that hangs up before its answer is noticed, and so is an answer that nobody takes", async (t) => {
  const path = join(folder(t), "agent.sock");
  const taken = Promise.withResolvers<Connection>();
  const gone = Promise.withResolvers<void>();
  await listen(t, path, (_, connection) => {
    connection.onGone(gone.resolve);
    taken.resolve(connection);
  });
  const socket = await opened(path, `${JSON.stringify(status)}\n`);
  const connection = await taken.promise;
  socket.destroy();
  await gone.promise;
  await new Promise<void>((undelivered) => connection.reply({ ok: true }, undelivered));
});

test("an answer that was taken is not reported as lost", async (t) => {
  const path = join(folder(t), "agent.sock");
  await listen(t, path, (_, connection) => {
    connection.onGone(() => assert.fail("it was answered"));
    connection.reply({ ok: true }, () => assert.fail("it was delivered"));
  });
  for (let i = 0; i < 5; i++) await say(path, `${JSON.stringify(status)}\n`);
});

test("beyond the bound a call is told to come back", async (t) => {
  const path = join(folder(t), "agent.sock");
  const waiting: Connection[] = [];
  await listen(t, path, (_, connection) => void waiting.push(connection));
  const sockets = await Promise.all(Array.from({ length: maxCalls }, () => opened(path)));
  const reply = await say(path, `${JSON.stringify(status)}\n`);
  assert.ok(!reply.ok && reply.code === 11);
  for (const socket of sockets) socket.destroy();
});

test("a stale socket gives way; a living agent, a file and a link do not", async (t) => {
  const directory = folder(t);
  const stale = join(directory, "stale.sock");
  const server = createServer().listen(`${stale}.bound`);
  await once(server, "listening");
  renameSync(`${stale}.bound`, stale);
  server.close();
  await once(server, "close");
  assert.ok(existsSync(stale));
  await listen(t, stale);
  assert.deepEqual(await say(stale, `${JSON.stringify(status)}\n`), { ok: true });
  await assert.rejects(listen(t, stale), /another agent answers on .*; there must be one per node/);
  const file = join(directory, "file");
  writeFileSync(file, "mine");
  await assert.rejects(listen(t, file), /is no socket/);
  symlinkSync(file, join(directory, "link"));
  await assert.rejects(listen(t, join(directory, "link")), /is no socket/);
  await assert.rejects(listen(t, join(directory, "x".repeat(120))), /more than 106 bytes/);
});

function record(container: string, spooledAt: number): [name: string, text: string] {
  const attachment = {
    containerId: container,
    ifname: "eth0",
    podNamespace: "",
    podName: "",
    podUid: "",
    startedAt: 1,
  };
  const del: SpooledDel = {
    verb: "DEL",
    protocol: 1,
    request: "r",
    network: "net",
    cniVersion: "1.0.0",
    ...attachment,
    deadline: 1,
    spooledAt,
  };
  return [`${String(spooledAt).padStart(13, "0")}-r-${container}.json`, JSON.stringify(del)];
}

function put(directory: string, [name, text]: [string, string]): void {
  writeFileSync(join(directory, `.writing-${name}`), text);
  renameSync(join(directory, `.writing-${name}`), join(directory, name));
}

async function spool(t: TestContext, directory: string, take: (del: SpooledDel) => Promise<boolean>): Promise<Spool> {
  const opened = await openSpool({ directory, clock, logger, take });
  t.after(() => opened.close());
  return opened;
}

test("what lies in the spool is taken over in its order, removed once it is done, and what is no record stays out of the way", async (t) => {
  const directory = folder(t);
  for (const [container, at] of [
    ["b", 2],
    ["c", 10],
    ["a", 1],
  ] as const)
    put(directory, record(container, at));
  writeFileSync(join(directory, "0000000000003-r-x.json"), '{"verb":"DEL"');
  writeFileSync(join(directory, ".writing-r"), "half");
  const taken: string[] = [];
  const { waiting } = await spool(t, directory, async ({ containerId }) => {
    taken.push(containerId);
    assert.ok(readdirSync(directory).length >= 4, "nothing is removed before it is done");
    return true;
  });
  assert.deepEqual(taken, ["a", "b", "c"]);
  assert.equal(waiting, 0);
  assert.deepEqual(readdirSync(directory).sort(), [".writing-r", "0000000000003-r-x.json.bad"]);
});

test("a record that could not be taken over stays for the next time", async (t) => {
  const directory = folder(t);
  put(directory, record("a", 1));
  const { waiting } = await spool(t, directory, async () => false);
  assert.equal(waiting, 1);
  assert.equal(readdirSync(directory).length, 1);
});

test("what is put into the spool later is taken over as well", async (t) => {
  const directory = folder(t);
  const taken = Promise.withResolvers<string>();
  await spool(t, directory, async ({ containerId }) => {
    taken.resolve(containerId);
    return true;
  });
  put(directory, record("late", 5));
  assert.equal(await taken.promise, "late");
});
