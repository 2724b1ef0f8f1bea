// Refusals of the API as the real server words them: HTTP code, reason, message and details of a `Status` body.
// Everything above throws one; the outermost frame turns it into the answer.
import { type JsonObject, printJson } from "./json.ts";

export interface Cause {
  readonly reason: string;
  readonly message: string;
  readonly field?: string;
}

export interface Subject {
  readonly name?: string;
  readonly group?: string;
  readonly kind?: string;
}

export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: number;
  readonly status: JsonObject;
  readonly retryAfterSeconds: number | undefined;

  constructor(
    code: number,
    reason: string,
    message: string,
    more: { details?: JsonObject; metadata?: JsonObject } = {},
  ) {
    super(message);
    this.code = code;
    const after = more.details?.retryAfterSeconds;
    this.retryAfterSeconds = typeof after === "number" ? after : undefined;
    this.status = {
      kind: "Status",
      apiVersion: "v1",
      metadata: more.metadata ?? {},
      status: "Failure",
      message,
      ...(reason === "" ? {} : { reason }),
      ...(more.details === undefined ? {} : { details: more.details }),
      code,
    };
  }

  get body(): string {
    return printJson(this.status);
  }
}

/** `ipamblocks.crd.projectcalico.org`, or `nodes` for the core group. */
export function qualified(subject: Subject): string {
  return subject.group ? `${subject.kind}.${subject.group}` : `${subject.kind}`;
}

function detailsOf(subject: Subject): JsonObject {
  return {
    ...(subject.name ? { name: subject.name } : {}),
    ...(subject.group ? { group: subject.group } : {}),
    ...(subject.kind ? { kind: subject.kind } : {}),
  };
}

export function badRequest(message: string): Refusal {
  return new Refusal(400, "BadRequest", message);
}

export function unauthorized(): Refusal {
  return new Refusal(401, "Unauthorized", "Unauthorized");
}

export function forbidden(subject: Subject, why: string): Refusal {
  const name = subject.name ? ` "${subject.name}"` : "";
  const message = subject.kind ? `${qualified(subject)}${name} is forbidden: ${why}` : `forbidden: ${why}`;
  return new Refusal(403, "Forbidden", message, { details: detailsOf(subject) });
}

export function notFound(subject: Subject): Refusal {
  return new Refusal(404, "NotFound", `${qualified(subject)} "${subject.name}" not found`, {
    details: detailsOf(subject),
  });
}

export function noSuchResource(): Refusal {
  return new Refusal(404, "NotFound", "the server could not find the requested resource", { details: {} });
}

/** A path that nothing is registered for: the real server answers in plain text. */
export class NoSuchPath extends Refusal {
  constructor() {
    super(404, "NotFound", "404 page not found");
  }
  override get body(): string {
    return `${this.message}\n`;
  }
}

export function notAllowedHere(): Refusal {
  return new Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {
    details: {},
  });
}

export function notAcceptable(offered = "application/json"): Refusal {
  return new Refusal(406, "NotAcceptable", `only the following media types are accepted: ${offered}`);
}

export function alreadyExists(subject: Subject): Refusal {
  return new Refusal(409, "AlreadyExists", `${qualified(subject)} "${subject.name}" already exists`, {
    details: detailsOf(subject),
  });
}

export function conflict(subject: Subject, why: string): Refusal {
  return new Refusal(
    409,
    "Conflict",
    `Operation cannot be fulfilled on ${qualified(subject)} "${subject.name}": ${why}`,
    {
      details: detailsOf(subject),
    },
  );
}

export const modified = "the object has been modified; please apply your changes to the latest version and try again";

export function expired(message: string, metadata?: JsonObject): Refusal {
  return new Refusal(410, "Expired", message, metadata === undefined ? {} : { metadata });
}

export function tooLarge(limitBytes: number): Refusal {
  return new Refusal(413, "RequestEntityTooLarge", `Request entity too large: limit is ${limitBytes}`);
}

export function unsupportedMediaType(message: string): Refusal {
  return new Refusal(415, "UnsupportedMediaType", message);
}

/** `subject.kind` is the Kind here, not the plural. */
export function invalid(subject: Subject, causes: readonly Cause[]): Refusal {
  const lines = causes.map((cause) => (cause.field ? `${cause.field}: ${cause.message}` : cause.message));
  const text = lines.length === 1 ? lines[0] : `[${lines.join(", ")}]`;
  const kind = subject.group ? `${subject.kind}.${subject.group}` : subject.kind;
  return new Refusal(422, "Invalid", `${kind} "${subject.name ?? ""}" is invalid: ${text}`, {
    details: { ...detailsOf(subject), causes },
  });
}

export function throttled(
  retryAfterSeconds: number,
  message = "the server has received too many requests and has asked us to try again later",
): Refusal {
  return new Refusal(429, "TooManyRequests", message, { details: { retryAfterSeconds } });
}

/** A resourceVersion from the future: this server lags behind another one, or was set back. */
export function versionTooLarge(asked: number, current: number): Refusal {
  return new Refusal(504, "Timeout", `Timeout: Too large resource version: ${asked}, current: ${current}`, {
    details: {
      causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }],
      retryAfterSeconds: 1,
    },
  });
}
