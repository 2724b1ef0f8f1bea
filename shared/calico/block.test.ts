import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { BlockCidr, HandleId, Sequence, UnixMs } from "../kinds.ts";
import {
  affinityText,
  assign,
  blockOwner,
  bump,
  type Cooling,
  checkBlock,
  collect,
  disown,
  freeOrdinals,
  holderOf,
  isEmpty,
  isFree,
  newBlock,
  numFree,
  type Owner,
  ordinalsOfHandle,
  ownerAttributes,
  release,
  releaseByHandle,
  retag,
} from "./block.ts";
import type { BlockState } from "./resources.ts";

const S = 1_787_405_600_123_456_789n;
const start = 1_787_405_600_000 as UnixMs;
const at = (seconds: number, cooldownSeconds = 60): Cooling => ({
  now: (start + seconds * 1000) as UnixMs,
  cooldownSeconds,
});
const owner = (handle: string, secondary: Record<string, string> = { node: "worker-1" }): Owner => ({
  handle: handle as HandleId,
  secondary,
});
const handle = (text: string): HandleId => text as HandleId;
const fresh = (): BlockState =>
  newBlock({ cidr: "10.244.0.8/29" as BlockCidr, affinity: "host:worker-1", now: start, sequence: S as Sequence });

/** What the replay table shows of a block. */
function row(state: BlockState) {
  return {
    allocations: state.allocations,
    unallocated: state.unallocated,
    attributes: state.attributes.map(({ handle_id, releasedAt }) => handle_id ?? releasedAt),
    seq: state.sequenceNumber - S,
    perOrdinal: Object.fromEntries(
      [...state.sequenceNumberForAllocation].map(([ordinal, value]) => [ordinal, value - S]),
    ),
  };
}

test("a life of a block, step by step as Calico has it", () => {
  let block = fresh();
  const write = (next: BlockState): BlockState => {
    block = bump(next);
    return block;
  };
  assert.equal(block.affinityClaimTime, "2026-08-22T13:33:20Z");
  assert.deepEqual(row(block), {
    allocations: Array(8).fill(null),
    unallocated: [0, 1, 2, 3, 4, 5, 6, 7],
    attributes: [],
    seq: 0n,
    perOrdinal: {},
  });

  write(assign(block, [0], owner("T")));
  write(assign(block, [1], owner("A")));
  assert.deepEqual(row(write(assign(block, [2], owner("B")))), {
    allocations: [0, 1, 2, null, null, null, null, null],
    unallocated: [3, 4, 5, 6, 7],
    attributes: ["T", "A", "B"],
    seq: 3n,
    perOrdinal: { 0: 0n, 1: 1n, 2: 2n },
  });
  assert.deepEqual(row(write(releaseByHandle(block, handle("A"), at(4)))), {
    allocations: [0, 2, 1, null, null, null, null, null],
    unallocated: [3, 4, 5, 6, 7],
    attributes: ["T", "B", "2026-08-22T13:33:24Z"],
    seq: 4n,
    perOrdinal: { 0: 0n, 1: 1n, 2: 2n },
  });
  const collected = collect(block, at(65));
  assert.deepEqual(row(write(assign(collected, freeOrdinals(collected).slice(0, 1), owner("C")))), {
    allocations: [0, null, 1, 2, null, null, null, null],
    unallocated: [4, 5, 6, 7, 1],
    attributes: ["T", "B", "C"],
    seq: 5n,
    perOrdinal: { 0: 0n, 2: 2n, 3: 4n },
  });
});

test("with no cool-down an address is free in the write that releases it", () => {
  let block = fresh();
  for (const name of ["T", "A", "B"]) block = bump(assign(block, freeOrdinals(block).slice(0, 1), owner(name)));
  assert.deepEqual(row(bump(releaseByHandle(block, handle("A"), at(4, 0)))), {
    allocations: [0, null, 1, null, null, null, null, null],
    unallocated: [3, 4, 5, 6, 7, 1],
    attributes: ["T", "B"],
    seq: 4n,
    perOrdinal: { 0: 0n, 2: 2n },
  });
});

test("released by address, an ordinal takes the sequence of that write; by handle it keeps its own", () => {
  const block = bump(assign(fresh(), [0, 1], owner("A")));
  assert.deepEqual(row(release(block, [0], at(4))).perOrdinal, { 0: 1n, 1: 0n });
  assert.deepEqual(row(releaseByHandle(block, handle("A"), at(4))).perOrdinal, { 0: 0n, 1: 0n });
});

test("the cool-down ends strictly after its seconds, counted from the whole second of the release", () => {
  const block = release(assign(fresh(), [0], owner("A")), [0], at(10.9));
  assert.equal(block.attributes[0]?.releasedAt, "2026-08-22T13:33:30Z");
  assert.equal(collect(block, at(70)), block);
  assert.deepEqual(collect(block, at(70.001)).unallocated, [1, 2, 3, 4, 5, 6, 7, 0]);
  assert.deepEqual(collect(block, at(11, 0)).unallocated, [1, 2, 3, 4, 5, 6, 7, 0]);
});

test("a cooling ordinal is neither free nor held, and releasing it again changes nothing", () => {
  const block = release(assign(fresh(), [3], owner("A")), [3], at(10));
  assert.equal(holderOf(block, 3), undefined);
  assert.equal(ownerAttributes(block, 3), undefined);
  assert(!isFree(block, 3));
  assert(!isEmpty(block));
  assert.equal(release(block, [3], at(11)), block);
  for (const name of ["A", ""]) assert.deepEqual(ordinalsOfHandle(block, handle(name)), []);
  assert.throws(() => retag(block, 3, owner("B")), /has no holder/);
  assert.throws(() => assign(block, [3], owner("B")), /is not free/);
});

test("steps that change nothing return the state they were given", () => {
  const block = assign(fresh(), [0], owner("A"));
  assert.equal(assign(block, [], owner("B")), block);
  assert.equal(release(block, [5], at(1)), block);
  assert.equal(releaseByHandle(block, handle("B"), at(1)), block);
  assert.equal(collect(block, at(1)), block);
});

test("addresses of one owner share an entry, in one call and in two; a sharer's change leaves the other alone", () => {
  const block = assign(assign(fresh(), [0, 1], owner("A")), [2], owner("A"));
  assert.equal(block.attributes.length, 1);
  const changed = retag(block, 1, owner("B"));
  assert.deepEqual(changed.allocations.slice(0, 3), [0, 1, 0]);
  assert.deepEqual(ordinalsOfHandle(changed, handle("A")), [0, 2]);
});

test("an entry with other attributes, a second owner or keys we do not know is not shared", () => {
  for (const entry of [
    { handle_id: "A", secondary: { node: "worker-1", pod: "p" } },
    { handle_id: "A", secondary: { node: "worker-2" } },
    { handle_id: "A", secondary: { node: "worker-1" }, alternateOwnerAttrs: { pod: "p" } },
    { handle_id: "A", secondary: { node: "worker-1" }, future: 1 },
    { handle_id: "A" },
  ]) {
    const block: BlockState = {
      ...fresh(),
      allocations: [0, ...Array(7).fill(null)],
      attributes: [entry],
      unallocated: [1, 2, 3, 4, 5, 6, 7],
    };
    assert.equal(assign(block, [1], owner("A")).attributes.length, 2);
  }
});

test("a retagged ordinal has a new owner and a new sequence, and the old entry is gone", () => {
  const warm = bump(assign(fresh(), [0, 1], owner("cattail-warm-worker-1", { node: "worker-1", type: "warm" })));
  const block = bump(retag(bump(retag(warm, 1, owner("net.c1", { node: "worker-1", pod: "p" }))), 0, owner("net.c2")));
  assert.deepEqual(row(block), {
    allocations: [1, 0, null, null, null, null, null, null],
    unallocated: [2, 3, 4, 5, 6, 7],
    attributes: ["net.c1", "net.c2"],
    seq: 3n,
    perOrdinal: { 0: 2n, 1: 1n },
  });
  assert.deepEqual(holderOf(block, 1), { handle: "net.c1", sequence: S + 1n });
  assert.deepEqual(ownerAttributes(block, 1), { node: "worker-1", pod: "p" });
});

test("free ordinals come in the order of the queue; reserved ones are passed over and keep their place", () => {
  const block = release(assign(fresh(), [0, 1], owner("A")), [0], at(1, 0));
  assert.deepEqual(freeOrdinals(block), [2, 3, 4, 5, 6, 7, 0]);
  assert.deepEqual(
    freeOrdinals(block, (ordinal) => ordinal < 4),
    [4, 5, 6, 7],
  );
  assert.equal(
    numFree(block, (ordinal) => ordinal < 4),
    4,
  );
  assert.deepEqual(assign(block, [4], owner("B")).unallocated, [2, 3, 5, 6, 7, 0]);
});

test("a queue that names an ordinal twice, or a taken one, hands it out once at most", () => {
  const block = { ...assign(fresh(), [0], owner("A")), unallocated: [0, 3, 3, 9, 4] };
  assert.deepEqual(freeOrdinals(block), [3, 4]);
});

test("handles are compared up to a carriage return", () => {
  const block = assign(fresh(), [0], owner("A\r"));
  assert.equal(holderOf(block, 0)?.handle, "A");
  assert.deepEqual(ordinalsOfHandle(block, handle("A")), [0]);
});

test("an allocation without handle or sequence is held, by nobody", () => {
  const block: BlockState = {
    ...fresh(),
    allocations: [0, ...Array(7).fill(null)],
    attributes: [{}],
    unallocated: [1, 2, 3, 4, 5, 6, 7],
  };
  assert.deepEqual(holderOf(block, 0), { handle: "", sequence: 0n });
  assert.deepEqual(ownerAttributes(block, 0), {});
  assert(!isEmpty(block));
});

test("what Windows reserves leaves a block empty", () => {
  assert(isEmpty(fresh()));
  assert(isEmpty(assign(fresh(), [0, 7], owner("Windows-Reserved-IPAM-Handle"))));
  assert(!isEmpty(assign(fresh(), [0], owner("A"))));
});

test("who owns a block", () => {
  const owned = (affinity?: string) => {
    return blockOwner({ ...disown(fresh()), ...(affinity !== undefined && { affinity }) });
  };
  assert.deepEqual(owned("host:worker-1"), { type: "host", name: "worker-1" });
  assert.deepEqual(owned("virtual:load-balancer"), { type: "virtual", name: "load-balancer" });
  for (const none of [undefined, "", "worker-1", "Host:worker-1"]) assert.equal(owned(none), undefined);
  assert.equal(affinityText({ type: "host", name: "a:b" }), "host:a:b");
  assert.deepEqual(owned("host:a:b"), { type: "host", name: "a:b" });
});

test("what is wrong with a block is said", () => {
  const block: BlockState = {
    ...fresh(),
    allocations: [0, 5, null, null, null, null, null, null],
    attributes: [{ releasedAt: "2026-08-22T13:33:30Z" }, { handle_id: "A" }],
    unallocated: [0, 2, 2, 8],
  };
  assert.deepEqual(checkBlock(block, start), [
    "ordinal 1 points at attribute 5 of 2",
    "attribute 0 was released in the future, 2026-08-22T13:33:30Z",
    "attribute 1 is not used",
    "ordinal 0 is queued and not free",
    "ordinal 2 is queued twice",
    "ordinal 8 is queued and not free",
    "4 queued and 2 allocated are not 8",
  ]);
  assert.deepEqual(checkBlock(fresh(), start), []);
});

/** What a block should be, told without indexes: a queue, holders, and since when the rest cools down. */
interface Model {
  queue: number[];
  readonly held: Map<number, { readonly owner: Owner; readonly sequence: bigint }>;
  readonly cooling: Map<number, { readonly sinceSeconds: number; readonly sequence: bigint }>;
}
type Step =
  | { readonly kind: "assign"; readonly owner: Owner; readonly count: number }
  | { readonly kind: "retag" | "release"; readonly owner: Owner; readonly picks: readonly number[] }
  | { readonly kind: "release-handle"; readonly owner: Owner }
  | { readonly kind: "wait"; readonly seconds: number }
  | { readonly kind: "foreign"; readonly edit: "write" | "disown" | "mark" };

const anyOwner = fc
  .tuple(fc.constantFrom("warm", "a", "b"), fc.constantFrom("x", "y"))
  .map(([name, pod]) => owner(name, { node: "worker-1", pod }));
const picks = fc.uniqueArray(fc.nat(7), { maxLength: 3 });
const anyStep: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant("assign" as const), owner: anyOwner, count: fc.nat(4) }),
  fc.record({ kind: fc.constantFrom("retag" as const, "release" as const), owner: anyOwner, picks }),
  fc.record({ kind: fc.constant("release-handle" as const), owner: anyOwner }),
  fc.record({ kind: fc.constant("wait" as const), seconds: fc.nat(90) }),
  fc.record({
    kind: fc.constant("foreign" as const),
    edit: fc.constantFrom("write" as const, "disown" as const, "mark" as const),
  }),
);

function foreign(state: BlockState, edit: "write" | "disown" | "mark"): BlockState {
  switch (edit) {
    case "write":
      return state;
    case "disown":
      return disown(state);
    case "mark":
      return {
        ...state,
        attributes: state.attributes.map((attribute) => ({ ...attribute, alternateOwnerAttrs: { pod: "z" } })),
      };
  }
}

/** The model's half of a step; sequences are those of the block before the write. */
function follow(model: Model, step: Step, sequence: bigint, nowSeconds: number, cooldownSeconds: number): void {
  const cool = (ordinal: number, sequence: bigint): void => {
    model.held.delete(ordinal);
    model.cooling.set(ordinal, { sinceSeconds: nowSeconds, sequence });
  };
  if (step.kind === "assign") {
    for (const ordinal of model.queue.splice(0, step.count)) model.held.set(ordinal, { owner: step.owner, sequence });
  } else if (step.kind === "retag") {
    for (const ordinal of step.picks)
      if (model.held.has(ordinal)) model.held.set(ordinal, { owner: step.owner, sequence });
  } else if (step.kind === "release") {
    for (const ordinal of step.picks) if (model.held.has(ordinal)) cool(ordinal, sequence);
  } else if (step.kind === "release-handle") {
    for (const [ordinal, held] of [...model.held])
      if (held.owner.handle === step.owner.handle) cool(ordinal, held.sequence);
  }
  for (const [ordinal, { sinceSeconds }] of [...model.cooling].sort(([a], [b]) => a - b)) {
    if (cooldownSeconds > 0 && nowSeconds - sinceSeconds <= cooldownSeconds) continue;
    model.cooling.delete(ordinal);
    model.queue.push(ordinal);
  }
}

function take(state: BlockState, step: Step, cooling: Cooling): BlockState {
  switch (step.kind) {
    case "assign":
      return assign(state, freeOrdinals(state).slice(0, step.count), step.owner);
    case "retag":
      return step.picks.reduce(
        (next, ordinal) => (holderOf(next, ordinal) === undefined ? next : retag(next, ordinal, step.owner)),
        state,
      );
    case "release":
      return release(state, step.picks, cooling);
    case "release-handle":
      return releaseByHandle(state, step.owner.handle, cooling);
    case "wait":
      return state;
    case "foreign":
      return foreign(state, step.edit);
  }
}

test("property: whatever is done, holders, queue and sequences are as told, and Calico finds nothing wrong", () => {
  fc.assert(
    fc.property(fc.array(anyStep, { maxLength: 40 }), fc.constantFrom(0, 30), (steps, cooldownSeconds) => {
      let block = fresh();
      let seconds = 0;
      const model: Model = { queue: [0, 1, 2, 3, 4, 5, 6, 7], held: new Map(), cooling: new Map() };
      for (const step of steps) {
        if (step.kind === "wait") seconds += step.seconds;
        const cooling = at(seconds, cooldownSeconds);
        const before = block.sequenceNumber;
        follow(model, { kind: "wait", seconds: 0 }, before, seconds, cooldownSeconds);
        follow(model, step, before, seconds, cooldownSeconds);
        block = bump(collect(take(collect(block, cooling), step, cooling), cooling));

        assert.deepEqual(checkBlock(block, cooling.now), []);
        assert.deepEqual(freeOrdinals(block), model.queue);
        for (let ordinal = 0; ordinal < 8; ordinal++) {
          const held = model.held.get(ordinal);
          assert.deepEqual(holderOf(block, ordinal), held && { handle: held.owner.handle, sequence: held.sequence });
          assert.deepEqual(ownerAttributes(block, ordinal), held?.owner.secondary);
          const sequence = held?.sequence ?? model.cooling.get(ordinal)?.sequence;
          assert.equal(block.sequenceNumberForAllocation.get(ordinal), sequence);
          assert(sequence === undefined || sequence < block.sequenceNumber);
        }
        assert.equal(block.sequenceNumber, before + 1n);
      }
    }),
  );
});
