// What an agent says of itself on its admin port (/api/v1/node): the journal, its lease, what the runtime wrote down, the last calls.
// For the operators' command line, which compares it with the blocks. Leaves to others: how an agent comes to know it.
import * as v from "valibot";

const attachment = v.object({
  id: v.string(),
  handle: v.string(),
  /** "namespace/name"; empty: not known. */
  pod: v.string(),
  /** RFC 3339. */
  addedAt: v.string(),
  phase: v.picklist(["reserving", "owned"]),
});

const holding = v.object({
  block: v.string(),
  ordinal: v.number(),
  address: v.string(),
  /** Empty: nobody's. */
  attachment: v.string(),
  handle: v.string(),
  state: v.picklist(["reserving", "warm", "held", "owned", "withdrawn", "leaving", "lost", "suspect"]),
  /** That the block is believed to show; in decimal. */
  sequence: v.optional(v.string()),
  /** In this state, as far as this process knows. */
  seconds: v.number(),
});

/** One container as the runtime wrote it down. */
const sighting = v.object({
  attachment: v.optional(v.string()),
  pod: v.optional(v.string()),
  addresses: v.array(v.string()),
});

const call = v.object({
  at: v.string(),
  verb: v.string(),
  request: v.string(),
  pod: v.optional(v.string()),
  attachment: v.optional(v.string()),
  seconds: v.number(),
  /** Where the answer came from: warm, wait, replay, journal. */
  path: v.string(),
  addresses: v.optional(v.array(v.string())),
  code: v.optional(v.number()),
  error: v.optional(v.string()),
  details: v.optional(v.string()),
});

export const nodeState = v.object({
  kind: v.literal("NodeState"),
  asOf: v.string(),
  node: v.string(),
  version: v.string(),
  /** A server is connected. */
  online: v.boolean(),
  /** Why an ADD could not be answered now; empty: it could. */
  problems: v.array(v.string()),
  lease: v.object({ standing: v.string(), leftSeconds: v.optional(v.number()) }),
  incarnation: v.string(),
  /** Changes that the blocks do not show yet. */
  pending: v.number(),
  spooledDeletes: v.number(),
  attachments: v.array(attachment),
  holdings: v.array(holding),
  runtime: v.object({ seen: v.array(sighting), gap: v.optional(v.string()) }),
  /** Newest last; a bounded number, of this process only. */
  calls: v.array(call),
});
export type NodeState = v.InferOutput<typeof nodeState>;
export type RecordedCall = v.InferOutput<typeof call>;
export const nodeStatePath = "/api/v1/node";
