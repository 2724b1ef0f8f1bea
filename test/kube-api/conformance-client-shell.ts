// The plainest possible client for the conformance tests: every answer with its code, every watch line as it comes.
// Knows no retries and no types, so that nothing stands between the tests and the server.
import * as http from "node:http";
import * as https from "node:https";
import { asObject, type JsonObject, parseJson, printJson } from "./json.ts";

export interface Connection {
  readonly url: string;
  readonly token: string | undefined;
  readonly ca?: string | undefined;
}

export interface Reply {
  readonly code: number;
  /** Undefined when the body is no JSON object. */
  readonly object: JsonObject;
  readonly text: string;
}

export interface WatchEvent {
  readonly type: string;
  readonly object: JsonObject;
}

export class Client {
  readonly #connection: Connection;
  readonly #agent: http.Agent;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#agent = connection.ca
      ? new https.Agent({ ca: connection.ca, keepAlive: true })
      : new http.Agent({ keepAlive: true });
  }

  as(token: string): Client {
    return new Client({ ...this.#connection, token });
  }

  get(path: string, accept = "application/json"): Promise<Reply> {
    return this.request("GET", path, undefined, { accept });
  }

  post(path: string, body: unknown): Promise<Reply> {
    return this.request("POST", path, body, { "content-type": "application/json" });
  }

  put(path: string, body: unknown): Promise<Reply> {
    return this.request("PUT", path, body, { "content-type": "application/json" });
  }

  patch(path: string, body: unknown, kind = "merge-patch"): Promise<Reply> {
    return this.request("PATCH", path, body, { "content-type": `application/${kind}+json` });
  }

  delete(path: string, options?: unknown): Promise<Reply> {
    return this.request("DELETE", path, options, { "content-type": "application/json" });
  }

  async request(method: string, path: string, body: unknown, headers: Record<string, string>): Promise<Reply> {
    const response = await this.#send(method, path, body, headers);
    const text = Buffer.concat(await response.toArray()).toString();
    const isJson = response.headers["content-type"]?.includes("json") === true;
    return { code: response.statusCode ?? 0, object: isJson ? asObject(parseJson(text)) : {}, text };
  }

  /** Yields events until the server ends the watch; leaving the loop cuts it. */
  async *watch(path: string, accept = "application/json"): AsyncGenerator<WatchEvent, void, void> {
    const response = await this.#send("GET", path, undefined, { accept });
    let rest = "";
    try {
      for await (const chunk of response.setEncoding("utf8") as AsyncIterable<string>) {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          const event = asObject(parseJson(line));
          yield { type: String(event.type), object: asObject(event.object) };
        }
      }
    } finally {
      response.destroy();
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #send(method: string, path: string, body: unknown, headers: Record<string, string>): Promise<http.IncomingMessage> {
    const text = body === undefined ? undefined : typeof body === "string" ? body : printJson(body);
    const { request } = this.#connection.ca ? https : http;
    const all = {
      ...(this.#connection.token === undefined ? {} : { authorization: `Bearer ${this.#connection.token}` }),
      "user-agent": "conformance",
      ...headers,
      ...(text === undefined ? {} : { "content-length": Buffer.byteLength(text) }),
    };
    return new Promise((resolve, reject) => {
      const sent = request(`${this.#connection.url}${path}`, { method, headers: all, agent: this.#agent }, resolve);
      sent.on("error", reject);
      sent.end(text);
    });
  }
}

/** The first `count` events, or all if the watch ends before. */
export async function take(events: AsyncGenerator<WatchEvent, void, void>, count: number): Promise<WatchEvent[]> {
  const taken: WatchEvent[] = [];
  for await (const event of events) {
    taken.push(event);
    if (taken.length === count) break;
  }
  return taken;
}
