// A server's HTTP towards the embedded API server, over the simulated network: delays, refusals, lost answers, cut watches.
// Leaves what a request does to test/kube-api.

import { Failure } from "../../shared/kinds.ts";
import type { Answer, Call, Stream, StreamReader } from "../../shared/kube/http-shell.ts";
import { token } from "../direct-api.ts";
import type { ApiServer } from "../kube-api/api-server.ts";
import type { ApiRequest } from "../kube-api/request.ts";
import type { Network } from "./network.ts";
import type { Process, World } from "./world.ts";

/** Of a thousand requests. */
export interface ApiFaults {
  isDown: boolean;
  throttled: number;
  failed: number;
  lostAnswers: number;
  watchDelayMs: number;
}

export class ApiDoor {
  readonly #world: World;
  readonly #process: Process;
  readonly #api: ApiServer;
  readonly #network: Network;
  readonly #name: string;
  readonly #faults: ApiFaults;

  constructor(world: World, process: Process, api: ApiServer, network: Network, name: string, faults: ApiFaults) {
    this.#world = world;
    this.#process = process;
    this.#api = api;
    this.#network = network;
    this.#name = name;
    this.#faults = faults;
  }

  unary(call: Call): Promise<Answer> {
    const world = this.#world;
    return new Promise<Answer>((resolve, reject) => {
      const tell = (act: () => void): void =>
        void world.after(world.between(1, 5), () => {
          if (this.#process.isAlive) act();
        });
      world.after(call.deadlineMs, () => reject(new Failure("timeout", `${call.method} ${call.path}: no answer`)));
      world.after(world.between(1, 6), () => {
        const lost = new Failure("api-unavailable", `${call.method} ${call.path}: the connection was reset`);
        if (this.#faults.isDown) return tell(() => reject(lost));
        if (world.happens(this.#faults.throttled)) return tell(() => resolve(statusAnswer(429, "1")));
        if (world.happens(this.#faults.failed)) return tell(() => resolve(statusAnswer(500)));
        const { answer } = this.#api.handle(requestOf(call, this.#name));
        if (call.method !== "GET" && world.happens(this.#faults.lostAnswers)) {
          world.note("answer of a write lost");
          return tell(() => reject(lost));
        }
        if (answer.kind !== "body") throw new Error(`${call.path} is no unary request`);
        if (answer.code === 409) world.note("conflict of a write");
        const retryAfter = answer.retryAfterSeconds === undefined ? undefined : String(answer.retryAfterSeconds);
        const { code: status, contentType, pieces } = answer;
        tell(() => resolve({ status, retryAfter, contentType, text: pieces.join("") }));
      });
    });
  }

  stream(path: string, accept: string, reader: StreamReader): Stream {
    const world = this.#world;
    const way = this.#network.way("api", this.#name);
    let isClosed = false;
    let stop: () => void = () => {};
    const tell = (act: () => void): void =>
      way.send(() => {
        if (!isClosed && this.#process.isAlive) act();
      });
    world.after(world.between(1, 6), () => {
      if (isClosed) return;
      if (this.#faults.isDown) return tell(() => reader.ended("broken", "the connection was reset"));
      const { answer } = this.#api.handle(requestOf({ method: "GET", path, accept }, this.#name));
      if (answer.kind === "body") {
        const { code: status, contentType, pieces } = answer;
        return tell(() => reader.refused({ status, contentType, text: pieces.join(""), retryAfter: undefined }));
      }
      tell(() => reader.opened());
      stop = answer.start({
        line: (text) => {
          const delayMs = world.random.below(1 + this.#faults.watchDelayMs);
          const bytes = Buffer.from(`${text}\n`);
          if (delayMs === 0) return tell(() => reader.chunk(bytes));
          // A slow watch holds back what follows as well.
          way.send(() => way.pause(delayMs));
          tell(() => reader.chunk(bytes));
        },
        end: () => tell(() => reader.ended("eof", "")),
      });
    });
    const close = (): void => {
      isClosed = true;
      stop();
      this.#network.forget("api", this.#name, way);
    };
    return { pause: () => {}, resume: () => {}, close };
  }
}

function statusAnswer(code: number, retryAfter?: string): Answer {
  const text = JSON.stringify({ kind: "Status", code, reason: "", message: "simulated" });
  return { status: code, retryAfter, contentType: "application/json", text };
}

function requestOf(call: Pick<Call, "method" | "path" | "accept" | "body" | "contentType">, name: string): ApiRequest {
  const [path = "", query = ""] = call.path.split("?");
  return {
    method: call.method,
    path,
    query: new Map(new URLSearchParams(query)),
    accept: call.accept ?? "application/json",
    contentType: call.contentType ?? "",
    userAgent: name,
    token,
    body: call.body ?? "",
  };
}
