import assert from "node:assert/strict";
import { test } from "node:test";
import { manualClock } from "../../test/manual-world.ts";
import { fileVersion } from "../config/catalogue.ts";
import { type Inputs, loadConfig } from "../config/load.ts";
import { createLog } from "../log.ts";
import { processMetrics } from "../metrics.ts";
import { liveConfig } from "./live-config.ts";
import { createMetrics } from "./metrics.ts";

/** A server that was started with these lines in its file. */
function startedWith(...fileLines: string[]) {
  const text = (lines: readonly string[]): string => [`apiVersion: ${fileVersion}`, ...lines, ""].join("\n");
  const inputs: Inputs = { argv: ["--config=s.yaml"], env: {}, readFile: () => text(fileLines) };
  const loaded = loadConfig("server", inputs);
  assert.ok(loaded.kind === "loaded");
  const lines: string[] = [];
  const log = createLog({ level: "info", format: "json", clock: manualClock(), write: (line) => lines.push(line) });
  const metrics = createMetrics();
  const own = metrics.create(processMetrics);
  const live = liveConfig("server", loaded, { inputs, log, logger: log.logger, own });
  let reloads = 0;
  live.onReload(() => {
    reloads += 1;
  });
  const gauges = async () => {
    const { body } = await metrics.render("");
    const value = (name: string): number => Number(new RegExp(`^${name} (\\d)$`, "m").exec(body)?.[1]);
    return { success: value("cattail_config_reload_success"), drift: value("cattail_config_drift") };
  };
  return { live, log, lines, gauges, reloads: () => reloads, take: (...next: string[]) => live.take(text(next)) };
}

test("the same contents change nothing and say nothing", async () => {
  const { take, lines, reloads, gauges } = startedWith("log: {level: info}");
  take("log: {level: info}");
  assert.deepEqual([lines, reloads(), await gauges()], [[], 0, { success: 1, drift: 0 }]);
});

test("a reloadable option takes effect at once, in the log level too, and shows in the provenance", async () => {
  const { live, take, log, reloads, gauges } = startedWith("log: {level: info}");
  take("", "log: {level: debug}", "upstream: {staleAfter: 30s}");
  assert.equal(live.config().upstream.staleAfterMs, 30_000);
  assert.equal(log.level(), "debug");
  assert.equal(reloads(), 1);
  assert.deepEqual(await gauges(), { success: 1, drift: 0 });
  assert.deepEqual(live.provenance().find(({ key }) => key === "upstream.staleAfter")?.source, {
    kind: "file",
    path: "s.yaml",
    line: 4,
  });
});

test("an option that needs a restart keeps its value, and the difference is drift until the file is as it was", async () => {
  const { live, take, lines, reloads, gauges } = startedWith("ports: {http: 81}");
  take("ports: {http: 82}");
  assert.equal(live.config().ports.http, 81);
  assert.equal(reloads(), 0);
  assert.match(lines[0] ?? "", /"msg":"Left options as they were until the next start","option":"ports.http"/);
  assert.deepEqual(await gauges(), { success: 1, drift: 1 });
  take("ports: {http: 81}");
  assert.deepEqual(await gauges(), { success: 1, drift: 0 });
});

test("of a file with a mistake nothing is taken, and the mistake is in the log with its line", async () => {
  const { live, take, lines, gauges } = startedWith("upstream: {staleAfter: 20s}");
  take("upstream: {staleAfter: 30s}", "log: {levle: debug}");
  assert.equal(live.config().upstream.staleAfterMs, 20_000);
  assert.deepEqual(await gauges(), { success: 0, drift: 1 });
  assert.match(
    lines.join(),
    /s\.yaml line 3: unknown key \\"log\.levle\\" \(reason BadConfig\)\. Did you mean \\"log\.level\\"\?/,
  );
  take("upstream: {staleAfter: 20s}");
  assert.deepEqual(await gauges(), { success: 1, drift: 0 });
});
