import assert from "node:assert/strict";
import { test } from "node:test";
import { oursIn, patchConflist } from "./conflist.ts";

const calicos = `{
  "name": "k8s-pod-network",
  "cniVersion": "0.3.1",
  "x-unknown": 12345678901234567890.50,
  "plugins": [
    { "type": "calico", "mtu": 0, "ipam": { "subnet": "usePodCidr", "type": "host-local", "zeta": 1, "alpha": [1.0] } },
    { "type": "portmap", "ipam": { "type": "left-alone" } }
  ]
}`;

function patched(text: string, ...wish: Parameters<typeof oursIn>): string {
  const result = patchConflist(text, oursIn(...wish));
  assert.equal(result.kind, "changed", JSON.stringify(result));
  return result.kind === "changed" ? result.text : "";
}

test("given a list, when it is patched, then only the main plugin's type changes, and keys keep order and numbers their text", () => {
  const text = patched(calicos, "cattail-ipam", {});
  const withoutSpace = (some: string): string => some.replaceAll(/\s/g, "");
  assert.equal(withoutSpace(text), withoutSpace(calicos).replace("host-local", "cattail-ipam"));
  assert.match(text, /^\{\n {2}"name"/);
});

test("given a patched list, when it is patched again, then nothing changes", () => {
  const wish = oursIn("cattail-ipam", { socket: "/s", spool: "/q" });
  const result = patchConflist(calicos, wish);
  assert.ok(result.kind === "changed");
  assert.deepEqual(patchConflist(result.text, wish), { kind: "same" });
});

test("given places that are not the usual ones, then they stand beside what an operator has written there", () => {
  const own = '{"name":"n","type":"ptp","ipam":{"type":"x","cattail":{"gateway":"first","socket":"/old"}}}';
  const { ipam } = JSON.parse(patched(own, "cattail-ipam", { socket: "/s", spool: "/q" }));
  assert.deepEqual(ipam, { type: "cattail-ipam", cattail: { gateway: "first", socket: "/s", spool: "/q" } });
});

test("given the usual places, then the executable's own key is left as it is", () => {
  const own = '{"name":"n","type":"ptp","ipam":{"type":"x","cattail":{"socket":"/mine"}}}';
  assert.deepEqual(JSON.parse(patched(own, "cattail-ipam", {})).ipam.cattail, { socket: "/mine" });
  assert.ok(!("cattail" in JSON.parse(patched(calicos, "calico-ipam", {})).plugins[0].ipam));
});

test("given what is no network configuration, then it says so", () => {
  for (const text of ["", "{", "[]", "null", '"x"', '{"plugins":[]}', '{"plugins":[{"type":"ptp"}]}', '{"ipam":[]}']) {
    assert.equal(patchConflist(text, oursIn("calico-ipam", {})).kind, "unusable", text);
  }
});
