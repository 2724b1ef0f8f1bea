import assert from "node:assert/strict";
import { test } from "node:test";
import { newBlock } from "../shared/calico/block.ts";
import { blockName } from "../shared/calico/names.ts";
import type { Block } from "../shared/calico/resources.ts";
import type { BlockCidr, Instant, NodeName, ResourceVersion, Sequence, Uid, UnixMs } from "../shared/kinds.ts";
import { blockToWire, type ServerMessage } from "../shared/protocol/stream.ts";
import { follow, type Known } from "./follow.ts";
import { ViewPlacement } from "./ipam/placement.ts";
import { createLedger } from "./ledger/state.ts";
import { View } from "./sync/view.ts";

const node = "n1" as NodeName;
const cidr = "10.0.0.0/26" as BlockCidr;

function block(version: number): Block {
  const state = newBlock({ cidr, affinity: "host:n1", now: 0 as UnixMs, sequence: 7n as Sequence });
  const resourceVersion = String(version) as ResourceVersion;
  return { ...state, cidr, name: blockName(cidr), uid: "u" as Uid, resourceVersion };
}

function known(): Known {
  const view = new View();
  const placement = new ViewPlacement(view, node, () => 0 as UnixMs);
  return {
    view,
    placement,
    ledger: createLedger(
      { node, handles: "off", handleDelayMs: undefined, warm: () => undefined, placement },
      0 as Instant,
    ),
  };
}

function put(version: number): ServerMessage {
  return { type: "put", kind: "block", object: blockToWire(block(version)) };
}

function welcome(lineage: string): ServerMessage {
  const about = { protocol: 1, version: "1", replica: "r", apiGroup: "crd", heartbeatMs: 1 } as const;
  return { type: "welcome", lineage, ...about, capabilities: [] };
}

test("a block that is newer than what is known is an event, an older one is none", () => {
  const all = known();
  assert.deepEqual(follow(put(5), all), [{ kind: "block", cidr, block: block(5) }]);
  assert.deepEqual(follow(put(4), all), []);
  assert.deepEqual(follow({ type: "gone", kind: "block", name: "10-0-0-0-26" }, all), [
    { kind: "block", cidr, block: undefined },
  ]);
  assert.deepEqual(follow({ type: "gone", kind: "block", name: "10-0-0-0-26" }, all), []);
});

test("whatever bears on where an address may be taken changes the rules", () => {
  const all = known();
  const object = { name: "default", uid: "u", resourceVersion: "1", strictAffinity: true };
  assert.deepEqual(follow({ type: "put", kind: "config", object }, all), [{ kind: "rules-changed" }]);
});

test("the datastore's unlocking is told, and nothing else about the cluster is taken for it", () => {
  const all = known();
  const tell = (version: number, datastoreReady: boolean): string[] => {
    const object = { name: "default", uid: "u", resourceVersion: String(version), datastoreReady, clusterGuid: "g" };
    return follow({ type: "put", kind: "cluster", object }, all).map(({ kind }) => kind);
  };
  assert.deepEqual(tell(1, false), ["rules-changed"]);
  assert.deepEqual(tell(2, true), ["rules-changed", "unlocked"]);
  assert.deepEqual(tell(3, true), ["rules-changed"]);
  follow({ type: "gone", kind: "cluster", name: "default" }, all);
  assert.deepEqual(tell(4, true), ["rules-changed", "unlocked"]);
});

test("other data makes the view a part until all of it has come; what did not come is gone then", () => {
  const all = known();
  assert.deepEqual(follow(welcome("one"), all), []);
  follow(put(5), all);
  assert.deepEqual(follow(welcome("two"), all), [{ kind: "incomplete" }]);
  assert.deepEqual(follow({ type: "reset", reason: "other data" }, all), [{ kind: "incomplete" }]);
  assert.deepEqual(follow({ type: "synced" }, all), [{ kind: "block", cidr, block: undefined }]);
});

test("an answer brings the newest block that is known, be it the answer's or one that came before it", () => {
  const all = known();
  follow(put(9), all);
  const ack = (version: number): unknown =>
    follow({ type: "ack", id: 1, results: ["applied"], block: blockToWire(block(version)) }, all).map((event) =>
      event.kind === "acknowledged" ? event.block?.resourceVersion : event.kind,
    );
  assert.deepEqual(ack(8), ["9"]);
  assert.deepEqual(ack(10), ["10"]);
});

test("a claim's answer is a block, or why there is none", () => {
  const all = known();
  assert.deepEqual(follow({ type: "claimed", id: 3, block: blockToWire(block(5)) }, all), [
    { kind: "claimed", id: 3, problem: undefined, block: { cidr, block: block(5) } },
  ]);
  const problem = { reason: "PoolExhausted", message: "no block" };
  assert.deepEqual(follow({ type: "claimed", id: 4, problem }, all), [{ kind: "claimed", id: 4, problem }]);
});
