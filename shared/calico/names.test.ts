import assert from "node:assert/strict";
import { test } from "node:test";
import type { BlockCidr, HandleId } from "../kinds.ts";
import { affinityLabels, affinityName, apiPath, blockName, handleName, resourceOf } from "./names.ts";

const block = (cidr: string): BlockCidr => cidr as BlockCidr;

for (const [cidr, name] of [
  ["10.244.0.64/26", "10-244-0-64-26"],
  ["192.168.1.7/32", "192-168-1-7-32"],
  ["fd00:10:244::40/122", "fd00-10-244--40-122"],
  ["fd00::/122", "fd00---122"],
  ["2001:db8:1:2:3:4:5:0/122", "2001-db8-1-2-3-4-5-0-122"],
] as const) {
  test(`the block ${cidr} is called ${name}`, () => assert.equal(blockName(block(cidr)), name));
}

test("an affinity is named after node and block; only too long a name is cut and hashed", () => {
  const cidr = block("10.244.0.64/26");
  assert.equal(affinityName("worker-1", cidr), "worker-1-10-244-0-64-26");
  assert.equal(affinityName("n".repeat(237), cidr), `${"n".repeat(237)}-10-244-0-64-26`);
  assert.match(affinityName("n".repeat(238), cidr), /^n{225}-10-244-0-64-26-1a3b996f6e6$/);
  assert.match(affinityName("a".repeat(240), cidr), /-0bcfc56e132$/);
  for (const length of [237, 238, 239, 253]) assert.equal(affinityName("x".repeat(length), cidr).length, 252);
});

test("a handle's name is its id in lower case", () => {
  assert.equal(handleName("Net-A.5F0c" as HandleId), "net-a.5f0c");
});

for (const [node, hash] of [
  ["node-a", "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA"],
  ["node-b", "CMAXSCEQN2FQX6QTO46RNUSW2SYX5B4KAJRNYFFLLCEBP5WWXSDA"],
  ["worker-1", "CPU5J3TPSNHFA66J45DG4Z5C3PSJAZ36LD46JZLYEGZSTAWBUCUA"],
  ["load-balancer", "TAU2RK2F2FG7MIS72DPZYC6FJ3U3BIWIDZAMUTQY7ZXMSKQZ5GSQ"],
  ["ip-10-0-1-23.ec2.internal", "W6VKMWA6TKCYGMAJF7FFKSXRBRSB4VVC4YL3OBBZPQHJK25LPEGQ"],
] as const) {
  test(`the label hash of ${node}`, () => {
    assert.deepEqual(affinityLabels({ node, cidr: block("10.244.0.8/29"), type: "host" }), {
      "projectcalico.org/affinity-type": "host",
      "projectcalico.org/hostname-hash": hash,
      "projectcalico.org/ip-version": "4",
    });
  });
}

test("labels tell virtual owners and IPv6", () => {
  const labels = affinityLabels({ node: "load-balancer", cidr: block("fd00::/122"), type: "virtual" });
  assert.equal(labels["projectcalico.org/affinity-type"], "virtual");
  assert.equal(labels["projectcalico.org/ip-version"], "6");
});

test("paths of both groups; the configuration has another kind in each", () => {
  assert.equal(apiPath("crd", "block"), "/apis/crd.projectcalico.org/v1/ipamblocks");
  assert.equal(apiPath("v3", "block", "10-0-0-0-26"), "/apis/projectcalico.org/v3/ipamblocks/10-0-0-0-26");
  assert.equal(apiPath("crd", "config", "default"), "/apis/crd.projectcalico.org/v1/ipamconfigs/default");
  assert.equal(apiPath("v3", "config", "default"), "/apis/projectcalico.org/v3/ipamconfigurations/default");
  assert.equal(apiPath("v3", "node", "node-a"), "/api/v1/nodes/node-a");
  assert.equal(apiPath("crd", "handle", "a/../b"), "/apis/crd.projectcalico.org/v1/ipamhandles/a%2F..%2Fb");
  assert.deepEqual(resourceOf("v3", "affinity"), {
    apiVersion: "projectcalico.org/v3",
    kind: "BlockAffinity",
    plural: "blockaffinities",
  });
});
