import assert from "node:assert/strict";
import { test } from "node:test";
import { type Executable, fileVersion } from "./catalogue.ts";
import { type Inputs, type Loaded, loadConfig } from "./load.ts";

const noFile = (path: string): string => {
  throw new Error(`ENOENT: no such file or directory, open '${path}'`);
};

function inputs(overrides: Partial<Inputs> = {}): Inputs {
  return { argv: [], env: {}, readFile: noFile, ...overrides };
}

/** The lines of a configuration file after its first. */
function fileWith(...lines: string[]): (path: string) => string {
  return () => [`apiVersion: ${fileVersion}`, ...lines, ""].join("\n");
}

function accepted<E extends Executable>(loaded: Loaded<E>): Extract<Loaded<E>, { kind: "loaded" }> {
  assert.ok(loaded.kind === "loaded", loaded.kind === "refused" ? loaded.errors.join("\n") : "");
  return loaded as Extract<Loaded<E>, { kind: "loaded" }>;
}

function errorsOf(loaded: Loaded<Executable>): readonly string[] {
  assert.equal(loaded.kind, "refused");
  return loaded.kind === "refused" ? loaded.errors : [];
}

test("without anything set, the server has its defaults, in units that their names tell", () => {
  const { config, warnings } = accepted(loadConfig("server", inputs()));
  assert.equal(config.ports.stream, 4480);
  assert.equal(config.upstream.staleAfterMs, 15_000);
  assert.equal(config.commit.maxInFlight, 0);
  assert.equal(config.kubeconfig, undefined);
  assert.deepEqual(warnings, []);
});

test("flag wins over environment, environment over file, file over default", () => {
  const all = inputs({
    argv: ["--config=server.yaml", "--ports-http=1"],
    env: { CATTAIL_PORTS_HTTP: "2", CATTAIL_PORTS_ADMIN: "3" },
    readFile: fileWith("ports:", "  http: 4", "  admin: 5", "  stream: 6"),
  });
  const { config, provenance } = accepted(loadConfig("server", all));
  assert.deepEqual(config.ports, { http: 1, admin: 3, stream: 6 });
  const source = (key: string): unknown => provenance.find((row) => row.key === key)?.source;
  assert.deepEqual(source("ports.http"), { kind: "flag", name: "--ports-http" });
  assert.deepEqual(source("ports.admin"), { kind: "environment", name: "CATTAIL_PORTS_ADMIN" });
  assert.deepEqual(source("ports.stream"), { kind: "file", path: "server.yaml", line: 5 });
  assert.deepEqual(source("log.level"), { kind: "default" });
});

test("the file may be named by the environment, and its flag wins", () => {
  const readFile = (path: string): string => `apiVersion: ${fileVersion}\nkubeconfig: ${path}\n`;
  const env = { CATTAIL_CONFIG: "from-env" };
  assert.equal(accepted(loadConfig("server", inputs({ env, readFile }))).config.kubeconfig, "from-env");
  const both = inputs({ env, readFile, argv: ["--config", "from-flag"] });
  assert.equal(accepted(loadConfig("server", both)).config.kubeconfig, "from-flag");
});

test("an unknown key of the file is refused with its line and the nearest key", () => {
  const readFile = fileWith("upstream:", "  staleAfter: 20s", "upstraem:", "  staleAfter: 20s", "kubeconfg: x");
  assert.deepEqual(errorsOf(loadConfig("server", inputs({ argv: ["--config=/etc/s.yaml"], readFile }))), [
    'config /etc/s.yaml line 4: unknown key "upstraem" (reason BadConfig). Did you mean "upstream"?',
    'config /etc/s.yaml line 6: unknown key "kubeconfg" (reason BadConfig). Did you mean "kubeconfig"?',
  ]);
});

test("a key of another executable is refused with the name of its owner", () => {
  const readFile = fileWith("stateDir: /var/lib/cattail");
  assert.deepEqual(errorsOf(loadConfig("server", inputs({ argv: ["--config=s.yaml"], readFile }))), [
    'config s.yaml line 2: unknown key "stateDir" (reason BadConfig). It is a key of cattail-agent',
  ]);
});

test("an unknown flag is refused with the nearest flag; an unknown variable is a warning", () => {
  assert.deepEqual(errorsOf(loadConfig("server", inputs({ argv: ["--upstream-stale-aftr=3s"] }))), [
    'config flag --upstream-stale-aftr: unknown flag (reason BadConfig). Did you mean "--upstream-stale-after"?',
  ]);
  const { warnings } = accepted(loadConfig("server", inputs({ env: { CATTAIL_LOG_LEVL: "debug", OTHER: "1" } })));
  assert.deepEqual(warnings, ['config variable CATTAIL_LOG_LEVL: unknown, ignored. Did you mean "CATTAIL_LOG_LEVEL"?']);
});

test("what the kubelet adds for a Service named cattail-server warns nobody", () => {
  const env = {
    CATTAIL_SERVER_SERVICE_HOST: "10.96.0.7",
    CATTAIL_SERVER_SERVICE_PORT: "4480",
    CATTAIL_SERVER_SERVICE_PORT_STREAM: "4480",
    CATTAIL_SERVER_PORT: "tcp://10.96.0.7:4480",
    CATTAIL_SERVER_PORT_4480_TCP: "tcp://10.96.0.7:4480",
    CATTAIL_SERVER_PORT_4480_TCP_ADDR: "10.96.0.7",
    CATTAIL_REVISION: "2f1c",
  };
  assert.deepEqual(accepted(loadConfig("server", inputs({ env }))).warnings, []);
});

test("a wrong value names source, value, key and what is allowed, also where another source hides it", () => {
  const all = inputs({
    argv: ["--config=s.yaml", "--log-level=loud", "--ports-stream=0"],
    env: { CATTAIL_UPSTREAM_STALE_AFTER: "15" },
    readFile: fileWith("log: {level: 7}", "commit:", "  maxInFlight: -1"),
  });
  assert.deepEqual(errorsOf(loadConfig("server", all)), [
    'config flag --ports-stream: "0" is not allowed for "ports.stream" (reason BadConfig). Write a port number',
    'config variable CATTAIL_UPSTREAM_STALE_AFTER: "15" is not allowed for "upstream.staleAfter" (reason BadConfig).' +
      " Write a duration such as 45m or 1h30m, from 1s to 1h",
    'config s.yaml line 4: "-1" is not allowed for "commit.maxInFlight" (reason BadConfig). Write a whole number, from 0 to 10000',
    'config flag --log-level: "loud" is not allowed for "log.level" (reason BadConfig). Write error, warn, info, debug or trace',
    'config s.yaml line 2: "7" is not allowed for "log.level" (reason BadConfig). Write error, warn, info, debug or trace',
  ]);
});

test("what must be set and is not, and what needs another key, is said in all three spellings", () => {
  assert.deepEqual(errorsOf(loadConfig("agent", inputs({ argv: ["--server=wss://10.0.0.1:4480"] }))), [
    'config option: "nodeName" is not set (reason BadConfig). Set --node-name, CATTAIL_NODE_NAME or "nodeName" in the file of --config',
  ]);
  assert.deepEqual(errorsOf(loadConfig("server", inputs({ env: { CATTAIL_TLS_CERT_FILE: "/tls/tls.crt" } }))), [
    'config variable CATTAIL_TLS_CERT_FILE: "tls.certFile" needs "tls.keyFile", which is not set (reason BadConfig).' +
      ' Set --tls-key-file, CATTAIL_TLS_KEY_FILE or "tls.keyFile" in the file of --config',
  ]);
});

test("one number that must not be smaller than another is refused where a person has set one of them", () => {
  const agent = ["--node-name=n-1", "--server=wss://10.0.0.1:4480"];
  const load = (...flags: string[]): Loaded<"agent"> => loadConfig("agent", inputs({ argv: [...agent, ...flags] }));
  assert.deepEqual(errorsOf(load("--warm-floor=65")), [
    'config flag --warm-floor: "warm.ceiling" is 64 and "warm.floor" is 65, which is more (reason BadConfig).' +
      ' Raise "warm.ceiling" or lower "warm.floor"',
  ]);
  assert.deepEqual(errorsOf(load("--warm-floor=9", "--warm-ceiling=8")), [
    'config flag --warm-ceiling: "warm.ceiling" is 8 and "warm.floor" is 9, which is more (reason BadConfig).' +
      ' Raise "warm.ceiling" or lower "warm.floor"',
  ]);
  assert.equal(accepted(load("--warm-floor=8", "--warm-ceiling=8")).config.warm.ceiling, 8);
});

test("a list is a YAML list, or text with commas, or a flag given more than once", () => {
  const servers = ["wss://10.0.0.1:4480", "wss://[fd00::1]:4480"];
  const node = "--node-name=n-1";
  const load = (some: Partial<Inputs>): readonly string[] => accepted(loadConfig("agent", inputs(some))).config.server;
  assert.deepEqual(load({ argv: [node, "--server", servers.join(", ")] }), servers);
  assert.deepEqual(load({ argv: [node, ...servers.map((url) => `--server=${url}`)] }), servers);
  assert.deepEqual(load({ argv: [node], env: { CATTAIL_SERVER: servers.join(",") } }), servers);
  const readFile = fileWith("server:", ...servers.map((url) => `  - ${url}`));
  assert.deepEqual(load({ argv: [node, "--config=a.yaml"], readFile }), servers);
});

test("a URL with a password in it, or of another scheme, is refused", () => {
  for (const url of ["wss://me:secret@10.0.0.1", "https://10.0.0.1", "10.0.0.1:4480", "wss://10.0.0.1:70000", ""]) {
    assert.equal(errorsOf(loadConfig("agent", inputs({ argv: ["--node-name=n", `--server=${url}`] }))).length, 1, url);
  }
});

test("a file that cannot be read, is no YAML, no map, of another version or says a thing twice is refused", () => {
  const errors = (readFile: (path: string) => string): readonly string[] =>
    errorsOf(loadConfig("server", inputs({ argv: ["--config=s.yaml"], readFile })));
  assert.match(
    errors(noFile).join(),
    /^config s\.yaml: the file cannot be read: ENOENT.* \(reason BadConfig\)\. Check --config$/,
  );
  assert.match(errors(fileWith("log: {level: info")).join(), /^config s\.yaml line 3: not valid YAML: /);
  assert.match(errors(fileWith("log:", "\tlevel: info")).join(), /line 3: not valid YAML/);
  assert.match(errors(() => "- a\n- b\n").join("\n"), /line 1: the file is a group of keys/);
  assert.match(
    errors(() => "").join(),
    /^config s\.yaml: "apiVersion" is not set \(reason BadConfig\)\. Write "apiVersion: cattail\.io\/v1"$/,
  );
  assert.match(errors(() => "apiVersion: v2\n").join(), /line 1: apiVersion "v2" is not known/);
  assert.match(errors(fileWith("log: loud")).join(), /line 2: "log" is a group of keys/);
  assert.match(errors(fileWith("log:", "  level: {a: b}")).join(), /line 3: "log.level" takes a value/);
  assert.match(
    errors(fileWith("log: {level: info}", "log.level: warn")).join(),
    /line 3: "log.level" is set for the second time/,
  );
  assert.match(
    errors(fileWith("log: {level: info}", "log: {level: warn}")).join(),
    /line 3: not valid YAML: Map keys must be unique/,
  );
  assert.match(errors(() => " ".repeat(2 ** 20 + 1)).join(), /more than 1048576 characters/);
});

test("a key without a value, and an empty variable, are not set; an alias is what it stands for", () => {
  const readFile = fileWith("kubeconfig:", "log:", "ports: {http: &p 81, admin: *p}");
  const { config } = accepted(
    loadConfig("server", inputs({ argv: ["--config=s.yaml"], readFile, env: { CATTAIL_LOG_LEVEL: "" } })),
  );
  assert.equal(config.kubeconfig, undefined);
  assert.equal(config.log.level, "info");
  assert.deepEqual(config.ports, { stream: 4480, http: 81, admin: 81 });
});

test("--v is the level in the words of Kubernetes", () => {
  const level = (argv: string[]): string => accepted(loadConfig("server", inputs({ argv }))).config.log.level;
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5, 9].map((n) => level([`--v=${n}`])),
    ["warn", "warn", "info", "info", "debug", "trace", "trace"],
  );
  assert.equal(level(["--v", "4", "--log-level=error"]), "error");
  assert.match(
    errorsOf(loadConfig("server", inputs({ argv: ["--v=much"] }))).join(),
    /flag --v: it takes a whole number/,
  );
});

test("help, version, words and the form of output are known even when the rest is refused", () => {
  const { invocation, kind } = loadConfig(
    "agent",
    inputs({ argv: ["config", "-o", "json", "--no-headers", "-h", "--", "--rest"] }),
  );
  assert.equal(kind, "refused");
  assert.deepEqual(invocation, {
    words: ["config", "--rest"],
    help: true,
    version: false,
    command: { output: "json", noHeaders: true },
    flags: {},
    file: undefined,
    errors: [],
  });
});

test("the command line tool takes its output from flag, variable or file", () => {
  const output = (some: Partial<Inputs>): string => loadConfig("cli", inputs(some)).invocation.command.output;
  assert.equal(output({ argv: ["-ojson"] }), "json");
  assert.equal(output({ argv: ["-o=yaml"], env: { CATTAIL_OUTPUT: "name" } }), "yaml");
  assert.equal(output({ env: { CATTAIL_OUTPUT: "name" } }), "name");
  assert.match(errorsOf(loadConfig("cli", inputs({ argv: ["-o"] }))).join(), /flag -o: its value is missing/);
});
