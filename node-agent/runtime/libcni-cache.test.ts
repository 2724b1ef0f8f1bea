// What an entry of libcni's result cache says, and which files are none; on real files in the form that libcni writes.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parseCacheEntry } from "./libcni-cache.ts";
import { readLibcniCaches } from "./libcni-cache-shell.ts";

const secret = "c2VjcmV0";
const entry = {
  kind: "cniCacheV1",
  containerId: "c1",
  config: secret,
  ifName: "eth0",
  networkName: "k8s-pod-network",
  netns: "/run/netns/x",
  cniArgs: [
    ["IgnoreUnknown", "1"],
    ["K8S_POD_NAMESPACE", "shop"],
    ["K8S_POD_NAME", "cart"],
  ],
  result: { cniVersion: "1.0.0", ips: [{ address: "10.0.0.7/32" }, { address: "fd00:0::7/128", interface: 2 }] },
};

function folder(t: TestContext, files: Readonly<Record<string, string>>): string {
  const made = mkdtempSync(join(tmpdir(), "cattail-cni-"));
  t.after(() => rmSync(made, { recursive: true, force: true }));
  mkdirSync(join(made, "results"));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(made, "results", name), text);
  return made;
}

test("an entry says whose it is and which addresses it was given", () => {
  assert.deepEqual(parseCacheEntry(JSON.stringify(entry)), {
    attachment: { network: "k8s-pod-network", containerId: "c1", ifname: "eth0" },
    pod: { namespace: "shop", name: "cart" },
    addresses: ["10.0.0.7", "fd00::7"],
  });
});

test("a bare result, as older releases left it, names addresses but nobody", () => {
  const old = { cniVersion: "0.2.0", ip4: { ip: "10.0.0.8/26" }, ip6: { ip: "fd00::8/122" }, dns: {} };
  assert.deepEqual(parseCacheEntry(JSON.stringify(old)), {
    attachment: undefined,
    pod: undefined,
    addresses: ["10.0.0.8", "fd00::8"],
  });
});

for (const [what, text] of Object.entries({
  "an empty file": "",
  "the first half of an entry": JSON.stringify(entry).slice(0, 150),
  "no object": "[]",
  "another kind": JSON.stringify({ ...entry, kind: "cniCacheV9" }),
  "an entry without a result": JSON.stringify({ ...entry, result: undefined }),
  "no address": JSON.stringify({ ...entry, result: { ips: [{ address: "ten" }] } }),
})) {
  test(`given ${what} beside a whole entry, then the rest is seen, a gap is told, and no secret is`, async (t) => {
    const found = await readLibcniCaches([folder(t, { whole: JSON.stringify(entry), odd: text })]);
    assert.equal(found.seen.length, 1);
    assert.match(found.gap ?? "", /results\/odd is no whole entry/);
    assert.ok(!found.gap?.includes(secret));
  });
}

test("given whole entries in two directories, then all of them are seen and there is no gap", async (t) => {
  const other = { ...entry, containerId: "c2" };
  const found = await readLibcniCaches([
    folder(t, { a: JSON.stringify(entry) }),
    folder(t, { b: JSON.stringify(other) }),
  ]);
  assert.deepEqual(
    found.seen.map(({ attachment }) => attachment?.containerId),
    ["c1", "c2"],
  );
  assert.equal(found.gap, undefined);
});

test("a directory that is not there, and none at all, are gaps", async (t) => {
  const missing = join(folder(t, {}), "no");
  assert.match((await readLibcniCaches([missing])).gap ?? "", /cannot be read/);
  assert.match((await readLibcniCaches([])).gap ?? "", /cni\.cacheDirs/);
});
