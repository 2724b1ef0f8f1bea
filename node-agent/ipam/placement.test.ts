import assert from "node:assert/strict";
import { test } from "node:test";
import { assign, newBlock, release } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import {
  type Block,
  defaultIpamConfig,
  type IpamConfig,
  type Objects,
  type Pool,
} from "../../shared/calico/resources.ts";
import type {
  BlockCidr,
  CidrText,
  HandleId,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import type { StreamedKind } from "../../shared/protocol/stream.ts";
import { View } from "../sync/view.ts";
import { ViewPlacement } from "./placement.ts";

const now = Date.parse("2030-01-01T00:00:00Z") as UnixMs;

function meta(name: string): { uid: Uid; resourceVersion: ResourceVersion; name: string } {
  return { name, uid: `uid-${name}` as Uid, resourceVersion: "1" as ResourceVersion };
}

function pool(name: string, cidr: string, more: Partial<Pool> = {}): Pool {
  return {
    ...meta(name),
    name: name as PoolName,
    cidr: cidr as CidrText,
    blockSize: cidr.includes(":") ? 122 : 26,
    disabled: false,
    deleting: false,
    allocatable: true,
    nodeSelector: "all()",
    namespaceSelector: "",
    allowedUses: ["Workload", "Tunnel"],
    assignmentMode: "Automatic",
    ...more,
  };
}

function placementOf(pools: readonly Pool[], more: { [K in StreamedKind]?: Objects[K][] } = {}): ViewPlacement {
  const view = new View();
  view.put("cluster", { ...meta("default"), datastoreReady: true, clusterGuid: "g" });
  view.put("node", { ...meta("n1"), name: "n1" as NodeName, labels: { rack: "a" } });
  for (const one of pools) view.put("pool", one);
  for (const [kind, objects] of Object.entries(more)) {
    for (const object of objects) view.put(kind as StreamedKind, object);
  }
  return new ViewPlacement(view, "n1" as NodeName, () => now);
}

function ask(more: Partial<AddRequest> = {}): AddRequest {
  return {
    verb: "ADD",
    protocol: 1,
    request: "r",
    network: "net",
    cniVersion: "1.0.0",
    containerId: "c",
    ifname: "eth0",
    podNamespace: "shop",
    podName: "cart",
    podUid: "",
    startedAt: 0,
    deadline: 0,
    ifnameIsFirst: true,
    netns: "",
    families: { ipv4: true, ipv6: false },
    pools: { ipv4: [], ipv6: [] },
    requested: [],
    dropIn: true,
    result: { prefix: "block", gateway: "" },
    ...more,
  };
}

function names(placement: ViewPlacement, more: Partial<AddRequest> = {}): unknown {
  const wanted = placement.wanted(ask(more));
  return "reason" in wanted
    ? [wanted.reason, wanted.code]
    : wanted.map((want) => (want.kind === "any" ? want.pools : [want.address, want.block]));
}

const red = pool("red", "10.1.0.0/16");
const blue = pool("blue", "10.0.0.0/16");
const six = pool("six", "fd00::/64");
const both = { families: { ipv4: true, ipv6: true } };

test("without a wish all pools that select node and namespace serve, in the order of their names, IPv4 first", () => {
  const other = pool("a", "10.2.0.0/16", { nodeSelector: "rack == 'b'" });
  assert.deepEqual(names(placementOf([red, six, blue, other]), both), [["blue", "red"], ["six"]]);
});

test("pools that are asked for serve in the caller's order, by name or range, whatever they select", () => {
  const manual = { assignmentMode: "Manual" as const, nodeSelector: "rack == 'b'" };
  const placement = placementOf([blue, pool("red", "10.1.0.0/16", manual)]);
  assert.deepEqual(names(placement, { pools: { ipv4: ["red", "10.0.0.0/16"], ipv6: [] } }), [["red", "blue"]]);
});

test("a namespace's labels decide where a pool selects by them; a namespace not heard of yet is worth another try", () => {
  const shop = { ...meta("shop"), labels: { team: "x" } };
  const chosen = pool("chosen", "10.3.0.0/16", { namespaceSelector: "team == 'x'" });
  const others = pool("others", "10.4.0.0/16", { namespaceSelector: "team != 'x'" });
  assert.deepEqual(names(placementOf([chosen, others], { namespace: [shop] })), [["chosen"]]);
  assert.deepEqual(names(placementOf([chosen, others])), ["NoPoolSelected", 11]);
  assert.deepEqual(names(placementOf([blue])), [["blue"]]);
});

test("a change of the view counts from the next question on", () => {
  const view = new View();
  view.put("cluster", { ...meta("default"), datastoreReady: true, clusterGuid: "g" });
  view.put("pool", blue);
  const placement = new ViewPlacement(view, "n1" as NodeName, () => now);
  assert.deepEqual(names(placement), [["blue"]]);
  view.put("pool", { ...blue, disabled: true, resourceVersion: "2" as ResourceVersion });
  placement.forget();
  assert.deepEqual(names(placement), ["PoolDisabled", 7]);
});

test("why no pool serves is told in one word and in Calico's own sentence", () => {
  const cases: [Pool[], Partial<AddRequest>, string, RegExp][] = [
    [[], {}, "NoPoolSelected", /^cannot find a qualified ippool$/],
    [[pool("off", "10.0.0.0/16", { disabled: true })], {}, "PoolDisabled", /^cannot find a qualified ippool$/],
    [
      [pool("b", "10.0.0.0/16", { nodeSelector: "rack == 'b'" })],
      {},
      "NoPoolSelected",
      /^no configured Calico pools for node n1$/,
    ],
    [
      [pool("t", "10.0.0.0/16", { allowedUses: ["Tunnel"] })],
      {},
      "NoPoolSelected",
      /no pools match the required use \(Workload\)$/,
    ],
    [
      [blue],
      { pools: { ipv4: ["10.9.0.0/16"], ipv6: [] } },
      "PoolDisabled",
      /^the given pool \(10\.9\.0\.0\/16\) does not exist/,
    ],
    [[blue], { pools: { ipv4: ["none"], ipv6: [] } }, "BadConfig", /^error parsing pool "none"/],
    [[pool("x", "10.0.0.0/16", { nodeSelector: "rack =" })], {}, "BadConfig", /expected/],
  ];
  for (const [pools, more, reason, sentence] of cases) {
    const wanted = placementOf(pools).wanted(ask(more));
    assert.ok("reason" in wanted);
    assert.equal(wanted.reason, reason);
    assert.match(wanted.details ?? "", sentence);
  }
});

test("while Calico's datastore is locked, or nobody says that it is not, nothing is given out", () => {
  const cluster = {
    ...meta("default"),
    datastoreReady: false,
    clusterGuid: "g",
    resourceVersion: "2" as ResourceVersion,
  };
  assert.deepEqual(names(placementOf([blue], { cluster: [cluster] })), ["DatastoreLocked", 11]);
  assert.deepEqual(names(new ViewPlacement(new View(), "n1" as NodeName, () => now)), ["DatastoreLocked", 11]);
});

test("an address that is asked for is looked for in its pool's block, whatever the pool selects", () => {
  const placement = placementOf([pool("blue", "10.0.0.0/16", { nodeSelector: "rack == 'b'" }), six]);
  assert.deepEqual(names(placement, { requested: ["10.0.1.70"] }), [["10.0.1.70", "10.0.1.64/26"]]);
  assert.deepEqual(names(placement, { requested: ["::ffff:10.0.1.70"] }), [["10.0.1.70", "10.0.1.64/26"]]);
  assert.deepEqual(names(placement, { requested: ["fd00::41"] }), [["fd00::41", "fd00::40/122"]]);
  assert.deepEqual(names(placement, { requested: ["192.0.2.1"] }), ["AddressOutsidePool", 102]);
  assert.deepEqual(names(placement, { requested: ["10.0.1.999"] }), ["BadRequest", 7]);
});

test("free is what is in the queue, not reserved, and what has cooled down", () => {
  const cidr = "10.0.0.0/29" as BlockCidr;
  const owner = { handle: "net.c" as HandleId, secondary: { node: "n1" } };
  const fresh = newBlock({ cidr, affinity: "host:n1", now, sequence: 1n as Sequence });
  const before = (seconds: number): { now: UnixMs; cooldownSeconds: number } => ({
    now: (now - seconds * 1000) as UnixMs,
    cooldownSeconds: 60,
  });
  const taken = assign(fresh, [0, 1, 2], owner);
  const state = release(release(taken, [0], before(90)), [1], before(30));
  const block: Block = { ...state, ...meta(blockName(cidr)), cidr };
  const reservation = { ...meta("keep"), cidrs: ["10.0.0.4/31" as CidrText] };
  const config = { ...meta("default"), ...defaultIpamConfig, ipCooldownSeconds: 60 };
  assert.deepEqual(
    placementOf([blue], { reservation: [reservation], config: [config] }).freeOrdinals(block),
    [3, 6, 7, 0],
  );
});

test("outside of Calico's plugin a gateway must not be an address that a pod could be given", () => {
  const own = { dropIn: false, result: { prefix: "pool" as const, gateway: "first" } };
  const refused = placementOf([blue]).wanted(ask(own));
  assert.ok("reason" in refused && refused.reason === "BadConfig");
  assert.match(refused.next ?? "", /IPReservation for 10\.0\.0\.1$/);
  const reservation = [{ ...meta("gw"), cidrs: ["10.0.0.1/32" as CidrText] }];
  assert.deepEqual(names(placementOf([blue], { reservation }), own), [["blue"]]);
  assert.deepEqual(names(placementOf([blue]), { ...own, result: { prefix: "pool", gateway: "192.0.2.1" } }), [
    ["blue"],
  ]);
  assert.deepEqual(names(placementOf([blue]), { ...own, dropIn: true }), [["blue"]]);
});

test("the verdict has Calico's sentence first and then each pool", () => {
  const both = ["blue" as PoolName, "red" as PoolName];
  const each =
    "pool blue 10.0.0.0/16 (65536 addresses): no block to be had; pool red 10.1.0.0/16 (65536 addresses): no block to be had";
  const short = "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses";
  const config = { ...meta("default"), ...defaultIpamConfig };
  const verdict = (reason: "PoolExhausted" | "BlockLimitReached", more: Partial<IpamConfig> = {}): string =>
    placementOf([blue, red], { config: [{ ...config, ...more }] }).verdict(reason, both);
  assert.equal(verdict("PoolExhausted"), `${short}; No IPs available in pools: [10.0.0.0/16 10.1.0.0/16]; ${each}`);
  assert.equal(
    verdict("PoolExhausted", { strictAffinity: true }),
    `${short}; No more free affine blocks and strict affinity enabled; ${each}`,
  );
  assert.equal(verdict("PoolExhausted", { autoAllocateBlocks: false }), `failed to find or claim a block; ${each}`);
  assert.equal(verdict("BlockLimitReached"), `cannot allocate new block due to per host block limit; ${each}`);
});
