// What is stamped on an address of an attachment (spec 4.6, 4.9). `pod` and `namespace` are a promise to Calico's collector that the
// address is among the pod's own: made for its first interface only (trap 67).
import { podAttributes, podHandle } from "../../shared/calico/attributes.ts";
import type { NodeName } from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import type { Add } from "../ledger/state.ts";

/** Not one of Calico's types, so that its collector leaves the address alone (spec 6.7). */
const secondaryType = "cattailSecondaryInterface";

type Stamped = Pick<AddRequest, "network" | "containerId" | "ifname" | "podNamespace" | "podName" | "ifnameIsFirst">;

export function ownerOf(ask: Stamped, node: NodeName, nanos: bigint): Add["owner"] {
  const handle = podHandle(ask.network, ask.containerId);
  if (ask.ifnameIsFirst) return { handle, attributes: podAttributes({ ...ask, node, nanos }) };
  const { node: stampedNode, timestamp, ...pod } = podAttributes({ ...ask, node, nanos });
  const ours = Object.fromEntries(Object.entries(pod).map(([key, value]) => [`cattail.io/${key}`, value]));
  const attributes = {
    ...ours,
    "cattail.io/interface": ask.ifname,
    node,
    timestamp: timestamp ?? "",
    type: secondaryType,
  };
  return { handle, attributes };
}
