// The fifty cases of spec/cni.md section 6 against the compiled executable, each named by its number. The agent is scripted:
// "agent:" in a name marks what the agent's state decides and the executable only carries.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import test, { suite } from "node:test";
import type { AgentRequest, DelRequest } from "../shared/protocol/socket.ts";
import { dropIn, execute, type FakeAgent, fakeAgent, grant, obliging, type Ran } from "./fake-agent-shell.ts";

const environment = {
  CNI_CONTAINERID: "c0ffee01",
  CNI_NETNS: "/run/netns/t1",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
  CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=p1;K8S_POD_INFRA_CONTAINER_ID=c0ffee01;K8S_POD_UID=u1",
};
const versions = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

type Extra = { readonly [key: string]: unknown };

function configuration(agent: FakeAgent, cniVersion: string | undefined, extra: Extra = {}, ipam: Extra = {}): string {
  const version = cniVersion === undefined ? {} : { cniVersion };
  const own = { type: "cattail-ipam", cattail: agent.own, ...ipam };
  return JSON.stringify({ ...version, name: "net1", type: "calico", ipam: own, ...extra });
}

function add(agent: FakeAgent, cniVersion: string | undefined, extra: Extra = {}, env: Extra = {}): Promise<Ran> {
  return verb("ADD", configuration(agent, cniVersion, extra), env);
}

function verb(command: string, stdin: string, env: Extra = {}): Promise<Ran> {
  return execute({ env: withoutUndefined({ ...environment, CNI_COMMAND: command, ...env }), stdin });
}

/** Only CNI_PATH, as GC and STATUS are called. */
function nodeVerb(command: string, stdin: string): Promise<Ran> {
  return execute({ env: { CNI_COMMAND: command, CNI_PATH: "/opt/cni/bin" }, stdin });
}

function withoutUndefined(env: Extra): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(env).flatMap(([key, value]) => (typeof value === "string" ? [[key, value]] : [])),
  );
}

function assertError(ran: Ran, code: number): { msg: string; details: string } {
  assert.equal(ran.status, 1, ran.stdout + ran.stderr);
  const error = JSON.parse(ran.stdout);
  assert.equal(error.code, code, ran.stdout);
  assert.ok(typeof error.msg === "string" && error.msg !== "" && error.msg.length <= 400, ran.stdout);
  assert.ok(versions.includes(error.cniVersion));
  assert.match(error.msg, /\(reason [A-Z][A-Za-z]+, request [0-9a-f]{8}\)/);
  assert.doesNotMatch(ran.stdout, /not found|no such file/i);
  return { msg: error.msg, details: error.details ?? "" };
}

function assertNone(ran: Ran): void {
  assert.deepEqual([ran.status, ran.stdout], [0, ""], ran.stderr);
}

function assertResult(ran: Ran): { [key: string]: unknown } {
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
  return JSON.parse(ran.stdout);
}

/** Exactly one DEL that takes back exactly that ADD. */
function assertUndone(agent: FakeAgent): void {
  const [first, second, ...rest] = agent.requests;
  assert.equal(first?.verb, "ADD");
  assert.ok(second?.verb === "DEL" && second.undoes === first.request && second.containerId === first.containerId);
  assert.deepEqual(rest, []);
}

const attachment = ({ network, containerId, ifname }: DelRequest): string => `${network}/${containerId}/${ifname}`;
const theAttachment = "net1/c0ffee01/eth0";

test("case 1: without CNI_COMMAND it explains itself on stderr", async () => {
  const ran = await execute({});
  assertNone(ran);
  for (const version of versions) assert.ok(ran.stderr.includes(version));
});

test("case 2: VERSION is answered without stdin being closed", async () => {
  const ran = await execute({ env: { CNI_COMMAND: "VERSION" }, stdin: "open" });
  assert.deepEqual(assertResult(ran), { cniVersion: "1.1.0", supportedVersions: versions });
});

test("case 3: VERSION does not look at stdin", async () => {
  const ran = await execute({ env: { CNI_COMMAND: "VERSION" }, stdin: '{"cniVersion":"0.4.0"}' });
  assert.deepEqual(assertResult(ran).supportedVersions, versions);
});

test("case 4: an unknown command is named", async () => {
  await using agent = await fakeAgent();
  assert.match(assertError(await verb("FOO", configuration(agent, "1.0.0")), 4).msg, /FOO/);
  assert.deepEqual(agent.requests, []);
});

test("case 5: commands are upper case", async () => {
  await using agent = await fakeAgent();
  assertError(await verb("add", configuration(agent, "1.0.0")), 4);
});

test("case 6: all missing variables are named in order", async () => {
  await using agent = await fakeAgent();
  const ran = await execute({ env: { CNI_COMMAND: "ADD" }, stdin: configuration(agent, "1.0.0") });
  assert.match(assertError(ran, 4).msg, /CNI_CONTAINERID.*CNI_NETNS.*CNI_IFNAME.*CNI_PATH/);
});

test("case 7: one missing variable is named alone", async () => {
  await using agent = await fakeAgent();
  const { msg } = assertError(await add(agent, "1.0.0", {}, { CNI_NETNS: undefined }), 4);
  assert.deepEqual(msg.match(/CNI_[A-Z]+/g), ["CNI_NETNS"]);
});

test("case 8: a container id that begins with a dash is quoted", async () => {
  await using agent = await fakeAgent();
  assert.match(assertError(await add(agent, "1.0.0", {}, { CNI_CONTAINERID: "-x" }), 4).msg, /-x/);
});

test("case 9: a container id is no path", async () => {
  await using agent = await fakeAgent();
  assertError(await add(agent, "1.0.0", {}, { CNI_CONTAINERID: "a/../b" }), 4);
});

test("case 10: what is written wrongly is said before what is missing", async () => {
  await using agent = await fakeAgent();
  const ran = await add(agent, "1.0.0", {}, { CNI_CONTAINERID: "a/b", CNI_IFNAME: undefined });
  assert.match(assertError(ran, 4).msg, /CNI_CONTAINERID/);
});

test("case 11: an interface name of 16 bytes is refused", async () => {
  await using agent = await fakeAgent();
  assertError(await add(agent, "1.0.0", {}, { CNI_IFNAME: "a".repeat(16) }), 4);
});

test("case 12: an interface name of 15 bytes is accepted", async () => {
  await using agent = await fakeAgent();
  assertResult(await add(agent, "1.0.0", {}, { CNI_IFNAME: "a".repeat(15) }));
});

test("case 13: interface names that no kernel accepts are refused", async () => {
  await using agent = await fakeAgent();
  for (const name of ["..", ".", "e:0", "e 0", "e/0", "e\u00a00"]) {
    assertError(await add(agent, "1.0.0", {}, { CNI_IFNAME: name }), 4);
  }
  assert.deepEqual(agent.requests, []);
});

test("case 14: empty stdin is no configuration", async () => {
  assertError(await verb("ADD", ""), 6);
});

test("case 15: a list and trailing bytes are no configuration", async () => {
  await using agent = await fakeAgent();
  assertError(await verb("ADD", "[]"), 6);
  assertError(await verb("ADD", `${configuration(agent, "1.0.0")} x`), 6);
  assert.deepEqual(agent.requests, []);
});

test("case 16: a configuration without a name is refused", async () => {
  assertError(await verb("ADD", "null"), 7);
  assertError(await verb("ADD", '{"cniVersion":"1.0.0"}'), 7);
});

test("case 17: a network name that CNI forbids is refused", async () => {
  await using agent = await fakeAgent();
  for (const name of ["-n", "a b"]) assertError(await add(agent, "1.0.0", { name }), 7);
});

test("case 18: cniVersion must be a string", async () => {
  assertError(await verb("ADD", '{"cniVersion":1,"name":"net1"}'), 6);
});

test("case 19: an unsupported cniVersion is named", async () => {
  await using agent = await fakeAgent();
  for (const version of ["0.5.0", "1.0", "1.2.0", "abc"]) {
    assert.ok(assertError(await add(agent, version), 1).details.includes(version));
  }
  assert.deepEqual(agent.requests, []);
});

const perFamily = {
  ip4: { ip: "10.7.0.5/32", routes: [{ dst: "10.7.0.5/32" }] },
  ip6: { ip: "fd00:7::5/128", routes: [{ dst: "fd00:7::5/128" }] },
};

test("case 20: no cniVersion means 0.1.0", async () => {
  await using agent = await fakeAgent();
  for (const version of [undefined, ""]) {
    assert.deepEqual(assertResult(await add(agent, version)), { cniVersion: "0.1.0", ...perFamily });
  }
});

test("case 21: 0.2.0 nests addresses and routes by family", async () => {
  await using agent = await fakeAgent();
  assert.deepEqual(assertResult(await add(agent, "0.2.0")), { cniVersion: "0.2.0", ...perFamily });
});

const versioned = {
  ips: [
    { version: "4", address: "10.7.0.5/32" },
    { version: "6", address: "fd00:7::5/128" },
  ],
  routes: [{ dst: "10.7.0.5/32" }, { dst: "fd00:7::5/128" }],
};

test("case 22: 0.3.x lists addresses with their version", async () => {
  await using agent = await fakeAgent();
  for (const cniVersion of ["0.3.0", "0.3.1"]) {
    assert.deepEqual(assertResult(await add(agent, cniVersion)), { cniVersion, ...versioned });
  }
});

test("case 23: so does 0.4.0", async () => {
  await using agent = await fakeAgent();
  assert.deepEqual(assertResult(await add(agent, "0.4.0")), { cniVersion: "0.4.0", ...versioned });
});

test("case 24: 1.0.0 lists addresses without it", async () => {
  await using agent = await fakeAgent();
  const expected = {
    cniVersion: "1.0.0",
    ips: [{ address: "10.7.0.5/32" }, { address: "fd00:7::5/128" }],
    routes: versioned.routes,
  };
  assert.deepEqual(assertResult(await add(agent, "1.0.0")), expected);
});

test("case 25: a route's mtu is for 1.1.0 only", async () => {
  await using agent = await fakeAgent(() => ({
    ...grant,
    ok: true,
    routes: [{ dst: "0.0.0.0/0", gw: "10.7.0.1", mtu: 1400 }],
  }));
  const newer = assertResult(await add(agent, "1.1.0"));
  assert.deepEqual(newer.routes, [{ dst: "0.0.0.0/0", gw: "10.7.0.1", mtu: 1400 }]);
  const older = assertResult(await add(agent, "0.2.0"));
  assert.deepEqual(older.ip4, { ip: "10.7.0.5/32", routes: [{ dst: "0.0.0.0/0", gw: "10.7.0.1" }] });
});

test("case 26: two addresses of a family do not fit into 0.2.0 and are given back", async () => {
  await using agent = await fakeAgent(() => ({
    ok: true,
    ips: [{ address: "10.7.0.5/32" }, { address: "10.7.0.6/32" }],
  }));
  assertError(await add(agent, "0.2.0"), 7);
  assertUndone(agent);
});

test("case 27, agent: the same ADD twice prints the same bytes and names the same attachment", async () => {
  await using agent = await fakeAgent();
  const [first, second] = [await add(agent, "1.0.0"), await add(agent, "1.0.0")];
  assert.equal(assertResult(first) && first.stdout, second.stdout);
  assert.equal(
    new Set(agent.requests.map((request) => request.verb === "ADD" && request.containerId + request.ifname)).size,
    1,
  );
});

test("case 28: CNI_ARGS in any order, with a doubled key and an empty segment", async () => {
  await using agent = await fakeAgent();
  const CNI_ARGS =
    "IgnoreUnknown=1;K8S_POD_UID=u1;K8S_POD_NAME=p1;IgnoreUnknown=1;K8S_POD_INFRA_CONTAINER_ID=c0ffee01;K8S_POD_NAMESPACE=ns1;";
  assertResult(await add(agent, "1.0.0", {}, { CNI_ARGS }));
  const [request] = agent.requests;
  assert.ok(request?.verb === "ADD");
  assert.deepEqual([request.podNamespace, request.podName, request.podUid], ["ns1", "p1", "u1"]);
});

test("case 29: unknown keys are ignored and the first = splits", async () => {
  await using agent = await fakeAgent();
  assertResult(await add(agent, "1.0.0", {}, { CNI_ARGS: "K8S_POD_NAME=p1;X=a=b" }));
});

test("case 30: an impossible IP= fails an ADD and no DEL", async () => {
  await using agent = await fakeAgent();
  const env = { CNI_ARGS: "IP=999.1.1.1" };
  assertError(await add(agent, "1.0.0", {}, env), 4);
  assert.deepEqual(agent.requests, []);
  assertNone(await verb("DEL", configuration(agent, "1.0.0"), env));
});

// Together, because each waits for its whole budget.
suite("without an agent", { concurrency: true }, () => {
  test("case 31: without an agent an ADD fails with 11 in time", async () => {
    await using agent = await fakeAgent();
    await agent.stop();
    const ran = await add(agent, "1.0.0");
    assertError(ran, 11);
    assert.ok(ran.tookMs < 10_000, `${ran.tookMs} ms`);
    assert.deepEqual(agent.spooled(), []);
  });

  test("case 38: without an agent a DEL is queued on disk, or fails", async () => {
    await using agent = await fakeAgent();
    await agent.stop();
    const unwritable = `${agent.folder}/file`;
    writeFileSync(unwritable, "");
    const badSpool = { cattail: { ...agent.own, spool: `${unwritable}/spool` } };
    const [queued, failed] = await Promise.all([
      verb("DEL", configuration(agent, "1.0.0")),
      verb("DEL", configuration(agent, "1.0.0", {}, badSpool)),
    ]);
    assertNone(queued);
    assert.ok(queued.tookMs < 5_000, `${queued.tookMs} ms`);
    assert.deepEqual(agent.spooled().map(attachment), [theAttachment]);
    assertError(failed, 11);
  });
});

test("case 32, agent: a refusal for exhaustion is passed on and nothing is taken back twice", async () => {
  await using agent = await fakeAgent(() => ({
    ok: false,
    code: 100,
    msg: "no address for pod ns1/p1: none is free (reason PoolExhausted, request 00000000)",
  }));
  assertError(await add(agent, "1.0.0"), 100);
  assert.equal(agent.requests.length, 1);
});

test("case 33: rubbish is 6, an answer cut short is 5, and both are undone", async () => {
  for (const [reply, code] of [
    ["rubbish\n", 6],
    ['{"ok":tr', 5],
    ['{"ok":"yes"}\n', 6],
  ] as const) {
    await using agent = await fakeAgent((request) => (request.verb === "ADD" ? reply : { ok: true }));
    assertError(await add(agent, "1.0.0"), code);
    assertUndone(agent);
  }
});

test("case 34: DEL needs no network namespace", async () => {
  await using agent = await fakeAgent();
  for (const CNI_NETNS of [undefined, "", "/run/netns/dead"]) {
    assertNone(await verb("DEL", configuration(agent, "1.0.0"), { CNI_NETNS }));
  }
  const released = agent.requests.map((request) => request.verb === "DEL" && attachment(request));
  assert.deepEqual(released, [theAttachment, theAttachment, theAttachment]);
});

test("case 35: DEL may be repeated", async () => {
  await using agent = await fakeAgent();
  for (let time = 0; time < 3; time += 1) assertNone(await verb("DEL", configuration(agent, "0.3.1")));
});

test("case 36: whatever is broken in ipam or prevResult, DEL releases", async () => {
  await using agent = await fakeAgent();
  const broken = {
    cattail: { ...agent.own, timeoutMs: "soon", prefix: 7, unknown: {} },
    assign_ipv4: [],
    ipv4_pools: 3,
    routes: "x",
  };
  for (const prevResult of [null, { ips: 7, interfaces: "x" }, "rubbish", []]) {
    assertNone(await verb("DEL", configuration(agent, "1.0.0", { prevResult }, broken)));
  }
  assert.equal(agent.requests.length, 4);
});

test("case 37: DEL without an interface name is refused", async () => {
  await using agent = await fakeAgent();
  const env = { CNI_COMMAND: "DEL", CNI_CONTAINERID: "c0ffee01" };
  assert.match(assertError(await execute({ env, stdin: configuration(agent, "1.0.0") }), 4).msg, /CNI_IFNAME/);
});

test("case 39: CHECK needs 0.4.0 and a prevResult; agent: and its addresses in it", async () => {
  await using agent = await fakeAgent((request) => {
    const matches = request.verb === "CHECK" && request.previous.includes("10.7.0.5");
    return matches
      ? { ok: true }
      : { ok: false, code: 104, msg: "attachment differs (reason Internal, request 00000000)" };
  });
  const check = (version: string, prevResult?: unknown): Promise<Ran> =>
    verb("CHECK", configuration(agent, version, prevResult === undefined ? {} : { prevResult }));
  assertError(await check("0.3.1", {}), 1);
  assertError(await check("0.4.0"), 7);
  const foreign = { version: "4", address: "192.0.2.9/24", interface: 0 };
  const ours = { version: "4", address: "10.7.0.5/24", interface: 1 };
  assertNone(await check("0.4.0", { cniVersion: "0.4.0", interfaces: [{}, {}, {}], ips: [foreign, ours] }));
  assertError(await check("0.4.0", { ips: [foreign] }), 104);
  assert.deepEqual(
    agent.requests.map((request) => request.verb === "CHECK" && request.previous),
    [["192.0.2.9", "10.7.0.5"], ["192.0.2.9"]],
  );
});

const valid = (request: AgentRequest | undefined): unknown => request?.verb === "GC" && request.valid;

test("case 40: GC without a list releases nothing; agent: null means none, a list is passed on, a refusal too", async () => {
  await using agent = await fakeAgent();
  assertError(await nodeVerb("GC", configuration(agent, "1.0.0", { "cni.dev/valid-attachments": null })), 1);
  assertError(await nodeVerb("GC", configuration(agent, "1.1.0")), 7);
  assert.deepEqual(agent.requests, []);
  const gc = (list: unknown): Promise<Ran> =>
    nodeVerb("GC", configuration(agent, "1.1.0", { "cni.dev/valid-attachments": list }));
  assertNone(await gc(null));
  assertNone(await gc([{ containerID: "c0ffee01", ifname: "eth0" }]));
  assert.deepEqual(agent.requests.map(valid), [[], [{ containerId: "c0ffee01", ifname: "eth0" }]]);
  assertError(await gc([{ containerID: "c0ffee01" }]), 6);
  agent.answer = () => ({
    ok: false,
    code: 7,
    msg: "nothing collected: 17 would go (reason BadRequest, request 00000000)",
  });
  assertError(await gc(null), 7);
});

test("case 41: GC keeps what either list holds; agent: and what is young", async () => {
  await using agent = await fakeAgent();
  const lists = {
    "cni.dev/valid-attachments": [{ containerID: "c1", ifname: "eth0" }],
    "cni.dev/attachments": [
      { containerID: "c1", ifname: "eth0" },
      { containerID: "c2", ifname: "eth0" },
    ],
  };
  assertNone(await nodeVerb("GC", configuration(agent, "1.1.0", lists)));
  const expected = ["c1", "c2"].map((containerId) => ({ containerId, ifname: "eth0" }));
  assert.deepEqual(agent.requests.map(valid), [expected]);
});

test("case 42: STATUS is 50 for every way an agent can be away, within a second", async () => {
  await using agent = await fakeAgent();
  assertError(await nodeVerb("STATUS", configuration(agent, "1.0.0")), 1);
  assertNone(await nodeVerb("STATUS", configuration(agent, "1.1.0")));
  agent.answer = () => ({
    ok: false,
    code: 50,
    msg: "not ready: it has never synced (reason AgentStarting, request 00000000)",
  });
  assertError(await nodeVerb("STATUS", configuration(agent, "1.1.0")), 50);
  agent.answer = () => undefined;
  const hanging = await nodeVerb("STATUS", configuration(agent, "1.1.0"));
  assertError(hanging, 50);
  await agent.stop();
  const missing = await nodeVerb("STATUS", configuration(agent, "1.1.0"));
  assertError(missing, 50);
  // A busy machine may take some time to start a process: that is not the executable's second.
  for (const { tookMs } of [hanging, missing]) assert.ok(tookMs < 2_000, `${tookMs} ms`);
});

test("case 43: STATUS and GC need CNI_PATH", async () => {
  await using agent = await fakeAgent();
  for (const CNI_COMMAND of ["STATUS", "GC"]) {
    const ran = await execute({ env: { CNI_COMMAND }, stdin: configuration(agent, "1.1.0") });
    assert.match(assertError(ran, 4).msg, /CNI_PATH/);
  }
});

test("case 44: our own network namespace is refused before anything is allocated, unless it is meant", async () => {
  await using agent = await fakeAgent();
  const CNI_NETNS = "/proc/self/ns/net";
  assertError(await add(agent, "1.0.0", {}, { CNI_NETNS }), 8);
  assert.deepEqual(agent.requests, []);
  assertResult(await add(agent, "1.0.0", {}, { CNI_NETNS, CNI_NETNS_OVERRIDE: "1" }));
});

test("case 45: an answer that nobody reads is undone", async () => {
  await using agent = await fakeAgent();
  const env = { ...environment, CNI_COMMAND: "ADD" };
  const ran = await execute({ env, stdin: configuration(agent, "1.0.0"), deaf: true });
  assert.equal(ran.status, 1);
  assertUndone(agent);
});

test("case 46, agent: an ADD that a DEL has overtaken is refused; both carry when they started", async () => {
  await using agent = await fakeAgent();
  let stalled: AgentRequest | undefined;
  const unblocked = Promise.withResolvers<() => void>();
  agent.answer = (request, socket) => {
    if (request.verb !== "ADD") return { ok: true };
    stalled = request;
    unblocked.resolve(() =>
      socket.end(
        `${JSON.stringify({ ok: false, code: 11, msg: "no address: a DEL came later (reason BadRequest, request 00000000)" })}\n`,
      ),
    );
    return undefined;
  };
  const adding = add(agent, "1.0.0");
  const unblock = await unblocked.promise;
  assertNone(await verb("DEL", configuration(agent, "1.0.0")));
  unblock();
  assertError(await adding, 11);
  const del = agent.requests.at(-1);
  assert.ok(stalled?.verb === "ADD" && del?.verb === "DEL" && stalled.startedAt < del.startedAt);
});

test("case 47, drop-in: every IP= is an ADD of its own, answered with that address and a route; DEL names the attachment", async () => {
  await using agent = await fakeAgent((request) => {
    if (request.verb !== "ADD") return { ok: true };
    const ips = request.requested.map((address) => ({ address: `${address}/${address.includes(":") ? 128 : 32}` }));
    return { ok: true, ips, routes: ips.map((ip) => ({ dst: ip.address })) };
  });
  const path = dropIn(agent);
  const run = (CNI_COMMAND: string, ip: string): Promise<Ran> =>
    execute({
      path,
      env: { ...environment, CNI_COMMAND, CNI_ARGS: `${environment.CNI_ARGS}${ip}` },
      stdin: configuration(agent, "1.0.0"),
    });
  for (const address of ["10.7.0.9/32", "fd00:7::9/128"]) {
    const result = assertResult(await run("ADD", `;IP=${address.split("/")[0]}`));
    assert.deepEqual(result, { cniVersion: "1.0.0", ips: [{ address }], routes: [{ dst: address }] });
  }
  assertNone(await run("DEL", ""));
  assert.deepEqual(
    agent.requests.map((request) => (request.verb === "ADD" ? [request.dropIn, request.families] : request.verb)),
    [[true, { ipv4: true, ipv6: false }], [true, { ipv4: false, ipv6: true }], "DEL"],
  );
});

test("case 48: families as strings and as booleans", async () => {
  await using agent = await fakeAgent(obliging);
  for (const families of [
    { assign_ipv4: "false", assign_ipv6: "true" },
    { assign_ipv4: false, assign_ipv6: true },
  ]) {
    const result = assertResult(await verb("ADD", configuration(agent, "1.0.0", {}, families)));
    assert.deepEqual(result.ips, [{ address: "fd00:7::5/128" }]);
  }
});

test("case 49, agent: 200 parallel ADDs and 200 DELs all reach it and all are answered with their own address", async () => {
  await using agent = await fakeAgent();
  const held = new Map<string, string>();
  agent.answer = (request) => {
    if (request.verb === "ADD") {
      held.set(request.containerId, `10.7.1.${held.size}/32`);
      return { ok: true, ips: [{ address: held.get(request.containerId) ?? "" }] };
    }
    if (request.verb === "DEL") held.delete(request.containerId);
    return { ok: true };
  };
  const ids = Array.from({ length: 200 }, (_, index) => `c${index}`);
  const each = (command: string): Promise<Ran[]> =>
    Promise.all(ids.map((CNI_CONTAINERID) => verb(command, configuration(agent, "1.0.0"), { CNI_CONTAINERID })));
  const answers = (await each("ADD")).map((ran) => JSON.stringify(assertResult(ran).ips));
  assert.equal(new Set(answers).size, ids.length);
  for (const ran of await each("DEL")) assertNone(ran);
  assert.equal(held.size, 0);
});

test("case 50: five megabytes of unknown keys are ignored", async () => {
  await using agent = await fakeAgent();
  const big = Object.fromEntries(Array.from({ length: 5 }, (_, index) => [`unknown${index}`, "x".repeat(1 << 20)]));
  assertResult(await add(agent, "1.0.0", big));
});
