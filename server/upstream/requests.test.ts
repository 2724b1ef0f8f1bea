import assert from "node:assert/strict";
import { test } from "node:test";
import type { Api } from "../../shared/kube/api.ts";
import { discoverGroup, groupOf } from "../../shared/kube/discovery.ts";
import { requestLabels } from "./requests.ts";
import { Turns } from "./turns.ts";

test("requests are counted by verb and by our word for the resource", () => {
  const labels = (method: string, path: string, stream = false) =>
    Object.values(requestLabels(method, path, stream)).join(" ");
  assert.equal(labels("GET", "/apis/crd.projectcalico.org/v1/ipamblocks?limit=500"), "list block");
  assert.equal(labels("GET", "/apis/projectcalico.org/v3/ipamconfigurations/default"), "get config");
  assert.equal(labels("GET", "/api/v1/nodes?watch=true", true), "watch node");
  assert.equal(labels("GET", "/api/v1/namespaces/shop"), "get namespace");
  assert.equal(labels("POST", "/api/v1/namespaces/shop/events"), "create event");
  assert.equal(labels("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"), "patch lease");
  assert.equal(labels("DELETE", "/apis/crd.projectcalico.org/v1/ipamhandles/h"), "delete handle");
});

test("v3 is what a cluster uses only where its group is there and the old one is not", async () => {
  const withGroups = (...names: string[]): Api =>
    ({ get: async () => ({ groups: names.map((name) => ({ name })) }) }) as unknown as Api;
  assert.equal(await discoverGroup(withGroups("apps", "crd.projectcalico.org")), "crd");
  assert.equal(await discoverGroup(withGroups("projectcalico.org")), "v3");
  assert.equal(await discoverGroup(withGroups("crd.projectcalico.org", "projectcalico.org")), "crd");
  assert.equal(await discoverGroup(withGroups("apps")), "crd");
});

test("a configured group is read as Calico reads it", () => {
  assert.equal(groupOf(""), undefined);
  assert.equal(groupOf("ProjectCalico.org/v3"), "v3");
  assert.equal(groupOf("projectcalico.org"), "crd");
});

test("turns are granted up to their number, then in order as they are given back", () => {
  const turns = new Turns(2);
  const granted: number[] = [];
  for (const who of [1, 2, 3, 4]) turns.ask(() => granted.push(who));
  assert.deepEqual(granted, [1, 2]);
  turns.end();
  assert.deepEqual(granted, [1, 2, 3]);
  turns.end();
  turns.end();
  turns.end();
  turns.ask(() => granted.push(5));
  turns.ask(() => granted.push(6));
  turns.ask(() => granted.push(7));
  assert.deepEqual(granted, [1, 2, 3, 4, 5, 6]);
});
