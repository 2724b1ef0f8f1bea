import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseLossless, printLossless } from "../json/lossless.ts";
import type { BlockCidr, HandleId, Sequence, UnixMs } from "../kinds.ts";
import { assign, bump, disown, freeOrdinals, newBlock, ordinalsOfHandle, release, retag } from "./block.ts";
import {
  affinityPatch,
  blockPatch,
  handlePatch,
  newAffinityObject,
  newBlockObject,
  newHandleObject,
  type Reading,
  readAffinity,
  readBlock,
  readClusterInformation,
  readConfig,
  readers,
  readHandle,
  readNamespace,
  readNode,
  readPool,
  readReservation,
} from "./codec.ts";
import { type BlockState, kinds } from "./resources.ts";

type Json = Record<string, unknown>;
const metadata = (more: Json = {}): Json => ({ name: "x", uid: "u1", resourceVersion: "7", ...more });
const object = (spec: unknown, more: Json = {}): Json => ({ metadata: metadata(), spec, ...more });
/** Under the name that belongs to its CIDR. */
const blockObject = (spec: unknown): Json => {
  const name = String((spec as Json | undefined)?.cidr).replaceAll(/[.:/]/g, "-");
  return { metadata: metadata({ name }), spec };
};
const annotated = { annotations: { "projectcalico.org/metadata": "{}" } };
function read<T>(reading: Reading<T>): T {
  return reading.ok ? reading.object : assert.fail(reading.problem);
}
function problem(reading: Reading<unknown>): string {
  return reading.ok ? assert.fail("was read") : reading.problem;
}
/** RFC 7386, as the API server applies it. */
function merged(target: unknown, patch: unknown): unknown {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const result: Json = typeof target === "object" && target !== null && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = merged(result[key], value);
  }
  return result;
}

const blockText = `{
  "apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock",
  "metadata": {
    "name": "10-244-0-8-29", "uid": "3f2b7c1e-9d4a-4e6b-8a1f-5c0d2e7f9b31", "resourceVersion": "20417",
    "creationTimestamp": "2026-08-22T13:33:20Z", "annotations": { "projectcalico.org/metadata": "{}" }
  },
  "spec": {
    "affinity": "host:worker-1", "affinityClaimTime": "2026-08-22T13:33:20Z",
    "allocations": [0, 2, 1, null, null, null, null, null],
    "attributes": [
      { "handle_id": "ipip-tunnel-addr-worker-1", "secondary": { "node": "worker-1", "type": "ipipTunnelAddress" } },
      { "handle_id": "k8s-pod-network.5f0c", "secondary": { "node": "worker-1", "pod": "web" }, "future": 1.0 },
      { "releasedAt": "2026-08-22T13:52:44Z" }
    ],
    "cidr": "10.244.0.8/29", "deleted": false, "sequenceNumber": 1787405600123456793,
    "sequenceNumberForAllocation": { "0": 1787405600123456789, "1": 1787405600123456790, "2": 1787405600123456791 },
    "strictAffinity": false, "unallocated": [3, 4, 5, 6, 7], "future": { "big": 1787405600123456793 }
  }
}`;
const cooling = { now: 1_787_410_000_000 as UnixMs, cooldownSeconds: 0 };

test("a block is read with exact numbers", () => {
  const block = read(readBlock(parseLossless(blockText), "crd"));
  assert.equal(block.cidr, "10.244.0.8/29");
  assert.equal(block.uid, "3f2b7c1e-9d4a-4e6b-8a1f-5c0d2e7f9b31");
  assert.equal(block.resourceVersion, "20417");
  assert.equal(block.sequenceNumber, 1787405600123456793n);
  assert.equal(block.sequenceNumberForAllocation.get(1), 1787405600123456790n);
  assert.deepEqual(block.unallocated, [3, 4, 5, 6, 7]);
  assert.equal(block.affinity, "host:worker-1");
});

test("a block of an old release: no sequences, no claim time, nulls for what is empty", () => {
  const block = read(
    readBlock(
      blockObject({
        cidr: "10.0.0.0/31",
        allocations: [null, null],
        unallocated: null,
        attributes: null,
        affinity: null,
        strictAffinity: true,
      }),
      "crd",
    ),
  );
  assert.equal(block.sequenceNumber, 0n);
  assert.equal(block.sequenceNumberForAllocation.size, 0);
  assert.deepEqual([block.unallocated, block.attributes, block.deleted], [[], [], false]);
  assert(!("affinity" in block) && !("affinityClaimTime" in block));
});

for (const [name, spec, text] of [
  ["no spec", undefined, 'cidr is ""'],
  ["no CIDR", { cidr: "x" }, 'cidr is "x"'],
  ["a CIDR that is no text", { cidr: 10n ** 20n }, "cidr is not a string"],
  ["more addresses than a block has", { cidr: "10.0.0.0/8" }, "10.0.0.0/8 is too large for a block"],
  ["too few allocations", { cidr: "10.0.0.0/31", allocations: [null] }, "1 allocations in a block of 2"],
  ["an allocation to nothing", { cidr: "10.0.0.0/31", allocations: [null, 0] }, "ordinal 1 points at no attribute"],
  ["an allocation to text", { cidr: "10.0.0.0/31", allocations: ["0", null] }, "ordinal 0 points at no attribute"],
  ["an attribute of a wrong type", { cidr: "10.0.0.0/31", attributes: [7] }, "an attribute is not an object"],
  [
    "a secondary that is no map of texts",
    { cidr: "10.0.0.0/31", attributes: [{ secondary: { a: 1 } }] },
    "secondary.a is not a string",
  ],
  ["a release at no time", { cidr: "10.0.0.0/31", attributes: [{ releasedAt: "soon" }] }, "releasedAt is soon"],
  [
    "a sequence beyond 64 bits",
    { cidr: "10.0.0.0/32", allocations: [null], sequenceNumber: 2n ** 63n },
    "sequenceNumber is not an integer",
  ],
  [
    "a queue of texts",
    { cidr: "10.0.0.0/32", allocations: [null], unallocated: ["0"] },
    "unallocated holds something else than ordinals",
  ],
] as const) {
  test(`a block with ${name} is a problem, not an exception`, () =>
    assert.equal(problem(readBlock(blockObject(spec), "crd")), text));
}

test("a block under a name that is not its CIDR's is a problem: nobody would find it there", () =>
  assert.equal(problem(readBlock(object({ cidr: "10.0.0.0/31" }), "crd")), "10.0.0.0/31 is not the CIDR of this name"));

test("null in an attribute is as good as absent, what we do not know in it is kept", () => {
  const attributes = [{ handle_id: null, secondary: null, releasedAt: null, future: "" }];
  const block = read(readBlock(blockObject({ cidr: "10.0.0.0/32", allocations: [0], attributes }), "crd"));
  assert.deepEqual(block.attributes, [{ future: "" }]);
});

test("metadata without name, uid or version is a problem for every kind", () => {
  for (const kind of kinds) {
    for (const key of ["name", "uid", "resourceVersion"]) {
      const raw = { metadata: metadata({ [key]: "" }), spec: {} };
      assert.equal(problem(readers[kind](raw, "crd")), `${key} is missing`);
    }
  }
});

test("an affinity's mark of deletion has the spellings of both groups", () => {
  const deleted = (mark: unknown, group: "crd" | "v3" = "crd"): boolean | string => {
    const reading = readAffinity(object({ cidr: "10.0.0.0/29", node: "a", state: "confirmed", deleted: mark }), group);
    return reading.ok ? reading.object.deleted : reading.problem;
  };
  for (const mark of ["1", "t", "T", "TRUE", "true", "True"]) assert.equal(deleted(mark), true, mark);
  for (const mark of ["", "0", "f", "F", "FALSE", "false", "False", undefined, null])
    assert.equal(deleted(mark), false);
  assert.equal(deleted(true, "v3"), true);
  assert.equal(deleted("yes"), 'deleted is "yes"');
  assert.equal(deleted(2n ** 60n), "deleted is 1152921504606846976");
});

test("an affinity without type belongs to a host; its state may be empty, but not unknown", () => {
  const affinity = read(readAffinity(object({ cidr: "10.0.0.0/29", node: "a", type: "" }), "crd"));
  assert.deepEqual([affinity.type, affinity.state], ["host", ""]);
  assert.equal(
    problem(readAffinity(object({ cidr: "10.0.0.0/29", node: "a", state: "odd" }), "crd")),
    'state is "odd"',
  );
  assert.equal(problem(readAffinity(object({ cidr: "10.0.0.0/29" }), "crd")), "node is missing");
});

test("a handle counts its addresses by the canonical text of their block", () => {
  const handle = read(
    readHandle(object({ handleID: "Net.C1", block: { "10.0.0.0/29": 2, "fd00:0::/122": 1 } }), "crd"),
  );
  assert.equal(handle.handleId, "Net.C1");
  assert.deepEqual([...handle.block], [["10.0.0.0/29", 2]]);
  assert.equal(
    problem(readHandle(object({ handleID: "a", block: { "10.0.0.0/29": "2" } }), "crd")),
    "10.0.0.0/29 is not an integer",
  );
});

test("a pool's defaults are those of Calico", () => {
  const pool = (spec: Json, more: Json = {}, group: "crd" | "v3" = "crd") =>
    read(readPool(object({ cidr: "10.0.0.0/16", ...spec }, more), group));
  assert.deepEqual(pool({}), {
    ...metadata(),
    cidr: "10.0.0.0/16",
    blockSize: 26,
    disabled: false,
    deleting: false,
    allocatable: true,
    nodeSelector: "",
    namespaceSelector: "",
    allowedUses: ["Workload", "Tunnel"],
    assignmentMode: "Automatic",
  });
  assert.equal(pool({ cidr: "fd00::/64", blockSize: 0 }).blockSize, 122);
  assert.equal(pool({ assignmentMode: "Manual" }).assignmentMode, "Manual");
  assert.deepEqual(pool({ allowedUses: ["LoadBalancer"] }).allowedUses, ["LoadBalancer"]);
  assert.deepEqual(pool({ allowedUses: ["Unheard-of"] }).allowedUses, []);
  const conditions = (status: string): Json => ({ status: { conditions: [{ type: "Allocatable", status }] } });
  assert.equal(pool({}, conditions("False")).allocatable, false);
  assert.equal(pool({}, conditions("True")).allocatable, true);
  assert.equal(problem(readPool(object({ cidr: "10.0.0.0/16", blockSize: 122 }), "crd")), "blockSize is 122");
  assert.equal(problem(readPool(object({ cidr: "10.0.0.0/16", blockSize: 8 }), "crd")), "blockSize is 8");
});

test("a pool's deletion is hidden where Calico keeps metadata in an annotation", () => {
  const deleting = (more: Json, group: "crd" | "v3"): boolean =>
    read(
      readPool(
        { metadata: metadata({ deletionTimestamp: "2026-08-22T13:33:20Z", ...more }), spec: { cidr: "10.0.0.0/16" } },
        group,
      ),
    ).deleting;
  assert.equal(deleting({}, "crd"), true);
  assert.equal(deleting(annotated, "crd"), false);
  assert.equal(deleting(annotated, "v3"), true);
});

test("a configuration's missing fields are Calico's defaults", () => {
  const { strictAffinity, autoAllocateBlocks, maxBlocksPerHost, kubeVirtVMAddressPersistence, ipCooldownSeconds } =
    read(readConfig(object({}), "v3"));
  assert.deepEqual(
    [strictAffinity, autoAllocateBlocks, maxBlocksPerHost, kubeVirtVMAddressPersistence, ipCooldownSeconds],
    [false, true, 0, "Enabled", 0],
  );
  assert.equal(problem(readConfig(object({ strictAffinity: "true" }), "v3")), "strictAffinity is not a boolean");
});

test("reservations are trimmed, made canonical, and passed over where they are malformed", () => {
  const reservedCIDRs = [" 10.0.0.5/30 ", "10.0.0.9", "FD00::0001", "", "nonsense", "10.0.0.0/40"];
  assert.deepEqual(read(readReservation(object({ reservedCIDRs }), "crd")).cidrs, [
    "10.0.0.4/30",
    "10.0.0.9/32",
    "fd00::1/128",
  ]);
  assert.deepEqual(read(readReservation(object({}), "crd")).cidrs, []);
});

test("a node's labels lie over those of Calico's annotation; a broken annotation counts for nothing", () => {
  const labels = (annotation: string | undefined) =>
    read(
      readNode(
        {
          metadata: metadata({
            labels: { zone: "k8s" },
            annotations: annotation === undefined ? undefined : { "projectcalico.org/labels": annotation },
          }),
        },
        "crd",
      ),
    ).labels;
  assert.deepEqual(labels(undefined), { zone: "k8s" });
  assert.deepEqual(labels('{"zone":"calico","rack":"r1"}'), { zone: "k8s", rack: "r1" });
  for (const broken of ["{", "[1]", '{"rack":1}', "null"]) assert.deepEqual(labels(broken), { zone: "k8s" }, broken);
});

test("namespace and cluster", () => {
  assert.deepEqual(read(readNamespace({ metadata: metadata({ labels: { team: "shop" } }) }, "v3")).labels, {
    team: "shop",
  });
  const cluster = read(readClusterInformation(object({ datastoreReady: true, clusterGUID: "g" }), "crd"));
  assert.deepEqual([cluster.datastoreReady, cluster.clusterGuid], [true, "g"]);
  assert.equal(read(readClusterInformation(object({}), "crd")).datastoreReady, false);
});

test("property: no JSON makes a reader throw", () => {
  const spec = fc.dictionary(
    fc.constantFrom(
      "cidr",
      "allocations",
      "attributes",
      "deleted",
      "block",
      "node",
      "handleID",
      "blockSize",
      "reservedCIDRs",
    ),
    fc.oneof(fc.jsonValue(), fc.bigInt(), fc.constantFrom("10.0.0.0/30", [null, null, 0, 0])),
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...kinds),
      fc.oneof(
        fc.jsonValue(),
        fc.record({ metadata: fc.oneof(fc.jsonValue(), fc.constant(metadata())), spec, status: fc.jsonValue() }),
      ),
      (kind, raw) => {
        assert.equal(typeof readers[kind](raw, "crd").ok, "boolean");
      },
    ),
    { numRuns: 1000 },
  );
});

const cidr = "10.10.0.80/29" as BlockCidr;
const claimed: BlockState = newBlock({
  cidr,
  affinity: "host:node-a",
  now: 1_796_136_992_000 as UnixMs,
  sequence: 1_796_136_992_026_545_679n as Sequence,
});

test("a new block is what Calico would create", () => {
  const spec = {
    affinity: "host:node-a",
    affinityClaimTime: "2026-12-01T14:56:32Z",
    allocations: [null, null, null, null, null, null, null, null],
    attributes: [],
    cidr: "10.10.0.80/29",
    deleted: false,
    sequenceNumber: 1_796_136_992_026_545_679n,
    sequenceNumberForAllocation: {},
    strictAffinity: false,
    unallocated: [0, 1, 2, 3, 4, 5, 6, 7],
  };
  assert.deepEqual(newBlockObject("crd", cidr, claimed), {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPAMBlock",
    metadata: { name: "10-10-0-80-29", ...annotated },
    spec,
  });
  assert.deepEqual(newBlockObject("v3", cidr, claimed), {
    apiVersion: "projectcalico.org/v3",
    kind: "IPAMBlock",
    metadata: { name: "10-10-0-80-29" },
    spec,
  });
});

const labels = {
  "projectcalico.org/affinity-type": "host",
  "projectcalico.org/hostname-hash": "PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA",
  "projectcalico.org/ip-version": "4",
};
const labelled = {
  annotations: {
    "projectcalico.org/metadata":
      '{"labels":{"projectcalico.org/affinity-type":"host","projectcalico.org/hostname-hash":"PY3TQE2E3XMTETLM2MJO3UITKPFB27YUJ4T4E5XGPEJON3SM4QAA","projectcalico.org/ip-version":"4"}}',
  },
  labels,
};

test("a new affinity is what Calico would create", () => {
  const affinity = { node: "node-a", cidr, state: "pending", type: "host" } as const;
  assert.deepEqual(newAffinityObject("crd", affinity), {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "BlockAffinity",
    metadata: { name: "node-a-10-10-0-80-29", ...labelled },
    spec: { cidr, deleted: "false", node: "node-a", state: "pending", type: "host" },
  });
  assert.deepEqual(newAffinityObject("v3", affinity), {
    apiVersion: "projectcalico.org/v3",
    kind: "BlockAffinity",
    metadata: { name: "node-a-10-10-0-80-29", labels },
    spec: { cidr, deleted: false, node: "node-a", state: "pending", type: "host" },
  });
});

test("a new handle is what Calico would create", () => {
  assert.deepEqual(newHandleObject("crd", "k8s-pod-network.C1" as HandleId, new Map([[cidr, 1]])), {
    apiVersion: "crd.projectcalico.org/v1",
    kind: "IPAMHandle",
    metadata: { name: "k8s-pod-network.c1", ...annotated },
    spec: { block: { [cidr]: 1 }, deleted: false, handleID: "k8s-pod-network.C1" },
  });
});

test("a block's patch holds what changes, the version it changes, and Calico's stamp", () => {
  const block = read(readBlock(parseLossless(blockText), "crd"));
  const after = bump(
    assign(release(block, ordinalsOfHandle(block, "k8s-pod-network.5f0c" as HandleId), cooling), [4], {
      handle: "net.c9" as HandleId,
      secondary: { node: "worker-1" },
    }),
  );
  assert.deepEqual(blockPatch("crd", block, after), {
    metadata: { resourceVersion: "20417", ...annotated },
    spec: {
      allocations: [0, null, null, null, 1, null, null, null],
      attributes: [block.attributes[0], { handle_id: "net.c9", secondary: { node: "worker-1" } }],
      sequenceNumber: 1787405600123456794n,
      sequenceNumberForAllocation: { 1: null, 2: null, 4: 1787405600123456793n },
      unallocated: [3, 5, 6, 7, 1, 2],
    },
  });
});

test("the queue of a full block and the entries of an empty one are written as empty lists, never null", () => {
  const block = read(readBlock(parseLossless(blockText), "crd"));
  const full = assign(block, block.unallocated, { handle: "net.c9" as HandleId, secondary: { node: "worker-1" } });
  assert.deepEqual(Object(blockPatch("crd", block, full).spec).unallocated, []);
  const empty = release(block, [...block.allocations.keys()], cooling);
  assert.deepEqual(Object(blockPatch("crd", block, empty).spec).attributes, []);
});

test("a block that loses its owner loses the fields; one that only counts on changes one number", () => {
  const block = read(readBlock(parseLossless(blockText), "v3"));
  assert.deepEqual(blockPatch("v3", block, disown(block)), {
    metadata: { resourceVersion: "20417" },
    spec: { affinity: null, affinityClaimTime: null },
  });
  assert.deepEqual(blockPatch("v3", block, bump(block)).spec, { sequenceNumber: 1787405600123456794n });
  assert.deepEqual(blockPatch("v3", block, { ...block, deleted: true }).spec, { deleted: true });
});

test("an old affinity row becomes what Calico writes today", () => {
  const raw = object({ cidr, node: "node-a", state: "", deleted: "" });
  const affinity = read(readAffinity(raw, "crd"));
  assert.deepEqual(merged(raw, affinityPatch("crd", affinity, { state: "pending", deleted: false })), {
    metadata: { ...metadata(), ...labelled },
    spec: { cidr, node: "node-a", state: "pending", deleted: "false", type: "host" },
  });
  assert.deepEqual(affinityPatch("v3", affinity, { state: "pendingDeletion", deleted: true }), {
    metadata: { resourceVersion: "7", labels },
    spec: { state: "pendingDeletion", deleted: true, type: "host" },
  });
});

test("a handle's patch changes single counts", () => {
  const other = "10.10.0.0/29" as BlockCidr;
  const handle = read(readHandle(object({ handleID: "a", block: { [cidr]: 1, [other]: 2 } }), "crd"));
  assert.deepEqual(handlePatch("crd", handle, { block: new Map([[other, 3]]), deleted: false }), {
    metadata: { resourceVersion: "7", ...annotated },
    spec: { block: { [cidr]: null, [other]: 3 } },
  });
  assert.deepEqual(handlePatch("v3", handle, { block: new Map(), deleted: true }).spec, {
    block: { [cidr]: null, [other]: null },
    deleted: true,
  });
});

test("property: a patched object reads as the state that was wanted, and what we do not know is untouched", () => {
  const raw = parseLossless(blockText);
  const block = read(readBlock(raw, "crd"));
  const step = fc.record({
    kind: fc.constantFrom("assign", "release", "retag", "disown"),
    ordinal: fc.nat(7),
    name: fc.constantFrom("a", "b"),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
      let after: BlockState = block;
      for (const { kind, ordinal, name } of steps) {
        const owner = { handle: name as HandleId, secondary: { node: "worker-1" } };
        if (kind === "release") after = release(after, [ordinal], cooling);
        else if (kind === "assign") after = assign(after, freeOrdinals(after).slice(0, 1), owner);
        else if (kind === "retag" && ordinal === 0 && ordinalsOfHandle(after, "a" as HandleId).includes(0))
          after = retag(after, 0, owner);
        else if (kind === "disown") after = disown(after);
      }
      after = bump(after);
      // Through text, as the API server gets it.
      const patched = merged(raw, parseLossless(printLossless(blockPatch("crd", block, after)))) as Json;
      // Steps keep the identity of the block they were given.
      assert.deepEqual(read(readBlock(patched, "crd")), after);
      assert.deepEqual((patched.spec as Json).future, { big: 1787405600123456793n });
      assert.equal((patched.spec as Json).strictAffinity, false);
      assert.deepEqual(patched.metadata, (raw as Json).metadata);
    }),
  );
});
