import assert from "node:assert/strict";
import { test } from "node:test";
import { manualClock } from "../../test/manual-world.ts";
import { agentMetrics, type MetricDefinitions, processMetrics, serverMetrics } from "../metrics.ts";
import { createMetrics } from "./metrics.ts";
import { observeRuntime } from "./runtime-metrics.ts";

const openMetricsFirst = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";

/** The lines of samples, without comments. */
function samples(body: string): string[] {
  return body.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

const definitions = {
  requests: {
    name: "cattail_test_requests_total",
    type: "counter",
    labels: { verb: ["get", "list"], code: { outside: ["200", "409"] } },
    help: "Requests made",
    stability: "stable",
  },
  waiting: { name: "cattail_test_waiting", type: "gauge", help: "Requests that wait", stability: "alpha" },
  streams: {
    name: "cattail_test_streams",
    type: "gauge",
    labels: { scope: ["node", "all"] },
    help: "Open streams",
    stability: "beta",
  },
  size: { name: "cattail_test_size", type: "histogram", buckets: [1, 4], help: "Sizes", stability: "alpha" },
} as const satisfies MetricDefinitions;

test("what is counted, set and observed is written, with help and stability", async () => {
  const metrics = createMetrics();
  const { requests, waiting, streams, size } = metrics.create(definitions);
  requests.inc({ verb: "get", code: "200" });
  requests.inc({ verb: "get", code: "200" }, 2);
  waiting.set(7);
  streams.set({ scope: "all" }, 1);
  streams.clear();
  streams.set({ scope: "node" }, 3);
  size.observe(3);
  const { contentType, body } = await metrics.render("");
  assert.equal(contentType, "text/plain; version=0.0.4; charset=utf-8");
  assert.match(
    body,
    /^# HELP cattail_test_requests_total Requests made \(stable\)\n# TYPE cattail_test_requests_total counter\n/,
  );
  assert.deepEqual(samples(body), [
    'cattail_test_requests_total{verb="get",code="200"} 3',
    "cattail_test_waiting 7",
    'cattail_test_streams{scope="node"} 3',
    'cattail_test_size_bucket{le="1"} 0',
    'cattail_test_size_bucket{le="4"} 1',
    'cattail_test_size_bucket{le="+Inf"} 1',
    "cattail_test_size_sum 3",
    "cattail_test_size_count 1",
  ]);
});

test("a word from outside that is not in the list is counted as other", async () => {
  const metrics = createMetrics();
  const { requests } = metrics.create(definitions);
  for (const code of ["418", "409", "x".repeat(100)]) requests.inc({ verb: "list", code });
  const { body } = await metrics.render("");
  assert.deepEqual(samples(body).slice(0, 2), [
    'cattail_test_requests_total{verb="list",code="other"} 2',
    'cattail_test_requests_total{verb="list",code="409"} 1',
  ]);
});

test("a counter with few series has them from the start, so that the first time counts as a rise", async () => {
  const metrics = createMetrics();
  metrics.create(agentMetrics);
  const { body } = await metrics.render("");
  const conflicts = samples(body).filter((line) => line.startsWith("cattail_agent_conflicts_total"));
  assert.deepEqual(conflicts, [
    'cattail_agent_conflicts_total{kind="taken"} 0',
    'cattail_agent_conflicts_total{kind="released"} 0',
    'cattail_agent_conflicts_total{kind="block_lost"} 0',
  ]);
  assert.doesNotMatch(body, /^cattail_agent_cni_errors_total\{/m);
});

test("OpenMetrics is given when it is preferred, and the other format is the same before and after", async () => {
  const metrics = createMetrics();
  metrics.create(definitions).requests.inc({ verb: "get", code: "200" });
  const before = await metrics.render("text/plain");
  const open = await metrics.render(openMetricsFirst);
  assert.equal(open.contentType, "application/openmetrics-text; version=1.0.0; charset=utf-8");
  assert.match(
    open.body,
    /^# HELP cattail_test_requests .*\n# TYPE cattail_test_requests counter\ncattail_test_requests_total\{/,
  );
  assert.match(open.body, /\n# EOF\n$/);
  assert.deepEqual(await metrics.render("text/plain"), before);
  assert.deepEqual(await metrics.render(openMetricsFirst), open);
  const plainFirst = "text/plain;version=0.0.4, application/openmetrics-text;q=0.2";
  assert.equal((await metrics.render(plainFirst)).contentType, before.contentType);
});

test("what is cheaper to read than to keep is read before a scrape", async () => {
  const metrics = createMetrics();
  const { waiting } = metrics.create(definitions);
  let length = 4;
  metrics.beforeScrape(async () => waiting.set(length));
  assert.match((await metrics.render("")).body, /^cattail_test_waiting 4$/m);
  length = 5;
  assert.match((await metrics.render("")).body, /^cattail_test_waiting 5$/m);
});

test("the whole catalogue can be made into one process, once", () => {
  for (const component of [serverMetrics, agentMetrics]) {
    const metrics = createMetrics();
    metrics.create(processMetrics);
    metrics.create(component);
    assert.throws(() => metrics.create(component), /already been registered/);
  }
});

test("the runtime is measured: each of its metrics has a value that can be, and CPU time only rises", async () => {
  const metrics = createMetrics();
  const clock = manualClock();
  const end = observeRuntime(metrics.create(processMetrics), metrics, clock);
  const read = async (name: string): Promise<number> => {
    const line = samples((await metrics.render("")).body).find((each) => each.startsWith(`${name} `));
    return Number(line?.split(" ")[1]);
  };
  const cpu = await read("process_cpu_seconds_total");
  assert.ok(cpu > 0);
  assert.ok((await read("process_cpu_seconds_total")) >= cpu);
  assert.ok((await read("process_resident_memory_bytes")) > 10_000_000);
  assert.ok((await read("nodejs_heap_size_used_bytes")) > 1_000_000);
  const fds = await read("process_open_fds");
  assert.ok(fds > 3 && fds < (await read("process_max_fds")));
  assert.ok(Math.abs((await read("process_start_time_seconds")) - Date.now() / 1000) < 600);
  clock.advance(10_000);
  const delays = samples((await metrics.render("")).body).filter((line) => line.startsWith("cattail_event_loop_delay"));
  assert.deepEqual(
    delays.map((line) => /quantile="([\d.]+)"\} \d/.exec(line)?.[1]),
    ["0.5", "0.99", "1"],
  );
  end();
  assert.equal(clock.pending(), 0);
});
