// Each alert fires when it should and is silent when it should not be, by promtool's own rule tests; each has its page.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { agentMetrics, clusterMetrics, processMetrics, serverMetrics } from "../../shared/metrics.ts";
import { temporaryFolder } from "../cluster/daemon.ts";
import { promtool } from "./tools.ts";

const root = resolve(import.meta.dirname, "../..");
const file = join(root, "charts/cattail/files/rules.yaml");
const { groups } = parse(readFileSync(file, "utf8")) as {
  groups: { rules: { alert?: string; record?: string; expr: string; labels?: Record<string, string> }[] }[];
};
const rules = groups.flatMap((group) => group.rules);
const day = 86_400;

/** Series by selector, and their values minute by minute; `at`: when the alert is looked for. */
interface Case {
  readonly severity: string;
  readonly at: string;
  readonly fires: Readonly<Record<string, string>>;
  readonly quiet: Readonly<Record<string, string>>;
}
type Cases = Readonly<Record<string, readonly Case[]>>;

const add = (result: string, extra = "") => `cattail_agent_cni_requests_total{verb="ADD",result="${result}"${extra}}`;
const took = (le: string) => `cattail_agent_cni_request_duration_seconds_bucket{verb="ADD",path="wait",le="${le}"}`;
const byPath = (path: string) => `cattail_agent_cni_request_duration_seconds_count{verb="ADD",path="${path}"}`;
const wrote = (le: string) => `cattail_agent_journal_write_duration_seconds_bucket{instance="n-1",le="${le}"}`;
const free = (pool: string) => `cattail_pool_addresses{pool="${pool}",family="ipv4",state="free"}`;
const owned = (pool: string) => `cattail_pool_addresses{pool="${pool}",family="ipv4",state="owned"}`;
const unclaimed = 'cattail_pool_blocks{pool="blue",state="unclaimed"}';
const synced = (instance: string) => `cattail_server_upstream_synced{instance="${instance}",resource="block"}`;
const nodes = (instance: string, state: string) => `cattail_nodes{instance="${instance}",state="${state}"}`;
const age = 'cattail_server_upstream_age_seconds{instance="s-1",resource="block"}';
const expiry = 'cattail_tls_certificate_expiry_timestamp_seconds{use="server"}';
const stranded = 'cattail_pool_stranded_addresses{pool="blue"}';

const cases: Cases = {
  CattailServerDown: [
    {
      severity: "critical",
      at: "5m",
      fires: { [synced("s-1")]: "0x10" },
      quiet: { [synced("s-1")]: "0x10", [synced("s-2")]: "1x10" },
    },
  ],
  CattailServerDegraded: [
    {
      severity: "warning",
      at: "40m",
      fires: { [synced("s-1")]: "1x60", [synced("s-2")]: "1x10 0x50" },
      quiet: { [synced("s-1")]: "1x60", [synced("s-2")]: "1x60" },
    },
  ],
  CattailUpstreamStale: [
    { severity: "warning", at: "5m", fires: { [age]: "90x30" }, quiet: { [age]: "0 90 0 90 0 30x30" } },
    { severity: "critical", at: "20m", fires: { [age]: "90x30" }, quiet: { [age]: "90x10 0x20" } },
  ],
  CattailUpstreamForbidden: [
    {
      severity: "critical",
      at: "6m",
      fires: { 'cattail_server_upstream_restarts_total{resource="block",reason="forbidden"}': "0 0 1x10" },
      quiet: {
        'cattail_server_upstream_restarts_total{resource="block",reason="closed"}': "0+1x10",
        'cattail_server_upstream_restarts_total{resource="block",reason="forbidden"}': "0x10",
      },
    },
  ],
  CattailAgentsDisconnected: [
    {
      severity: "warning",
      at: "15m",
      fires: {
        [nodes("s-1", "connected")]: "45x30",
        [nodes("s-1", "offline")]: "55x30",
        [nodes("s-2", "connected")]: "45x30",
        [nodes("s-2", "offline")]: "55x30",
      },
      // Each sees the other's nodes as offline: together all are connected.
      quiet: {
        [nodes("s-1", "connected")]: "50x30",
        [nodes("s-1", "offline")]: "50x30",
        [nodes("s-2", "connected")]: "50x30",
        [nodes("s-2", "offline")]: "50x30",
      },
    },
    {
      severity: "critical",
      at: "15m",
      fires: { [nodes("s-1", "connected")]: "60x30", [nodes("s-1", "offline")]: "40x30" },
      quiet: { [nodes("s-1", "connected")]: "80x30", [nodes("s-1", "offline")]: "20x30" },
    },
  ],
  CattailLeaseRunningOut: [
    {
      severity: "critical",
      at: "3m",
      fires: { cattail_agent_lease_remaining_seconds: "800x5" },
      quiet: { cattail_agent_lease_remaining_seconds: "2700x5" },
    },
  ],
  CattailAddFailing: [
    {
      severity: "critical",
      at: "15m",
      fires: { [add("ok")]: "0+60x20", [add("retry")]: "0+10x20" },
      quiet: { [add("ok")]: "0+6000x20", [add("error")]: "0+10x20" },
    },
  ],
  CattailAddSlow: [
    {
      severity: "warning",
      at: "20m",
      fires: { [took("1")]: "0+50x30", [took("5")]: "0+60x30", [took("+Inf")]: "0+60x30" },
      quiet: { [took("1")]: "0+60x30", [took("5")]: "0+60x30", [took("+Inf")]: "0+60x30" },
    },
  ],
  CattailWarmMisses: [
    {
      severity: "info",
      at: "30m",
      fires: { [byPath("warm")]: "0+40x40", [byPath("wait")]: "0+20x40", [add("ok")]: "0+60x40" },
      quiet: { [byPath("warm")]: "0+1x40", [byPath("wait")]: "0+2x40", [add("ok")]: "0+3x40" },
    },
  ],
  CattailIntentsStuck: [
    {
      severity: "warning",
      at: "10m",
      fires: { cattail_agent_intent_oldest_seconds: "400x20", cattail_agent_server_connected: "1x20" },
      quiet: { cattail_agent_intent_oldest_seconds: "400x20", cattail_agent_server_connected: "0x20" },
    },
  ],
  CattailConflict: [
    {
      severity: "warning",
      at: "6m",
      fires: { 'cattail_agent_conflicts_total{kind="taken"}': "0 0 1x10" },
      quiet: { 'cattail_agent_conflicts_total{kind="taken"}': "3x12" },
    },
  ],
  CattailDiskSlow: [
    {
      severity: "warning",
      at: "25m",
      fires: { [wrote("0.1")]: "0+50x40", [wrote("0.5")]: "0+60x40", [wrote("+Inf")]: "0+60x40" },
      quiet: { [wrote("0.1")]: "0+60x40", [wrote("+Inf")]: "0+60x40" },
    },
  ],
  CattailPoolFilling: [
    {
      severity: "warning",
      at: "6h",
      fires: { [free("blue")]: "140-0.2x400", [owned("blue")]: "860+0.2x400" },
      quiet: { [free("blue")]: "100x400", [owned("blue")]: "900x400" },
    },
  ],
  CattailPoolExhausted: [
    {
      severity: "critical",
      at: "5m",
      fires: { [free("blue")]: "0x10", [owned("blue")]: "64x10", [unclaimed]: "0x10" },
      quiet: { [free("blue")]: "1x10", [owned("blue")]: "63x10", [unclaimed]: "0x10" },
    },
  ],
  CattailAddressesStranded: [
    {
      severity: "info",
      at: "90m",
      fires: { [free("blue")]: "20x100", [owned("blue")]: "80x100", [stranded]: "15x100" },
      quiet: { [free("blue")]: "20x100", [owned("blue")]: "80x100", [stranded]: "5x100" },
    },
  ],
  CattailLeaksFound: [
    {
      severity: "warning",
      at: "40m",
      fires: { 'cattail_pool_leak_suspects{pool="blue"}': "3x60" },
      quiet: { 'cattail_pool_leak_suspects{pool="blue"}': "3x20 0x40" },
    },
  ],
  CattailCertificateExpiring: [
    { severity: "warning", at: "15m", fires: { [expiry]: `${10 * day}x20` }, quiet: { [expiry]: `${20 * day}x20` } },
    { severity: "critical", at: "15m", fires: { [expiry]: `${day}x20` }, quiet: { [expiry]: `${10 * day}x20` } },
  ],
  CattailConfigNotApplied: [
    {
      severity: "warning",
      at: "20m",
      fires: { cattail_config_drift: "0x20", cattail_config_reload_success: "0x20" },
      quiet: { cattail_config_drift: "0x20", cattail_config_reload_success: "1x20" },
    },
  ],
};

function alertsOf(severityAndName: (rule: (typeof rules)[number]) => string): string[] {
  return rules
    .filter(({ alert }) => alert !== undefined)
    .map(severityAndName)
    .sort();
}

test("every alert has its cases, and every alert its page, and no page is left over", () => {
  const tried = Object.entries(cases).flatMap(([name, list]) => list.map(({ severity }) => `${name} ${severity}`));
  assert.deepEqual(
    alertsOf(({ alert, labels }) => `${alert} ${labels?.severity}`),
    tried.sort(),
  );
  const pages = readdirSync(join(root, "docs/runbooks")).filter((name) => name.startsWith("Cattail"));
  assert.deepEqual(pages, [...new Set(alertsOf(({ alert }) => `${alert}.md`))]);
});

test("rules and runbooks name only metrics that there are", () => {
  const definitions = Object.values({ ...processMetrics, ...agentMetrics, ...serverMetrics, ...clusterMetrics });
  const known = new Set(
    definitions.flatMap(({ name, type }) => [
      name,
      ...(type === "histogram" ? ["bucket", "count", "sum"].map((end) => `${name}_${end}`) : []),
    ]),
  );
  const runbooks = readdirSync(join(root, "docs/runbooks")).map((name) =>
    readFileSync(join(root, "docs/runbooks", name), "utf8"),
  );
  for (const text of [readFileSync(file, "utf8"), ...runbooks]) {
    for (const [name] of text.matchAll(/\bcattail_[a-z_]+/g)) assert.ok(known.has(name), name);
  }
});

test("each rule fires in its case, and is silent in the other", async () => {
  const folder = await temporaryFolder("rules");
  const one = (name: string, { severity, at }: Case, series: Readonly<Record<string, string>>, isFiring: boolean) => ({
    interval: "1m",
    input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
    promql_expr_test: [
      {
        expr: `count(ALERTS{alertname="${name}",severity="${severity}",alertstate="firing"}) > bool 0`,
        eval_time: at,
        exp_samples: isFiring ? [{ labels: "{}", value: 1 }] : [],
      },
    ],
  });
  const tests = Object.entries(cases).flatMap(([name, list]) =>
    list.flatMap((each) => [one(name, each, each.fires, true), one(name, each, each.quiet, false)]),
  );
  await mkdir(folder, { recursive: true });
  const path = join(folder, "tests.json");
  await writeFile(path, JSON.stringify({ rule_files: [file], evaluation_interval: "1m", tests }));
  const { code, output } = await promtool(["test", "rules", path]);
  assert.equal(code, 0, output);
});
