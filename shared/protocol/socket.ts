// What the CNI executable and the node agent say to each other: one request and one reply per connection, each one JSON
// document followed by a newline. Validated at both ends; unknown keys are ignored, so that either side may be newer.
import * as v from "valibot";

export const socketProtocol = 1;
/** A request larger than this is refused by the agent; the executable forwards only what is listed here. */
export const maxRequestBytes = 1 << 20;
export const maxReplyBytes = 1 << 20;

const text = v.pipe(v.string(), v.maxLength(4096));
const addressList = v.pipe(v.array(text), v.maxLength(64));

/** Common to all verbs. `request` is made by the executable and appears in every log and error text. */
const common = {
  protocol: v.literal(socketProtocol),
  request: v.pipe(v.string(), v.minLength(1), v.maxLength(32)),
  /** CNI network name: first part of the handle and of the attachment's identity. */
  network: text,
  cniVersion: text,
};

const attachment = {
  containerId: text,
  ifname: v.pipe(v.string(), v.maxLength(15)),
  /** From CNI_ARGS; empty when the caller is not a kubelet. */
  podNamespace: text,
  podName: text,
  podUid: text,
  /** Wall clock in ms when the executable started: orders an orphaned ADD against a later DEL (spec/cni.md 3.3). */
  startedAt: v.number(),
};

/** Wall clock in ms after which nothing may be committed for this call. */
const deadline = { deadline: v.number() };

export const addRequest = v.object({
  verb: v.literal("ADD"),
  ...common,
  ...attachment,
  ...deadline,
  ifnameIsFirst: v.boolean(),
  netns: text,
  families: v.object({ ipv4: v.boolean(), ipv6: v.boolean() }),
  /** `ipam.ipv4_pools` / `ipv6_pools`: names or CIDRs, in the caller's order of preference. */
  pools: v.object({ ipv4: addressList, ipv6: addressList }),
  /** Addresses asked for by IP=, args.cni.ips or runtimeConfig.ips. */
  requested: addressList,
  /** `calico-ipam`: the result is Calico's (block prefix, one route per address); otherwise `cattail-ipam`'s own rules. */
  dropIn: v.boolean(),
  /** Our own key `ipam.cattail`, already validated by the executable. */
  result: v.object({ prefix: v.picklist(["block", "pool", "host"]), gateway: text }),
});

export const delRequest = v.object({
  verb: v.literal("DEL"),
  ...common,
  ...attachment,
  ...deadline,
  /** Set when an ADD's answer reached nobody: its `request`. Releases only what that call took; an earlier ADD's address stays. */
  undoes: v.optional(common.request),
});

export const checkRequest = v.object({
  verb: v.literal("CHECK"),
  ...common,
  ...attachment,
  ...deadline,
  /** Addresses (without prefix) of prevResult.ips. */
  previous: addressList,
});

export const gcRequest = v.object({
  verb: v.literal("GC"),
  ...common,
  ...deadline,
  valid: v.array(v.object({ containerId: text, ifname: text })),
});

export const statusRequest = v.object({ verb: v.literal("STATUS"), ...common, ...deadline });

export const agentRequest = v.variant("verb", [addRequest, delRequest, checkRequest, gcRequest, statusRequest]);
export type AddRequest = v.InferOutput<typeof addRequest>;
export type DelRequest = v.InferOutput<typeof delRequest>;
export type CheckRequest = v.InferOutput<typeof checkRequest>;
export type GcRequest = v.InferOutput<typeof gcRequest>;
export type StatusRequest = v.InferOutput<typeof statusRequest>;
export type AgentRequest = v.InferOutput<typeof agentRequest>;

const route = v.object({ dst: text, gw: v.optional(text), mtu: v.optional(v.number()) });
export const success = v.object({
  ok: v.literal(true),
  /** ADD only: IPv4 first. `address` has its prefix: `10.0.0.7/26`. */
  ips: v.optional(v.array(v.object({ address: text, gateway: v.optional(text) }))),
  routes: v.optional(v.array(route)),
});
/** CNI error (spec/cni.md 3.2): `code`, `msg` up to 400 characters, `details` up to 600. */
export const refusal = v.object({
  ok: v.literal(false),
  code: v.pipe(v.number(), v.integer()),
  msg: v.string(),
  details: v.optional(v.string()),
});
export const agentReply = v.variant("ok", [success, refusal]);
export type AgentReply = v.InferOutput<typeof agentReply>;
export type Success = v.InferOutput<typeof success>;
export type Refusal = v.InferOutput<typeof refusal>;

/**
 * One file in the agent's spool: a DEL that could not be delivered. Its name sorts in order of arrival and ends in `.json`;
 * any other name is a write in progress. Several files of one attachment may stand side by side for a moment.
 */
export const spooledDel = v.object({ ...delRequest.entries, spooledAt: v.number() });
export type SpooledDel = v.InferOutput<typeof spooledDel>;
