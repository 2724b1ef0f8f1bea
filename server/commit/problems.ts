// Why a commit or a claim did not happen, as an agent is told: a reason of the closed set and the clause that goes into its error (ux 8).
// Leaves to others when that is so, and the sentence around it.
import { Failure } from "../../shared/kinds.ts";
import type { Problem } from "../../shared/protocol/stream.ts";
import type { Reason } from "../../shared/reasons.ts";

export const datastoreLocked = problem(
  "DatastoreLocked",
  "Calico's datastore is locked: ClusterInformation default is missing or its datastoreReady is false",
  10_000,
);

/** The request took too long; whether it was carried out is not known. */
export function tooSlow(what: string): Problem {
  return problem("CommitTimeout", what, 1_000);
}

/** `what` names the write, without saying that it failed: "the write of block 10.0.0.0/26". */
export function problemOf(error: unknown, what: string): Problem {
  // Anything else is our own mistake, which no agent could do anything about.
  if (!(error instanceof Failure)) throw error;
  switch (error.code) {
    case "api-forbidden":
    case "api-unauthorized":
      return problem("Forbidden", `${what} was not permitted: ${error.message}`, 10_000);
    case "api-invalid":
      return problem("BadRequest", `${what} was refused: ${error.message}`);
    case "api-throttled":
    case "api-unavailable":
    case "api-conflict":
    case "timeout":
      return problem("CommitTimeout", `${what} was not done in time: ${error.message}`, 1_000);
    default:
      return problem("Internal", `${what} failed: ${error.message}`, 1_000);
  }
}

export function problem(reason: Reason, message: string, retryAfterMs?: number): Problem {
  return { reason, message, ...(retryAfterMs !== undefined && { retryAfterMs }) };
}
