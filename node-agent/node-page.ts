// What this agent says of itself to the operators' command line: journal, lease, what the runtime wrote down, the last calls.
// Leaves to others: the port it is read on.
import type { Instant, UnixMs } from "../shared/kinds.ts";
import type { NodeState, RecordedCall } from "../shared/protocol/node-state.ts";
import type { Found } from "./ledger/evidence.ts";
import { attachmentId, isOpen, type Ledger } from "./ledger/state.ts";

export interface Surroundings {
  readonly version: string;
  readonly now: Instant;
  readonly wall: UnixMs;
  readonly problems: readonly string[];
  readonly spooledDeletes: number;
  readonly runtime: Found;
  readonly calls: readonly RecordedCall[];
}

export function nodeStateOf(ledger: Ledger, around: Surroundings): NodeState {
  const { now } = around;
  const { lease, incarnation } = ledger;
  const holdings = [...ledger.lanes.values()].flatMap((lane) => [...lane.holdings.values()]);
  const { seen, gap } = around.runtime;
  return {
    kind: "NodeState",
    asOf: new Date(around.wall).toISOString(),
    node: ledger.node,
    version: around.version,
    online: ledger.online,
    problems: [...around.problems],
    lease: {
      standing: lease.standing,
      ...(lease.standing === "runs" && { leftSeconds: Math.max(0, (lease.until - now) / 1000) }),
    },
    incarnation: `${incarnation.journal}.${incarnation.number}`,
    pending: holdings.filter(isOpen).length,
    spooledDeletes: around.spooledDeletes,
    attachments: [...ledger.attachments.values()].map(({ id, handle, pod, addedAt, phase }) => ({
      id,
      handle,
      pod,
      addedAt: new Date(addedAt).toISOString(),
      phase,
    })),
    holdings: holdings.map(({ block, ordinal, address, attachment, handle, state, since }) => ({
      block,
      ordinal,
      address,
      attachment,
      handle,
      state: state.kind,
      ...("sequence" in state && state.sequence !== undefined && { sequence: String(state.sequence) }),
      seconds: (now - since) / 1000,
    })),
    runtime: {
      seen: seen.map(({ attachment, pod, addresses }) => ({
        ...(attachment && { attachment: attachmentId(attachment) }),
        ...(pod && pod.name !== "" && { pod: `${pod.namespace}/${pod.name}` }),
        addresses: [...addresses],
      })),
      ...(gap !== undefined && { gap }),
    },
    calls: [...around.calls],
  };
}
