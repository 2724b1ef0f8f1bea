// Why a call cannot be answered as asked: a reason of the closed set, the clause that explains it, and CNI's code for it (spec/cni.md 3.2).
// Leaves to others: the sentence around the clause (ipam/replies.ts) and when it is so.
import type { Reason } from "../shared/reasons.ts";

export interface Trouble {
  readonly code: number;
  readonly reason: Reason;
  /** With numbers, in the form that shared/reasons.ts puts into its sentence. */
  readonly why: string;
  readonly next?: string;
  /** Calico's own sentence where it has one, so that old log alerts still match. */
  readonly details?: string;
}

export const cniCode = {
  decoding: 6,
  config: 7,
  tryLater: 11,
  notAvailable: 50,
  notAvailableAndLimited: 51,
  poolExhausted: 100,
  addressUnavailable: 101,
  addressNotAllowed: 102,
  quota: 103,
  checkFailed: 104,
  internal: 999,
} as const;
export type CniCode = (typeof cniCode)[keyof typeof cniCode];

const codeOf: Readonly<Record<Reason, number>> = {
  PoolExhausted: cniCode.poolExhausted,
  NoPoolSelected: cniCode.config,
  PoolDisabled: cniCode.config,
  BlockLimitReached: cniCode.quota,
  StrictAffinity: cniCode.poolExhausted,
  AddressReserved: cniCode.addressNotAllowed,
  AddressInUse: cniCode.addressUnavailable,
  AddressOutsidePool: cniCode.addressNotAllowed,
  HandleLimit: cniCode.quota,
  AgentAway: cniCode.tryLater,
  AgentStarting: cniCode.tryLater,
  LeaseExpired: cniCode.tryLater,
  ServerAway: cniCode.tryLater,
  CommitTimeout: cniCode.tryLater,
  DatastoreLocked: cniCode.tryLater,
  Forbidden: cniCode.tryLater,
  BadRequest: cniCode.config,
  BadAnnotation: cniCode.config,
  BadConfig: cniCode.config,
  DiskFull: cniCode.tryLater,
  Internal: cniCode.internal,
};

interface More {
  readonly code?: number;
  readonly next?: string;
  readonly details?: string;
}

export function trouble(reason: Reason, why: string, more: More = {}): Trouble {
  return { code: codeOf[reason], reason, why, ...more };
}
