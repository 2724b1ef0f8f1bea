// Names for plain values that must not be mixed up, and the ways to say that something went wrong.
// Leaves to others: how any of these values is parsed (shared/ip, shared/calico, shared/protocol).

declare const brand: unique symbol;
/** A mark per name rather than the name itself, so that a branded type can be branded further (BlockCidr). */
export type Brand<T, Name extends string> = T & { readonly [brand]: { readonly [Mark in Name]: true } };

/** Monotonic milliseconds: timeouts, leases, back-off. Never comparable between processes. */
export type Instant = Brand<number, "instant">;
/** Wall clock, milliseconds since 1970: only what is written into objects or shown to people. */
export type UnixMs = Brand<number, "unix ms">;

/** One address in canonical text, as Go's net/netip prints it: `10.0.0.7`, `fd00::7`. */
export type Address = Brand<string, "address">;
/** A masked CIDR in canonical text: `10.244.0.64/26`. */
export type CidrText = Brand<string, "cidr">;
/** The CIDR of an IPAMBlock; the block's identity everywhere but in the API server's paths. */
export type BlockCidr = Brand<CidrText, "block">;
/** Position of an address in its block, from 0. */
export type Ordinal = Brand<number, "ordinal">;
export type Family = 4 | 6;

export type NodeName = Brand<string, "node name">;
export type PoolName = Brand<string, "pool name">;
/** `IPAMHandle.spec.handleID`: case is kept (spec/calico-ipam.md 1.9). */
export type HandleId = Brand<string, "handle">;
/** Kubernetes `metadata.uid`. */
export type Uid = Brand<string, "uid">;
/** Kubernetes `metadata.resourceVersion`: compare with shared/calico/resource-version.ts only. */
export type ResourceVersion = Brand<string, "resource version">;
/** A per-ordinal or per-block sequence number; 64 bits, starts at Unix nanoseconds (spec 2.2). */
export type Sequence = Brand<bigint, "sequence">;

/** Network name, container id and interface name of one CNI attachment, joined by `/`. */
export type AttachmentId = Brand<string, "attachment">;
/** Made by the CNI executable; appears in its error text and in the agent's and server's logs. */
export type RequestId = Brand<string, "request">;

/** Stable words for what the world does to us; logs, metrics and tests use them. */
export type FailureCode =
  | "api-conflict"
  | "api-exists"
  | "api-forbidden"
  | "api-gone"
  | "api-invalid"
  | "api-missing"
  | "api-throttled"
  | "api-unauthorized"
  | "api-unavailable"
  | "bad-config"
  | "bad-message"
  | "journal-read"
  | "journal-write"
  | "server-unreachable"
  | "timeout";

/** The world let us down: made where the world is met, with its cause, and handed to a core as an event. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly code: FailureCode;
  constructor(code: FailureCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** We are wrong: ends the process, which restarts from its journal. */
export class BrokenInvariant extends Error {
  override readonly name = "BrokenInvariant";
}

export function invariant(holds: boolean, what: string): asserts holds {
  if (!holds) throw new BrokenInvariant(what);
}

/** For the default case of an exhaustive switch: a new kind does not compile until it has its case. */
export function impossible(value: never): never {
  throw new BrokenInvariant(`unexpected ${JSON.stringify(value)}`);
}
