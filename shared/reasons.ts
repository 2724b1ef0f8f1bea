// Why something failed, in one word: the closed set that error texts, logs, metrics and the manual pages share (ux 8).
// Leaves to others: the sentence around it, and the CNI code that goes with it.

export const reasons = [
  "PoolExhausted",
  "NoPoolSelected",
  "PoolDisabled",
  "BlockLimitReached",
  "StrictAffinity",
  "AddressReserved",
  "AddressInUse",
  "AddressOutsidePool",
  "HandleLimit",
  "AgentAway",
  "AgentStarting",
  "LeaseExpired",
  "ServerAway",
  "CommitTimeout",
  "DatastoreLocked",
  "Forbidden",
  "BadRequest",
  "BadAnnotation",
  "BadConfig",
  "DiskFull",
  "Internal",
] as const;
export type Reason = (typeof reasons)[number];
