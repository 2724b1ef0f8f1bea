import assert from "node:assert/strict";
import { request } from "node:http";
import { connect } from "node:net";
import { type TestContext, test } from "node:test";
import { manualClock } from "../../test/manual-world.ts";
import { createHealth } from "../health.ts";
import { Failure } from "../kinds.ts";
import { createLog } from "../log.ts";
import { guardAdmin, logLevelPage } from "./admin.ts";
import { listenPages, networkPages, type Page, text } from "./http.ts";
import { createMetrics } from "./metrics.ts";

interface Reply {
  readonly status: number;
  readonly type: string | undefined;
  readonly body: string;
}

async function open(t: TestContext, pages: ReadonlyMap<string, Page>, guard?: typeof guardAdmin) {
  const clock = manualClock();
  const lines: string[] = [];
  const log = createLog({ level: "info", format: "json", clock, write: (line) => lines.push(line) });
  const options = { host: "127.0.0.1", port: 0, logger: log.logger, ...(guard && { guard }) };
  const listener = await listenPages(pages, options);
  t.after(() => listener.close());
  const ask = (path: string, method = "GET", headers: Readonly<Record<string, string>> = {}): Promise<Reply> =>
    new Promise((resolve, reject) => {
      const asked = request({ host: "127.0.0.1", port: listener.port, path, method, headers }, (response) => {
        let body = "";
        response.setEncoding("utf8");
        response.on("data", (part: string) => {
          body += part;
        });
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, type: response.headers["content-type"], body }),
        );
      });
      asked.on("error", reject);
      asked.end();
    });
  return { ask, clock, lines, listener, log };
}

function daemonPages(parts: { health?: ReturnType<typeof createHealth> } = {}) {
  const version = { component: "cattail-server", version: "1.2.3", revision: "2f1c", runtime: "node 26.0.0" };
  return networkPages({ health: parts.health ?? createHealth(), metrics: createMetrics(), version });
}

test("the probes answer 200 or 503, with the checks when they fail or are asked for", async (t) => {
  const health = createHealth();
  let problem: string | undefined = "not synced";
  health.check("ready", "upstream", () => problem);
  health.check("ready", "stream", () => undefined);
  const { ask } = await open(t, daemonPages({ health }));
  assert.deepEqual([(await ask("/livez")).status, (await ask("/healthz")).body], [200, "ok\n"]);
  const failed = await ask("/readyz");
  assert.equal(failed.status, 503);
  assert.equal(failed.body, "[-]upstream failed: not synced\n[+]stream ok\nreadyz check failed\n");
  assert.equal((await ask("/readyz?exclude=upstream")).status, 200);
  problem = undefined;
  assert.equal((await ask("/readyz")).body, "ok\n");
  assert.equal((await ask("/readyz?verbose")).body, "[+]upstream ok\n[+]stream ok\nreadyz check passed\n");
});

test("version is JSON, metrics are in the format asked for", async (t) => {
  const { ask } = await open(t, daemonPages());
  assert.equal(JSON.parse((await ask("/version")).body).version, "1.2.3");
  assert.match((await ask("/metrics")).type ?? "", /^text\/plain; version=0\.0\.4/);
  assert.match(
    (await ask("/metrics", "GET", { accept: "application/openmetrics-text" })).type ?? "",
    /^application\/openmetrics/,
  );
});

test("another path is 404, another method 405; HEAD is GET without its body", async (t) => {
  const { ask } = await open(t, daemonPages());
  assert.equal((await ask("/")).status, 404);
  assert.equal((await ask("//%zz?a=%")).status, 404);
  assert.equal((await ask("/livez", "POST")).status, 405);
  assert.deepEqual(await ask("/livez", "HEAD"), { status: 200, type: "text/plain; charset=utf-8", body: "" });
});

test("a page that throws is 500 and one line in the log, and the listener lives on", async (t) => {
  const broken: Page = { get: () => Promise.reject(new Error("boom")) };
  const { ask, lines } = await open(
    t,
    new Map([
      ["/broken", broken],
      ["/fine", { get: () => text(200, "fine\n") }],
    ]),
  );
  assert.equal((await ask("/broken?x=1")).status, 500);
  assert.match(lines.join(), /"msg":"Could not answer a page","path":"\/broken\?x=1","err":"boom"/);
  assert.equal((await ask("/fine")).body, "fine\n");
});

test("a port that is taken is a failure of the configuration that names it", async (t) => {
  const { listener, log } = await open(t, daemonPages());
  await assert.rejects(
    listenPages(daemonPages(), { host: "127.0.0.1", port: listener.port, logger: log.logger }),
    (error: unknown) =>
      error instanceof Failure &&
      error.code === "bad-config" &&
      error.message === `cannot listen on 127.0.0.1 port ${listener.port}`,
  );
});

test("closing ends open connections too", async (t) => {
  const { listener } = await open(t, daemonPages());
  const socket = connect(listener.port, "127.0.0.1");
  await new Promise((connected) => socket.once("connect", connected));
  const ended = new Promise((resolve) => socket.once("close", resolve));
  socket.resume();
  await listener.close();
  await ended;
});

test("the admin port answers to names of loopback only, and a POST needs a header that no form can send", async (t) => {
  const page: Page = { get: () => text(200, "read\n"), post: () => text(200, "written\n") };
  const { ask } = await open(t, new Map([["/debug/x", page]]), guardAdmin);
  for (const host of ["localhost:4483", "127.0.0.1", "[::1]:1"]) {
    assert.equal((await ask("/debug/x", "GET", { host })).body, "read\n", host);
  }
  for (const host of ["evil.example:4483", "localhost.evil.example", "10.0.0.1"]) {
    assert.equal((await ask("/debug/x", "GET", { host })).status, 403, host);
  }
  assert.equal((await ask("/debug/x", "POST")).status, 403);
  assert.equal((await ask("/debug/x", "POST", { "x-cattail-csrf": "1" })).body, "written\n");
});

test("the log level is changed for a while and goes back by itself", async (t) => {
  const pages = new Map<string, Page>();
  const { ask, clock, log } = await open(t, pages);
  const level = logLevelPage({ log, logger: log.logger, configured: () => "info", clock });
  pages.set("/debug/log-level", level.page);
  assert.deepEqual(JSON.parse((await ask("/debug/log-level")).body), { level: "info", configured: "info" });
  assert.equal((await ask("/debug/log-level?level=debug&for=5m", "POST")).status, 200);
  assert.equal(log.level(), "debug");
  clock.advance(299_999);
  assert.equal(log.level(), "debug");
  clock.advance(1);
  assert.equal(log.level(), "info");
  for (const query of ["level=loud", "level=debug&for=5", "level=debug&for=48h", ""]) {
    assert.equal((await ask(`/debug/log-level?${query}`, "POST")).status, 400, query);
  }
  assert.equal(log.level(), "info");
  await ask("/debug/log-level?level=trace", "POST");
  level.close();
  assert.equal(clock.pending(), 0);
});
