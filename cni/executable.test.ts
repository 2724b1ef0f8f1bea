// What the compiled executable does beyond the fifty cases: a hostile environment, a caller that dies, an agent that comes late.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import type { AgentRequest } from "../shared/protocol/socket.ts";
import {
  dropIn,
  type Execution,
  executable,
  execute,
  type FakeAgent,
  fakeAgent,
  type Ran,
} from "./fake-agent-shell.ts";

const environment = {
  CNI_CONTAINERID: "c0ffee01",
  CNI_NETNS: "/run/netns/t1",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
};

function configuration(agent: FakeAgent, own: object = {}, extra: object = {}): string {
  return JSON.stringify({ cniVersion: "1.0.0", name: "net1", ipam: { cattail: { ...agent.own, ...own } }, ...extra });
}

function run(agent: FakeAgent, command: string, more: Execution = {}, own: object = {}): Promise<Ran> {
  const env = { ...environment, CNI_COMMAND: command, ...more.env };
  return execute({ stdin: configuration(agent, own), ...more, env });
}

const errorOf = (ran: Ran): { code: number; msg: string; details?: string } => JSON.parse(ran.stdout);

test("nothing that lies in the working directory or in Bun's and Node's variables changes what it does", async () => {
  await using agent = await fakeAgent();
  const plain = await run(agent, "ADD");
  const { folder } = agent;
  writeFileSync(join(folder, ".env"), "CNI_COMMAND=DEL\nCNI_IFNAME=planted\nBUN_OPTIONS=--version\n");
  for (const name of [".env.local", ".env.production", ".env.development"])
    writeFileSync(join(folder, name), "CNI_COMMAND=DEL\n");
  const preload = join(folder, "preload.js");
  writeFileSync(preload, 'console.log("preloaded"); require("node:fs").writeFileSync(__dirname + "/touched", "");');
  writeFileSync(join(folder, "bunfig.toml"), 'preload = ["./preload.js"]\nlogLevel = "debug"\n');
  writeFileSync(join(folder, "package.json"), '{"name":"planted","main":"./preload.js","type":"commonjs"}');
  writeFileSync(join(folder, "tsconfig.json"), '{"compilerOptions":{"paths":{"*":["./preload.js"]}}}');
  const planted = {
    BUN_BE_BUN: "1",
    BUN_OPTIONS: `--preload ${preload}`,
    BUN_INSPECT: `unix://${join(folder, "inspect.sock")}`,
    BUN_INSPECT_CONNECT_TO: `unix://${agent.socketPath}`,
    BUN_INSPECT_PRELOAD: preload,
    BUN_INSPECT_NOTIFY: `unix://${agent.socketPath}`,
    BUN_JSC_dumpOptions: "1",
    BUN_BYTECODE_ORDER_OUT: join(folder, "touched"),
    BUN_BYTECODE_DIGEST_OUT: join(folder, "touched"),
    BUN_CONFIG_VERBOSE_FETCH: "1",
    BUN_GARBAGE_COLLECTOR_LEVEL: "2",
    BUN_TMPDIR: "/nonexistent",
    BUN_RUNTIME_TRANSPILER_CACHE_PATH: folder,
    NODE_OPTIONS: `--require ${preload}`,
    NODE_CHANNEL_FD: "0",
    NODE_DEBUG: "net,fs",
    NODE_ENV: "test",
    NODE_EXTRA_CA_CERTS: "/nonexistent",
    NODE_REPL_EXTERNAL_MODULE: preload,
    NODE_V8_COVERAGE: join(folder, "touched"),
    JSC_dumpOptions: "1",
  };
  const together = await run(agent, "ADD", { cwd: folder, env: planted });
  assert.deepEqual([together.status, together.stdout, together.stderr], [0, plain.stdout, ""]);
  for (const [name, value] of Object.entries(planted)) {
    const ran = await run(agent, "ADD", { cwd: folder, env: { [name]: value } });
    assert.deepEqual([ran.status, ran.stdout, ran.stderr], [0, plain.stdout, ""], name);
  }
  assert.ok(!existsSync(join(folder, "touched")) && !existsSync(join(folder, "inspect.sock")));
  assert.ok(agent.requests.every((request) => request.verb === "ADD" && request.ifname === "eth0"));
});

test("the flags of Calico's executable are understood", async () => {
  const version = await execute({ args: ["-v"] });
  assert.match(version.stdout, /^\d+\.\d+\.\d+\n$/);
  assert.equal(
    (await execute({ args: ["-upgrade"] })).status,
    existsSync("/var/lib/cni/networks/k8s-pod-network") ? 1 : 0,
  );
  const unknown = await execute({ args: ["-upgrad"] });
  assert.deepEqual([unknown.status, unknown.stdout], [2, ""]);
  assert.match(unknown.stderr, /Did you mean "-upgrade"\?/);
});

test("an agent that comes up while an ADD waits for it serves it", async () => {
  await using agent = await fakeAgent();
  await agent.stop();
  const adding = run(agent, "ADD");
  await agent.start();
  const ran = await adding;
  assert.deepEqual([ran.status, agent.requests.length], [0, 1], ran.stdout);
});

test("an agent that is restarted under a DEL is asked again; an ADD that had left is not", async () => {
  await using agent = await fakeAgent();
  const hangingUpOnce = (): void => {
    agent.answer = (_request, socket) => {
      agent.answer = () => ({ ok: true });
      socket.destroy();
      return undefined;
    };
  };
  hangingUpOnce();
  assert.equal((await run(agent, "DEL")).status, 0);
  hangingUpOnce();
  assert.equal(errorOf(await run(agent, "ADD")).code, 5);
  assert.deepEqual(
    agent.requests.map((request) => request.verb),
    ["DEL", "DEL", "ADD", "DEL"],
  );
  assert.deepEqual(agent.spooled(), []);
});

test("an agent that stays silent ends the ADD at its own limit, undone", async () => {
  await using agent = await fakeAgent((request) => (request.verb === "ADD" ? undefined : { ok: true }));
  const ran = await run(agent, "ADD", {}, { timeoutMs: 2_000 });
  assert.equal(errorOf(ran).code, 11);
  assert.ok(ran.tookMs < 3_000, `${ran.tookMs} ms`);
  assert.deepEqual(
    agent.requests.map((request) => request.verb === "DEL" && request.undoes === agent.requests[0]?.request),
    [false, true],
  );
});

test("an ADD that cannot be undone at the agent is undone through the spool", async () => {
  await using agent = await fakeAgent();
  agent.answer = (_request, socket) => {
    socket.destroy();
    void agent.stop();
    return undefined;
  };
  const ran = await run(agent, "ADD");
  assert.equal(errorOf(ran).code, 5);
  const [add] = agent.requests;
  assert.deepEqual(
    agent.spooled().map((del) => del.undoes),
    [add?.request],
  );
});

test("when the main plugin is killed, the orphan takes its ADD back", async () => {
  const asked = Promise.withResolvers<void>();
  const undone = Promise.withResolvers<AgentRequest>();
  await using agent = await fakeAgent((request) => {
    if (request.verb === "ADD") asked.resolve();
    else undone.resolve(request);
    return request.verb === "ADD" ? undefined : { ok: true };
  });
  const configurationPath = join(agent.folder, "netconf.json");
  writeFileSync(configurationPath, configuration(agent));
  const mainPlugin = spawn("/bin/sh", ["-c", '"$0" < "$1"; true', executable, configurationPath], {
    env: { ...environment, CNI_COMMAND: "ADD" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  await asked.promise;
  mainPlugin.kill("SIGKILL");
  const request = await undone.promise;
  assert.ok(request.verb === "DEL" && request.undoes === agent.requests[0]?.request);
});

test("a stranger's socket: ADD is 5, DEL is queued", async () => {
  await using agent = await fakeAgent((_request, socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
  assert.equal(errorOf(await run(agent, "ADD")).code, 6);
  assert.deepEqual([(await run(agent, "DEL")).status, agent.spooled().length], [0, 1]);
});

test("stdin larger than 16 MiB, or nested deeper than a parser can follow, is refused as undecodable", async () => {
  await using agent = await fakeAgent();
  const large = await run(agent, "ADD", { stdin: configuration(agent, {}, { x: "x".repeat(17 << 20) }) });
  assert.equal(errorOf(large).code, 6);
  assert.match(errorOf(large).msg, /16777216 bytes/);
  const deep = await run(agent, "ADD", { stdin: "[".repeat(4 << 20) });
  assert.equal(errorOf(deep).code, 6);
  assert.deepEqual(agent.requests, []);
});

test("a caller that never closes stdin is left at the limit", async () => {
  await using agent = await fakeAgent();
  const ran = await run(agent, "STATUS", { stdin: "open" });
  assert.equal(errorOf(ran).code, 50);
});

test("repeated DELs of one attachment leave one record, another attachment its own", async () => {
  await using agent = await fakeAgent();
  // Refusing for now is what an agent with a full disk does: no wait for a connection in this test.
  agent.answer = () => ({ ok: false, code: 11, msg: "disk full (reason DiskFull, request 00000000)" });
  for (const CNI_IFNAME of ["eth0", "net1", "eth0"])
    assert.match((await run(agent, "DEL", { env: { CNI_IFNAME } })).stderr, /is queued .*: disk full/);
  assert.deepEqual(
    agent.spooled().map((del) => del.ifname),
    ["net1", "eth0"],
  );
  assert.ok(readdirSync(agent.spoolPath).every((name) => name.endsWith(".json")));
});

test("no secret of the configuration is ever printed", async () => {
  await using agent = await fakeAgent();
  const secret = "s3cr3t-token";
  const inputs = [
    `{"policy":{"k8s_auth_token":"${secret}"},`,
    `{"name":"a b","policy":{"k8s_auth_token":"${secret}"}}`,
    `"${secret}"`,
  ];
  for (const stdin of inputs) {
    const ran = await run(agent, "ADD", { stdin });
    assert.ok(!`${ran.stdout}${ran.stderr}`.includes(secret));
  }
});

/** What Calico's own calico-ipam printed for these versions, byte for byte. */
const recorded = {
  "0.2.0": `{
    "cniVersion": "0.2.0",
    "ip4": {
        "ip": "10.10.0.81/29",
        "routes": [
            {
                "dst": "10.10.0.81/29"
            }
        ]
    },
    "dns": {}
}`,
  "0.4.0": `{
    "cniVersion": "0.4.0",
    "ips": [
        {
            "version": "4",
            "address": "10.10.0.81/29"
        }
    ],
    "routes": [
        {
            "dst": "10.10.0.81/29"
        }
    ],
    "dns": {}
}`,
  "1.0.0": `{
    "cniVersion": "1.0.0",
    "ips": [
        {
            "address": "10.10.0.81/29"
        }
    ],
    "routes": [
        {
            "dst": "10.10.0.81/29"
        }
    ]
}`,
};

test("under the name calico-ipam the bytes are Calico's", async () => {
  await using agent = await fakeAgent(() => ({
    ok: true,
    ips: [{ address: "10.10.0.81/29" }],
    routes: [{ dst: "10.10.0.81/29" }],
  }));
  const path = dropIn(agent);
  for (const [cniVersion, stdout] of Object.entries(recorded)) {
    const ran = await run(agent, "ADD", { path, stdin: configuration(agent, {}, { cniVersion }) });
    assert.deepEqual([ran.status, ran.stdout], [0, stdout]);
  }
});

test("with both families off, Calico's name gives Calico's empty result without asking, ours an error", async () => {
  await using agent = await fakeAgent();
  const stdin = configuration(agent, {}, { ipam: { assign_ipv4: "false" } });
  const calico = await run(agent, "ADD", { path: dropIn(agent), stdin });
  assert.deepEqual([calico.status, calico.stdout], [0, '{\n    "cniVersion": "1.0.0"\n}']);
  assert.equal(errorOf(await run(agent, "ADD", { stdin })).code, 7);
  assert.deepEqual(agent.requests, []);
});
