// Between the API's objects and ours: readers that never throw on what others wrote, whole new objects, and merge patches that
// change just what allocation changed (spec 1.2-1.12). Raw objects come from and go to shared/json/lossless.ts.

import { bitsOf, parseAddress } from "../ip/address.ts";
import { type Cidr, hostCidr, parseCidr, sizeOf } from "../ip/cidr.ts";
import { printLossless } from "../json/lossless.ts";
import type { BlockCidr, CidrText, HandleId, NodeName, PoolName, ResourceVersion, Sequence, Uid } from "../kinds.ts";
import {
  type Fields,
  flag,
  integer,
  integer64,
  isFields,
  isInteger,
  list,
  oneOf,
  type Reading,
  reading,
  record,
  requiredText,
  text,
  textList,
  texts,
  unreadable,
} from "./fields.ts";
import {
  affinityLabels,
  affinityName,
  affinityTypeLabel,
  blockName,
  handleName,
  hostnameLabel,
  resourceOf,
} from "./names.ts";
import type {
  Affinity,
  AffinityState,
  ApiGroup,
  Block,
  BlockAttribute,
  BlockState,
  ClusterInformation,
  Config,
  Handle,
  Kind,
  Meta,
  Namespace,
  Node,
  Objects,
  Pool,
  PoolUse,
  Reservation,
} from "./resources.ts";

export type { Reading } from "./fields.ts";
export type ApiObject = Record<string, unknown>;
type Reader<T> = (raw: unknown, group: ApiGroup) => Reading<T>;

export const readBlock: Reader<Block> = reader((raw, meta) => {
  const spec = record(raw, "spec");
  const cidr = blockCidr(spec);
  // Blocks are looked for by name: under another one, Calico does not find it either.
  if (meta.name !== blockName(cidr.text as BlockCidr)) unreadable(`${cidr.text} is not the CIDR of this name`);
  const attributes = list(spec, "attributes").map(attribute);
  const allocations = list(spec, "allocations");
  const size = Number(sizeOf(cidr));
  if (allocations.length !== size) unreadable(`${allocations.length} allocations in a block of ${size}`);
  const claimed = text(spec, "affinityClaimTime");
  const affinity = text(spec, "affinity");
  return {
    ...meta,
    cidr: cidr.text as BlockCidr,
    ...(affinity && { affinity }),
    ...(claimed && { affinityClaimTime: claimed }),
    allocations: allocations.map((index, ordinal) => allocation(index, ordinal, attributes.length)),
    unallocated: list(spec, "unallocated").map((value) =>
      isInteger(value) ? value : unreadable("unallocated holds something else than ordinals"),
    ),
    attributes,
    sequenceNumber: integer64(spec, "sequenceNumber") as Sequence,
    sequenceNumberForAllocation: sequences(record(spec, "sequenceNumberForAllocation"), size),
    deleted: flag(spec, "deleted"),
  };
});

export const readAffinity: Reader<Affinity> = reader((raw, meta) => {
  const spec = record(raw, "spec");
  const affinity = {
    ...meta,
    cidr: blockCidr(spec).text as BlockCidr,
    node: requiredText(spec, "node"),
    type: oneOf(spec, "type", ["host", "virtual"], "host"),
    state: oneOf(spec, "state", ["confirmed", "pending", "pendingDeletion", ""], ""),
    deleted: deletedMark(spec),
  } as const;
  const labels = record(record(raw, "metadata"), "labels");
  // The hash is not computed again for every row: nobody writes another node's.
  const labelled = labels[affinityTypeLabel] === affinity.type && labels[hostnameLabel] !== undefined;
  return { ...affinity, labelled };
});

export const readHandle: Reader<Handle> = reader((raw, meta) => {
  const spec = record(raw, "spec");
  const counts = record(spec, "block");
  const block = new Map<BlockCidr, number>();
  for (const key of Object.keys(counts)) {
    const count = integer(counts, key);
    // Calico finds a block by this very text: another spelling is linked to nothing (trap 9).
    if (parseCidr(key)?.text === key) block.set(key as CidrText as BlockCidr, count);
  }
  return { ...meta, handleId: requiredText(spec, "handleID") as HandleId, block, deleted: flag(spec, "deleted") };
});

export const readPool: Reader<Pool> = reader((raw, meta, group) => {
  const spec = record(raw, "spec");
  const cidr = cidrIn(spec);
  const blockSize = integer(spec, "blockSize") || defaultBlockSize[cidr.family];
  const hostBits = bitsOf(cidr.family) - blockSize;
  if (hostBits < 0 || hostBits > mostHostBits) unreadable(`blockSize is ${blockSize}`);
  const uses = textList(spec, "allowedUses");
  const allowedUses: readonly PoolUse[] = uses.length === 0 ? defaultUses : allUses.filter((use) => uses.includes(use));
  return {
    ...meta,
    name: meta.name as PoolName,
    cidr: cidr.text,
    blockSize,
    disabled: flag(spec, "disabled"),
    deleting: text(record(raw, "metadata"), "deletionTimestamp") !== "" && !hidesMetadata(raw, group),
    allocatable: !list(record(raw, "status"), "conditions").some(saysNotAllocatable),
    nodeSelector: text(spec, "nodeSelector"),
    namespaceSelector: text(spec, "namespaceSelector"),
    allowedUses,
    assignmentMode: oneOf(spec, "assignmentMode", ["Automatic", "Manual"], "Automatic"),
  };
});

export const readConfig: Reader<Config> = reader((raw, meta) => {
  const spec = record(raw, "spec");
  return {
    ...meta,
    strictAffinity: flag(spec, "strictAffinity"),
    autoAllocateBlocks: flag(spec, "autoAllocateBlocks", true),
    maxBlocksPerHost: integer(spec, "maxBlocksPerHost"),
    kubeVirtVMAddressPersistence: oneOf(spec, "kubeVirtVMAddressPersistence", ["Enabled", "Disabled"], "Enabled"),
    ipCooldownSeconds: integer(spec, "ipCooldownSeconds"),
  };
});

export const readReservation: Reader<Reservation> = reader((raw, meta) => ({
  ...meta,
  cidrs: textList(record(raw, "spec"), "reservedCIDRs").flatMap((entry) => reservedCidr(entry.trim()) ?? []),
}));

export const readNode: Reader<Node> = reader((raw, meta) => {
  const metadata = record(raw, "metadata");
  const calicoOnly = labelsIn(text(record(metadata, "annotations"), "projectcalico.org/labels"));
  return { ...meta, name: meta.name as NodeName, labels: { ...calicoOnly, ...texts(metadata, "labels") } };
});

export const readNamespace: Reader<Namespace> = reader((raw, meta) => ({
  ...meta,
  labels: texts(record(raw, "metadata"), "labels"),
}));

export const readClusterInformation: Reader<ClusterInformation> = reader((raw, meta) => {
  const spec = record(raw, "spec");
  return { ...meta, datastoreReady: flag(spec, "datastoreReady"), clusterGuid: text(spec, "clusterGUID") };
});

/** For those who treat all kinds alike. */
export const readers: { readonly [K in Kind]: Reader<Objects[K]> } = {
  pool: readPool,
  block: readBlock,
  affinity: readAffinity,
  handle: readHandle,
  config: readConfig,
  reservation: readReservation,
  node: readNode,
  namespace: readNamespace,
  cluster: readClusterInformation,
};

export function newBlockObject(group: ApiGroup, cidr: BlockCidr, state: BlockState): ApiObject {
  return {
    ...head(group, "block", { name: blockName(cidr), ...stamp(group) }),
    spec: {
      cidr,
      ...blockSpec(state),
      sequenceNumberForAllocation: Object.fromEntries(state.sequenceNumberForAllocation),
      // A dead field that the schema requires (trap 4).
      strictAffinity: false,
    },
  };
}

export interface NewAffinity {
  readonly node: string;
  readonly cidr: BlockCidr;
  readonly state: AffinityState;
  readonly type: Affinity["type"];
}

export function newAffinityObject(group: ApiGroup, affinity: NewAffinity): ApiObject {
  const { cidr, node, state, type } = affinity;
  return {
    ...head(group, "affinity", { name: affinityName(node, cidr), ...affinityStamp(group, affinity) }),
    spec: { cidr, deleted: writtenMark(group, false), node, state, type },
  };
}

export function newHandleObject(group: ApiGroup, handleId: HandleId, block: ReadonlyMap<BlockCidr, number>): ApiObject {
  return {
    ...head(group, "handle", { name: handleName(handleId), ...stamp(group) }),
    spec: { block: Object.fromEntries(block), deleted: false, handleID: handleId },
  };
}

/** Merge patches carry the version that was read, so they are compare-and-swap, and the metadata that Calico stamps on every write. */
export function blockPatch(group: ApiGroup, before: Block, after: BlockState): ApiObject {
  const [old, wanted] = [blockSpec(before), blockSpec(after)];
  const spec: ApiObject = {};
  for (const key of new Set([...Object.keys(old), ...Object.keys(wanted)])) {
    // null removes a field: affinity and its time when a block loses its owner.
    if (!isSame(old[key], wanted[key])) spec[key] = wanted[key] ?? null;
  }
  const sequenceChanges = mapPatch(before.sequenceNumberForAllocation, after.sequenceNumberForAllocation);
  if (sequenceChanges !== undefined) spec.sequenceNumberForAllocation = sequenceChanges;
  return { metadata: { resourceVersion: before.resourceVersion, ...stamp(group) }, spec };
}

/** `deleted` and `type` go along always: what old releases left out or spelled otherwise becomes what Calico writes today. */
export function affinityPatch(
  group: ApiGroup,
  before: Affinity,
  after: Pick<Affinity, "state" | "deleted">,
): ApiObject {
  return {
    metadata: { resourceVersion: before.resourceVersion, ...affinityStamp(group, before) },
    spec: { deleted: writtenMark(group, after.deleted), state: after.state, type: before.type },
  };
}

export function handlePatch(group: ApiGroup, before: Handle, after: Pick<Handle, "block" | "deleted">): ApiObject {
  const block = mapPatch(before.block, after.block);
  return {
    metadata: { resourceVersion: before.resourceVersion, ...stamp(group) },
    spec: { ...(block && { block }), ...(before.deleted !== after.deleted && { deleted: after.deleted }) },
  };
}

function reader<T>(read: (raw: Fields, meta: Meta, group: ApiGroup) => T): Reader<T> {
  return (raw, group) =>
    reading(() => {
      const object = isFields(raw) ? raw : unreadable("not an object");
      const metadata = record(object, "metadata");
      const meta: Meta = {
        name: requiredText(metadata, "name"),
        uid: requiredText(metadata, "uid") as Uid,
        resourceVersion: requiredText(metadata, "resourceVersion") as ResourceVersion,
      };
      return read(object, meta, group);
    });
}

const defaultBlockSize = { 4: 26, 6: 122 } as const;
/** The schema's bounds are /20 and /116: 4,096 addresses. */
const mostHostBits = 12;
const allUses: readonly PoolUse[] = ["Workload", "Tunnel", "LoadBalancer"];
const defaultUses: readonly PoolUse[] = ["Workload", "Tunnel"];
const metadataAnnotation = "projectcalico.org/metadata";

function cidrIn(spec: Fields): Cidr {
  const written = text(spec, "cidr");
  return parseCidr(written) ?? unreadable(`cidr is ${JSON.stringify(written)}`);
}

function blockCidr(spec: Fields): Cidr {
  const cidr = cidrIn(spec);
  if (bitsOf(cidr.family) - cidr.prefix > mostHostBits) unreadable(`${cidr.text} is too large for a block`);
  return cidr;
}

function allocation(index: unknown, ordinal: number, attributes: number): number | null {
  if (index === null || (isInteger(index) && index >= 0 && index < attributes)) return index;
  return unreadable(`ordinal ${ordinal} points at no attribute`);
}

function attribute(raw: unknown): BlockAttribute {
  if (!isFields(raw)) return unreadable("an attribute is not an object");
  text(raw, "handle_id");
  texts(raw, "secondary");
  texts(raw, "alternateOwnerAttrs");
  const attribute: BlockAttribute = Object.fromEntries(Object.entries(raw).filter(([, value]) => value !== null));
  if (attribute.releasedAt !== undefined && Number.isNaN(Date.parse(text(raw, "releasedAt")))) {
    unreadable(`releasedAt is ${attribute.releasedAt}`);
  }
  return attribute;
}

function sequences(fields: Fields, size: number): Map<number, Sequence> {
  const found = new Map<number, Sequence>();
  for (const key of Object.keys(fields)) {
    const ordinal = Number(key);
    if (String(ordinal) === key && ordinal < size) found.set(ordinal, integer64(fields, key) as Sequence);
  }
  return found;
}

/** A string in one group, a boolean in the other (trap 6); empty and absent are false. */
function deletedMark(spec: Fields): boolean {
  const value = spec.deleted ?? "";
  if (typeof value === "boolean") return value;
  if (typeof value === "string" && (value === "" || goFalse.has(value))) return false;
  return (typeof value === "string" && goTrue.has(value)) || unreadable(`deleted is ${printLossless(value)}`);
}
const goTrue: ReadonlySet<string> = new Set(["1", "t", "T", "TRUE", "true", "True"]);
const goFalse: ReadonlySet<string> = new Set(["0", "f", "F", "FALSE", "false", "False"]);

function writtenMark(group: ApiGroup, deleted: boolean): string | boolean {
  return group === "crd" ? String(deleted) : deleted;
}

/** Where Calico keeps metadata in an annotation, it does not see the real deletionTimestamp (trap 78). */
function hidesMetadata(raw: Fields, group: ApiGroup): boolean {
  return group === "crd" && record(record(raw, "metadata"), "annotations")[metadataAnnotation] !== undefined;
}

function saysNotAllocatable(condition: unknown): boolean {
  return isFields(condition) && condition.type === "Allocatable" && condition.status === "False";
}

/** Malformed entries are passed over, as Calico does (spec 1.11). */
function reservedCidr(entry: string): CidrText | undefined {
  const address = parseAddress(entry);
  return address ? hostCidr(address).text : parseCidr(entry)?.text;
}

/** An annotation that is no map of strings counts for nothing: the node's real labels are still good. */
function labelsIn(annotation: string): Readonly<Record<string, string>> {
  try {
    const parsed: unknown = annotation === "" ? {} : JSON.parse(annotation);
    const labels = reading(() => texts({ labels: parsed }, "labels"));
    return labels.ok ? labels.object : {};
  } catch {
    return {};
  }
}

function head(group: ApiGroup, kind: Kind, metadata: ApiObject): ApiObject {
  const resource = resourceOf(group, kind);
  return { apiVersion: resource.apiVersion, kind: resource.kind, metadata };
}

function stamp(group: ApiGroup, metadata: ApiObject = {}): ApiObject {
  return group === "crd" ? { annotations: { [metadataAnnotation]: JSON.stringify(metadata) } } : {};
}

function affinityStamp(group: ApiGroup, affinity: Pick<Affinity, "node" | "cidr" | "type">): ApiObject {
  const labels = affinityLabels(affinity);
  return { ...stamp(group, { labels }), labels };
}

/** All of BlockState but the sequences per ordinal, which are patched by key. */
function blockSpec(state: BlockState): ApiObject {
  return {
    ...(state.affinity !== undefined && { affinity: state.affinity }),
    ...(state.affinityClaimTime !== undefined && { affinityClaimTime: state.affinityClaimTime }),
    allocations: state.allocations,
    attributes: state.attributes,
    deleted: state.deleted,
    sequenceNumber: state.sequenceNumber,
    unallocated: state.unallocated,
  };
}

/** Lists are compared by what they hold; attribute entries live on from state to state, so identity is enough for them. */
function isSame(a: unknown, b: unknown): boolean {
  if (!Array.isArray(a) || !Array.isArray(b)) return a === b;
  return a.length === b.length && a.every((value, index) => value === b[index]);
}

/** Undefined: nothing changed. */
function mapPatch<K extends string | number, V>(before: ReadonlyMap<K, V>, after: ReadonlyMap<K, V>) {
  const changes = new Map<K, V | null>();
  for (const key of before.keys()) if (!after.has(key)) changes.set(key, null);
  for (const [key, value] of after) if (before.get(key) !== value) changes.set(key, value);
  return changes.size > 0 ? Object.fromEntries(changes) : undefined;
}
