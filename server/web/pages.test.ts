// The server's own pages: complete before anything is known, and nothing in them is taken for markup.
import assert from "node:assert/strict";
import { test } from "node:test";
import { manualClock } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { type Sources, statusPages } from "./pages-shell.ts";

function page(path: string, more: Partial<Sources> = {}) {
  const clock = manualClock();
  const pages = statusPages({
    clock,
    replica: "server-1",
    version: "1.2.3",
    store: new Store(clock),
    apiGroup: () => undefined,
    streamUrl: () => undefined,
    resources: () => [],
    clients: () => [],
    commit: () => ({ inFlight: 1, limit: 32, queued: 2, waitingForBlocks: 3, claims: 4 }),
    ...more,
  });
  const answer = pages.get(path)?.get?.({ query: new URLSearchParams(), accept: "" });
  assert.ok(answer !== undefined && !(answer instanceof Promise));
  return answer;
}

const client = {
  node: "<b>node</b>",
  user: "u",
  version: "1",
  state: "live",
  connectedSeconds: 1,
  silentSeconds: 0.5,
  behindKeys: 7,
  behindSeconds: 0,
  bufferedBytes: 0,
  outstanding: 1,
} as const;

test("the state of a server that knows nothing yet is complete", () => {
  const status = JSON.parse(page("/api/v1/status").body);
  assert.deepEqual(status.datastore, { ready: false });
  assert.deepEqual(status.commit, { inFlight: 1, limit: 32, queued: 2, waitingForBlocks: 3, claims: 4 });
  assert.equal(status.asOf, "2030-01-01T14:00:00.000Z");
  assert.match(page("/").body, /locked or unknown: nothing is written/);
});

test("names from outside are text on the page, and nothing on it comes from elsewhere", () => {
  const { body, contentType } = page("/", { clients: () => [client] });
  assert.equal(contentType, "text/html; charset=utf-8");
  assert.ok(body.includes("&#60;b&#62;node&#60;/b&#62;"));
  assert.doesNotMatch(body, /<b>|src=|href=|https?:/);
});
