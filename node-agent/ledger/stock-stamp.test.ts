import assert from "node:assert/strict";
import { test } from "node:test";
import type { Instant, NodeName } from "../../shared/kinds.ts";
import { createLedger, type Placement } from "./state.ts";
import { stockOwner } from "./stock.ts";

/** Nobody asks for an address here. */
const placement = {} as Placement;

test("what is in stock stands under a handle of its own, names its node, and promises Calico's collector no pod", () => {
  const ledger = createLedger(
    { node: "n1" as NodeName, handles: "eager", placement, handleDelayMs: undefined, warm: () => undefined },
    0 as Instant,
  );
  const { handle, attributes } = stockOwner(ledger);
  assert.equal(handle, "cattail-warm-n1");
  const { node, type } = attributes;
  assert.deepEqual({ node, type }, { node: "n1", type: "cattail-warm" });
  // Any of these, and the collector would free it, with a pod that is not there or with the node (spec 6.3, 6.7).
  for (const key of ["pod", "namespace", "vmi-name"]) assert.ok(!(key in attributes), key);
});
