// The stream's client on real sockets: what it shows a server, and what it makes of a refusal.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createPlainServer, type IncomingMessage, type Server } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { WebSocketServer } from "ws";
import { createLog } from "../../shared/log.ts";
import { systemClock } from "../../shared/process/world.ts";
import type { ServerMessage } from "../../shared/protocol/stream.ts";
import type { Clock } from "../../shared/world.ts";
import { loopbackCertificate } from "../../test/kube-api/certificate-shell.ts";
import { manualClock } from "../../test/manual-world.ts";
import { type EndReason, probeMs } from "./client.ts";
import { openStream } from "./client-shell.ts";
import type { Stream } from "./stream.ts";

interface Surroundings {
  readonly url: string;
  readonly requests: IncomingMessage[];
  readonly sockets: WebSocketServer;
}

async function serve(t: TestContext, server: Server, scheme: string): Promise<Surroundings> {
  const sockets = new WebSocketServer({ noServer: true, perMessageDeflate: true });
  const requests: IncomingMessage[] = [];
  server.on("upgrade", (request, socket, head) => {
    requests.push(request);
    sockets.handleUpgrade(request, socket, head, (client) => sockets.emit("connection", client));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const client of sockets.clients) client.terminate();
    server.close();
  });
  return { url: `${scheme}://127.0.0.1:${(server.address() as AddressInfo).port}`, requests, sockets };
}

interface Client {
  readonly stream: Stream;
  readonly lines: string[];
  readonly messages: ServerMessage[];
  next(): Promise<string>;
}

function open(
  t: TestContext,
  url: string,
  options: { token?: () => string; ca?: string; serverName?: string; clock?: Clock } = {},
): Client {
  const lines: string[] = [];
  const messages: ServerMessage[] = [];
  const told: string[] = [];
  const waiting: ((what: string) => void)[] = [];
  const tell = (what: string): void => {
    const next = waiting.shift();
    if (next) next(what);
    else told.push(what);
  };
  const clock = options.clock ?? systemClock;
  const log = createLog({ level: "debug", format: "json", clock, write: (line) => lines.push(line) });
  const stream = openStream({
    urls: [url],
    token: options.token ?? (() => undefined),
    authorities: () => options.ca,
    serverName: options.serverName,
    hello: () => ({ type: "hello", protocol: 1, version: "1", scope: "node", node: "n1", have: [], capabilities: [] }),
    clock,
    random: { below: () => 0, hex: () => "" },
    logger: log.logger,
    deliver: (message) => messages.push(message),
    online: () => tell("online"),
    offline: (reason: EndReason) => tell(reason),
  });
  t.after(() => {
    stream.stop();
    log.flush();
  });
  const next = (): Promise<string> => {
    const what = told.shift();
    return what === undefined ? new Promise((resolve) => waiting.push(resolve)) : Promise.resolve(what);
  };
  return { stream, lines, messages, next };
}

function greet(sockets: WebSocketServer, ...more: object[]): void {
  const welcome = {
    type: "welcome",
    protocol: 1,
    version: "1",
    replica: "r",
    lineage: "l",
    apiGroup: "crd",
    heartbeatMs: 60_000,
    capabilities: [],
  };
  sockets.on("connection", (client) => {
    client.on("message", () => {
      for (const message of [welcome, ...more, { type: "synced" }]) client.send(JSON.stringify(message));
    });
  });
}

test("it asks for the stream's path and protocol, uncompressed, with the token as it is at that moment", async (t) => {
  const { url, requests, sockets } = await serve(t, createPlainServer(), "ws");
  greet(sockets);
  let token = "first";
  const client = open(t, url, { token: () => token });
  assert.equal(await client.next(), "online");
  token = "second";
  for (const socket of sockets.clients) socket.close(1001);
  assert.equal(await client.next(), "closed");
  assert.equal(await client.next(), "online");
  assert.deepEqual(
    requests.map(({ url: path, headers }) => [
      path,
      headers.authorization,
      headers["sec-websocket-protocol"],
      headers["sec-websocket-extensions"],
    ]),
    [
      ["/v1/stream", "Bearer first", "cattail.v1", undefined],
      ["/v1/stream", "Bearer second", "cattail.v1", undefined],
    ],
  );
});

test("types it does not know are passed over; a message of a known type that is wrong ends the connection", async (t) => {
  const { url, sockets } = await serve(t, createPlainServer(), "ws");
  greet(sockets, { type: "of a newer server", x: 1 });
  const client = open(t, url);
  assert.equal(await client.next(), "online");
  assert.deepEqual(
    client.messages.map(({ type }) => type),
    ["welcome", "synced"],
  );
  for (const socket of sockets.clients) socket.send('{"type":"ack","id":"one"}');
  assert.equal(await client.next(), "stale");
});

test("a refusal is logged, and the time that it names is kept to", async (t) => {
  const server = createPlainServer();
  let attempts = 0;
  server.on("upgrade", (_, socket) => {
    attempts += 1;
    socket.end("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 20\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const waits: number[] = [];
  const clock: Clock = {
    ...systemClock,
    after: (delayMs, wake) => {
      waits.push(Math.round(delayMs / 1000));
      return systemClock.after(delayMs, wake);
    },
  };
  const client = open(t, `ws://127.0.0.1:${(server.address() as AddressInfo).port}`, { clock });
  assert.equal(await client.next(), "refused");
  assert.equal(attempts, 1);
  assert.ok(waits.includes(20), waits.join(" "));
  assert.match(client.lines.find((line) => line.includes("refused")) ?? "", /"code":503/);
});

const tokenNeeded = "a ServiceAccount token is needed (Authorization: Bearer)";
const chunked = "Transfer-Encoding: chunked\r\n\r\n";
const refusals: readonly {
  readonly what: string;
  readonly raw: string;
  readonly said: RegExp;
  readonly ends?: boolean;
}[] = [
  {
    what: "its sentence",
    raw: `HTTP/1.1 401 Unauthorized\r\nContent-Length: ${tokenNeeded.length + 1}\r\n\r\n${tokenNeeded}\n`,
    said: /^401 a ServiceAccount token is needed \(Authorization: Bearer\)\. No token was sent\. Check tokenFile/,
  },
  {
    what: "a sentence in pieces, on several lines",
    raw: `HTTP/1.1 403 Forbidden\r\n${chunked}4\r\nnot \r\n6\r\n\x1b[1mus\r\n0\r\n\r\n`,
    said: /^403 not \[1mus\. Check nodeName/,
  },
  {
    what: "nothing",
    raw: "HTTP/1.1 404 Nope\r\nContent-Length: 0\r\n\r\n",
    said: /^404 without a word\. Check that server leads/,
  },
  {
    what: "more than anybody reads, and no end",
    raw: `HTTP/1.1 502 Bad Gateway\r\n${chunked}8000\r\n${"x".repeat(0x8000)}\r\n`,
    said: /^502 x{512}\. Check/,
    ends: false,
  },
  {
    what: "half of it before the line is cut",
    raw: "HTTP/1.1 503 Unavailable\r\nContent-Length: 100\r\n\r\nstill starting",
    said: /^503 still starting$/,
  },
];

for (const { what, raw, said, ends = true } of refusals) {
  test(`a server that refuses with ${what}: the log and the status say it`, async (t) => {
    const server = createPlainServer();
    const refused = new Set<Duplex>();
    server.on("upgrade", (_, socket) => {
      socket.on("error", () => {}).resume();
      refused.add(socket);
      if (ends) socket.end(raw, () => socket.destroy());
      else socket.write(raw);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const client = open(t, `ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
    assert.equal(await client.next(), "refused");
    assert.match(client.stream.status().refusal ?? "", said);
    const line = client.lines.map((text) => JSON.parse(text)).find(({ msg }) => msg === "Was refused by a server");
    assert.equal(line.level, "warn");
    assert.match(line.err, said);
    client.stream.stop();
    server.close();
    for (const socket of refused) socket.destroy();
    await once(server, "close");
  });
}

test("a server that turns it away after the hello: its reason is logged with what to do, until another lets it in", async (t) => {
  const { url, sockets } = await serve(t, createPlainServer(), "ws");
  sockets.once("connection", (socket) =>
    socket.once("message", () => socket.close(4403, "the token is for node n2, the hello for n1")),
  );
  const client = open(t, url);
  assert.equal(await client.next(), "closed");
  const why = client.stream.status().refusal ?? "";
  assert.match(why, /^4403 the token is for node n2, the hello for n1\. Check nodeName/);
  const line = client.lines.map((text) => JSON.parse(text)).find(({ err }) => err === why);
  assert.deepEqual([line.level, line.msg, line.code], ["warn", "Was turned away by a server", 4403]);
  greet(sockets);
  assert.equal(await client.next(), "online");
  assert.equal(client.stream.status().refusal, undefined);
});

test("the reason of a good-bye is logged", async (t) => {
  const { url, sockets } = await serve(t, createPlainServer(), "ws");
  greet(sockets);
  const client = open(t, url);
  assert.equal(await client.next(), "online");
  for (const socket of sockets.clients) {
    socket.send(JSON.stringify({ type: "bye", reason: "this server is going away", retryAfterMs: 0 }));
    socket.close(1001);
  }
  assert.equal(await client.next(), "redirect");
  const line = client.lines.map((text) => JSON.parse(text)).find(({ msg }) => msg === "Lost the server");
  assert.equal(line.err, "this server is going away");
});

test("while an answer is waited for, a server that is only slow is kept, and one that stands still is left", async (t) => {
  const { url, sockets } = await serve(t, createPlainServer(), "ws");
  greet(sockets);
  const manual = manualClock();
  let armed = (): void => {};
  const clock: Clock = {
    ...manual,
    after: (delayMs, wake) => {
      armed();
      return manual.after(delayMs, wake);
    },
  };
  const client = open(t, url, { clock });
  manual.advance(0);
  assert.equal(await client.next(), "online");
  client.stream.send({ type: "claim", id: 1, pools: [], full: [] });
  manual.advance(probeMs);
  // It answers the ping, which puts off the end.
  await new Promise<void>((resolve) => {
    armed = resolve;
  });
  assert.equal(client.stream.status().silentMs, 0);
  for (const socket of sockets.clients) socket.pause();
  manual.advance(2 * probeMs);
  assert.equal(await client.next(), "timeout");
  assert.equal(client.stream.status().refusal, "the server did not answer in time");
});

test("a certificate is accepted only from the authorities that are given", async (t) => {
  const pair = loopbackCertificate();
  const { url, sockets } = await serve(t, createTlsServer(pair), "wss");
  greet(sockets);
  assert.equal(await open(t, url).next(), "tls");
  assert.equal(await open(t, url, { ca: pair.cert }).next(), "online");
});

test("a certificate for another name than the host is accepted only if that name is expected", async (t) => {
  const serverName = "cattail-server.cattail-system.svc";
  const pair = loopbackCertificate(new Date(), [serverName]);
  const { url, sockets } = await serve(t, createTlsServer(pair), "wss");
  greet(sockets);
  assert.equal(await open(t, url, { ca: pair.cert }).next(), "tls");
  assert.equal(await open(t, url, { ca: pair.cert, serverName }).next(), "online");
  assert.equal(await open(t, url, { ca: pair.cert, serverName: "another.svc" }).next(), "tls");
});

test("a server that is not there is tried again until it is", async (t) => {
  const server = createPlainServer();
  const { url, sockets } = await serve(t, server, "ws");
  greet(sockets);
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  const client = open(t, url);
  assert.equal(await client.next(), "refused");
  server.listen(port, "127.0.0.1");
  let told = await client.next();
  while (told === "refused") told = await client.next();
  assert.equal(told, "online");
});

test("what is sent while nobody is connected goes nowhere, without harm", async (t) => {
  const { url, sockets } = await serve(t, createPlainServer(), "ws");
  greet(sockets);
  const client = open(t, url);
  client.stream.send({ type: "ping", sent: 1 });
  assert.equal(await client.next(), "online");
  assert.ok(client.stream.status().live);
});
