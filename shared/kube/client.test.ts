import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { type ManualClock, manualClock } from "../../test/manual-world.ts";
import { ScriptedServer } from "../../test/scripted-server.ts";
import type { FailureCode } from "../kinds.ts";
import { type Api, ApiFailure } from "./api.ts";
import { createApi } from "./client-shell.ts";
import { type Connection, connectTo } from "./connection-shell.ts";
import { Http } from "./http-shell.ts";

const block = "/apis/crd.projectcalico.org/v1/ipamblocks/10-0-0-0-26";
let server: ScriptedServer;
let clock: ManualClock;
let http: Http;
let api: Api;
let answers: { method: string; path: string; stream: boolean; status: number }[];

function connect(connection: Connection): void {
  const onAnswer = (call: { method: string; path: string; stream: boolean }, status: number): void => {
    answers.push({ method: call.method, path: call.path, stream: call.stream, status });
  };
  http = new Http({ connection, userAgent: "cattail-server/0.1.0 (test)", clock, onAnswer });
  api = createApi(http);
}

beforeEach(async () => {
  server = await new ScriptedServer().listen();
  clock = manualClock();
  answers = [];
  connect(connectTo(server.url, { token: "secret" }));
});
afterEach(async () => {
  http.stop();
  await server.close();
});

async function failureOf(request: Promise<unknown>): Promise<{ code: FailureCode; message: string; detail?: unknown }> {
  const error: unknown = await request.then(
    () => assert.fail("it succeeded"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof Error && "code" in error, String(error));
  return {
    code: error.code as FailureCode,
    message: error.message,
    ...(error instanceof ApiFailure && { detail: error.detail }),
  };
}

test("a request says who we are, with the token, and asks for JSON", async () => {
  const answer = api.get(block);
  const { headers, method, path } = await server.next().then((exchange) => {
    exchange.json(200, { kind: "IPAMBlock" });
    return exchange;
  });
  assert.deepEqual(await answer, { kind: "IPAMBlock" });
  assert.deepEqual([method, path], ["GET", block]);
  assert.equal(headers.authorization, "Bearer secret");
  assert.equal(headers["user-agent"], "cattail-server/0.1.0 (test)");
  assert.equal(headers.accept, "application/json");
  assert.deepEqual(answers, [{ method: "GET", path: block, stream: false, status: 200 }]);
});

test("watch case 37: 64-bit numbers go and come exactly", async () => {
  const body = '{"spec":{"sequenceNumber":1787405600123456793,"unknown":{"deep":[0.1,1e3]}}}';
  const answer = api.patch(block, { spec: { sequenceNumber: 1787405600123456793n } });
  const exchange = await server.next();
  assert.equal(exchange.body, '{"spec":{"sequenceNumber":1787405600123456793}}');
  assert.equal(exchange.headers["content-type"], "application/merge-patch+json");
  exchange.json(200, body);
  const object = (await answer) as { spec: { sequenceNumber: unknown } };
  assert.equal(object.spec.sequenceNumber, 1787405600123456793n);
});

test("a deletion carries its preconditions", async () => {
  const done = api.remove(block, { uid: "u", resourceVersion: "7" });
  const exchange = await server.next();
  assert.equal(exchange.method, "DELETE");
  assert.deepEqual(JSON.parse(exchange.body), {
    apiVersion: "v1",
    kind: "DeleteOptions",
    preconditions: { uid: "u", resourceVersion: "7" },
  });
  exchange.json(200, { kind: "Status", status: "Success" });
  await done;
});

test("watch case 32: a write without an answer may have been carried out: `timeout`, once, at 15 s", async () => {
  const answer = failureOf(api.patch(block, {}));
  await server.next();
  clock.advance(15_000);
  assert.equal((await answer).code, "timeout");
  assert.equal(server.count, 1);
});

test("a write whose connection is reset is not sent again: `api-unavailable`", async () => {
  const first = api.get(block);
  (await server.next()).json(200, {});
  await first;
  const answer = failureOf(api.patch(block, {}));
  (await server.next()).reset();
  assert.equal((await answer).code, "api-unavailable");
  assert.equal(server.count, 2);
});

test("a read that finds its idle connection just closed is sent again on another", async () => {
  const first = api.get(block);
  (await server.next()).json(200, {});
  await first;
  const second = api.get(block);
  (await server.next()).reset();
  (await server.next()).json(200, { second: true });
  assert.deepEqual(await second, { second: true });
});

const status = (code: number, reason: string, message = "", details: object = {}) => ({
  kind: "Status",
  code,
  reason,
  message,
  details,
});
const cases: readonly [FailureCode, number, unknown][] = [
  ["api-conflict", 409, status(409, "Conflict", "the object has been modified")],
  ["api-exists", 409, status(409, "AlreadyExists", "already exists")],
  ["api-missing", 409, status(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b")],
  ["api-conflict", 409, status(409, "Conflict", "Precondition failed: ResourceVersion in precondition: 1, 2")],
  ["api-missing", 404, status(404, "NotFound")],
  ["api-forbidden", 403, status(403, "Forbidden")],
  ["api-unauthorized", 401, "Unauthorized"],
  ["api-gone", 410, status(410, "Expired")],
  ["api-invalid", 422, status(422, "Invalid", "", { causes: [{ field: "spec.cidr" }] })],
  ["api-conflict", 422, status(422, "Invalid", "", { causes: [{ field: "metadata.resourceVersion" }] })],
  ["api-missing", 422, status(422, "Invalid", "", { causes: [{ field: "metadata.uid" }] })],
  ["api-invalid", 302, "<a>elsewhere</a>"],
  ["api-invalid", 413, "too large"],
  ["api-throttled", 429, "slow down"],
  ["api-unavailable", 500, status(500, "InternalError")],
  ["api-unavailable", 503, "starting"],
  ["api-unavailable", 504, status(504, "Timeout")],
];
for (const [code, httpStatus, body] of cases) {
  const said = typeof body === "string" ? body : JSON.stringify(body);
  test(`watch case 33: ${httpStatus} ${said.slice(0, 90)} is ${code}`, async () => {
    const answer = failureOf(api.patch(block, {}));
    (await server.next()).text(httpStatus, said, { "content-type": "application/json", location: "http://elsewhere/" });
    assert.equal((await answer).code, code);
    assert.equal(server.count, 1);
  });
}

test("how long to wait is told, from the header or from the Status, and is bounded", async () => {
  for (const [retryAfter, seconds, expected] of [
    ["7", undefined, 7_000],
    [undefined, 3, 3_000],
    ["999999999", undefined, 300_000],
    ["Wed, 21 Oct 2026 07:28:00 GMT", undefined, undefined],
  ] as const) {
    const answer = failureOf(api.create(block, {}));
    const headers = retryAfter === undefined ? {} : { "retry-after": retryAfter };
    (await server.next()).json(429, status(429, "TooManyRequests", "", { retryAfterSeconds: seconds }), headers);
    const wait = expected === undefined ? {} : { retryAfterMs: expected };
    assert.deepEqual((await answer).detail, { status: 429, reason: "TooManyRequests", ...wait });
  }
});

test("an error page of any size costs little and tells its beginning", async () => {
  const answer = failureOf(api.get(block));
  (await server.next()).text(503, `bad\n\n gateway ${"x".repeat(1 << 20)}`);
  const { code, message } = await answer;
  assert.equal(code, "api-unavailable");
  assert.match(message, /answered 503: bad gateway x/);
  assert.ok(message.length < 500);
});

test("watch case 36: a page of a captive portal is no answer", async () => {
  const answer = failureOf(api.get(block));
  (await server.next()).text(200, "<html>please log in</html>", { "content-type": "text/html" });
  const { code, message } = await answer;
  assert.equal(code, "api-unavailable");
  assert.match(message, /text\/html/);
});

test("watch case 28: a refused token is read again, and the request repeated once if it is another", async () => {
  let token = "old";
  const fresh = ["new"];
  connect({
    server: new URL(server.url),
    credentials: async () => ({ authorization: `Bearer ${token}`, tls: {} }),
    refresh: async () => {
      const next = fresh.shift();
      token = next ?? token;
      return next !== undefined;
    },
  });
  const answer = api.patch(block, {});
  (await server.next()).json(401, status(401, "Unauthorized"));
  const again = await server.next();
  assert.equal(again.headers.authorization, "Bearer new");
  again.json(200, {});
  await answer;

  const second = failureOf(api.patch(block, {}));
  (await server.next()).json(401, status(401, "Unauthorized"));
  assert.equal((await second).code, "api-unauthorized");
  assert.equal(server.count, 3);
});

test("watch case 35: after a request timed out, the next one takes a new connection", async () => {
  const first = api.get(block);
  const used = await server.next();
  used.json(200, {});
  await first;
  // The endpoint moved: what this connection leads to takes requests and never answers.
  const second = failureOf(api.get(block));
  const third = failureOf(api.get(block));
  const dead = await server.next();
  await server.next();
  assert.equal(dead.socket, used.socket);
  clock.advance(10_000);
  assert.deepEqual([(await second).code, (await third).code], ["timeout", "timeout"]);
  const fourth = api.get(block);
  const fresh = await server.next();
  assert.notEqual(fresh.socket, dead.socket);
  fresh.json(200, {});
  await fourth;
});

test("when we stop, what is under way ends and nothing new is sent", async () => {
  const answer = failureOf(api.get(block));
  await server.next();
  http.stop();
  assert.equal((await answer).code, "api-unavailable");
  assert.equal((await failureOf(api.get(block))).code, "api-unavailable");
  assert.equal(server.count, 1);
});
