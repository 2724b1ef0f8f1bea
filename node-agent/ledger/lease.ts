// The lease on which stock is handed out: renewed by a server that sees this node's Node, lost when none has for too long (by
// the time it that servers free a vanished node's stock, no agent hands it out). Leaves to others what is in stock.
import { type Instant, invariant } from "../../shared/kinds.ts";
import { type Trouble, trouble } from "../trouble.ts";
import type { Holding, Incarnation, Ledger } from "./state.ts";
import { setState, type Turn } from "./turn.ts";

export interface LeasedEvent {
  readonly kind: "leased";
  readonly until: Instant;
  /** From the question to its end. */
  readonly limitMs: number;
  /** Now, as Calico prints times. */
  readonly timestamp: string;
}

/** As the journal has it. A lease that ended meanwhile has run out: nobody knows what was done without it. */
export function resumeLease(ledger: Ledger, incarnation: Incarnation, until: Instant | undefined, now: Instant): void {
  ledger.incarnation = incarnation;
  if (until === undefined) return;
  ledger.lease.until = until;
  ledger.lease.standing = until > now ? "runs" : "ran-out";
}

export function isLeased({ lease, closed }: Ledger, now: Instant): boolean {
  return !closed && lease.standing === "runs" && lease.until > now;
}

export function leased(turn: Turn, { until, limitMs, timestamp }: LeasedEvent): void {
  const { ledger } = turn;
  const { lease } = ledger;
  if (until <= turn.now) return;
  const ranOut = lease.standing === "ran-out";
  lease.until = until;
  lease.limitMs = limitMs;
  lease.standing = "runs";
  turn.roomChanged = true;
  if (!ranOut) return;
  ledger.incarnation = { ...ledger.incarnation, number: ledger.incarnation.number + 1, timestamp };
  turn.effects.push({ kind: "incarnation", incarnation: ledger.incarnation });
}

/** A server says that the Node is gone. */
export function revoke(turn: Turn): void {
  const { lease } = turn.ledger;
  if (lease.until > turn.now) lease.until = turn.now;
  expireLease(turn);
}

/** Whoever waits for an answer from stock is refused. Only a server that was told so, in a hello, may give another lease. */
export function expireLease(turn: Turn): void {
  const { ledger, now } = turn;
  const { lease } = ledger;
  if (lease.standing !== "runs" || lease.until > now) return;
  lease.standing = "ran-out";
  for (const id of ledger.adds.keys()) turn.touched.add(id);
  turn.roomChanged = true;
  if (ledger.online) turn.effects.push({ kind: "reconnect" });
}

export function leaseExpired(): Trouble {
  const why = "no cache server has renewed this node's lease for too long, so nothing is handed out without one";
  const next = "Check that the agent reaches a server, and that this node's Node object exists";
  return trouble("LeaseExpired", why, { next });
}

/** What was marked before the last lease ran out is marked anew before it is handed out. */
export function markAnew(turn: Turn, holding: Holding): void {
  const { state } = holding;
  invariant(state.kind === "warm", `${holding.address} is not in stock`);
  setState(turn, holding, { kind: "leaving", sequence: state.sequence, to: "warm" });
}
