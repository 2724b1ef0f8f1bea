// The stream's line as a WebSocket, with token and authorities as they are at each attempt.
// Leaves when and where to client.ts and stream.ts, and what a refusal means to its reader to refusals.ts.
import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import { messageOf } from "../../shared/log.ts";
import { maxServerFrameBytes, streamPath, subProtocol } from "../../shared/protocol/stream.ts";
import { type ClientEvent, type EndReason, openingMs } from "./client.ts";
import { closingRefusal, handshakeRefusal, maxRefusalBytes } from "./refusals.ts";
import { eventOf, keepStream, type Line, type LineListener, type Stream, type StreamParts } from "./stream.ts";

export interface StreamOptions extends Omit<StreamParts, "dial"> {
  readonly token: () => string | undefined;
  readonly authorities: () => string | undefined;
  /** Undefined: the host of the URL. */
  readonly serverName: string | undefined;
}

/** Kept up until it is stopped. */
export function openStream(options: StreamOptions): Stream {
  return keepStream({
    ...options,
    urls: options.urls.map(withPath),
    dial: (url, listener) => dial(url, options, listener),
  });
}

function withPath(url: string): string {
  const parsed = new URL(url);
  if (parsed.pathname === "/") parsed.pathname = streamPath;
  return parsed.href;
}

function dial(url: string, options: StreamOptions, listener: LineListener): Line {
  const tell = (event: ClientEvent): void => listener.happened(event);
  const { logger } = options;
  const token = options.token();
  const ca = options.authorities();
  const socket = new WebSocket(url, subProtocol, {
    perMessageDeflate: false,
    maxPayload: maxServerFrameBytes,
    handshakeTimeout: openingMs,
    followRedirects: false,
    ...(token !== undefined && { headers: { authorization: `Bearer ${token}` } }),
    ...(ca !== undefined && { ca }),
    ...(options.serverName !== undefined && { servername: options.serverName }),
  });
  let reason: EndReason = "closed";
  let retryAfterMs: number | undefined;
  socket.on("open", () => tell({ kind: "opened" }));
  socket.on("message", (data) => tell(eventOf(String(data), logger)));
  socket.on("ping", () => tell({ kind: "heard" }));
  socket.on("pong", () => tell({ kind: "heard" }));
  socket.on("unexpected-response", (request, response) => {
    const { statusCode: code = 0, headers } = response;
    reason = "refused";
    retryAfterMs = retryAfter(headers["retry-after"]);
    firstBytesOf(response).then((body) => {
      if (listener.isGivenUp()) return;
      const err = handshakeRefusal(code, body, token !== undefined);
      listener.refused(err);
      logger.warn("Was refused by a server", { url, code, err });
      request.destroy();
      tell({ kind: "ended", reason, retryAfterMs });
    });
  });
  socket.on("error", (err) => {
    if (reason === "refused" || listener.isGivenUp()) return; // our own doing
    reason = isTls(err) ? "tls" : "refused";
    listener.refused(`${url}: ${messageOf(err)}`);
    logger.warn("Could not reach a server", { url, err });
  });
  socket.on("close", (code, said) => {
    const err = closingRefusal(code, String(said));
    if (err !== undefined && !listener.isGivenUp()) {
      listener.refused(err);
      logger.warn("Was turned away by a server", { url, code, err });
    }
    tell({ kind: "ended", reason, retryAfterMs });
  });
  return {
    get isOpen() {
      return socket.readyState === WebSocket.OPEN;
    },
    send: (text) => socket.send(text, () => {}), // a failure closes it, which is told
    ping: () => socket.ping(),
    terminate: () => socket.terminate(),
  };
}

/** Until its end, its bound or the end of the attempt, whichever comes first. */
async function firstBytesOf(response: IncomingMessage): Promise<string> {
  const received: Buffer[] = [];
  let sizeBytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      received.push(chunk);
      sizeBytes += chunk.length;
      if (sizeBytes >= maxRefusalBytes) break;
    }
  } catch {
    // It was cut off: what there is has to do.
  }
  return Buffer.concat(received).subarray(0, maxRefusalBytes).toString();
}

/** Seconds only; a date needs a clock that agrees with the server's. */
function retryAfter(header: string | undefined): number | undefined {
  return header !== undefined && /^\d{1,6}$/.test(header) ? Number(header) * 1000 : undefined;
}

function isTls(error: Error): boolean {
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  return /^(ERR_TLS|ERR_SSL|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)/.test(code);
}
