// Calico's IPAM objects as Cattail keeps them: projected to what decides, with exact sequence numbers.
// Shapes follow spec/calico-ipam.md 1.6-1.12; how they are read from and written to the API is in shared/calico/codec.ts.
import type {
  Address,
  BlockCidr,
  CidrText,
  HandleId,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
} from "../kinds.ts";

/** `crd` = crd.projectcalico.org/v1, `v3` = projectcalico.org/v3 served directly (spec 1.1). */
export type ApiGroup = "crd" | "v3";

/** Identity of one version of one object. */
export interface Meta {
  readonly name: string;
  readonly uid: Uid;
  readonly resourceVersion: ResourceVersion;
}

export type PoolUse = "Workload" | "Tunnel" | "LoadBalancer";

export interface Pool extends Meta {
  readonly name: PoolName;
  readonly cidr: CidrText;
  /** Prefix length of the pool's blocks; the default (26 / 122) is filled in. */
  readonly blockSize: number;
  readonly disabled: boolean;
  /** metadata.deletionTimestamp is set. */
  readonly deleting: boolean;
  /** No condition `Allocatable` with status `False`. */
  readonly allocatable: boolean;
  /** Empty = every node. */
  readonly nodeSelector: string;
  /** Empty = every namespace. */
  readonly namespaceSelector: string;
  readonly allowedUses: readonly PoolUse[];
  readonly assignmentMode: "Automatic" | "Manual";
}

/** One entry of `IPAMBlock.spec.attributes`; keys we do not know are carried through writes. */
export interface BlockAttribute {
  readonly handle_id?: string;
  /** Attributes of the active owner. */
  readonly secondary?: Readonly<Record<string, string>>;
  readonly alternateOwnerAttrs?: Readonly<Record<string, string>>;
  /** RFC 3339, seconds: cooling down since. */
  readonly releasedAt?: string;
  readonly [unknown: string]: unknown;
}

/** The part of an IPAMBlock that allocation changes; block arithmetic (shared/calico/block.ts) works on this alone. */
export interface BlockState {
  /** `host:<node>`, `virtual:load-balancer`; absent = ownerless. */
  readonly affinity?: string;
  /** RFC 3339, seconds, `Z`. */
  readonly affinityClaimTime?: string;
  /** Per ordinal: index into `attributes`, or null = free. */
  readonly allocations: readonly (number | null)[];
  /** Free ordinals, next to use first. */
  readonly unallocated: readonly number[];
  readonly attributes: readonly BlockAttribute[];
  readonly sequenceNumber: Sequence;
  readonly sequenceNumberForAllocation: ReadonlyMap<number, Sequence>;
  /** Soft-delete mark: absent for readers, its name still taken (spec 1.5). */
  readonly deleted: boolean;
}

export interface Block extends Meta, BlockState {
  readonly cidr: BlockCidr;
}

export type AffinityState = "confirmed" | "pending" | "pendingDeletion" | "";

export interface Affinity extends Meta {
  readonly cidr: BlockCidr;
  /** Owner's name, verbatim; `load-balancer` for virtual. */
  readonly node: string;
  readonly type: "host" | "virtual";
  readonly state: AffinityState;
  readonly deleted: boolean;
  /** It bears the labels by which Calico lists a node's rows; very old ones do not (spec 1.8). */
  readonly labelled: boolean;
}

export interface Handle extends Meta {
  readonly handleId: HandleId;
  /** Addresses per block. */
  readonly block: ReadonlyMap<BlockCidr, number>;
  readonly deleted: boolean;
}

/** IPAMConfig (v1) / IPAMConfiguration (v3), defaults filled in; a missing object is normal (spec 1.10). */
export interface IpamConfig {
  readonly strictAffinity: boolean;
  readonly autoAllocateBlocks: boolean;
  /** 0 = the default limit (20). */
  readonly maxBlocksPerHost: number;
  readonly kubeVirtVMAddressPersistence: "Enabled" | "Disabled";
  readonly ipCooldownSeconds: number;
}

export interface Config extends Meta, IpamConfig {}

export const defaultIpamConfig: IpamConfig = {
  strictAffinity: false,
  autoAllocateBlocks: true,
  maxBlocksPerHost: 0,
  kubeVirtVMAddressPersistence: "Enabled",
  ipCooldownSeconds: 0,
};

export interface Reservation extends Meta {
  /** Well-formed entries only, canonical; a bare address became /32 or /128 (spec 1.11). */
  readonly cidrs: readonly CidrText[];
}

export interface Node extends Meta {
  readonly name: NodeName;
  /** Kubernetes labels over the labels of the annotation `projectcalico.org/labels` (spec 1.12). */
  readonly labels: Readonly<Record<string, string>>;
}

export interface Namespace extends Meta {
  readonly labels: Readonly<Record<string, string>>;
}

/** ClusterInformation `default`: `datastoreReady` false or a missing object means: write nothing (spec 1.1). */
export interface ClusterInformation extends Meta {
  readonly datastoreReady: boolean;
  readonly clusterGuid: string;
}

/** Who an ordinal belongs to, as one comparable value; every change of owner changes the sequence (spec 6.9). */
export interface Holder {
  readonly handle: HandleId;
  readonly sequence: Sequence;
}

/** An address where it lives. */
export interface Place {
  readonly block: BlockCidr;
  readonly ordinal: number;
  readonly address: Address;
}

/** Every kind that the server watches, by the word used for it in the store, on the stream, in metrics and logs. */
export interface Objects {
  readonly pool: Pool;
  readonly block: Block;
  readonly affinity: Affinity;
  readonly handle: Handle;
  readonly config: Config;
  readonly reservation: Reservation;
  readonly node: Node;
  readonly namespace: Namespace;
  readonly cluster: ClusterInformation;
}
export type Kind = keyof Objects;
export const kinds = [
  "pool",
  "block",
  "affinity",
  "handle",
  "config",
  "reservation",
  "node",
  "namespace",
  "cluster",
] as const satisfies readonly Kind[];
