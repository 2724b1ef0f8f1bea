// Raises Kubernetes Events: this server's own and those that agents ask for, one request at a time and never in anybody's way.
// Leaves to book.ts which of them are worth a request.
import { type EventReason, type EventSubject, eventReasons, isEventReason } from "../../shared/events.ts";
import { Failure, type NodeName } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import type { Logger } from "../../shared/log.ts";
import type { Report } from "../../shared/protocol/stream.ts";
import type { Clock } from "../../shared/world.ts";
import type { Store } from "../store/store.ts";
import { type BookParts, EventBook, type EventWrite, type Now } from "./book.ts";

export interface RecorderParts extends BookParts {
  readonly enabled: boolean;
  readonly api: Api;
  readonly store: Store;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Of the Deployment of the servers. */
  readonly namespace: string;
}

/** Of what the book lets through: a slow API server holds up no more than this. */
const maxWaiting = 60;
const sweepMs = 60_000;
const deployment = "cattail-server";

export class Recorder {
  readonly #parts: RecorderParts;
  readonly #book: EventBook;
  readonly #waiting: EventWrite[] = [];
  #cancel = (): void => {};
  #writing: Promise<void> | undefined;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
    this.#book = new EventBook(parts);
    if (parts.enabled) this.#scheduleSweep();
  }

  aboutServer(reason: ReasonAbout<"server">, note: string): void {
    this.#raise(reason, { namespace: this.#parts.namespace, name: deployment, note, source: "" });
  }

  aboutNode(reason: ReasonAbout<"node">, node: NodeName, note: string): void {
    this.#raise(reason, { namespace: "", name: node, uid: this.#parts.store.get("node", node)?.uid, note, source: "" });
  }

  /** An agent asks for it. What is not its to say is dropped. */
  report(node: NodeName, { reason, kind, namespace = "", name, uid, note }: Report): void {
    const mayBeSaid =
      isEventReason(reason) &&
      eventReasons[reason].about === kind &&
      (kind === "pod") === (namespace !== "") &&
      (kind !== "node" || name === node) &&
      (kind === "pod" || this.#exists(kind, name));
    if (mayBeSaid) this.#raise(reason, { namespace, name, uid: uid ?? this.#uidOf(kind, name), note, source: node });
    else this.#parts.onDropped();
  }

  async stop(): Promise<void> {
    this.#cancel();
    this.#waiting.length = 0;
    await this.#writing;
  }

  /** Resolves when everything raised so far is written, or was given up. */
  async idle(): Promise<void> {
    await this.#writing;
  }

  #raise(
    reason: EventReason,
    what: { namespace: string; name: string; uid?: string | undefined; note: string; source: string },
  ): void {
    if (!this.#parts.enabled) return;
    const write = this.#book.note({ reason, ...what, uid: what.uid }, this.#now());
    if (write !== undefined) this.#queue(write);
  }

  #exists(kind: Exclude<Report["kind"], "pod">, name: string): boolean {
    return this.#parts.store.get(storedAs[kind], name) !== undefined;
  }

  #uidOf(kind: Report["kind"], name: string): string | undefined {
    return kind === "pod" ? undefined : this.#parts.store.get(storedAs[kind], name)?.uid;
  }

  #queue(write: EventWrite): void {
    if (this.#waiting.length >= maxWaiting) return this.#book.failed(write);
    this.#waiting.push(write);
    this.#writing ??= this.#writeAll();
  }

  async #writeAll(): Promise<void> {
    for (let write = this.#waiting.shift(); write !== undefined; write = this.#waiting.shift())
      await this.#write(write);
    this.#writing = undefined;
  }

  async #write(write: EventWrite): Promise<void> {
    const { api, logger } = this.#parts;
    try {
      await (write.kind === "create" ? api.create(write.path, write.body) : api.patch(write.path, write.body));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#book.failed(write);
      logger.debug("Could not write an Event", { err: error });
    }
  }

  #scheduleSweep(): void {
    const { clock } = this.#parts;
    this.#cancel = clock.after(sweepMs, () => {
      for (const write of this.#book.due(clock.monotonic())) this.#queue(write);
      this.#scheduleSweep();
    });
  }

  #now(): Now {
    const { clock } = this.#parts;
    return { at: clock.monotonic(), wall: clock.wall() };
  }
}

type ReasonAbout<S extends EventSubject> = {
  [R in EventReason]: (typeof eventReasons)[R]["about"] extends S ? R : never;
}[EventReason];

const storedAs = { node: "node", ippool: "pool", ipamblock: "block" } as const;
