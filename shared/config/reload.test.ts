import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServerConfig } from "./catalogue.ts";
import { loadConfig } from "./load.ts";
import { reload } from "./reload.ts";

function configWith(...argv: string[]): ServerConfig {
  const loaded = loadConfig("server", { argv, env: {}, readFile: () => "" });
  assert.ok(loaded.kind === "loaded");
  return loaded.config;
}

test("a reloadable option takes its new value; any other keeps the running one and waits", () => {
  const running = configWith("--upstream-stale-after=15s", "--ports-http=1", "--kubeconfig=/a");
  const next = configWith("--upstream-stale-after=20s", "--ports-http=2", "--log-level=debug");
  const { config, changed, waiting } = reload("server", running, next);
  assert.deepEqual(changed, ["upstream.staleAfter", "log.level"]);
  assert.deepEqual(waiting, ["kubeconfig", "ports.http"]);
  assert.equal(config.upstream.staleAfterMs, 20_000);
  assert.equal(config.log.level, "debug");
  assert.equal(config.ports.http, 1);
  assert.equal(config.kubeconfig, "/a");
});

test("neither configuration is touched, and the same again changes nothing", () => {
  const running = configWith("--ports-http=1");
  const next = configWith("--ports-http=2");
  const before = structuredClone([running, next]);
  reload("server", running, next);
  assert.deepEqual([running, next], before);
  assert.deepEqual(reload("server", running, running), { config: running, changed: [], waiting: [] });
});
