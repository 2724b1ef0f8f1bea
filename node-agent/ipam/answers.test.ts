// Owners, results, refusals and the verbs that are answered on the spot.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pool } from "../../shared/calico/resources.ts";
import type {
  Address,
  BlockCidr,
  CidrText,
  Instant,
  NodeName,
  PoolName,
  ResourceVersion,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import type { AddRequest, AgentRequest } from "../../shared/protocol/socket.ts";
import { type CallId, createLedger, type Ledger, type WarmPolicy } from "../ledger/state.ts";
import { View } from "../sync/view.ts";
import { cniCode, trouble } from "../trouble.ts";
import { ownerOf } from "./owner.ts";
import { ViewPlacement } from "./placement.ts";
import { grant, refusal } from "./replies.ts";
import { decide, serverGraceMs } from "./verbs.ts";

const node = "n1" as NodeName;
const nanos = 1_787_405_600_123_456_000n;

const common = { protocol: 1, request: "7f3a91c2", network: "net", cniVersion: "1.0.0", deadline: 60_000 } as const;
const attachment = {
  containerId: "c0ffee0123456789",
  ifname: "eth0",
  podNamespace: "shop",
  podName: "cart",
  podUid: "",
  startedAt: 0,
};
const add: AddRequest = {
  verb: "ADD",
  ...common,
  ...attachment,
  ifnameIsFirst: true,
  netns: "",
  families: { ipv4: true, ipv6: true },
  pools: { ipv4: [], ipv6: [] },
  requested: [],
  dropIn: true,
  result: { prefix: "block", gateway: "" },
};

const pool: Pool = {
  name: "blue" as PoolName,
  uid: "u" as Uid,
  resourceVersion: "1" as ResourceVersion,
  cidr: "10.0.0.0/16" as CidrText,
  blockSize: 26,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: ["Workload"],
  assignmentMode: "Automatic",
};

function placement(): ViewPlacement {
  const view = new View();
  view.put("pool", pool);
  return new ViewPlacement(view, node, () => 0 as UnixMs);
}

const places = [
  { address: "10.0.0.70" as Address, block: "10.0.0.64/26" as BlockCidr },
  { address: "fd00::41" as Address, block: "fd00::40/122" as BlockCidr },
];
const [first] = places;

test("a pod's first interface is stamped as Calico stamps it", () => {
  assert.deepEqual(ownerOf(add, node, nanos), {
    handle: "net.c0ffee0123456789",
    attributes: { namespace: "shop", node: "n1", pod: "cart", timestamp: "2026-08-22 13:33:20.123456 +0000 UTC" },
  });
});

test("any other interface makes Calico's collector no promise, but says whose it is", () => {
  const { attributes } = ownerOf({ ...add, ifname: "net1", ifnameIsFirst: false }, node, nanos);
  assert.deepEqual(attributes, {
    "cattail.io/interface": "net1",
    "cattail.io/namespace": "shop",
    "cattail.io/pod": "cart",
    node: "n1",
    timestamp: "2026-08-22 13:33:20.123456 +0000 UTC",
    type: "cattailSecondaryInterface",
  });
});

test("under Calico's plugin each address has its block's prefix and a route to itself; one asked for stands alone", () => {
  assert.deepEqual(grant(add, places, placement()), {
    ok: true,
    ips: [{ address: "10.0.0.70/26" }, { address: "fd00::41/122" }],
    routes: [{ dst: "10.0.0.70/26" }, { dst: "fd00::41/122" }],
  });
  assert.ok(first);
  assert.deepEqual(grant({ ...add, requested: ["10.0.0.70"] }, [first], placement()).ips, [
    { address: "10.0.0.70/32" },
  ]);
});

test("under any other plugin prefix and gateway are as configured, and there are no routes", () => {
  assert.ok(first);
  const cases: [AddRequest["result"], object][] = [
    [{ prefix: "block", gateway: "" }, { address: "10.0.0.70/26" }],
    [{ prefix: "host", gateway: "" }, { address: "10.0.0.70/32" }],
    [
      { prefix: "pool", gateway: "first" },
      { address: "10.0.0.70/16", gateway: "10.0.0.1" },
    ],
    [
      { prefix: "pool", gateway: "192.0.2.1" },
      { address: "10.0.0.70/16", gateway: "192.0.2.1" },
    ],
    [{ prefix: "pool", gateway: "fd00::1" }, { address: "10.0.0.70/16" }],
  ];
  for (const [result, ip] of cases) {
    assert.deepEqual(grant({ ...add, dropIn: false, result }, [first], placement()), { ok: true, ips: [ip] });
  }
});

test("a refusal says what, for whom, why, which request, and what next", () => {
  const found = trouble("PoolExhausted", "pool blue has no free block", {
    next: "Create an IPPool",
    details: "Assigned 0 out of 1",
  });
  assert.deepEqual(refusal(add, found), {
    ok: false,
    code: 100,
    msg: "no address for pod shop/cart: pool blue has no free block (reason PoolExhausted, request 7f3a91c2). Create an IPPool",
    details: "Assigned 0 out of 1",
  });
  const { msg } = refusal({ verb: "DEL", ...common, ...attachment, podName: "" }, trouble("DiskFull", "no room"));
  assert.match(
    msg,
    /^address not released for container c0ffee012345: no room \(reason DiskFull, request 7f3a91c2\)\. Make room/,
  );
});

function decided(request: AgentRequest, change: (ledger: Ledger) => void = () => {}): unknown {
  const ledger = createLedger(
    { node, handles: "off", handleDelayMs: undefined, warm: () => undefined, placement: placement() },
    0 as Instant,
  );
  change(ledger);
  const at = { ledger, node, call: 1 as CallId, now: 500 as Instant, wall: 10_000 as UnixMs, nanos };
  const verdict = decide(request, at);
  return verdict.kind === "refused" ? [verdict.trouble.code, verdict.trouble.reason] : verdict;
}

test("STATUS fails only for what no pod can be started with", () => {
  const status = { verb: "STATUS", ...common } as const;
  assert.deepEqual(decided(status), [cniCode.notAvailable, "AgentStarting"]);
  const complete = (ledger: Ledger): void => void Object.assign(ledger, { complete: true });
  assert.deepEqual(decided(status, complete), { kind: "fine" });
  const failing = (ledger: Ledger): void => void Object.assign(ledger, { complete: true, diskFails: true });
  assert.deepEqual(decided(status, failing), [cniCode.notAvailableAndLimited, "DiskFull"]);
});

test("STATUS fails when every ADD needs a server and none has been there for longer than a grace", () => {
  const status = { verb: "STATUS", ...common } as const;
  const warm: WarmPolicy = { floor: 1, ceiling: 2, flushDelayMs: 0 };
  const away = (forMs: number, more: object = {}): unknown =>
    decided(status, (ledger) =>
      Object.assign(ledger, { complete: true, online: false, offlineSince: 500 - forMs, ...more }),
    );
  assert.deepEqual(away(serverGraceMs - 1), { kind: "fine" });
  assert.deepEqual(away(serverGraceMs), [cniCode.notAvailable, "ServerAway"]);
  assert.deepEqual(away(serverGraceMs, { online: true }), { kind: "fine" });
  assert.deepEqual(away(serverGraceMs, { warm: () => warm }), { kind: "fine" });
  assert.deepEqual(away(0, { warm: () => warm, complete: false }), [cniCode.notAvailable, "AgentStarting"]);
});

test("CHECK of what is not known fails with a code of its own", () => {
  assert.deepEqual(decided({ verb: "CHECK", ...common, ...attachment, previous: [] }), [104, "BadRequest"]);
});

test("a call's deadline becomes one of this process's clock, however wrong the caller's is", () => {
  const deadlineOf = (deadline: number): unknown => {
    const verdict = decided({ ...add, deadline }) as { event: { deadline: number } };
    return verdict.event.deadline;
  };
  assert.equal(deadlineOf(40_000), 30_500);
  assert.equal(deadlineOf(1), 500);
  assert.equal(deadlineOf(1e15), 90_500);
});

test("names that would blur an attachment's identity are refused", () => {
  assert.deepEqual(decided({ ...add, containerId: "a/b" }), [7, "BadRequest"]);
  assert.deepEqual(decided({ verb: "DEL", ...common, ...attachment, ifname: "" }), [7, "BadRequest"]);
});
