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

/** `<what> for <object>: <why with numbers> (reason <Reason>, request <id>). <Next step>`. */
export interface Explanation {
  readonly what: string;
  readonly object?: string;
  readonly why: string;
  readonly reason: Reason;
  readonly request?: string;
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
  const tail = explanation.next === undefined ? mark : `${mark}. ${explanation.next}`;
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
