// Each verb of a request becomes an event for the ledger, or is answered on the spot from what is known (spec/cni.md 3.3-3.7).
// Leaves to others what the ledger makes of it, and the words of the answer (replies.ts).
import { legacyPodHandle, podHandle } from "../../shared/calico/attributes.ts";
import { parseAddress, printAddress, unmapped } from "../../shared/ip/address.ts";
import { type AttachmentId, type Instant, impossible, type NodeName, type UnixMs } from "../../shared/kinds.ts";
import type { AddRequest, AgentRequest, CheckRequest, DelRequest, GcRequest } from "../../shared/protocol/socket.ts";
import type { Found } from "../ledger/evidence.ts";
import { check, type LedgerEvent } from "../ledger/ledger.ts";
import { attachmentId, type CallId, type Ledger, partsOf } from "../ledger/state.ts";
import { cniCode, type Trouble, trouble } from "../trouble.ts";
import { ownerOf } from "./owner.ts";

export type Verdict =
  | { readonly kind: "event"; readonly event: LedgerEvent }
  | { readonly kind: "fine" }
  | { readonly kind: "refused"; readonly trouble: Trouble };

export interface Circumstances {
  readonly ledger: Ledger;
  readonly node: NodeName;
  readonly call: CallId;
  readonly now: Instant;
  readonly wall: UnixMs;
  readonly nanos: bigint;
}

/** Longer than any schedule of the executable (spec/cni.md 3.3): a clock that was set back must not keep a call for ever. */
const longestCallMs = 90_000;

export function decide(request: AgentRequest, at: Circumstances): Verdict {
  switch (request.verb) {
    case "ADD":
      return namesSomething(request) ?? event(addEvent(request, at));
    case "DEL":
      return namesSomething(request) ?? event(delEvent(request, at, false));
    case "CHECK":
      return checkAttachment(request, at.ledger);
    case "GC":
      return event(gcEvent(request, at));
    case "STATUS":
      return status(at.ledger, at.now);
    default:
      return impossible(request);
  }
}

export function addEvent(ask: AddRequest, { node, call, now, wall, nanos }: Circumstances): LedgerEvent {
  const canonical = { ...ask, requested: ask.requested.map(plainAddress) };
  return {
    kind: "add",
    call,
    id: attachmentId(ask),
    ask: canonical,
    owner: ownerOf(ask, node, nanos),
    addedAt: wall,
    deadline: instantOf(ask.deadline, wall, now),
  };
}

export function delEvent(request: DelRequest, { call, now, wall }: Circumstances, spooled: boolean): LedgerEvent {
  const { podNamespace, podName, containerId } = request;
  return {
    kind: "del",
    call,
    id: attachmentId(request),
    parts: partsOf(request),
    handles: [podHandle(request.network, request.containerId), legacyPodHandle(podNamespace, podName, containerId)],
    startedAt: request.startedAt as UnixMs,
    // Whoever left it in the spool waits for nothing; what lies there stays until it is done.
    deadline: spooled ? ((now + longestCallMs) as Instant) : instantOf(request.deadline, wall, now),
    undoes: request.undoes,
    spooled,
  };
}

/** What was found of the containers that run here. */
export function evidenceEvent(
  { seen, gap }: Found,
  { node, wall, nanos }: Pick<Circumstances, "node" | "wall" | "nanos">,
): LedgerEvent {
  const owned = seen.map((witness) => {
    const { attachment, pod } = witness;
    const [podNamespace, podName] = [pod?.namespace ?? "", pod?.name ?? ""];
    const ask = attachment && { ...attachment, podNamespace, podName, ifnameIsFirst: attachment.ifname === "eth0" };
    return { ...witness, owner: ask && ownerOf(ask, node, nanos) };
  });
  return { kind: "evidence", seen: owned, gap, at: wall };
}

function gcEvent({ network, valid, deadline }: GcRequest, { call, now, wall }: Circumstances): LedgerEvent {
  const ids = valid.map(({ containerId, ifname }): AttachmentId => attachmentId({ network, containerId, ifname }));
  return {
    kind: "gc",
    call,
    network,
    valid: new Set(ids),
    now: wall,
    startedAt: wall,
    deadline: instantOf(deadline, wall, now),
  };
}

function checkAttachment(request: CheckRequest, ledger: Ledger): Verdict {
  const why = check(ledger, attachmentId(request), request.previous.map(plainAddress));
  return why === undefined ? fine : refused(trouble("BadRequest", why, { code: cniCode.checkFailed }));
}

/** Servers that are replaced, or a network that is repaired, take no node out of service. */
export const serverGraceMs = 30_000;

/** A failing STATUS takes the node out of service: only for what no pod can be started with (spec/cni.md 3.7). */
function status(ledger: Ledger, now: Instant): Verdict {
  const { closed, diskFails, complete, online, offlineSince } = ledger;
  if (closed) return refused({ ...closed.trouble, code: cniCode.notAvailable });
  if (diskFails) {
    const why = "the agent's journal cannot be written, so pods can neither be started nor ended properly";
    return refused(trouble("DiskFull", why, { code: cniCode.notAvailableAndLimited }));
  }
  // Whoever keeps a stock goes on without a server; and what of it is left is no reason to move pods elsewhere.
  if (complete && ledger.warm() === undefined && !online && now - offlineSince >= serverGraceMs) {
    const why = `no cache server has been connected for ${Math.floor((now - offlineSince) / 1000)} s, and every ADD is written through one (commit: sync)`;
    return refused(trouble("ServerAway", why, { code: cniCode.notAvailable }));
  }
  if (complete) return fine;
  return refused(trouble("AgentStarting", "the agent has not received its data yet", { code: cniCode.notAvailable }));
}

/** As the blocks spell it; what is no address is refused later, in its own words. */
function plainAddress(text: string): string {
  const parsed = parseAddress(text);
  if (parsed === undefined) return text;
  const { family, value } = unmapped(parsed);
  return printAddress(family, value);
}

/** The parts of an attachment's identity are joined by slashes. */
function namesSomething({ network, containerId, ifname }: AddRequest | DelRequest): Verdict | undefined {
  const wrong = [network, containerId, ifname].find((text) => text === "" || text.includes("/"));
  if (wrong === undefined) return undefined;
  return refused(trouble("BadRequest", `${JSON.stringify(wrong)} names no network, container or interface`));
}

function instantOf(deadline: number, wall: UnixMs, now: Instant): Instant {
  return (now + Math.min(Math.max(deadline - wall, 0), longestCallMs)) as Instant;
}

const fine: Verdict = { kind: "fine" };

function event(found: LedgerEvent): Verdict {
  return { kind: "event", event: found };
}

function refused(found: Trouble): Verdict {
  return { kind: "refused", trouble: found };
}
