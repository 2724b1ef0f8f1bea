import assert from "node:assert/strict";
import { test } from "node:test";
import {
  agentMetrics,
  anyText,
  buckets,
  clusterMetrics,
  type MetricDefinition,
  ofPools,
  processMetrics,
  serverMetrics,
} from "./metrics.ts";

const tables: Readonly<Record<string, readonly MetricDefinition[]>> = {
  process: Object.values(processMetrics),
  agent: Object.values(agentMetrics),
  server: Object.values(serverMetrics),
  cluster: Object.values(clusterMetrics),
};
const all = Object.values(tables).flat();

test("no name is used twice, and a component's metrics carry its name", () => {
  assert.equal(new Set(all.map(({ name }) => name)).size, all.length);
  for (const component of ["agent", "server"]) {
    for (const { name } of tables[component] ?? []) assert.ok(name.startsWith(`cattail_${component}_`), name);
  }
});

test("counters, and nothing else, end in _total; durations, sizes and points in time carry their unit", () => {
  for (const { name, type } of all) {
    assert.match(name, /^[a-z][a-z0-9_]*$/);
    assert.equal(name.endsWith("_total"), type === "counter", name);
    if (/_(duration|age|delay|oldest|propagation|contact)(_|$)/.test(name)) assert.match(name, /_seconds$/);
    if (/last_contact|expiry/.test(name)) assert.match(name, /_timestamp_seconds$/);
  }
});

test("of the runtime there is exactly what is meant to be there", () => {
  const runtime = Object.values(processMetrics).map(({ name }) => name);
  assert.deepEqual(
    runtime.filter((name) => !name.startsWith("cattail_")),
    [
      "process_cpu_seconds_total",
      "process_resident_memory_bytes",
      "process_open_fds",
      "process_max_fds",
      "process_start_time_seconds",
      "nodejs_heap_size_used_bytes",
    ],
  );
});

test("buckets rise", () => {
  for (const [name, bounds] of Object.entries(buckets)) {
    assert.deepEqual(
      [...bounds].sort((a, b) => a - b),
      bounds,
      name,
    );
  }
});

test("help is a sentence without a full stop", () => {
  for (const { name, help } of all) assert.match(help, /^[A-Z0-9][^\n]{8,160}[^.]$/, name);
});

/** Most series a metric can make: the product of its labels' values, `other` included, times what a histogram needs. */
function mostSeries(definition: MetricDefinition): number {
  const labels = Object.values(definition.labels ?? {}).map((values) => {
    if (values === anyText || values === ofPools) return 1;
    return typeof values === "object" && "outside" in values ? values.outside.length + 1 : values.length;
  });
  // An ADD is answered by way of warm, wait or replay, a DEL by way of the journal.
  const combinations =
    definition === agentMetrics.cniRequestDuration ? 4 : labels.reduce((product, count) => product * count, 1);
  return definition.type === "histogram" ? combinations * (definition.buckets.length + 3) : combinations;
}

test("an agent keeps within 200 series, with room for 20 pairs of verb and reason at a time", () => {
  const bounded = [...(tables.process ?? []), ...(tables.agent ?? [])].filter(
    (definition) => definition !== agentMetrics.cniErrors,
  );
  const most = bounded.reduce((sum, definition) => sum + mostSeries(definition), 0);
  assert.ok(most + 20 <= 200, `${most}`);
});

test("a server keeps within 20 series for each pool, and names nodes, blocks and addresses nowhere", () => {
  const perPool = all.filter(({ labels }) => labels !== undefined && "pool" in labels);
  const most = perPool.reduce((sum, definition) => {
    // A pool has one family, and is enabled or not.
    const halved = Object.keys(definition.labels ?? {}).filter((label) => label === "family" || label === "enabled");
    return sum + mostSeries(definition) / 2 ** halved.length;
  }, 0);
  assert.ok(most <= 20, `${most}`);
  const labels = new Set(all.flatMap((definition) => Object.keys(definition.labels ?? {})));
  for (const label of ["node", "block", "address", "handle", "namespace", "uid"]) assert.ok(!labels.has(label), label);
});

test("a server keeps within 1,000 series beside its pools', with 200 pairs of request and outcome", () => {
  const bounded = [...(tables.process ?? []), ...(tables.server ?? []), ...(tables.cluster ?? [])].filter(
    (definition) => definition !== serverMetrics.apiRequests && !("pool" in (definition.labels ?? {})),
  );
  const most = bounded.reduce((sum, definition) => sum + mostSeries(definition), 0);
  assert.ok(most + 200 <= 1000, `${most}`);
});
