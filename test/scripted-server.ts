// An HTTP server whose every answer is given by hand, byte by byte where it matters. For tests of HTTP clients.
// Knows nothing of Kubernetes; the embedded API server in test/kube-api does.
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

export class Exchange {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly socket: Socket;
  /** Resolves when the client has gone away or the answer is complete. */
  readonly closed: Promise<void>;
  readonly #response: ServerResponse;

  constructor(request: IncomingMessage, response: ServerResponse, body: string) {
    const url = new URL(request.url ?? "/", "http://server");
    this.method = request.method ?? "";
    this.path = url.pathname;
    this.query = url.searchParams;
    this.headers = request.headers;
    this.body = body;
    this.socket = request.socket;
    this.closed = new Promise((resolve) => response.once("close", resolve));
    this.#response = response;
  }

  json(status: number, body: unknown, headers: Record<string, string> = {}): void {
    this.text(status, typeof body === "string" ? body : JSON.stringify(body), {
      "content-type": "application/json",
      ...headers,
    });
  }

  text(status: number, body: string, headers: Record<string, string> = {}): void {
    this.#response.writeHead(status, { "content-type": "text/plain", ...headers }).end(body);
  }

  /** Headers of a stream; `write` and `end` follow. */
  open(): this {
    this.#response.writeHead(200, { "content-type": "application/json" });
    this.#response.flushHeaders();
    return this;
  }

  /** Resolves when these bytes have been handed to the system. */
  write(bytes: string | Uint8Array): Promise<void> {
    return new Promise((resolve, reject) =>
      this.#response.write(bytes, (error) => (error ? reject(error) : resolve())),
    );
  }

  line(value: unknown): Promise<void> {
    return this.write(`${JSON.stringify(value)}\n`);
  }

  end(): void {
    this.#response.end();
  }

  /** RST instead of an end. */
  reset(): void {
    this.socket.resetAndDestroy();
  }
}

export class ScriptedServer {
  readonly #server = createServer((request, response) => void this.#take(request, response));
  readonly #arrived: Exchange[] = [];
  readonly #awaited: ((exchange: Exchange) => void)[] = [];
  count = 0;

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The next request that no one has taken yet, now or when it comes. */
  next(): Promise<Exchange> {
    const exchange = this.#arrived.shift();
    return exchange ? Promise.resolve(exchange) : new Promise((resolve) => this.#awaited.push(resolve));
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.count++;
    response.on("error", () => {});
    const chunks = await request.toArray();
    const exchange = new Exchange(request, response, Buffer.concat(chunks).toString());
    const waiting = this.#awaited.shift();
    if (waiting) waiting(exchange);
    else this.#arrived.push(exchange);
  }
}
