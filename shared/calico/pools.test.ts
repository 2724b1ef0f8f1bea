import assert from "node:assert/strict";
import { test } from "node:test";
import type { Address, BlockCidr, CidrText, PoolName, ResourceVersion, Uid } from "../kinds.ts";
import { byName, choosePools, type PoolRequest, poolOf, resolvePools } from "./pools.ts";
import type { Pool } from "./resources.ts";

const pool = (name: string, cidr: string, more: Partial<Pool> = {}): Pool => ({
  name: name as PoolName,
  uid: name as Uid,
  resourceVersion: "1" as ResourceVersion,
  cidr: cidr as CidrText,
  blockSize: 29,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "all()",
  namespaceSelector: "",
  allowedUses: ["Workload", "Tunnel"],
  assignmentMode: "Automatic",
  ...more,
});
const request = (more: Partial<PoolRequest> = {}): PoolRequest => ({
  family: 4,
  use: "Workload",
  requested: [],
  node: "node-a",
  nodeLabels: { zone: "a" },
  namespaceLabels: { team: "shop" },
  ...more,
});
const cidrs = (...texts: string[]): CidrText[] => texts as CidrText[];
const a = pool("pool-a", "10.20.0.0/28");
const b = pool("pool-b", "10.20.1.0/28");
const v6 = pool("pool-6", "fd00:20::/64", { blockSize: 122 });

function names(pools: readonly Pool[], asked: PoolRequest): string[] | string {
  const choice = choosePools(pools, asked);
  return choice.ok ? choice.pools.map(({ name }) => name) : choice.error;
}

test("pools come in the order of their names, those of the other family do not", () => {
  assert.deepEqual(
    [pool("Z", "10.0.0.0/28"), pool("a-b", "10.0.1.0/28"), pool("a", "10.0.2.0/28")]
      .sort(byName)
      .map(({ name }) => name),
    ["Z", "a", "a-b"],
  );
  assert.deepEqual(names([v6, a, b], request()), ["pool-a", "pool-b"]);
  assert.deepEqual(names([v6, a, b], request({ family: 6 })), ["pool-6"]);
});

test("disabled, terminating and unallocatable pools are not used, not even on request", () => {
  const off = [
    pool("a", "10.0.0.0/28", { disabled: true }),
    pool("b", "10.0.1.0/28", { deleting: true }),
    pool("c", "10.0.2.0/28", { allocatable: false }),
  ];
  assert.equal(names(off, request()), "cannot find a qualified ippool");
  assert.deepEqual(names([...off, b], request()), ["pool-b"]);
  assert.equal(
    names([...off, b], request({ requested: cidrs("10.0.1.0/28") })),
    "the given pool (10.0.1.0/28) does not exist, or is not enabled",
  );
});

test("selectors choose by labels of node and namespace; an unknown namespace has none", () => {
  const tenant = pool("tenant", "10.0.0.0/28", { namespaceSelector: "team == 'shop'" });
  const zone = pool("zone", "10.0.1.0/28", { nodeSelector: "zone == 'b'" });
  const any = pool("z-any", "10.0.2.0/28", { nodeSelector: "" });
  assert.deepEqual(names([tenant, zone, any], request()), ["tenant", "z-any"]);
  assert.deepEqual(names([tenant, zone, any], request({ namespaceLabels: undefined })), ["z-any"]);
  assert.equal(names([zone], request()), "no configured Calico pools for node node-a");
});

test("requested pools keep the order of the request; selectors and Manual do not count, uses do", () => {
  const manual = pool("manual", "10.0.0.0/28", {
    assignmentMode: "Manual",
    nodeSelector: "!all()",
    namespaceSelector: "x = 1",
  });
  const tunnel = pool("tunnel", "10.0.1.0/28", { allowedUses: ["Tunnel"] });
  assert.deepEqual(names([manual, a, tunnel], request()), ["pool-a"]);
  assert.deepEqual(names([manual, a], request({ requested: cidrs("10.20.0.0/28", "10.0.0.0/28") })), [
    "pool-a",
    "manual",
  ]);
  assert.equal(
    names([manual, a, tunnel], request({ requested: cidrs("10.0.1.0/28") })),
    "cannot find a qualified ippool, no pools match the required use (Workload)",
  );
  assert.equal(
    names([a], request({ requested: cidrs("10.20.0.0/29") })),
    "the given pool (10.20.0.0/29) does not exist, or is not enabled",
  );
  const plainManual = pool("manual", "10.0.0.0/28", { assignmentMode: "Manual" });
  assert.deepEqual(names([plainManual, a], request()), ["pool-a"]);
  assert.equal(names([plainManual], request()), "no configured Calico pools for node node-a");
});

test("a selector that cannot be read fails every automatic choice and no request", () => {
  const broken = pool("pool-b", "10.20.1.0/28", { nodeSelector: "zone = 'a'" });
  assert.equal(names([a, broken], request()), "expected ==");
  assert.deepEqual(names([a, broken], request({ requested: cidrs("10.20.0.0/28") })), ["pool-a"]);
  assert.equal(
    names([a, pool("pool-b", "10.20.1.0/28", { namespaceSelector: "has(x" })], request()),
    "no closing ')' after has(",
  );
});

test("an address or a block belongs to the first usable pool that holds it", () => {
  const wide = pool("b-wide", "10.20.0.0/16");
  assert.equal(poolOf([a, wide], "10.20.0.9" as Address)?.name, "pool-a");
  assert.equal(poolOf([a, wide], "10.20.9.0/29" as BlockCidr)?.name, "b-wide");
  assert.equal(poolOf([pool("pool-a", "10.20.0.0/28", { disabled: true })], "10.20.0.9" as Address), undefined);
});

test("a network configuration lists CIDRs or names, of its family", () => {
  const all = [a, pool("off", "10.30.0.0/28", { disabled: true }), v6];
  assert.deepEqual(resolvePools(all, [], 4), { ok: true, cidrs: [] });
  assert.deepEqual(resolvePools(all, ["10.99.0.7/24", "off", "pool-a"], 4), {
    ok: true,
    cidrs: ["10.99.0.0/24", "10.30.0.0/28", "10.20.0.0/28"],
  });
  for (const [entry, family, error] of [
    ["nope", 4, 'error parsing pool "nope": invalid CIDR address: nope'],
    ["", 4, 'error parsing pool "": invalid CIDR address: '],
    ["fd00:20::/64", 4, '"fd00:20::" isn\'t a IPv4 address'],
    ["pool-6", 4, '"fd00:20::" isn\'t a IPv4 address'],
    ["pool-a", 6, '"10.20.0.0" isn\'t a IPv6 address'],
  ] as const) {
    assert.deepEqual(resolvePools(all, [entry], family), { ok: false, error });
  }
});
