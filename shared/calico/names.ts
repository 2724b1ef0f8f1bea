// What Calico's objects are called: names, labels and paths (spec 1.2, 1.4, 1.8).
// Names are made here and never parsed back: the truth is in `spec`.
import { sha256 } from "@noble/hashes/sha2.js";
import { sha3_256 } from "@noble/hashes/sha3.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import type { BlockCidr, CidrText, HandleId, NodeName } from "../kinds.ts";
import type { Affinity, ApiGroup, Kind } from "./resources.ts";

/** Canonical texts have at most 3 dots, 7 colons and one slash: what Calico's bounded replacement leaves alone does not occur. */
export function cidrName(cidr: CidrText): string {
  return cidr.replaceAll(/[.:/]/g, "-");
}

export function blockName(cidr: BlockCidr): string {
  return cidrName(cidr);
}

/** From here on the API server would refuse the name. */
const tooLong = 253;
const nameHashDigits = 11;

/** Node names are ASCII: one character is one byte. */
export function affinityName(node: string, cidr: BlockCidr): string {
  const suffix = cidrName(cidr);
  const name = `${node}-${suffix}`;
  if (name.length < tooLong) return name;
  const hash = bytesToHex(sha256(utf8ToBytes(`${node}+${suffix}`))).slice(0, nameHashDigits);
  const kept = tooLong - 1 - suffix.length - nameHashDigits - "--".length;
  return `${node.slice(0, kept)}-${suffix}-${hash}`;
}

export function handleName(handleId: HandleId): string {
  return handleId.toLowerCase();
}

const warmPrefix = "cattail-warm-";

/** Holds the warm addresses of a node; no IPAMHandle object is written for it (spec 6.8). */
export function warmHandle(node: NodeName): HandleId {
  return `${warmPrefix}${node}` as HandleId;
}

export function isWarmHandle(handle: HandleId): boolean {
  return handle.startsWith(warmPrefix);
}

export const affinityTypeLabel = "projectcalico.org/affinity-type";
export const hostnameLabel = "projectcalico.org/hostname-hash";

export function affinityLabels(affinity: Pick<Affinity, "node" | "cidr" | "type">): Record<string, string> {
  // Sorted by key: the same text also goes into an annotation, as Go prints a map.
  return {
    [affinityTypeLabel]: affinity.type,
    [hostnameLabel]: base32(sha3_256(utf8ToBytes(affinity.node))),
    "projectcalico.org/ip-version": affinity.cidr.includes(":") ? "6" : "4",
  };
}

/** RFC 4648 without padding. */
function base32(bytes: Uint8Array): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  let text = "";
  let pending = 0;
  let bits = 0;
  for (const byte of bytes) {
    pending = (pending << 8) | byte;
    bits += 8;
    for (; bits >= 5; bits -= 5) text += alphabet[(pending >> (bits - 5)) & 31];
    pending &= (1 << bits) - 1;
  }
  return bits > 0 ? text + alphabet[(pending << (5 - bits)) & 31] : text;
}

/** How one kind of object is addressed and called in the API. */
export interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly plural: string;
}

const calico: Record<Exclude<Kind, "config" | "node" | "namespace">, Omit<Resource, "apiVersion">> = {
  pool: { kind: "IPPool", plural: "ippools" },
  block: { kind: "IPAMBlock", plural: "ipamblocks" },
  affinity: { kind: "BlockAffinity", plural: "blockaffinities" },
  handle: { kind: "IPAMHandle", plural: "ipamhandles" },
  reservation: { kind: "IPReservation", plural: "ipreservations" },
  cluster: { kind: "ClusterInformation", plural: "clusterinformations" },
};
/** The one kind that has another name in each group (trap 8). */
const config: Record<ApiGroup, Omit<Resource, "apiVersion">> = {
  crd: { kind: "IPAMConfig", plural: "ipamconfigs" },
  v3: { kind: "IPAMConfiguration", plural: "ipamconfigurations" },
};

export function resourceOf(group: ApiGroup, kind: Kind): Resource {
  if (kind === "node") return { apiVersion: "v1", kind: "Node", plural: "nodes" };
  if (kind === "namespace") return { apiVersion: "v1", kind: "Namespace", plural: "namespaces" };
  const apiVersion = group === "crd" ? "crd.projectcalico.org/v1" : "projectcalico.org/v3";
  return { apiVersion, ...(kind === "config" ? config[group] : calico[kind]) };
}

/** Everything that Cattail reads or writes is cluster scoped. Without a name: the collection. */
export function apiPath(group: ApiGroup, kind: Kind, name?: string): string {
  const { apiVersion, plural } = resourceOf(group, kind);
  const root = apiVersion === "v1" ? "/api/v1" : `/apis/${apiVersion}`;
  return name === undefined ? `${root}/${plural}` : `${root}/${plural}/${encodeURIComponent(name)}`;
}
