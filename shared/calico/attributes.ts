// What is stamped on an allocation, and the handle it goes to (spec 4.6, 4.9, 6.8). `pod` and `namespace` are a promise to Calico's
// collector that the address shows in the pod's status; who may make it is for the agent to decide (trap 67).
import type { HandleId, NodeName } from "../kinds.ts";
import { goTimeText } from "./timestamps.ts";

export interface PodStamp {
  readonly node: NodeName;
  /** Wall clock, Unix nanoseconds. */
  readonly nanos: bigint;
  /** Empty, or empty namespace: the caller is no kubelet, and neither is stamped. */
  readonly podName: string;
  readonly podNamespace: string;
}

export function podAttributes({ node, nanos, podName, podNamespace }: PodStamp): Record<string, string> {
  const isPod = podName !== "" && podNamespace !== "";
  return {
    ...(isPod && { namespace: podNamespace }),
    node,
    ...(isPod && { pod: podName }),
    timestamp: goTimeText(nanos),
  };
}

/** One per sandbox and network: all interfaces and both families share it (trap 58). */
export function podHandle(network: string, containerId: string): HandleId {
  return `${network}.${containerId}` as HandleId;
}

/** What releases before 3.0 called it; only ever released (spec 4.12). */
export function legacyPodHandle(podNamespace: string, podName: string, containerId: string): HandleId {
  const isPod = podName !== "" && podNamespace !== "";
  return (isPod ? `${podNamespace}.${podName}` : containerId) as HandleId;
}

/** Attributes that only Cattail writes. */
export function isOurKey(key: string): boolean {
  return key.startsWith("cattail.io/");
}

/** What calico-node stamps on the address of one of its tunnels (spec 6.3). */
export function isTunnelType(type: string | undefined): boolean {
  return type?.endsWith("TunnelAddress") ?? false;
}
