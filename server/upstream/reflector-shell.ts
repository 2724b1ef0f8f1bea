// Carries out what reflector.ts decides for one kind: requests, the timer, the store, log and metrics. Leaves every decision to it.
import { apiPath } from "../../shared/calico/names.ts";
import type { ApiGroup, Kind, Objects } from "../../shared/calico/resources.ts";
import { Failure, impossible, type ResourceVersion } from "../../shared/kinds.ts";
import { type Answer, type Http, isJson, type Stream } from "../../shared/kube/http-shell.ts";
import { refusalOfAnswer } from "../../shared/kube/status.ts";
import type { Logger } from "../../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Clock, Random } from "../../shared/world.ts";
import type { Store, Unread } from "../store/store.ts";
import { LinePump } from "./line-pump-shell.ts";
import { LineSplitter, maxLineBytes } from "./line-splitter.ts";
import {
  type Effect,
  newReflector,
  type Reflector,
  type ReflectorEvent,
  type Request,
  type Streaming,
  step,
} from "./reflector.ts";
import { acceptOf, requestPath } from "./requests.ts";
import type { Turns } from "./turns.ts";
import { type Item, type Junk, readLine, readPage, type StreamEvent } from "./wire.ts";

export interface ReflectorParts {
  readonly http: Pick<Http, "stream" | "unary">;
  readonly store: Store;
  readonly group: ApiGroup;
  readonly streaming: Streaming;
  readonly turns: Turns;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Pick<MetricHandles<typeof serverMetrics>, "upstreamEvents" | "upstreamRestarts">;
  /** The API server has just answered. */
  readonly onReached: () => void;
  /** It does not permit this kind to be read. */
  readonly onForbidden?: ((kind: Kind, why: string) => void) | undefined;
}

/** Less than V8 can hold in one string, more than 500 blocks of any usual size. */
const maxPageBytes = 256 << 20;
/** The API server's own limit for what is not a watch. */
const pageDeadlineMs = 60_000;
const oversized: Junk = { kind: "junk", what: `a line of more than ${maxLineBytes} bytes`, relist: true };
const decoder = new TextDecoder();

export class ReflectorShell<K extends Kind> {
  readonly #kind: K;
  readonly #parts: ReflectorParts;
  readonly #log: Logger;
  readonly #reflector: Reflector<K>;
  readonly #inbox: ReflectorEvent<K>[] = [];
  #working = false;
  #stopped = false;
  #hasTurn = false;
  #stream: Stream | undefined;
  #cancelTimer: () => void = () => {};

  constructor(kind: K, parts: ReflectorParts) {
    this.#kind = kind;
    this.#parts = parts;
    this.#log = parts.log.with({ resource: kind });
    this.#reflector = newReflector(kind, parts.streaming, parts.clock.monotonic());
  }

  start(delayMs: number): void {
    this.#handle({ kind: "start", delayMs });
  }

  /** Somebody else has just reached the API server. */
  reachable(): void {
    this.#handle({ kind: "reachable" });
  }

  /** Why the view is not being kept up; undefined while it is. */
  get problem(): string | undefined {
    return this.#reflector.problem;
  }

  stop(): void {
    this.#stopped = true;
    this.#cancelTimer();
    this.#stream?.close();
    this.#endTurn();
  }

  /** One event after the other, also when carrying out an effect brings the next one at once. */
  #handle(event: ReflectorEvent<K>): void {
    const { clock, random } = this.#parts;
    this.#inbox.push(event);
    if (this.#working) return;
    this.#working = true;
    for (let next = this.#inbox.shift(); next !== undefined; next = this.#inbox.shift()) {
      if (this.#stopped) continue;
      for (const effect of step(this.#reflector, next, { now: clock.monotonic(), random })) this.#perform(effect);
    }
    this.#working = false;
  }

  #perform(effect: Effect<K>): void {
    const { store, clock, turns } = this.#parts;
    switch (effect.kind) {
      case "send":
        this.#send(effect.request, effect.what);
        break;
      case "abandon":
        this.#stream?.close();
        break;
      case "wake":
        this.#cancelTimer();
        this.#cancelTimer = clock.after(effect.delayMs, () => this.#handle({ kind: "woken" }));
        break;
      case "ask-turn":
        turns.ask(() => this.#onTurn());
        break;
      case "end-turn":
        this.#endTurn();
        break;
      case "put":
        this.#take(effect.item);
        break;
      case "remove":
        store.remove(this.#kind, effect.meta.name, effect.meta);
        break;
      case "replace":
        this.#takeAll(effect.items, effect.version);
        break;
      case "advance":
        store.bookmark(this.#kind, effect.version);
        break;
      case "opened":
        store.opened(this.#kind);
        break;
      case "closed":
        store.closed(this.#kind, effect.heardAt);
        break;
      case "restarted":
        this.#onRestart(effect);
        break;
      case "sent-whole":
        this.#log.warn("The API server sent whole objects where only metadata had been asked for");
        break;
      default:
        impossible(effect);
    }
  }

  #onTurn(): void {
    this.#hasTurn = true;
    if (this.#stopped) this.#endTurn();
    else this.#handle({ kind: "turn" });
  }

  #endTurn(): void {
    if (!this.#hasTurn) return;
    this.#hasTurn = false;
    this.#parts.turns.end();
  }

  #take(item: Item<K>): void {
    const { store } = this.#parts;
    if (item.legible) store.put(this.#kind, item.object);
    else if (store.hold(this.#kind, item.unread)) this.#onUnread(item.unread);
  }

  #takeAll(items: readonly Item<K>[], version: ResourceVersion): void {
    const { store } = this.#parts;
    const objects: Objects[K][] = [];
    const unread: Unread[] = [];
    for (const item of items) {
      if (item.legible) objects.push(item.object);
      else unread.push(item.unread);
    }
    const known = new Map(store.unread(this.#kind));
    const { epoch } = store;
    store.replace(this.#kind, objects, version, unread);
    for (const one of unread) if (known.get(one.name)?.problem !== one.problem) this.#onUnread(one);
    if (store.epoch !== epoch)
      this.#log.error("The API server went back in time: its data has been replaced", { rv: version });
    this.#log.info("Took over a list", { count: items.length, rv: version });
  }

  #onUnread({ name, problem }: Unread): void {
    const path = apiPath(this.#parts.group, this.#kind, name);
    this.#log.warn("An object could not be read and was left out", { path, err: problem });
  }

  #onRestart({ reason, why, delayMs }: Extract<Effect<K>, { kind: "restarted" }>): void {
    this.#parts.metrics.upstreamRestarts.inc({ resource: this.#kind, reason });
    if (reason === "forbidden") this.#parts.onForbidden?.(this.#kind, why);
    const keys = { reason, err: why, seconds: delayMs / 1000 };
    if (reason === "closed") this.#log.debug("A watch ended and was begun again", keys);
    else this.#log.warn("A list or watch failed and was begun again", keys);
  }

  #send(request: number, what: Request): void {
    if (what.kind === "page") this.#fetchPage(request, what);
    else this.#openStream(request, what);
  }

  #fetchPage(request: number, what: Request): void {
    const path = requestPath(this.#parts.group, this.#kind, what);
    const accept = acceptOf(this.#kind, what);
    this.#parts.http
      .unary({ method: "GET", path, accept, deadlineMs: pageDeadlineMs, maxBytes: maxPageBytes })
      .then(
        (answer) => this.#pageEvent(request, answer),
        (error: unknown) => unanswered(request, error),
      )
      .then((event) => this.#handle(event));
  }

  #pageEvent(request: number, answer: Answer): ReflectorEvent<K> {
    if (answer.status !== 200) return refused(request, answer);
    this.#parts.onReached();
    const { contentType, text } = answer;
    const page = isJson(contentType)
      ? readPage(this.#kind, this.#parts.group, text)
      : ({ kind: "junk", what: `an answer of type ${contentType || "none"}`, relist: false } as const);
    return { kind: "page", request, page };
  }

  #openStream(request: number, what: Request): void {
    const { http, clock, group, onReached } = this.#parts;
    const splitter = new LineSplitter();
    const pump = new LinePump(clock, (line) => this.#onLine(request, line));
    const stream = http.stream(requestPath(group, this.#kind, what), acceptOf(this.#kind, what), {
      opened: () => {
        onReached();
        this.#handle({ kind: "opened", request });
      },
      chunk: (bytes) => {
        this.#handle({ kind: "heard", request });
        const { lines, tooLong } = splitter.push(bytes);
        pump.push(lines, stream);
        if (tooLong) pump.after(() => this.#onStreamEvent(request, oversized));
      },
      refused: (answer) => this.#handle(refused(request, answer)),
      ended: (how, message) => pump.after(() => this.#handle({ kind: "ended", request, how, message })),
    });
    this.#stream = stream;
  }

  #onLine(request: number, line: Uint8Array): void {
    const text = decoder.decode(line).trim();
    // Events that still wait in an abandoned stream are not worth parsing.
    if (text === "" || this.#stopped || request !== this.#reflector.request) return;
    this.#onStreamEvent(request, readLine(this.#kind, this.#parts.group, text));
  }

  #onStreamEvent(request: number, event: StreamEvent<K>): void {
    this.#parts.metrics.upstreamEvents.inc({ resource: this.#kind, type: typeOf(event) });
    this.#handle({ kind: "stream", request, event });
  }
}

function refused(request: number, answer: Answer): ReflectorEvent<never> {
  return { kind: "refused", request, refusal: refusalOfAnswer(answer.status, answer.retryAfter, answer.text) };
}

function unanswered(request: number, error: unknown): ReflectorEvent<never> {
  const how = error instanceof Failure && error.code === "timeout" ? "silent" : "broken";
  return { kind: "ended", request, how, message: error instanceof Error ? error.message : String(error) };
}

function typeOf(event: StreamEvent): "added" | "modified" | "deleted" | "bookmark" | "error" {
  switch (event.kind) {
    case "put":
      return event.type;
    case "removed":
      return "deleted";
    case "bookmark":
      return "bookmark";
    default:
      return "error";
  }
}
