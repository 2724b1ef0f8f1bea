import assert from "node:assert/strict";
import { test } from "node:test";
import { newBlock } from "../../shared/calico/block.ts";
import { blockName } from "../../shared/calico/names.ts";
import type { Pool } from "../../shared/calico/resources.ts";
import type {
  BlockCidr,
  CidrText,
  NodeName,
  PoolName,
  ResourceVersion,
  Sequence,
  Uid,
  UnixMs,
} from "../../shared/kinds.ts";
import type { AddRequest } from "../../shared/protocol/socket.ts";
import { View } from "../sync/view.ts";
import { ViewPlacement } from "./placement.ts";

const now = Date.parse("2030-01-01T00:00:00Z") as UnixMs;
const meta = { uid: "u" as Uid, resourceVersion: "1" as ResourceVersion };
const block = "10.0.0.0/30" as BlockCidr;
const pool: Pool = {
  ...meta,
  name: "pool" as PoolName,
  cidr: block,
  blockSize: 30,
  disabled: false,
  deleting: false,
  allocatable: true,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: ["Workload"],
  assignmentMode: "Automatic",
};
const ask: AddRequest = {
  verb: "ADD",
  protocol: 1,
  request: "r",
  network: "net",
  cniVersion: "1.0.0",
  containerId: "c",
  ifname: "eth0",
  podNamespace: "shop",
  podName: "cart",
  podUid: "",
  startedAt: 0,
  deadline: 0,
  ifnameIsFirst: true,
  netns: "",
  families: { ipv4: true, ipv6: false },
  pools: { ipv4: [], ipv6: [] },
  requested: ["10.0.0.2"],
  dropIn: true,
  result: { prefix: "block", gateway: "" },
};

test("a reserved address is given to nobody by itself, and to whoever asks for it", () => {
  const view = new View();
  view.put("cluster", { ...meta, name: "default", datastoreReady: true, clusterGuid: "g" });
  view.put("node", { ...meta, name: "n1" as NodeName, labels: {} });
  view.put("pool", pool);
  view.put("reservation", { ...meta, name: "statics", cidrs: ["10.0.0.2/31" as CidrText] });
  const placement = new ViewPlacement(view, "n1" as NodeName, () => now);
  const state = newBlock({ cidr: block, affinity: "host:n1", now, sequence: 1n as Sequence });
  assert.deepEqual(placement.freeOrdinals({ ...meta, ...state, name: blockName(block), cidr: block }), [0, 1]);
  assert.deepEqual(placement.wanted(ask), [{ kind: "address", family: 4, address: "10.0.0.2", block, pool: "pool" }]);
});
