// What cache server and node agent say to each other over the WebSocket (sub-protocol `cattail.v1`): one JSON document per frame.
// Both ends ignore unknown keys and unknown message types, so that either may be one minor version newer.
import * as v from "valibot";
import type { Block, BlockAttribute, Kind, Objects } from "../calico/resources.ts";
import type { BlockCidr, ResourceVersion, Sequence, Uid } from "../kinds.ts";

export const subProtocol = "cattail.v1";
export const streamProtocol = 1;
/** The only path the stream's port serves. */
export const streamPath = "/v1/stream";
/** Largest frame a server accepts (a full commit of a /20 block fits) and a client accepts. */
export const maxClientFrameBytes = 1 << 20;
export const maxServerFrameBytes = 16 << 20;

/** What an agent holds a copy of. Blocks go to the nodes with a stake: the owner, and whoever has addresses in them. */
export const streamedKinds = [
  "pool",
  "block",
  "config",
  "reservation",
  "node",
  "namespace",
  "cluster",
] as const satisfies readonly Kind[];
export type StreamedKind = (typeof streamedKinds)[number];
const streamedKind = v.picklist(streamedKinds);

const name = v.pipe(v.string(), v.minLength(1), v.maxLength(512));
const attributes = v.record(v.string(), v.string());
/** A sequence number in decimal: 64 bits do not fit a JSON number. */
const sequence = v.pipe(v.string(), v.regex(/^(0|-?[1-9][0-9]{0,18})$/));
const ordinal = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(4095));

/** A block on the wire: BlockState with sequence numbers in decimal. */
export const wireBlock = v.object({
  name,
  uid: v.string(),
  resourceVersion: v.string(),
  cidr: v.string(),
  affinity: v.optional(v.string()),
  affinityClaimTime: v.optional(v.string()),
  allocations: v.array(v.nullable(v.number())),
  unallocated: v.array(v.number()),
  attributes: v.array(v.record(v.string(), v.unknown())),
  sequenceNumber: sequence,
  sequenceNumberForAllocation: v.record(v.string(), sequence),
  deleted: v.boolean(),
});
export type WireBlock = v.InferOutput<typeof wireBlock>;

/** What the sender believes an ordinal is now; an intent is applied only where this still holds. */
export const expectation = v.union([v.null(), v.object({ handle: v.string(), sequence })]);
export type Expectation = v.InferOutput<typeof expectation>;

export const owner = v.object({ handle: v.pipe(v.string(), v.minLength(1), v.maxLength(512)), attributes });
export type Owner = v.InferOutput<typeof owner>;

/** One wish for one ordinal. `expect` null = free; `become` null = release. null→owner reserve, owner→owner retag, owner→null release. */
export const intent = v.object({ ordinal, expect: expectation, become: v.nullable(owner) });
export type Intent = v.InferOutput<typeof intent>;

export const intentResults = ["applied", "already", "expectation", "refused"] as const;
/** `already`: the block was as wished before. `expectation`: it was not as expected; nothing was changed. `refused`: not this node's to change. */
export type IntentResult = (typeof intentResults)[number];

const helloMessage = v.object({
  type: v.literal("hello"),
  protocol: v.number(),
  version: v.string(),
  scope: v.picklist(["node", "all"]),
  node: v.optional(name),
  /** Identity of the data this client last saw; another one makes the server start afresh with `reset`. */
  lineage: v.optional(v.string()),
  /** What the client holds; the server sends what differs and what is gone. */
  have: v.pipe(v.array(v.tuple([streamedKind, name, v.string()])), v.maxLength(20_000)),
  capabilities: v.array(v.string()),
  /** Of the warm addresses that this agent may hand out. */
  incarnation: v.optional(name),
  /** The agent has heard of no server for so long that it hands out nothing: only a view newer than this hello may renew its lease. */
  leaseExpired: v.optional(v.boolean()),
});
/** Apply these to one block: in one write, together with whatever else waits for it. Answered by `ack` with the same id. */
const commitMessage = v.object({
  type: v.literal("commit"),
  id: v.number(),
  block: v.string(),
  intents: v.pipe(v.array(intent), v.minLength(1), v.maxLength(4096)),
  /** eager: write IPAMHandles with the block (before it when reserving, after it when releasing; spec trap 21). */
  handles: v.picklist(["eager", "off"]),
});
/** Give this node one more block, from the first of these pools that has one. Answered by `claimed` with the same id. */
const claimMessage = v.object({
  type: v.literal("claim"),
  id: v.number(),
  pools: v.pipe(v.array(name), v.minLength(1), v.maxLength(1000)),
  /** Blocks the agent knows and found full: none of these is an answer. */
  full: v.pipe(v.array(v.string()), v.maxLength(4096)),
  /** When nothing is to be had, another node's block or nobody's with a free address is an answer too, where that is allowed (spec 2.13). */
  borrow: v.optional(v.boolean()),
});
/** Give this node this very block, if nobody has it; else show it as it is (spec 3.1). Answered by `claimed` with the same id. */
const claimBlockMessage = v.object({ type: v.literal("claim-block"), id: v.number(), block: v.string(), pool: name });
const pingMessage = v.object({ type: v.literal("ping"), sent: v.number() });
export const maxIndexedHandles = 256;
/** Write the IPAMHandles of these from what the node's blocks say, when nothing more urgent is to be written. Answered by `indexed`. */
const indexMessage = v.object({
  type: v.literal("index"),
  id: v.number(),
  handles: v.pipe(
    v.array(v.pipe(v.string(), v.minLength(1), v.maxLength(512))),
    v.minLength(1),
    v.maxLength(maxIndexedHandles),
  ),
});
/** Raise a Kubernetes Event (shared/events.ts says which there are). No answer: what is too much is dropped and counted. */
const reportMessage = v.object({
  type: v.literal("report"),
  reason: v.pipe(v.string(), v.maxLength(128)),
  kind: v.picklist(["pod", "node", "ippool", "ipamblock"]),
  namespace: v.optional(v.pipe(v.string(), v.maxLength(63))),
  name: v.pipe(v.string(), v.minLength(1), v.maxLength(253)),
  uid: v.optional(v.pipe(v.string(), v.maxLength(128))),
  note: v.pipe(v.string(), v.maxLength(4096)),
});

export const clientMessage = v.variant("type", [
  helloMessage,
  commitMessage,
  claimMessage,
  claimBlockMessage,
  pingMessage,
  indexMessage,
  reportMessage,
]);
export type ClientMessage = v.InferOutput<typeof clientMessage>;
export type Hello = v.InferOutput<typeof helloMessage>;
export type Commit = v.InferOutput<typeof commitMessage>;
export type Claim = v.InferOutput<typeof claimMessage>;
export type ClaimBlock = v.InferOutput<typeof claimBlockMessage>;
export type Index = v.InferOutput<typeof indexMessage>;
export type Report = v.InferOutput<typeof reportMessage>;

const welcomeMessage = v.object({
  type: v.literal("welcome"),
  protocol: v.number(),
  version: v.string(),
  replica: v.string(),
  lineage: v.string(),
  apiGroup: v.picklist(["crd", "v3"]),
  /** How often the server beats; a client that hears nothing for three of these moves on. */
  heartbeatMs: v.number(),
  capabilities: v.array(v.string()),
});
/** The client's state is not usable (other lineage): forget all of it, everything follows. */
const resetMessage = v.object({ type: v.literal("reset"), reason: v.string() });
const putMessage = v.object({
  type: v.literal("put"),
  kind: streamedKind,
  object: v.looseObject({ name, resourceVersion: v.string() }),
});
const goneMessage = v.object({ type: v.literal("gone"), kind: streamedKind, name });
/** All that differed at connect has been sent: the client's view is complete as of these upstream versions. */
const syncedMessage = v.object({ type: v.literal("synced") });
const freshness = v.object({ version: v.string(), ageMs: v.number() });
/** Sent every heartbeatMs and as the answer to a ping, whose `sent` it echoes. Age and version are those of the server's upstream. */
const beatMessage = v.object({
  type: v.literal("beat"),
  echo: v.optional(v.number()),
  freshness: v.record(v.string(), freshness),
  /** Only with an echo, and only while this server may renew the node's lease: it runs for so long from when the ping was sent. */
  lease: v.optional(v.object({ limitMs: v.number() })),
  /** Absent: this server cannot tell. `gone`: also when the Node of this name is another one than the token's. */
  node: v.optional(v.picklist(["present", "gone"])),
});
const problem = v.object({ reason: v.string(), message: v.string(), retryAfterMs: v.optional(v.number()) });
export type Problem = v.InferOutput<typeof problem>;
const ackMessage = v.object({
  type: v.literal("ack"),
  id: v.number(),
  /** One per intent, in their order; absent when `problem` says why nothing is known to be written. */
  results: v.optional(v.array(v.picklist(intentResults))),
  /** The block after the write, which is then not put as well. Absent: it was put already. Null: the block is gone. */
  block: v.optional(v.nullable(wireBlock)),
  problem: v.optional(problem),
});
const claimedMessage = v.object({
  type: v.literal("claimed"),
  id: v.number(),
  block: v.optional(wireBlock),
  /** The block is not this node's. */
  borrowed: v.optional(v.boolean()),
  problem: v.optional(problem),
});
const indexedMessage = v.object({ type: v.literal("indexed"), id: v.number(), problem: v.optional(problem) });
/** The server closes; come back (elsewhere) after this long. */
const byeMessage = v.object({ type: v.literal("bye"), reason: v.string(), retryAfterMs: v.number() });

export const serverMessage = v.variant("type", [
  welcomeMessage,
  resetMessage,
  putMessage,
  goneMessage,
  syncedMessage,
  beatMessage,
  ackMessage,
  claimedMessage,
  indexedMessage,
  byeMessage,
]);
export type ServerMessage = v.InferOutput<typeof serverMessage>;
export type Ack = v.InferOutput<typeof ackMessage>;
export type Claimed = v.InferOutput<typeof claimedMessage>;
export type Welcome = v.InferOutput<typeof welcomeMessage>;

export function blockToWire(block: Block): WireBlock {
  const sequences: Record<string, string> = {};
  for (const [ordinal, value] of block.sequenceNumberForAllocation) sequences[ordinal] = String(value);
  return {
    name: block.name,
    uid: block.uid,
    resourceVersion: block.resourceVersion,
    cidr: block.cidr,
    ...(block.affinity !== undefined && { affinity: block.affinity }),
    ...(block.affinityClaimTime !== undefined && { affinityClaimTime: block.affinityClaimTime }),
    allocations: [...block.allocations],
    unallocated: [...block.unallocated],
    attributes: block.attributes.map((attribute) => ({ ...attribute })),
    sequenceNumber: String(block.sequenceNumber),
    sequenceNumberForAllocation: sequences,
    deleted: block.deleted,
  };
}

/** The sender is our own server, which projected the object: brands are taken over, not checked again. */
export function blockFromWire(wire: WireBlock): Block {
  const sequences = new Map<number, Sequence>();
  for (const [ordinal, value] of Object.entries(wire.sequenceNumberForAllocation)) {
    sequences.set(Number(ordinal), BigInt(value) as Sequence);
  }
  return {
    name: wire.name,
    uid: wire.uid as Uid,
    resourceVersion: wire.resourceVersion as ResourceVersion,
    cidr: wire.cidr as BlockCidr,
    ...(wire.affinity !== undefined && { affinity: wire.affinity }),
    ...(wire.affinityClaimTime !== undefined && { affinityClaimTime: wire.affinityClaimTime }),
    allocations: wire.allocations,
    unallocated: wire.unallocated,
    attributes: wire.attributes as readonly BlockAttribute[],
    sequenceNumber: BigInt(wire.sequenceNumber) as Sequence,
    sequenceNumberForAllocation: sequences,
    deleted: wire.deleted,
  };
}

/** An object as `put` carries it; only blocks differ from their projected form. */
export function toWire<K extends StreamedKind>(kind: K, object: Objects[K]): { name: string; resourceVersion: string } {
  return kind === "block" ? blockToWire(object as Block) : object;
}
