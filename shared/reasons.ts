// Why something failed, in one word: the closed set that error texts, logs, metrics and the manual pages share (ux 8).
// And the one form of the sentence around it. Leaves to others: the CNI code that goes with it.

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

/** What a check of the cluster finds: objects, journal and runtime do not agree. */
export const checkReasons = [
  "AddressLeaked",
  "AddressUnrecorded",
  "AddressDouble",
  "HandleOrphan",
  "HandleMissing",
  "BlockOrphan",
  "BlockInvalid",
  "ClaimHalfDone",
  "WarmStale",
] as const;
export type CheckReason = (typeof checkReasons)[number];

/** What to do when whoever explains knows nothing better. For the person on call: who acts, on what. */
const remedies: Readonly<Record<Reason, string>> = {
  PoolExhausted: "Add an IPPool for these pods, or delete pods that are not needed",
  NoPoolSelected: "Check the pools' nodeSelector and namespaceSelector against the labels of this node and namespace",
  PoolDisabled: "Enable the IPPool, or ask for another one",
  BlockLimitReached: "Raise maxBlocksPerHost in IPAMConfig, or move pods to other nodes",
  StrictAffinity:
    "Add an IPPool or free whole blocks: strictAffinity in IPAMConfig forbids addresses of other nodes' blocks",
  AddressReserved: "Ask for another address, or change the IPReservation",
  AddressInUse: "Ask for another address, or delete the pod that holds this one",
  AddressOutsidePool: "Ask for an address inside an enabled IPPool",
  HandleLimit: "Release the addresses that the handle holds",
  AgentAway: "Check that cattail-agent runs on this node",
  AgentStarting: "The runtime will try again; if this lasts, look at the agent's log and at its readiness",
  LeaseExpired: "Check the way from this node to the cache servers",
  ServerAway: "Check that cattail-server runs and that this node reaches it; the runtime will try again",
  CommitTimeout:
    "The runtime will try again; if this lasts, look at the API server's latency and at the log of cattail-server",
  DatastoreLocked:
    "Wait until the migration or restore is over, or set datastoreReady in ClusterInformation default to true",
  Forbidden: "Apply the ClusterRole of this version of the chart",
  BadRequest: "Correct the network configuration or the runtime's request",
  BadAnnotation: "Correct the annotation of the pod or its namespace",
  BadConfig: "Correct the configuration",
  DiskFull: "Make room on the disk of the agent's state directory",
  Internal: "Report this as a bug, with the log lines of this request",
};

/** `<what> for <object>: <why with numbers> (reason <Reason>, request <id>). <Next step>`. */
export interface Explanation {
  readonly what: string;
  readonly object?: string;
  readonly why: string;
  readonly reason: Reason;
  readonly request?: string;
  /** Better than what the reason alone suggests. */
  readonly next?: string;
}

/** CNI's `msg` and `details`: what a runtime still shows whole in an event. */
export const maxMessageChars = 400;
export const maxDetailsChars = 600;

/** At most `maxMessageChars`: what is too long is taken out of `why`, then of the rest; reason and request stay. */
export function explain(explanation: Explanation): string {
  const head = explanation.what + (explanation.object === undefined ? "" : ` for ${explanation.object}`);
  const request = explanation.request === undefined ? "" : `, request ${explanation.request}`;
  const mark = ` (reason ${explanation.reason}${request})`;
  const tail = `${mark}. ${explanation.next ?? remedies[explanation.reason]}`;
  const whole = `${head}: ${explanation.why}${tail}`;
  if (whole.length <= maxMessageChars) return whole;
  const room = maxMessageChars - `${head}: `.length - tail.length;
  if (room >= leastUsefulChars) return `${head}: ${shortened(explanation.why, room)}${tail}`;
  const half = Math.floor((maxMessageChars - ": ".length - mark.length) / 2);
  return `${shortened(head, half)}: ${shortened(explanation.why, half)}${mark}`;
}

/** Less than this of a cause says nothing: then the next step goes as well. */
const leastUsefulChars = 40;

/** Keeps the start, marks the cut, and leaves no half of a surrogate pair. */
export function shortened(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${text.slice(0, Math.max(0, maxChars - 1)).replace(/[\ud800-\udbff]$/, "")}…`;
}
