// Each kind of fault made on purpose: found, named, and nothing else is. On a healthy cluster: silence.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { assign, newBlock } from "../shared/calico/block.ts";
import type { Affinity, Block, Handle, Pool } from "../shared/calico/resources.ts";
import { cidrOf } from "../shared/ip/cidr.ts";
import type {
  Address,
  BlockCidr,
  CidrText,
  HandleId,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../shared/kinds.ts";
import type { NodeState } from "../shared/protocol/node-state.ts";
import { findingsIn, type Observed } from "./findings.ts";
import type { Pod } from "./pods.ts";

const now = Date.parse("2030-01-01T14:00:00Z") as UnixMs;
const meta = { uid: "u" as Uid, resourceVersion: "1" as ResourceVersion };
const cidr = "10.0.0.0/28" as BlockCidr;
const webHandle = "net.web" as HandleId;

const web: Pod = {
  key: "shop/web",
  namespace: "shop",
  name: "web",
  uid: "p",
  node: "n",
  hostNetwork: false,
  phase: "Running",
  isFinished: false,
  isTerminating: false,
  addresses: ["10.0.0.0" as Address],
  startedAt: "2030-01-01T12:00:00Z",
  annotations: {},
};
const ownerOfWeb = { handle: webHandle, secondary: { node: "n", pod: "web", namespace: "shop" } };
const stock = {
  handle: "cattail-warm-n" as HandleId,
  secondary: { node: "n", type: "cattail-warm", "cattail.io/incarnation": "j.1" },
};
const pool: Pool = {
  ...meta,
  name: "p" as PoolName,
  cidr: "10.0.0.0/24" as CidrText,
  blockSize: 28,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: ["Workload"],
  assignmentMode: "Automatic",
};
const affinity: Affinity = {
  ...meta,
  name: "a",
  cidr,
  node: "n",
  type: "host",
  state: "confirmed",
  deleted: false,
  labelled: true,
};
const handle: Handle = { ...meta, name: "net.web", handleId: webHandle, block: new Map([[cidr, 1]]), deleted: false };

function emptyBlock(at: BlockCidr = cidr): Block {
  const state = newBlock({ cidr: at, affinity: "host:n", now, sequence: 7n as Sequence });
  return { ...meta, name: at.replaceAll(/[./]/g, "-"), cidr: at, ...state };
}

/** Ordinal 0 is the pod's, 1 is in stock. */
function usualBlock(): Block {
  const block = emptyBlock();
  return { ...block, ...assign(assign(block, [0], ownerOfWeb), [1], stock) };
}

const owned = {
  block: cidr,
  ordinal: 0,
  address: "10.0.0.0",
  attachment: "net/web/eth0",
  handle: webHandle,
  state: "owned",
  seconds: 1,
} as const;
const warm = {
  ...owned,
  ordinal: 1,
  address: "10.0.0.1",
  attachment: "",
  handle: stock.handle,
  state: "warm",
} as const;
const journal: NodeState = {
  kind: "NodeState",
  asOf: "",
  node: "n",
  version: "1",
  online: true,
  problems: [],
  lease: { standing: "runs" },
  incarnation: "j.1",
  pending: 0,
  spooledDeletes: 0,
  attachments: [{ id: "net/web/eth0", handle: webHandle, pod: "shop/web", addedAt: "", phase: "owned" }],
  holdings: [owned, warm],
  runtime: { seen: [{ attachment: "net/web/eth0", pod: "shop/web", addresses: ["10.0.0.0"] }] },
  calls: [],
};

const healthy: Observed = {
  now,
  pools: [pool],
  blocks: [usualBlock()],
  unreadBlocks: [],
  affinities: [affinity],
  handles: [handle],
  nodes: new Map([["n", []]]),
  pods: [web],
  agents: new Map([["n", journal]]),
};

function found(more: Partial<Observed>): string[] {
  return findingsIn({ ...healthy, ...more }).map(({ severity, reason, address, block, handle: of, fixable }) =>
    [severity, reason, address ?? of ?? block, ...(fixable ? ["fixable"] : [])].join(" "),
  );
}

function agents(more: Partial<NodeState>): Observed["agents"] {
  return new Map([["n", { ...journal, ...more }]]);
}

const none: Observed["agents"] = new Map();
const noJournal = { holdings: [warm], attachments: [], runtime: { seen: [] } };

describe("what is not wrong", () => {
  test("a healthy cluster, with its journals and without", () => {
    assert.deepEqual(found({}), []);
    assert.deepEqual(found({ agents: none }), []);
    assert.deepEqual(found({ handles: [] }), []); // written late, or never
  });

  test("what is only under way: answered from stock, on its way out, a pod without an address yet", () => {
    const block = { ...emptyBlock(), ...assign(emptyBlock(), [0, 1], stock) };
    assert.deepEqual(
      found({ blocks: [block], handles: [], agents: agents({ holdings: [{ ...owned, state: "held" }, warm] }) }),
      [],
    );
    assert.deepEqual(found({ blocks: [block], handles: [], agents: none }), []);
    assert.deepEqual(
      found({ pods: [], agents: agents({ holdings: [{ ...owned, state: "leaving", attachment: "" }, warm] }) }),
      [],
    );
    assert.deepEqual(found({ pods: [{ ...web, addresses: [] }], agents: none }), []);
  });

  test("what the runtime still has is in use, though pod and journal do not say so", () => {
    assert.deepEqual(found({ pods: [], agents: agents({ ...noJournal, runtime: journal.runtime }) }), []);
  });

  test("what cools down, and the tunnel that its Node has", () => {
    const tunnel = { handle: "t" as HandleId, secondary: { node: "n", type: "vxlanTunnelAddress" } };
    const block = { ...usualBlock(), ...assign(usualBlock(), [3], tunnel) };
    assert.deepEqual(found({ blocks: [block], nodes: new Map([["n", ["10.0.0.3"]]]) }), []);
  });
});

describe("what is wrong", () => {
  test("AddressLeaked: repaired only when nothing is left that could speak against it", () => {
    const leaked = "warning AddressLeaked 10.0.0.0";
    assert.deepEqual(found({ pods: [], agents: agents(noJournal) }), [`${leaked} fixable`]);
    assert.deepEqual(found({ pods: [{ ...web, isFinished: true }], agents: agents(noJournal) }), [`${leaked} fixable`]);
    assert.deepEqual(
      found({
        pods: [{ ...web, addresses: ["10.9.9.9" as Address] }],
        pools: [pool, { ...pool, cidr: "10.9.0.0/16" as CidrText }],
        agents: agents(noJournal),
      }),
      ["error AddressUnrecorded 10.9.9.9", `${leaked} fixable`],
    );
    assert.deepEqual(
      found({ pods: [], agents: agents({ ...noJournal, runtime: { seen: [], gap: "it cannot be read" } }) }),
      [leaked],
    );
    assert.deepEqual(found({ pods: [], agents: none }), [leaked]);
    assert.deepEqual(found({ pods: [], agents: none, nodes: new Map() }), [
      "warning AddressLeaked 10.0.0.0 fixable",
      "warning BlockOrphan 10.0.0.0/28",
      "warning WarmStale 10.0.0.1",
    ]);
  });

  test("AddressLeaked: a tunnel that its Node does not have, and what names nobody", () => {
    const tunnel = { handle: "t" as HandleId, secondary: { node: "n", type: "vxlanTunnelAddress" } };
    const nobody = { handle: "x" as HandleId, secondary: {} };
    const block = { ...usualBlock(), ...assign(assign(usualBlock(), [3], tunnel), [4], nobody) };
    assert.deepEqual(found({ blocks: [block] }), ["info AddressLeaked 10.0.0.3", "info AddressLeaked 10.0.0.4"]);
  });

  test("AddressUnrecorded: a pod's address that is free, cooling, or long in stock", () => {
    const unrecorded = "error AddressUnrecorded 10.0.0.0";
    const free = { ...emptyBlock(), ...assign(emptyBlock(), [1], stock) };
    assert.deepEqual(found({ blocks: [free], handles: [], agents: agents(noJournal) }), [unrecorded]);
    assert.deepEqual(found({ blocks: [free], handles: [], pods: [] }), [unrecorded]); // the journal alone knows
    const inStock = { ...emptyBlock(), ...assign(emptyBlock(), [0, 1], stock) };
    const asStock = agents({ ...noJournal, holdings: [{ ...warm, ordinal: 0, address: "10.0.0.0" }, warm] });
    assert.deepEqual(found({ blocks: [inStock], handles: [], agents: asStock }), [unrecorded]);
  });

  test("AddressUnrecorded: a pod's address outside every pool, or in a disabled one", () => {
    assert.deepEqual(found({ pools: [{ ...pool, cidr: "10.1.0.0/24" as CidrText }] }), [
      "warning AddressUnrecorded 10.0.0.0",
      "warning BlockOrphan 10.0.0.0/28",
    ]);
    assert.deepEqual(found({ pools: [{ ...pool, disabled: true }] }), ["info AddressUnrecorded 10.0.0.0"]);
  });

  test("AddressDouble: two pods, two blocks, two journals, a journal and a block", () => {
    const double = "error AddressDouble 10.0.0.0";
    const other = { ...web, key: "shop/other", name: "other", uid: "o", node: "m" };
    assert.deepEqual(new Set(found({ pods: [web, other] })), new Set([double]));
    const overlapping = {
      ...emptyBlock("10.0.0.0/29" as BlockCidr),
      ...assign(emptyBlock("10.0.0.0/29" as BlockCidr), [0], { ...ownerOfWeb, handle: "net.o" as HandleId }),
    };
    assert.ok(found({ blocks: [usualBlock(), overlapping] }).includes(double));
    const nodes = new Map([...healthy.nodes, ["m", []]]);
    assert.deepEqual(
      found({
        nodes,
        agents: new Map([
          ["n", journal],
          ["m", { ...journal, node: "m", holdings: [owned] }],
        ]),
      }),
      [double],
    );
    const foreign = { handle: "net.thief" as HandleId, secondary: { node: "n", pod: "web", namespace: "shop" } };
    const stolen = { ...emptyBlock(), ...assign(assign(emptyBlock(), [0], foreign), [1], stock) };
    assert.ok(found({ blocks: [stolen], handles: [] }).includes(double));
  });

  test("HandleOrphan and HandleMissing: a handle without addresses, with too many, with too few", () => {
    const bare = { ...handle, handleId: "net.gone" as HandleId };
    assert.deepEqual(found({ handles: [handle, bare] }), ["warning HandleOrphan net.gone fixable"]);
    assert.deepEqual(found({ handles: [{ ...handle, block: new Map([[cidr, 3]]) }] }), ["info HandleOrphan net.web"]);
    assert.deepEqual(found({ handles: [{ ...handle, block: new Map() }] }), ["warning HandleMissing net.web"]);
    const awaited = {
      ...journal.attachments[0],
      id: "x",
      handle: "net.gone",
      pod: "",
      addedAt: "",
      phase: "reserving",
    } as const;
    assert.deepEqual(found({ handles: [handle, bare], agents: agents({ attachments: [awaited] }) }), [
      "warning HandleOrphan net.gone",
    ]);
  });

  test("BlockInvalid: what cannot be read, a broken queue, a block inside another", () => {
    assert.deepEqual(found({ unreadBlocks: [{ name: "10-0-9-0-28", problem: "cidr is missing" }] }), [
      "error BlockInvalid 10-0-9-0-28",
    ]);
    const broken = { ...usualBlock(), unallocated: [0] };
    const invalid = found({ blocks: [broken] });
    assert.ok(
      invalid.length > 0 && invalid.every((line) => line === "error BlockInvalid 10.0.0.0/28"),
      invalid.join("\n"),
    );
    const inner = emptyBlock("10.0.0.8/29" as BlockCidr);
    const row = { ...affinity, cidr: inner.cidr };
    assert.deepEqual(found({ blocks: [usualBlock(), inner], affinities: [affinity, row] }), [
      "error BlockInvalid 10.0.0.0/28",
    ]);
    assert.equal(cidrOf(inner.cidr).prefix, 29);
  });

  test("ClaimHalfDone: an affinity without its block, with another's, half-way, and a block without one", () => {
    const half = "warning ClaimHalfDone";
    assert.deepEqual(found({ affinities: [affinity, { ...affinity, cidr: "10.0.0.64/28" as BlockCidr }] }), [
      `${half} 10.0.0.64/28`,
    ]);
    assert.deepEqual(
      found({
        affinities: [affinity, { ...affinity, node: "m" }],
        nodes: new Map([
          ["n", []],
          ["m", []],
        ]),
      }),
      [`${half} 10.0.0.0/28`],
    );
    assert.deepEqual(found({ affinities: [{ ...affinity, state: "pending" }] }), [`${half} 10.0.0.0/28`]);
    assert.deepEqual(found({ affinities: [] }), [`${half} 10.0.0.0/28`]);
  });

  test("WarmStale: stock that the journal does not know, of another node's block, of a node that is gone", () => {
    assert.deepEqual(found({ agents: agents({ holdings: [owned] }) }), ["warning WarmStale 10.0.0.1"]);
    const elsewhere = { ...usualBlock(), affinity: "host:m" };
    const nodes = new Map([...healthy.nodes, ["m", []]]);
    assert.deepEqual(found({ blocks: [elsewhere], affinities: [{ ...affinity, node: "m" }], nodes }), [
      "warning WarmStale 10.0.0.1",
    ]);
  });
});
