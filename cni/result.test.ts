// The result's shape in each version beyond what the conformance cases show.
import assert from "node:assert/strict";
import test from "node:test";
import type { Success } from "../shared/protocol/socket.ts";
import type { Route } from "./ipam-config.ts";
import type { CniVersion } from "./netconf.ts";
import { resultDocument } from "./result.ts";

function document(version: CniVersion, success: Success, routes: readonly Route[] = [], dropIn = false): unknown {
  const result = resultDocument(version, dropIn, success, routes);
  assert.ok(result.ok);
  return JSON.parse(result.stdout);
}

const four = { address: "10.0.0.7/26" };
const six = { address: "fd00::7/122" };

test("IPv4 comes first, whatever the agent's order", () => {
  assert.deepEqual(document("1.0.0", { ok: true, ips: [six, four] }), { cniVersion: "1.0.0", ips: [four, six] });
});

test("a gateway is printed, an empty one is not", () => {
  const ips = [
    { ...four, gateway: "10.0.0.1" },
    { ...six, gateway: "" },
  ];
  assert.deepEqual(document("0.3.1", { ok: true, ips }), {
    cniVersion: "0.3.1",
    ips: [
      { version: "4", ...four, gateway: "10.0.0.1" },
      { version: "6", ...six },
    ],
  });
  assert.deepEqual(document("0.2.0", { ok: true, ips }), {
    cniVersion: "0.2.0",
    ip4: { ip: "10.0.0.7/26", gateway: "10.0.0.1" },
    ip6: { ip: "fd00::7/122" },
  });
});

test("configured routes follow the agent's; their attributes are for 1.1.0 only", () => {
  const routes = [{ dst: "0.0.0.0/0", gw: "10.0.0.1", mtu: 1400, scope: 0 }];
  const success: Success = { ok: true, ips: [four], routes: [{ dst: "10.0.0.7/26" }] };
  assert.deepEqual((document("1.1.0", success, routes) as { routes: unknown }).routes, [
    { dst: "10.0.0.7/26" },
    ...routes,
  ]);
  assert.deepEqual((document("1.0.0", success, routes) as { routes: unknown }).routes, [
    { dst: "10.0.0.7/26" },
    { dst: "0.0.0.0/0", gw: "10.0.0.1" },
  ]);
});

test("Calico's name prints an empty dns before 1.0.0, ours never does", () => {
  const success: Success = { ok: true, ips: [four] };
  const hasDns = (version: CniVersion, dropIn: boolean): boolean =>
    "dns" in (document(version, success, [], dropIn) as object);
  assert.deepEqual([hasDns("0.4.0", true), hasDns("1.0.0", true), hasDns("0.4.0", false)], [true, false, false]);
});

test("what 0.2.0 cannot hold is refused", () => {
  for (const ips of [[], [four, four], [six, six]]) {
    const result = resultDocument("0.2.0", false, { ok: true, ips }, []);
    assert.equal(result.ok || result.code, 7);
  }
});
