// The ipam section of an ADD: Calico's keys as Calico reads them, our own strictly; for other verbs nothing in it can fail.
import assert from "node:assert/strict";
import test from "node:test";
import { addressOf } from "./address.ts";
import { type AddConfig, parseAddConfig, placesOf } from "./ipam-config.ts";

type Json = { readonly [key: string]: unknown };

function parsed(netconf: Json, ipArgument = ""): AddConfig {
  const config = parseAddConfig(netconf, ipArgument, addressOf);
  assert.ok(config.ok, config.ok ? "" : config.why);
  return config;
}

function refusal(netconf: Json, ipArgument = ""): [number, string] {
  const config = parseAddConfig(netconf, ipArgument, addressOf);
  assert.ok(!config.ok);
  return [config.code, `${config.why}. ${config.next}`];
}

test("nothing configured means one IPv4 address from any pool, with the pool's prefix", () => {
  assert.deepEqual(parsed({}), {
    ok: true,
    families: { ipv4: true, ipv6: false },
    pools: { ipv4: [], ipv6: [] },
    requested: [],
    result: { prefix: "pool", gateway: "" },
    routes: [],
  });
});

test("families are Calico's: only false switches IPv4 off, only true IPv6 on, in any case of the key", () => {
  const families = (ipam: Json): AddConfig["families"] => parsed({ ipam }).families;
  assert.deepEqual(families({ assign_ipv4: "FALSE", assign_ipv6: "yes" }), { ipv4: true, ipv6: false });
  assert.deepEqual(families({ ASSIGN_IPV4: "false", Assign_IPv6: "true" }), { ipv4: false, ipv6: true });
  assert.deepEqual(families({ assign_ipv4: false, assign_ipv6: true }), { ipv4: false, ipv6: true });
  assert.deepEqual(families({ assign_ipv4: null, assign_ipv6: null }), { ipv4: true, ipv6: false });
});

test("addresses asked for: the capability before the convention before IP=, and they decide the families", () => {
  const runtimeConfig = { ips: ["10.0.0.7/24", "FD00::7"] };
  const args = { cni: { ips: ["10.0.0.8"] } };
  assert.deepEqual(parsed({ runtimeConfig, args }, "10.0.0.9").requested, ["10.0.0.7", "fd00::7"]);
  assert.deepEqual(parsed({ args }, "10.0.0.9").requested, ["10.0.0.8"]);
  const six = parsed({ runtimeConfig: { ips: [] }, ipam: { assign_ipv4: "true" } }, "fd00::9");
  assert.deepEqual([six.requested, six.families], [["fd00::9"], { ipv4: false, ipv6: true }]);
  assert.deepEqual(parsed({}, "::ffff:10.0.0.9").requested, ["10.0.0.9"]);
});

test("wrong types are refused and name the key", () => {
  const wrong: [Json, RegExp][] = [
    [{ ipam: [] }, /"ipam" is a list/],
    [{ ipam: "x" }, /"ipam" is the string "x"/],
    [{ ipam: { assign_ipv4: 1 } }, /ipam\.assign_ipv4/],
    [{ ipam: { ipv4_pools: "blue" } }, /ipam\.ipv4_pools/],
    [{ ipam: { ipv6_pools: [7] } }, /ipam\.ipv6_pools/],
    [{ ipam: { ipv4_pools: Array(65).fill("p") } }, /65 entries/],
    [{ ipam: { routes: [{ gw: "10.0.0.1" }] } }, /ipam\.routes/],
    [{ ipam: { routes: [{ dst: "10.0.0.0/33" }] } }, /ipam\.routes/],
    [{ ipam: { routes: [{ dst: "10.0.0.0/8", mtu: "x" }] } }, /mtu/],
    [{ runtimeConfig: { ips: ["x"] } }, /runtimeConfig\.ips/],
    [{ args: { cni: { ips: "10.0.0.1" } } }, /args\.cni\.ips/],
  ];
  for (const [netconf, message] of wrong) {
    const [code, text] = refusal(netconf);
    assert.equal(code, 7, text);
    assert.match(text, message);
  }
});

test("an IP= that is no address blames the environment", () => {
  const [code, text] = refusal({}, "10.0.0.1/24");
  assert.equal(code, 4);
  assert.match(text, /IP="10\.0\.0\.1\/24"/);
});

test("our own key is read strictly: the error names key and value and the nearest key", () => {
  const wrong: [unknown, RegExp][] = [
    [7, /ipam\.cattail" is 7/],
    [{ sokcet: "/x" }, /unknown key "ipam\.cattail\.sokcet" with value "\/x"\. Did you mean "socket"\?/],
    [{ socket: "agent.sock" }, /absolute path/],
    [{ socket: `/${"x".repeat(107)}` }, /107 bytes/],
    [{ timeoutMs: 90_001 }, /from 2000 to 90000/],
    [{ timeoutMs: "60s" }, /ipam\.cattail\.timeoutMs" is "60s"/],
    [{ prefix: "Pool" }, /"block", "pool", "host"/],
    [{ gateway: "last" }, /"first"/],
  ];
  for (const [cattail, message] of wrong) {
    const [code, text] = refusal({ ipam: { cattail } });
    assert.equal(code, 2, text);
    assert.match(text, message);
  }
});

test("our own key shapes the result", () => {
  const result = (cattail: Json): AddConfig["result"] => parsed({ ipam: { cattail } }).result;
  assert.deepEqual(result({ prefix: "host", gateway: "first" }), { prefix: "host", gateway: "first" });
  assert.deepEqual(result({ gateway: "FD00::1" }), { prefix: "pool", gateway: "fd00::1" });
  assert.deepEqual(result({ gateway: "" }), { prefix: "pool", gateway: "" });
});

test("routes are passed through with their attributes", () => {
  const routes = [{ dst: "0.0.0.0/0", gw: "10.0.0.1", mtu: 1400, scope: 0 }, { dst: "fd00::/8" }];
  assert.deepEqual(parsed({ ipam: { routes } }).routes, routes);
});

test("a broken section leads to the default places, a partly broken one to what is right in it", () => {
  const places = { socketPath: "/run/cattail/agent.sock", spoolPath: "/var/lib/cattail/spool" };
  for (const ipam of [undefined, null, [], "x", { cattail: 7 }, { cattail: { socket: 7, spool: "relative" } }]) {
    assert.deepEqual(placesOf({ ipam }), places);
  }
  const half = { IPAM: { cattail: { socket: "/s", spool: [], prefix: "nonsense" } } };
  assert.deepEqual(placesOf(half), { ...places, socketPath: "/s" });
});
