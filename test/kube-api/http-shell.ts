// Serves an ApiServer over HTTP: reads requests, writes answers and watch streams, carries out faults, keeps the log.
// Knows bytes and connections; what a request means is decided in api-server.ts.

import type { IncomingMessage, ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Clock } from "../../shared/world.ts";
import { type Answer, type ApiServer, bodyLimitBytes, type Handled } from "./api-server.ts";
import type { FaultEffect, Faults } from "./faults.ts";
import type { RequestLog } from "./log.ts";
import { protobufMediaType, readProtobuf } from "./protobuf-shell.ts";
import { type ApiRequest, type Target, targetOf } from "./request.ts";
import { Refusal, tooLarge } from "./status.ts";
import { type Cut, streamWatch } from "./watch-shell.ts";

export interface HttpParts {
  readonly server: ApiServer;
  readonly faults: Faults;
  readonly log: RequestLog;
  readonly clock: Clock;
}

export function requestListener(parts: HttpParts): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  return (incoming, outgoing) => {
    serve(parts, incoming, outgoing).catch((error: unknown) => {
      if (incoming.errored !== null) return; // the client went away while it was sending
      // A broken invariant of ours: say so loudly, to the client as well.
      console.error(error);
      if (outgoing.headersSent) outgoing.destroy();
      else send(outgoing, 500, [new Refusal(500, "InternalError", String(error)).body]);
    });
  };
}

async function serve(parts: HttpParts, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const body = await readBody(incoming);
  if (outgoing.destroyed) return;
  if (body === undefined) return send(outgoing, 413, [tooLarge(bodyLimitBytes).body]);
  const request = apiRequest(incoming, body);
  const fault = parts.faults.take(safeTarget(request), request.userAgent);
  if (fault === undefined) return answer(parts, request, parts.server.handle(request), outgoing);
  await serveFaulty(parts, request, fault, outgoing);
}

async function readBody(incoming: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    sizeBytes += chunk.length;
    if (sizeBytes <= bodyLimitBytes) chunks.push(chunk);
  }
  return sizeBytes > bodyLimitBytes ? undefined : Buffer.concat(chunks);
}

function apiRequest(incoming: IncomingMessage, body: Buffer): ApiRequest {
  const url = new URL(incoming.url ?? "/", "http://localhost");
  const { authorization = "" } = incoming.headers;
  const user = header(incoming, "impersonate-user");
  return {
    method: incoming.method ?? "GET",
    path: url.pathname,
    query: new Map(url.searchParams),
    accept: incoming.headers.accept ?? "",
    userAgent: incoming.headers["user-agent"] ?? "",
    token: /^bearer /i.test(authorization) ? authorization.slice(7).trim() : undefined,
    ...(user === ""
      ? {}
      : { impersonate: { user, groups: header(incoming, "impersonate-group").split(", ").filter(Boolean) } }),
    ...bodyText(incoming.headers["content-type"] ?? "", body),
  };
}

function bodyText(contentType: string, body: Buffer): { contentType: string; body: string } {
  const object = contentType === protobufMediaType ? readProtobuf(body) : undefined;
  if (object === undefined) return { contentType, body: body.toString() };
  return { contentType: "application/json", body: JSON.stringify(object) };
}

function header(incoming: IncomingMessage, name: string): string {
  const value = incoming.headers[name];
  return Array.isArray(value) ? value.join(", ") : (value ?? "");
}

function safeTarget(request: ApiRequest): Target {
  try {
    return targetOf(request);
  } catch {
    return { kind: "path", verb: request.method.toLowerCase(), path: request.path };
  }
}

function answer(parts: HttpParts, request: ApiRequest, handled: Handled, outgoing: ServerResponse): void {
  const code = handled.answer.kind === "watch" ? 200 : handled.answer.code;
  record(parts, request, handled.target, handled.user?.username ?? "", code);
  deliver(handled.answer, outgoing);
}

function deliver(given: Answer, outgoing: ServerResponse, cut?: Cut): void {
  if (given.kind === "watch") {
    streamWatch(given.start, outgoing, cut);
    return;
  }
  const warnings = given.warnings.map((text) => `299 - ${JSON.stringify(text)}`);
  send(outgoing, given.code, given.pieces, {
    "content-type": given.contentType,
    ...(warnings.length === 0 ? {} : { warning: warnings }),
    ...(given.retryAfterSeconds === undefined ? {} : { "retry-after": String(given.retryAfterSeconds) }),
  });
}

/** Pieces per write: enough to keep system calls few, little enough to keep strings short. */
const piecesPerWrite = 512;

function send(
  outgoing: ServerResponse,
  code: number,
  pieces: readonly string[],
  headers: Record<string, string | string[]> = {},
): void {
  outgoing.writeHead(code, { "content-type": "application/json", "cache-control": "no-cache, private", ...headers });
  if (pieces.length <= piecesPerWrite) return void outgoing.end(pieces.join(""));
  let at = 0;
  const more = (): void => {
    while (at < pieces.length) {
      const room = outgoing.write(pieces.slice(at, at + piecesPerWrite).join(""));
      at += piecesPerWrite;
      if (!room) return void outgoing.once("drain", more);
    }
    outgoing.end();
  };
  more();
}

async function serveFaulty(
  parts: HttpParts,
  request: ApiRequest,
  fault: FaultEffect,
  outgoing: ServerResponse,
): Promise<void> {
  const target = safeTarget(request);
  const noAnswer = (): void => record(parts, request, target, "", 0);
  switch (fault.kind) {
    case "delay": {
      const handled = fault.before ? undefined : parts.server.handle(request);
      await sleep(fault.delayMs);
      return answer(parts, request, handled ?? parts.server.handle(request), outgoing);
    }
    case "status": {
      record(parts, request, target, "", fault.code);
      return deliver(statusAnswer(fault), outgoing);
    }
    case "drop":
      if (fault.when === "after") parts.server.handle(request);
      noAnswer();
      return void outgoing.destroy();
    case "truncate": {
      const handled = parts.server.handle(request);
      noAnswer();
      if (handled.answer.kind === "watch")
        return deliver(handled.answer, outgoing, {
          after: "characters",
          count: fault.afterBytes,
          reset: fault.clean !== true,
        });
      return truncate(handled.answer.pieces.join(""), fault.afterBytes, fault.clean === true, outgoing);
    }
    case "black-hole":
      noAnswer();
      if (target.verb === "watch") outgoing.writeHead(200, { "content-type": "application/json" }).flushHeaders();
      return;
    case "error-event": {
      record(parts, request, target, "", 200);
      const status = new Refusal(fault.code, fault.reason, fault.message ?? fault.reason).body;
      return send(outgoing, 200, [`{"type":"ERROR","object":${status}}\n`]);
    }
    case "cut-watch": {
      const handled = parts.server.handle(request);
      record(parts, request, handled.target, handled.user?.username ?? "", 200);
      return deliver(handled.answer, outgoing, {
        after: "lines",
        count: fault.afterLines,
        reset: fault.reset === true,
      });
    }
  }
}

function statusAnswer(fault: Extract<FaultEffect, { kind: "status" }>): Answer {
  const message = fault.message ?? "injected";
  const refusal = new Refusal(fault.code, fault.reason ?? reasons[fault.code] ?? "", message, {
    details: fault.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: fault.retryAfterSeconds },
  });
  return {
    kind: "body",
    code: fault.code,
    contentType: fault.text === undefined ? "application/json" : "text/plain; charset=utf-8",
    pieces: [fault.text ?? refusal.body],
    warnings: [],
    retryAfterSeconds: fault.retryAfterSeconds,
  };
}

const reasons: Readonly<Record<number, string>> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "Conflict",
  410: "Expired",
  422: "Invalid",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
};

function truncate(text: string, afterBytes: number, clean: boolean, outgoing: ServerResponse): void {
  const bytes = Buffer.from(text).subarray(0, afterBytes);
  if (clean) {
    outgoing.writeHead(200, { "content-type": "application/json" }).end(bytes);
    return;
  }
  outgoing.writeHead(200, { "content-type": "application/json" });
  outgoing.write(bytes, () => outgoing.destroy());
}

function record(parts: HttpParts, request: ApiRequest, target: Target, user: string, code: number): void {
  const resource =
    target.kind === "path"
      ? target.path
      : target.subresource === ""
        ? target.resource
        : `${target.resource}/${target.subresource}`;
  parts.log.add({
    at: parts.clock.wall(),
    verb: target.verb,
    resource,
    group: target.kind === "path" ? "" : target.group,
    namespace: target.kind === "path" ? "" : target.namespace,
    name: target.kind === "path" ? "" : target.name,
    client: request.userAgent,
    user,
    code,
    query: [...request.query].map(([key, value]) => `${key}=${value}`).join("&"),
    target,
  });
}
