// Why a call is refused, as CNI wants to hear it: codes, and the one JSON object on stdout (spec/cni.md 3.2, ux 8).
// Leaves to others: when to refuse, and the texts of the agent's own refusals.
import type { Refusal } from "../shared/protocol/socket.ts";
import { explain, maxDetailsChars, maxMessageChars, type Reason, shortened } from "../shared/reasons.ts";

export const cniCode = {
  incompatibleVersion: 1,
  unsupportedField: 2,
  environment: 4,
  io: 5,
  decoding: 6,
  config: 7,
  ownNetns: 8,
  tryLater: 11,
  notAvailable: 50,
  notAvailableAndLimited: 51,
  internal: 999,
} as const;

/** What a check found; who it happened to is added once, at the end. */
export interface Complaint {
  readonly ok: false;
  readonly code: number;
  readonly reason: Reason;
  readonly why: string;
  readonly next?: string;
  /** Calico's own sentence where it has one, so that old log alerts still match. */
  readonly details?: string;
}

export function complaint(
  code: number,
  reason: Reason,
  why: string,
  more: { next?: string; details?: string } = {},
): Complaint {
  return { ok: false, code, reason, why, ...more };
}

/** Whom a call is about, for the error's sentence. */
export interface Subject {
  readonly command: string;
  readonly podNamespace: string;
  readonly podName: string;
  readonly containerId: string;
  readonly request: string;
}

export function refusalOf(found: Complaint, subject: Subject): Refusal {
  const object = objectOf(subject);
  const msg = explain({
    what: failedAct(subject.command),
    ...(object === undefined ? {} : { object }),
    why: found.why,
    reason: found.reason,
    request: subject.request,
    ...(found.next === undefined ? {} : { next: found.next }),
  });
  return { ok: false, code: found.code, msg, ...(found.details === undefined ? {} : { details: found.details }) };
}

/** Four spaces and no newline at the end: what Calico's library prints. */
export function errorDocument(cniVersion: string, refusal: Refusal): string {
  const details = harmless(refusal.details ?? "", maxDetailsChars);
  return JSON.stringify(
    {
      cniVersion,
      code: refusal.code,
      msg: harmless(refusal.msg, maxMessageChars),
      ...(details === "" ? {} : { details }),
    },
    null,
    4,
  );
}

/** containerd takes a DEL for done when its error holds one of these (spec/cni.md 3.2): no text of ours may, whoever wrote it. */
function harmless(text: string, maxChars: number): string {
  return shortened(
    text.replace(/not found/gi, "absent").replace(/no such file or directory/gi, "no such path"),
    maxChars,
  );
}

function failedAct(command: string): string {
  switch (command) {
    case "ADD":
      return "no address";
    case "DEL":
      return "address not released";
    case "CHECK":
      return "attachment not confirmed";
    case "GC":
      return "nothing collected";
    case "STATUS":
      return "not ready";
    default:
      return "nothing done";
  }
}

function objectOf(subject: Subject): string | undefined {
  if (subject.podName !== "") return `pod ${subject.podNamespace}/${subject.podName}`;
  // Twelve characters are what every runtime's tools show of an id.
  return subject.containerId === "" ? undefined : `container ${subject.containerId.slice(0, 12)}`;
}
