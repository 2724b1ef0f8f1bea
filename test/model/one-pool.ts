// A cluster of one node and one pool, as a server would stream it: what tests of a whole agent begin with.
import type { Objects } from "../../shared/calico/resources.ts";
import type { CidrText, NodeName, PoolName, ResourceVersion, Uid } from "../../shared/kinds.ts";
import type { StreamedKind } from "../../shared/protocol/stream.ts";

export const pool = { name: "blue" as PoolName, cidr: "10.0.0.0/22" as CidrText, blockSize: 26 };
const identity = { uid: "u" as Uid, resourceVersion: "1" as ResourceVersion };
export const objects: readonly (readonly [StreamedKind, Objects[StreamedKind]])[] = [
  ["cluster", { ...identity, name: "default", datastoreReady: true, clusterGuid: "g" }],
  ["node", { ...identity, name: "n1" as NodeName, labels: {} }],
  [
    "pool",
    {
      ...identity,
      ...pool,
      disabled: false,
      deleting: false,
      allocatable: true,
      nodeSelector: "",
      namespaceSelector: "",
      allowedUses: ["Workload"],
      assignmentMode: "Automatic",
    },
  ],
];
