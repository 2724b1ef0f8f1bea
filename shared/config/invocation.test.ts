import assert from "node:assert/strict";
import { test } from "node:test";
import { type Wish, wishOf } from "./invocation.ts";
import { loadConfig } from "./load.ts";

const version = { component: "cattail-agent", version: "1.2.3", revision: "2f1c", runtime: "node 26.0.0" };

function wish(...argv: string[]): Wish<"agent"> {
  return wishOf("agent", loadConfig("agent", { argv, env: {}, readFile: () => "" }), version);
}

function said(...argv: string[]): string {
  const answer = wish(...argv);
  assert.equal(answer.kind, "say");
  return answer.kind === "say" ? answer.text : "";
}

function refused(...argv: string[]): readonly string[] {
  const answer = wish(...argv);
  assert.equal(answer.kind, "refuse");
  return answer.kind === "refuse" ? answer.errors : [];
}

const needed = ["--node-name=n-1", "--server=wss://10.0.0.1:4480"];

test("help lists every option with its flag, key, default and limits, also when the configuration is refused", () => {
  const help = said("--help", "--nonsense");
  assert.match(help, /^cattail-agent: gives this node's pods their addresses\n/);
  assert.match(help, / {2}--server URL,\.\.\. {3}\(key server, must be set\)\n {6}URLs of the servers' stream/);
  assert.match(help, /--state-dir PATH {3}\(key stateDir, default \/var\/lib\/cattail\)/);
  assert.match(help, /--log-level error\|warn\|info\|debug\|trace {3}\(key log\.level, default info, reloadable\)/);
  assert.match(help, /\n {2}config {4}Shows every option/);
});

test("the version is said in a line, as a table and as JSON", () => {
  assert.equal(said("--version"), "cattail-agent 1.2.3\n");
  assert.equal(said("version", "--no-headers"), "cattail-agent   1.2.3   2f1c   node 26.0.0\n");
  assert.deepEqual(JSON.parse(said("version", "-o", "json")), {
    apiVersion: "cattail.io/v1",
    kind: "Version",
    items: [version],
  });
  assert.equal(said("version", "-o", "name"), "cattail-agent/1.2.3\n");
});

test("config shows value, source, default and whether it is reloadable", () => {
  const rows = said("config", ...needed, "--v=4").split("\n");
  assert.match(rows[0] ?? "", /^KEY {2,}VALUE {2,}SOURCE {2,}DEFAULT {2,}RELOADABLE$/);
  assert.ok(rows.some((row) => /^nodeName +n-1 +flag --node-name +- +no$/.test(row)));
  assert.ok(rows.some((row) => /^log\.level +debug +flag --v=4 +info +yes$/.test(row)));
  assert.ok(rows.some((row) => /^tokenFile +- +default +- +no$/.test(row)));
  const { kind, items } = JSON.parse(said("config", "-o", "json", ...needed));
  assert.equal(kind, "Config");
  assert.deepEqual(items[0], { key: "nodeName", value: "n-1", source: "flag --node-name", reloadable: false });
});

test("config of a wrong configuration is what is wrong with it", () => {
  assert.equal(refused("config").length, 2);
});

test("an unknown command is refused with the nearest one, an argument too many by its name", () => {
  assert.deepEqual(refused("confg"), [
    'cattail-agent: unknown command "confg" (reason BadRequest). Did you mean "config"?',
  ]);
  assert.deepEqual(refused("xyz"), [
    'cattail-agent: unknown command "xyz" (reason BadRequest). See cattail-agent --help',
  ]);
  assert.deepEqual(refused("config", "all", ...needed), [
    'cattail-agent: "config" takes no argument "all" (reason BadRequest). See cattail-agent --help',
  ]);
});

test("a misspelt flag is named, not its value, wherever it stands", () => {
  for (const argv of [
    ["--nodename", "x"],
    ["--nodename=x"],
    ["--nodename", "x", ...needed],
    [...needed, "--nodename", "x"],
    ["version", "--nodename", "x"],
    ["config", "--nodename", "x", ...needed],
  ]) {
    const errors = refused(...argv);
    assert.ok(
      errors.some((error) => error.includes("--nodename") && error.includes("--node-name")),
      errors.join(),
    );
    assert.ok(!errors.some((error) => error.includes("unknown command")), errors.join());
  }
});

test("without a command it is to run, with its configuration", () => {
  const answer = wish(...needed);
  assert.ok(answer.kind === "run");
  assert.deepEqual(answer.loaded.config.server, ["wss://10.0.0.1:4480"]);
  assert.equal(answer.loaded.config.handles, "lazy");
});
