// What intents make of a block: each rule by an example, and the promises by random histories with another writer in between.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  assign,
  bump,
  checkBlock,
  collect,
  holderOf,
  isFree,
  newBlock,
  ownerAttributes,
  release,
  retag,
} from "../../shared/calico/block.ts";
import type { BlockState } from "../../shared/calico/resources.ts";
import type { BlockCidr, HandleId, NodeName, Sequence, UnixMs } from "../../shared/kinds.ts";
import type { Expectation, Intent, IntentResult } from "../../shared/protocol/stream.ts";
import { applyIntents, applyToNothing, type Rules, type Wish } from "./intents.ts";

const first = 1_787_405_600_123_456_789n as Sequence;
const now = Date.parse("2030-01-01T14:00:00Z") as UnixMs;
const rules: Rules = { now, cooldownSeconds: 0, strictAffinity: false, isOpen: true };

function block(affinity = "host:a"): BlockState {
  return newBlock({ cidr: "10.0.0.0/29" as BlockCidr, affinity, now, sequence: first });
}

function pod(handle: string, node = "a"): { handle: string; attributes: Record<string, string> } {
  return { handle, attributes: { node, pod: handle, namespace: "demo" } };
}

function wish(ordinal: number, expect: Expectation, become: Intent["become"], node = "a"): Wish {
  return { node: node as NodeName, intent: { ordinal, expect, become } };
}

function held(state: BlockState, ordinal: number): Expectation {
  const holder = holderOf(state, ordinal);
  return holder === undefined ? null : { handle: holder.handle, sequence: String(holder.sequence) };
}

function results(state: BlockState, wishes: Wish[], more: Partial<Rules> = {}): IntentResult[] {
  return applyIntents(state, wishes, { ...rules, ...more }).outcomes.map(({ result }) => result);
}

function after(state: BlockState, ...wishes: Wish[]): BlockState {
  return applyIntents(state, wishes, rules).next;
}

test("given a free ordinal, when it is reserved, then it carries the sequence before the write and the block the one after", () => {
  const next = after(block(), wish(0, null, pod("p1")), wish(1, null, pod("p2")));
  assert.deepEqual(held(next, 0), { handle: "p1", sequence: String(first) });
  assert.deepEqual(held(next, 1), { handle: "p2", sequence: String(first) });
  assert.equal(next.sequenceNumber, first + 1n);
  assert.deepEqual(next.unallocated, [2, 3, 4, 5, 6, 7]);
});

test("given a held ordinal, when it is retagged, then handle, attributes and sequence all change", () => {
  const before = after(block(), wish(0, null, { handle: "cattail-warm-a", attributes: { node: "a" } }));
  const next = after(before, wish(0, held(before, 0), pod("p1")));
  assert.deepEqual(held(next, 0), { handle: "p1", sequence: String(first + 1n) });
  assert.deepEqual(ownerAttributes(next, 0), pod("p1").attributes);
  assert.equal(next.attributes.length, 1);
});

test("when the sequence of the expectation is another generation's, then nothing is changed", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  const stale = { handle: "p1", sequence: String(first - 1n) };
  const application = applyIntents(before, [wish(0, stale, null)], rules);
  assert.equal(application.outcomes[0]?.result, "expectation");
  assert.equal(application.next, before);
});

test("when the ordinal is as wished already, then it is said and not written again", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  assert.deepEqual(results(before, [wish(0, null, pod("p1")), wish(1, held(before, 0), null)]), ["already", "already"]);
  assert.equal(after(before, wish(0, null, pod("p1"))), before);
});

test("when only the attributes differ, then it is not as wished", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  const renewed = { handle: "p1", attributes: { ...pod("p1").attributes, timestamp: "now" } };
  assert.deepEqual(results(before, [wish(0, held(before, 0), renewed)]), ["applied"]);
});

test("given a cool-down, when an address is released, then it is neither held nor free until the time is over", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  const cooling = { cooldownSeconds: 60 };
  const { next } = applyIntents(before, [wish(0, held(before, 0), null)], { ...rules, ...cooling });
  assert.equal(isFree(next, 0), false);
  assert.deepEqual(results(next, [wish(0, null, pod("p2"))], cooling), ["expectation"]);
  assert.deepEqual(results(next, [wish(0, held(before, 0), null)], cooling), ["already"]);
  const later = { ...cooling, now: (now + 61_000) as UnixMs };
  assert.deepEqual(results(next, [wish(0, null, pod("p2"))], later), ["applied"]);
});

test("given a cool-down, then what was sent before the release hits nothing after it, though the address keeps its sequence", () => {
  const cooling = { ...rules, cooldownSeconds: 60 };
  const before = after(block(), wish(0, null, pod("p1")));
  const stale = [
    wish(0, held(before, 0), pod("p1")),
    wish(0, held(before, 0), pod("p2")),
    wish(0, held(before, 0), null),
  ];
  const released = applyIntents(before, [wish(0, held(before, 0), null)], cooling).next;
  assert.equal(released.sequenceNumberForAllocation.get(0), first);
  const later = { ...cooling, now: (now + 61_000) as UnixMs };
  // The same attachment comes back to the same address: the holder's name is the same, the generation is another.
  const again = applyIntents(released, [wish(0, null, { ...pod("p1"), attributes: { node: "a" } })], later).next;
  for (const [state, when] of [
    [released, cooling],
    [released, later],
    [again, later],
  ] as const) {
    for (const sent of stale) {
      assert.notEqual(applyIntents(state, [sent], when).outcomes[0]?.result, "applied");
    }
  }
});

test("given a pool that is closed, then nothing new is taken, and what is held may change hands and be released", () => {
  const before = after(block(), wish(0, null, pod("p1")), wish(1, null, pod("p2")));
  const wishes = [
    wish(2, null, pod("p3")),
    wish(0, null, pod("p1")),
    wish(0, held(before, 0), pod("p4")),
    wish(1, held(before, 1), null),
  ];
  const closed = { isOpen: false };
  assert.deepEqual(results(before, wishes.slice(0, 2), closed), ["refused", "already"]);
  assert.deepEqual(results(before, wishes.slice(2), closed), ["applied", "applied"]);
});

test("when several addresses are released in one write, then they share one cool-down entry", () => {
  const before = after(block(), wish(0, null, pod("p1")), wish(1, null, pod("p2")));
  const wishes = [wish(0, held(before, 0), null), wish(1, held(before, 1), null)];
  const { next } = applyIntents(before, wishes, { ...rules, cooldownSeconds: 60 });
  assert.deepEqual(next.attributes, [{ releasedAt: "2030-01-01T14:00:00Z" }]);
});

test("of a node's wishes for one ordinal the last counts, and the earlier ones know it", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  const wishes = [wish(0, held(before, 0), pod("p2")), wish(0, held(before, 0), null)];
  const application = applyIntents(before, wishes, rules);
  assert.deepEqual(
    application.outcomes.map(({ result }) => result),
    ["expectation", "applied"],
  );
  assert.ok(isFree(application.next, 0));
});

test("when the last wish cannot be, then an earlier one of the same node can", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  const impossible = { handle: "other", sequence: "1" };
  assert.deepEqual(results(before, [wish(0, held(before, 0), null), wish(0, impossible, pod("p2"))]), [
    "applied",
    "expectation",
  ]);
});

test("of two nodes that want one free address the first gets it", () => {
  const wishes = [wish(0, null, pod("p1", "b"), "b"), wish(0, null, pod("p2", "c"), "c")];
  assert.deepEqual(results(block(), wishes), ["applied", "expectation"]);
});

test("an ordinal that is released in this write is nobody else's in the same one", () => {
  const before = after(block(), wish(0, null, pod("p1")));
  assert.deepEqual(results(before, [wish(0, held(before, 0), null), wish(0, null, pod("p2", "b"), "b")]), [
    "applied",
    "expectation",
  ]);
});

test("free addresses of another's block may be borrowed, unless affinity is strict", () => {
  const borrow = [wish(3, null, pod("p1", "b"), "b")];
  assert.deepEqual(results(block(), borrow), ["applied"]);
  assert.deepEqual(results(block(), borrow, { strictAffinity: true }), ["refused"]);
  const ownerless: BlockState = { ...block(), affinity: "" };
  assert.deepEqual(results(ownerless, borrow, { strictAffinity: true }), ["refused"]);
});

test("a borrowed address is its borrower's alone, also when affinity has become strict", () => {
  const before = after(block(), wish(3, null, pod("p1", "b"), "b"));
  assert.deepEqual(results(before, [wish(3, held(before, 3), null, "a")]), ["refused"]);
  assert.deepEqual(results(before, [wish(3, held(before, 3), null, "b")], { strictAffinity: true }), ["applied"]);
});

test("what names no node is answered for by the block's owner", () => {
  const before = assign(block(), [2], { handle: "demo.p3" as HandleId, secondary: {} });
  assert.deepEqual(results(before, [wish(2, held(before, 2), null, "b")]), ["refused"]);
  assert.deepEqual(results(before, [wish(2, held(before, 2), null, "a")]), ["applied"]);
});

test("tunnel addresses, reserved addresses and load-balancer blocks are left alone", () => {
  const tunnel = { handle: "ipip-tunnel-addr-a" as HandleId, secondary: { node: "a", type: "ipipTunnelAddress" } };
  const reserved = { handle: "Windows-Reserved-IPAM-Handle" as HandleId, secondary: { note: "windows host rsvd" } };
  const before = assign(assign(block(), [0], tunnel), [1], reserved);
  assert.deepEqual(results(before, [wish(0, held(before, 0), null), wish(1, held(before, 1), null)]), [
    "refused",
    "refused",
  ]);
  assert.deepEqual(results(block("virtual:load-balancer"), [wish(0, null, pod("p1"))]), ["refused"]);
});

test("nobody becomes what would mislead Calico or another node", () => {
  const owners: Record<string, Intent["become"]> = {
    "another node's name": pod("p1", "b"),
    "no node": { handle: "p1", attributes: {} },
    "a tunnel": { handle: "p1", attributes: { node: "a", type: "vxlanTunnelAddress" } },
    "another node's warm stock": { handle: "cattail-warm-b", attributes: { node: "a" } },
    "the handle that counts as empty": { handle: "windows-reserved-ipam-handle", attributes: { node: "a" } },
    "a handle that Calico cuts": { handle: "p1\rx", attributes: { node: "a" } },
  };
  for (const [what, become] of Object.entries(owners)) {
    assert.deepEqual(results(block(), [wish(0, null, become)]), ["refused"], what);
  }
  assert.deepEqual(results(block(), [wish(8, null, pod("p1"))]), ["refused"], "an ordinal outside");
});

test("of a block that is gone everything is released and nothing can be had", () => {
  const outcomes = applyToNothing([wish(0, { handle: "p1", sequence: "1" }, null), wish(1, null, pod("p2"))]);
  assert.deepEqual(
    outcomes.map(({ result }) => result),
    ["already", "expectation"],
  );
});

const size = 8;
const nodes = ["a", "b"] as const;
const arbitraryWish = fc.record({
  node: fc.constantFrom(...nodes),
  ordinal: fc.nat(size - 1),
  kind: fc.constantFrom("reserve", "retag", "release", "stale"),
  handle: fc.constantFrom("p1", "p2", "p3", "cattail-warm-a"),
});
const arbitraryStep = fc.record({
  wishes: fc.array(arbitraryWish, { maxLength: 6 }),
  foreign: fc.nat(3 * size - 1),
  cooldownSeconds: fc.constantFrom(0, 0, 30),
  passMs: fc.nat(40_000),
});

test("whatever nodes wish and others write, the block stays valid and only what was expected changes hands", () => {
  fc.assert(
    fc.property(fc.array(arbitraryStep, { maxLength: 25, size: "max" }), fc.boolean(), (steps, strictAffinity) => {
      let state = block();
      let time = now;
      for (const step of steps) {
        time = (time + step.passMs) as UnixMs;
        const rules: Rules = { now: time, cooldownSeconds: step.cooldownSeconds, strictAffinity, isOpen: true };
        const wishes = step.wishes.map(({ node, ordinal, kind, handle }): Wish => {
          const become = kind === "release" ? null : pod(handle, node);
          const expect = kind === "reserve" ? null : held(state, ordinal);
          return wish(ordinal, kind === "stale" ? { handle: "p1", sequence: "7" } : expect, become, node);
        });
        checkStep(state, wishes, rules);
        state = foreignEdit(applyIntents(state, wishes, rules).next, step.foreign, rules);
        assert.deepEqual(checkBlock(state, time), []);
      }
    }),
  );
});

function checkStep(before: BlockState, wishes: readonly Wish[], rules: Rules): void {
  const start = collect(before, rules);
  const { next, outcomes } = applyIntents(before, wishes, rules);
  assert.deepEqual(checkBlock(next, rules.now), []);
  const applied = wishes.filter((_, index) => outcomes[index]?.result === "applied");
  if (applied.length === 0) {
    assert.equal(next, before);
    return;
  }
  assert.equal(next.sequenceNumber, before.sequenceNumber + 1n);
  assert.equal(new Set(applied.map(({ intent }) => intent.ordinal)).size, applied.length, "one change per ordinal");
  for (let ordinal = 0; ordinal < size; ordinal++) {
    const change = applied.find(({ intent }) => intent.ordinal === ordinal);
    if (change === undefined) {
      assert.deepEqual(holderOf(next, ordinal), holderOf(start, ordinal), "untouched without an applied intent");
      continue;
    }
    assert.deepEqual(held(start, ordinal), change.intent.expect);
    const expected = change.intent.become && {
      handle: change.intent.become.handle,
      sequence: String(before.sequenceNumber),
    };
    assert.deepEqual(held(next, ordinal), expected);
    const owner = ownerAttributes(start, ordinal)?.node;
    assert.ok(owner === undefined || owner === change.node, "nobody takes what another node has");
    if (rules.strictAffinity && owner === undefined) assert.equal(change.node, "a", "no borrowing");
  }
  // Said a second time, every wish that was carried out is found carried out.
  for (const again of applied) {
    assert.equal(applyIntents(next, [again], rules).outcomes[0]?.result, "already");
  }
}

/** Another writer: takes, gives back, or hands over without asking. */
function foreignEdit(state: BlockState, what: number, rules: Rules): BlockState {
  const ordinal = what % size;
  const owner = { handle: "foreign" as HandleId, secondary: { node: "c", pod: "x", namespace: "y" } };
  const start = collect(state, rules);
  if (what < size && isFree(start, ordinal)) return bump(assign(start, [ordinal], owner));
  if (what < 2 * size && holderOf(start, ordinal)) return bump(release(start, [ordinal], rules));
  if (holderOf(start, ordinal)) return bump(retag(start, ordinal, owner));
  return state;
}
