import assert from "node:assert/strict";
import { test } from "node:test";
import { newBlock } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import type { Block } from "../../shared/calico/resources.ts";
import type { BlockCidr, ResourceVersion, Sequence, Uid, UnixMs } from "../../shared/kinds.ts";
import { blockToWire, type StreamedKind } from "../../shared/protocol/stream.ts";
import { maxTold, takeBlock, View } from "./view.ts";

const cidr = "10.0.0.0/26" as BlockCidr;

function block(version: number, uid = "u1"): Block {
  const state = newBlock({ cidr, affinity: "host:n1", now: 0 as UnixMs, sequence: 7n as Sequence });
  return {
    ...state,
    cidr,
    name: blockName(cidr),
    uid: uid as Uid,
    resourceVersion: String(version) as ResourceVersion,
  };
}

function put(view: View, kind: StreamedKind, name: string, resourceVersion: string): boolean {
  return view.putWire(kind, { name, uid: `uid-${name}`, resourceVersion, labels: {} }) !== undefined;
}

test("a newer version replaces an older one, an older or equal one changes nothing", () => {
  const view = new View();
  assert.ok(put(view, "namespace", "shop", "99"));
  assert.ok(put(view, "namespace", "shop", "100"));
  assert.ok(!put(view, "namespace", "shop", "99"));
  assert.ok(!put(view, "namespace", "shop", "100"));
  assert.equal(view.get("namespace", "shop")?.resourceVersion, "100");
});

test("versions that cannot be compared follow the server's word", () => {
  const view = new View();
  put(view, "namespace", "shop", "a7");
  assert.ok(put(view, "namespace", "shop", "a5"));
});

test("it says what it has, kind by kind", () => {
  const view = new View();
  put(view, "namespace", "shop", "5");
  view.putBlock(blockToWire(block(3)));
  assert.deepEqual(view.have(), [
    ["block", "10-0-0-0-26", "3"],
    ["namespace", "shop", "5"],
  ]);
});

test("a change tells what was before and what is after", () => {
  const view = new View();
  const first = view.putBlock(blockToWire(block(3)));
  assert.equal(first?.before, undefined);
  assert.deepEqual(first?.after, block(3));
  const gone = view.gone("block", "10-0-0-0-26");
  assert.deepEqual([gone?.before, gone?.after], [block(3), undefined]);
  assert.equal(view.gone("block", "10-0-0-0-26"), undefined);
});

test("after a reset older versions are taken, and what was not sent again is gone only when all has come", () => {
  const view = new View();
  put(view, "namespace", "shop", "50");
  put(view, "namespace", "old", "51");
  view.reset();
  assert.ok(view.get("namespace", "old"));
  assert.ok(put(view, "namespace", "shop", "7"));
  assert.ok(!put(view, "namespace", "shop", "6"), "back in time within the new data");
  assert.deepEqual(
    view.synced().map(({ kind, name, after }) => [kind, name, after]),
    [["namespace", "old", undefined]],
  );
  assert.deepEqual(view.synced(), []);
});

test("an answer's block counts unless a newer one is known; null is gone, and not told is not known", () => {
  const view = new View();
  view.putBlock(blockToWire(block(9)));
  assert.equal(takeBlock(view, blockToWire(block(8)), "10-0-0-0-26")?.resourceVersion, "9");
  assert.equal(takeBlock(view, blockToWire(block(10)), "10-0-0-0-26")?.resourceVersion, "10");
  assert.equal(takeBlock(view, undefined, "10-0-0-0-26"), undefined);
  assert.equal(takeBlock(view, null, "10-0-0-0-26"), null);
  assert.equal(view.get("block", "10-0-0-0-26"), undefined);
});

test("copies of other data are not claimed to be had, also when the connection is lost while they are renewed", () => {
  const view = new View();
  assert.ok(!view.welcome("one"));
  put(view, "namespace", "shop", "50");
  put(view, "namespace", "old", "51");
  assert.ok(view.welcome("two"));
  assert.deepEqual(view.have(), []);
  put(view, "namespace", "shop", "7");
  assert.ok(!view.welcome("two"));
  assert.deepEqual(view.have(), [["namespace", "shop", "7"]]);
  assert.equal(view.synced().length, 1);
  assert.deepEqual(view.have(), [["namespace", "shop", "7"]]);
});

test("more than fits a hello is not told, and what is not sent anew then is gone", () => {
  const view = new View();
  for (let index = 0; index <= maxTold; index++) put(view, "namespace", `ns${index}`, "5");
  assert.deepEqual(view.have(), []);
  put(view, "namespace", "ns0", "5");
  assert.equal(view.synced().length, maxTold);
  assert.equal(view.all("namespace").size, 1);
});
