// What server and agents really write, as Prometheus' own tools see it.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { agentMetrics, clusterMetrics, processMetrics, serverMetrics } from "../../shared/metrics.ts";
import { type Live, startLive } from "./live.ts";
import { promtool } from "./tools.ts";

/** Without one there is no series: what has not happened, and what is measured over 10 s. */
const mayBeAbsent = new Set(["cattail_tls_certificate_expiry_timestamp_seconds", "cattail_event_loop_delay_seconds"]);

describe("metrics of a running cluster", { timeout: 120_000 }, () => {
  let live: Live;
  before(async () => {
    live = await startLive();
    await live.churn(8);
  });
  after(() => live?.stop());

  async function scrape(url: string, accept: string): Promise<string> {
    return (await fetch(`${url}/metrics`, { headers: { accept } })).text();
  }

  const processes = () => [
    { url: live.cluster.server.url, definitions: { ...processMetrics, ...serverMetrics, ...clusterMetrics } },
    ...[...live.cluster.agents.values()].map(({ url }) => ({
      url,
      definitions: { ...processMetrics, ...agentMetrics },
    })),
  ];

  test("promtool has nothing to say about them", async () => {
    for (const { url } of processes()) {
      const { code, output } = await promtool(["check", "metrics"], await scrape(url, "text/plain"));
      assert.deepEqual([code, output], [0, ""]);
    }
  });

  test("each metric of the catalogue is there, and no other", async () => {
    for (const { url, definitions } of processes()) {
      const text = await scrape(url, "text/plain");
      const written = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name = ""]) => name));
      assert.deepEqual(written, new Set(Object.values(definitions).map(({ name }) => name)));
      for (const { name, type } of Object.values(definitions)) {
        const series = type === "histogram" ? `${name}_count` : name;
        if (type !== "counter" && !mayBeAbsent.has(name)) assert.match(text, new RegExp(`^${series}[ {]`, "m"));
      }
    }
  });

  test("the series of a process keep within its budget, whatever has happened to it", async () => {
    for (const { url, definitions } of processes()) {
      const lines = (await scrape(url, "text/plain"))
        .split("\n")
        .filter((line) => line !== "" && !line.startsWith("#"));
      const ofPools = lines.filter((line) => line.includes('pool="')).length;
      const most = "nodes" in definitions ? 1000 : 200;
      assert.ok(lines.length - ofPools <= most, `${lines.length}`);
      assert.ok(ofPools <= 2 * 20, `${ofPools}`);
    }
  });

  test("each pool's addresses sum to its size", async () => {
    const text = await scrape(live.cluster.server.url, "text/plain");
    const sumOf = (pool: string): number =>
      [...text.matchAll(new RegExp(`^cattail_pool_addresses\\{pool="${pool}".*\\} (\\S+)$`, "gm"))].reduce(
        (sum, [, value]) => sum + Number(value),
        0,
      );
    assert.equal(sumOf("blue-ipv4"), 1024);
    assert.equal(sumOf("blue-ipv6"), 65_536);
  });
});
