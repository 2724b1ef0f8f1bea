// What the API server says instead of what was asked: a `Status`, as an HTTP answer or inside a stream, or something a proxy made up.
// One reading of it for both ways of delivery (kube-watch 5, spec 1.2); what to do about it is left to reflector.ts and to the callers of Api.
import { isFields, list, reading, record, text } from "../calico/fields.ts";
import type { FailureCode } from "../kinds.ts";
import { ApiFailure } from "./api.ts";

export interface Refusal {
  /** HTTP status, or the `code` in the Status; 0 = it names none. */
  readonly status: number;
  readonly reason: string;
  readonly message: string;
  readonly causes: readonly { readonly reason: string; readonly field: string }[];
  readonly retryAfterMs?: number;
}

/** `retryAfter` is the header; a body that is no Status is quoted. */
export function refusalOfAnswer(status: number, retryAfter: string | undefined, body: string): Refusal {
  const refusal = refusalIn(parsed(body)) ?? { status, reason: "", message: excerpt(body), causes: [] };
  // In seconds, as Kubernetes sends it; the other form, a date, would depend on two clocks.
  return { ...refusal, status, ...pauseOf(retryAfter) };
}

/** The object of an ERROR event, whatever it is. */
export function refusalOfEvent(object: unknown): Refusal {
  const unknown = { status: 0, reason: "", message: "an error without a Status", causes: [] };
  return refusalIn(object) ?? unknown;
}

export function describe({ status, reason, message }: Refusal): string {
  const head = status === 0 ? "the API server reported an error" : `the API server answered ${status}`;
  return `${head}${reason === "" ? "" : ` ${reason}`}${message === "" ? "" : `: ${message}`}`;
}

export function failureOf(refusal: Refusal, request: string): ApiFailure {
  const { status, reason, retryAfterMs } = refusal;
  return new ApiFailure(failureCode(refusal), `${request}: ${describe(refusal)}`, {
    status,
    reason,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

function failureCode(refusal: Refusal): FailureCode {
  switch (refusal.status) {
    case 401:
      return "api-unauthorized";
    case 403:
      return "api-forbidden";
    case 404:
      return "api-missing";
    case 409:
      return conflictCode(refusal);
    case 410:
      return "api-gone";
    case 429:
      return "api-throttled";
    default:
      // Redirects are not followed: credentials go to the configured server and nowhere else.
      return refusal.status >= 300 && refusal.status < 500 && refusal.status !== 408
        ? invalidCode(refusal)
        : "api-unavailable";
  }
}

/** A failed uid precondition means that the object in question is gone (spec 1.2). */
function conflictCode({ reason, message }: Refusal): FailureCode {
  if (reason === "AlreadyExists") return "api-exists";
  return message.includes("UID in precondition") ? "api-missing" : "api-conflict";
}

/** 422 about nothing but the version or the uid is a lost race as well. */
function invalidCode({ causes }: Refusal): FailureCode {
  const only = (field: string): boolean => causes.length > 0 && causes.every((cause) => cause.field === field);
  if (only("metadata.resourceVersion")) return "api-conflict";
  return only("metadata.uid") ? "api-missing" : "api-invalid";
}

function refusalIn(object: unknown): Refusal | undefined {
  if (!isFields(object) || object.kind !== "Status") return undefined;
  const read = reading(() => {
    const details = record(object, "details");
    return {
      status: Number(object.code ?? 0) || 0,
      reason: text(object, "reason"),
      message: excerpt(text(object, "message")),
      causes: list(details, "causes").flatMap((cause) =>
        isFields(cause) ? [{ reason: text(cause, "reason"), field: text(cause, "field") }] : [],
      ),
      ...pauseOf(details.retryAfterSeconds),
    };
  });
  return read.ok ? read.object : undefined;
}

/** Whoever asks for more is asked again after this; timers could not hold any number either. */
const longestRetryAfterMs = 300_000;

function pauseOf(seconds: unknown): { retryAfterMs?: number } {
  const ms = Math.ceil(Number(seconds ?? 0) * 1000);
  return ms > 0 ? { retryAfterMs: Math.min(ms, longestRetryAfterMs) } : {};
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

const excerptLength = 300;

function excerpt(body: string): string {
  const line = body.replaceAll(/\s+/g, " ").trim();
  return line.length > excerptLength ? `${line.slice(0, excerptLength)}…` : line;
}
