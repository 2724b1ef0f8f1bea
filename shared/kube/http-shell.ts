// HTTP to the API server: sockets, credentials, deadlines, bounds; one answer as a whole or one as a stream.
// Leaves to its users what an answer means. Watches have sockets of their own, so that they never wait for a request or the other way round.
import http from "node:http";
import https from "node:https";
import { Failure } from "../kinds.ts";
import type { Clock } from "../world.ts";
import type { Connection, Identity } from "./connection-shell.ts";

export interface Call {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly accept?: string;
  readonly contentType?: string;
  readonly body?: string;
  readonly deadlineMs: number;
  readonly maxBytes: number;
}

export interface Answer {
  readonly status: number;
  readonly retryAfter: string | undefined;
  readonly contentType: string;
  readonly text: string;
}

export interface StreamReader {
  /** 200, and JSON. */
  opened(): void;
  chunk(bytes: Uint8Array): void;
  refused(answer: Answer): void;
  /** silent: the system gave the other end up for lost. */
  ended(how: "eof" | "broken" | "silent", message: string): void;
}

export interface Stream {
  /** Nothing is read, and so nothing reported, until `resume`. */
  pause(): void;
  resume(): void;
  /** Nothing is reported any more. */
  close(): void;
}

export interface HttpParts {
  readonly connection: Connection;
  /** `<product>/<version> (…)`: the API server's audit log and metrics show it. */
  readonly userAgent: string;
  readonly clock: Clock;
  /** Told once per request sent; status 0 = no answer. */
  readonly onAnswer?: (
    call: { method: string; path: string; stream: boolean },
    status: number,
    seconds: number,
  ) => void;
}

/** Half-open connections are found in 30 s + 10 probes (kube-watch 6). */
const keepAliveMs = 30_000;
/** An idle socket is closed by us first: a request on one that the other end is just closing would fail. */
const idleSocketMs = 45_000;
const maxUnarySockets = 64;
/** Statuses are small; a proxy may send a whole page. */
const maxErrorBytes = 64 << 10;

interface Agents {
  readonly tls: Identity;
  readonly unary: http.Agent;
  readonly streams: http.Agent;
}

export class Http {
  readonly #parts: HttpParts;
  readonly #secure: boolean;
  readonly #underWay = new Set<http.ClientRequest>();
  #agents: Agents | undefined;
  #stopped = false;

  constructor(parts: HttpParts) {
    this.#parts = parts;
    this.#secure = parts.connection.server.protocol === "https:";
  }

  /** Any status is an answer; rejects with a Failure (`timeout`, `api-unavailable`) when there is none. */
  async unary(call: Call): Promise<Answer> {
    const answer = await this.#exchange(call);
    // Refused before anything was done: the one error after which even a write may be sent again.
    return answer.status === 401 && (await this.#renewed()) ? this.#exchange(call) : answer;
  }

  stream(path: string, accept: string, reader: StreamReader): Stream {
    const stream = new OpenStream(reader);
    const open = (isFirst: boolean): Promise<void> =>
      this.#request({ method: "GET", path, accept }, true).then(
        (request) => stream.attach(request, (answer) => onRefused(answer, isFirst)),
        (error: unknown) => stream.failed(error),
      );
    const onRefused = async (answer: Answer, isFirst: boolean): Promise<void> => {
      if (answer.status === 401 && isFirst && (await this.#renewed())) await open(false);
      else stream.refused(answer);
    };
    void open(true);
    return stream;
  }

  /** Ends everything under way. */
  stop(): void {
    this.#stopped = true;
    for (const request of this.#underWay) request.destroy(new Error("stopped"));
    this.#agents?.unary.destroy();
    this.#agents?.streams.destroy();
  }

  async #exchange(call: Call): Promise<Answer> {
    const request = await this.#request(call, false);
    const what = `${call.method} ${call.path}`;
    let response: http.IncomingMessage | undefined;
    let overdue = false;
    const cancel = this.#parts.clock.after(call.deadlineMs, () => {
      overdue = true;
      // What else waits in these sockets' pool may be as dead: a moved endpoint is found by new connections.
      this.#agents = undefined;
      request.destroy();
    });
    try {
      response = await responseTo(request, call.body);
      return await wholeAnswer(response, call.maxBytes);
    } catch (cause) {
      if (overdue) throw new Failure("timeout", `${what} had no answer in ${call.deadlineMs / 1000} s`, { cause });
      // The other end closed an idle socket just as we took it. Only what may be done twice is sent again.
      const wasIdle = response === undefined && request.reusedSocket && isReset(cause);
      if (wasIdle && call.method === "GET") return await this.#exchange(call);
      throw new Failure("api-unavailable", `${what}: ${messageOf(cause)}`, { cause });
    } finally {
      cancel();
    }
  }

  async #renewed(): Promise<boolean> {
    return this.#parts.connection.refresh().catch(() => false);
  }

  async #request(call: Pick<Call, "method" | "path" | "accept" | "contentType" | "body">, stream: boolean) {
    const { connection, userAgent, clock, onAnswer } = this.#parts;
    const { authorization, tls } = await connection.credentials();
    if (this.#stopped) throw new Failure("api-unavailable", "stopped");
    const agents = this.#agentsFor(tls);
    const { body } = call;
    const base = connection.server.pathname.replace(/\/$/, "");
    const request = (this.#secure ? https : http).request(connection.server, {
      method: call.method,
      path: `${base}${call.path}`,
      agent: stream ? agents.streams : agents.unary,
      headers: {
        accept: call.accept ?? "application/json",
        "user-agent": userAgent,
        ...(authorization !== undefined && { authorization }),
        ...(body !== undefined && { "content-type": call.contentType, "content-length": Buffer.byteLength(body) }),
      },
    });
    this.#underWay.add(request);
    request.once("close", () => this.#underWay.delete(request));
    request.once("socket", (socket) => socket.setKeepAlive(true, keepAliveMs).setNoDelay(true));
    const sentAt = clock.monotonic();
    let status = 0;
    request.once("response", (response) => {
      status = response.statusCode ?? 0;
      if (stream) onAnswer?.({ ...call, stream }, status, (clock.monotonic() - sentAt) / 1000);
    });
    request.once("close", () => {
      if (!stream || status === 0) onAnswer?.({ ...call, stream }, status, (clock.monotonic() - sentAt) / 1000);
    });
    return request;
  }

  /** New certificates mean new sockets; those in use end by themselves. */
  #agentsFor(tls: Identity): Agents {
    if (this.#agents?.tls === tls) return this.#agents;
    const options = {
      keepAlive: true,
      keepAliveMsecs: keepAliveMs,
      timeout: idleSocketMs,
      maxSockets: maxUnarySockets,
    };
    // A watch ends its connection with itself: after an API server has been rolled, load finds its way back (kube-watch 4).
    const forStreams = { keepAlive: false };
    const { ca, cert, key, serverName: servername, insecure } = tls;
    const secrets = { ca, cert, key, servername, rejectUnauthorized: insecure !== true };
    this.#agents = this.#secure
      ? {
          tls,
          unary: new https.Agent({ ...options, ...secrets }),
          streams: new https.Agent({ ...forStreams, ...secrets }),
        }
      : { tls, unary: new http.Agent(options), streams: new http.Agent(forStreams) };
    return this.#agents;
  }
}

class OpenStream implements Stream {
  readonly #reader: StreamReader;
  #request: http.ClientRequest | undefined;
  #response: http.IncomingMessage | undefined;
  #closed = false;

  constructor(reader: StreamReader) {
    this.#reader = reader;
  }

  attach(request: http.ClientRequest, onRefused: (answer: Answer) => void): void {
    this.#request = request;
    request.on("error", (error) => this.failed(error));
    request.once("response", (response) => {
      if (response.statusCode === 200) this.#read(response);
      else wholeAnswer(response, 0).then(onRefused, (error: unknown) => this.failed(error));
    });
    if (this.#closed) request.destroy();
    else request.end();
  }

  refused(answer: Answer): void {
    if (this.#closed) return;
    this.close();
    this.#reader.refused(answer);
  }

  failed(error: unknown): void {
    this.#end(isSilence(error) ? "silent" : "broken", messageOf(error));
  }

  pause(): void {
    this.#response?.pause();
  }

  resume(): void {
    this.#response?.resume();
  }

  close(): void {
    this.#closed = true;
    this.#request?.destroy();
  }

  #read(response: http.IncomingMessage): void {
    if (this.#closed) return;
    const contentType = response.headers["content-type"] ?? "";
    if (!isJson(contentType)) {
      this.#end("broken", `the answer is ${contentType || "of no type"}`);
      return;
    }
    this.#response = response;
    this.#reader.opened();
    response.on("data", (chunk: Uint8Array) => {
      if (!this.#closed) this.#reader.chunk(chunk);
    });
    response.on("error", (error) => this.failed(error));
    response.once("end", () => this.#end("eof", "the API server ended the watch"));
  }

  #end(how: "eof" | "broken" | "silent", message: string): void {
    if (this.#closed) return;
    this.close();
    this.#reader.ended(how, message);
  }
}

export function isJson(contentType: string): boolean {
  return /^application\/(?:[\w.-]+\+)?json\b/i.test(contentType);
}

function responseTo(request: http.ClientRequest, body: string | undefined): Promise<http.IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once("response", resolve);
    request.on("error", reject);
    request.end(body);
  });
}

/** Read to its end even when it is an error, so that the socket can be used again. */
async function wholeAnswer(response: http.IncomingMessage, maxBytes: number): Promise<Answer> {
  const status = response.statusCode ?? 0;
  const limitBytes = status < 300 ? maxBytes : maxErrorBytes;
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of response as AsyncIterable<Uint8Array>) {
    length += chunk.length;
    chunks.push(chunk);
    // Leaving the loop destroys the response. Of an error the beginning is enough.
    if (length > limitBytes) break;
  }
  if (status < 300 && length > limitBytes) throw new Error(`the answer is larger than ${limitBytes} bytes`);
  return {
    status,
    retryAfter: response.headers["retry-after"],
    contentType: response.headers["content-type"] ?? "",
    text: Buffer.concat(chunks).toString(),
  };
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && "code" in error ? error.code : undefined;
}

function isReset(error: unknown): boolean {
  return codeOf(error) === "ECONNRESET" || codeOf(error) === "EPIPE";
}

function isSilence(error: unknown): boolean {
  return codeOf(error) === "ETIMEDOUT" || codeOf(error) === "EHOSTUNREACH";
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || String(codeOf(error) ?? error.name) : String(error);
}
