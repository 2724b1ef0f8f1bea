// A consistent read of one object of any streamed kind: what it shows, and what the store says after it.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Kind } from "../../shared/calico/resources.ts";
import { Failure, type ResourceVersion } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import { manualClock } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { ObjectReader } from "./object-reader.ts";

/** An API server that has this to say, whatever it is asked. */
function reading(answer: unknown) {
  const store = new Store(manualClock());
  const asked: string[] = [];
  const api = {
    get: async (path: string) => {
      asked.push(path);
      return answer;
    },
  } as unknown as Api;
  return { store, asked, reader: new ObjectReader({ api, group: "crd", store, clock: manualClock() }) };
}

const metadata = { name: "x", uid: "u", resourceVersion: "7" };
const objects: { readonly [K in Kind]?: object } = {
  pool: { metadata, spec: { cidr: "10.0.0.0/24", blockSize: 29 } },
  node: { metadata },
  namespace: { metadata },
  config: { metadata, spec: {} },
  cluster: { metadata, spec: { datastoreReady: true } },
};

for (const [kind, object] of Object.entries(objects) as [Kind, object][]) {
  test(`a ${kind} that is there is put into the store; one that is not there any more is taken out`, async () => {
    const { store, asked, reader } = reading({ kind: "List", metadata: { resourceVersion: "9" }, items: [object] });
    assert.deepEqual(await reader.refresh("node-a", kind, "x"), { version: "7", dataVersion: "9" });
    assert.equal(store.get(kind, "x")?.resourceVersion, "7");
    assert.match(asked[0] ?? "", /\?fieldSelector=metadata.name%3Dx$/);

    const gone = reading({ kind: "List", metadata: { resourceVersion: "9" }, items: null });
    const known = store.get(kind, "x");
    assert.ok(known);
    gone.store.put(kind, known);
    assert.deepEqual(await gone.reader.refresh("node-a", kind, "x"), { version: undefined, dataVersion: "9" });
    assert.equal(gone.store.get(kind, "x"), undefined);
  });
}

for (const [what, answer] of [
  ["is no list", { kind: "Status", metadata: {} }],
  ["has no version", { kind: "List", metadata: {}, items: [] }],
  [
    "is about another object",
    { kind: "List", metadata: { resourceVersion: "9" }, items: [{ metadata: { ...metadata, name: "y" } }] },
  ],
] as const) {
  test(`an answer that ${what} shows nothing and changes nothing`, async () => {
    const { store, reader } = reading(answer);
    store.put("node", { name: "x", uid: "u", resourceVersion: "3" as ResourceVersion, labels: {} } as never);
    await assert.rejects(reader.refresh("node-a", "node", "x"), (error) => error instanceof Failure);
    assert.equal(store.get("node", "x")?.resourceVersion, "3");
  });
}
