// The calls that wait for an answer: who asked what, and the answer in words, in the log and in the metrics.
// Leaves the decision to the ledger and the wire to socket/server-shell.ts.
import type { Logger } from "../shared/log.ts";
import type { agentMetrics, MetricHandles } from "../shared/metrics.ts";
import type { RecordedCall } from "../shared/protocol/node-state.ts";
import type { AgentReply, AgentRequest } from "../shared/protocol/socket.ts";
import type { Clock } from "../shared/world.ts";
import type { ViewPlacement } from "./ipam/placement.ts";
import { grant, refusal } from "./ipam/replies.ts";
import type { LedgerEvent } from "./ledger/ledger.ts";
import { attachmentId, type CallId } from "./ledger/state.ts";
import type { Granted, GrantPath } from "./ledger/turn.ts";
import type { Connection } from "./socket/server-shell.ts";
import { cniCode, type Trouble } from "./trouble.ts";

export interface CallsParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: MetricHandles<typeof agentMetrics>;
  readonly placement: ViewPlacement;
  readonly handle: (event: LedgerEvent) => void;
}

interface Call {
  readonly request: AgentRequest;
  readonly connection: Connection;
  readonly since: number;
}

/** For people who ask why; older ones are in the log. */
const rememberedCalls = 256;

export class Calls {
  readonly #parts: CallsParts;
  readonly #waiting = new Map<CallId, Call>();
  /** DELs from the spool, which nobody waits for at the socket. */
  readonly #internal = new Map<CallId, (done: boolean) => void>();
  #next = 1;
  #idle: (() => void)[] = [];
  readonly #recent: RecordedCall[] = [];

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  get inFlight(): number {
    return this.#waiting.size;
  }

  /** The last ones that were answered, newest last. */
  get recent(): readonly RecordedCall[] {
    return this.#recent;
  }

  open(request: AgentRequest, connection: Connection): CallId {
    const id = this.#next++ as CallId;
    this.#waiting.set(id, { request, connection, since: this.#parts.clock.monotonic() });
    connection.onGone(() => {
      if (this.#close(id)) this.#parts.handle({ kind: "caller-gone", call: id });
    });
    return id;
  }

  openInternal(settle: (done: boolean) => void): CallId {
    const id = this.#next++ as CallId;
    this.#internal.set(id, settle);
    return id;
  }

  granted(id: CallId, places: readonly Granted[], path: GrantPath): void {
    const call = this.#close(id);
    if (call?.request.verb !== "ADD") return;
    const { request } = call;
    this.#tell(call, grant(request, places, this.#parts.placement), path, () =>
      this.#parts.handle({ kind: "undelivered", id: attachmentId(request), request: request.request }),
    );
  }

  done(id: CallId): void {
    this.#settleInternal(id, true);
    const call = this.#close(id);
    if (call) this.#tell(call, { ok: true }, "journal");
  }

  refused(id: CallId, trouble: Trouble): void {
    this.#settleInternal(id, false);
    const call = this.#close(id);
    if (!call) return;
    this.#parts.metrics.cniErrors.inc({ verb: call.request.verb, reason: trouble.reason });
    this.#tell(call, refusal(call.request, trouble), call.request.verb === "DEL" ? "journal" : "wait");
  }

  /** Resolves when nobody waits. */
  idle(): Promise<void> {
    if (this.#waiting.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  #settleInternal(id: CallId, done: boolean): void {
    this.#internal.get(id)?.(done);
    this.#internal.delete(id);
  }

  #close(id: CallId): Call | undefined {
    const call = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (this.#waiting.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
    return call;
  }

  #tell(call: Call, reply: AgentReply, path: GrantPath | "journal", undelivered?: () => void): void {
    const { request, connection, since } = call;
    const { clock, metrics, logger } = this.#parts;
    const seconds = (clock.monotonic() - since) / 1000;
    const result = reply.ok ? "ok" : reply.code === cniCode.tryLater ? "retry" : "error";
    metrics.cniRequests.inc({ verb: request.verb, result });
    if (request.verb === "ADD" || request.verb === "DEL")
      metrics.cniRequestDuration.observe({ verb: request.verb, path }, seconds);
    logger.debug("Answered a call", {
      verb: request.verb,
      request: request.request,
      ...subjectOf(request),
      seconds,
      ...(reply.ok
        ? { address: reply.ips?.map(({ address }) => address).join(" ") }
        : { code: reply.code, err: reply.msg }),
    });
    this.#recent.push({
      at: new Date(clock.wall()).toISOString(),
      verb: request.verb,
      request: request.request,
      ...subjectOf(request),
      seconds,
      path,
      ...(reply.ok
        ? { addresses: reply.ips?.map(({ address }) => address.replace(/\/.*/, "")) ?? [] }
        : { code: reply.code, error: reply.msg, ...(reply.details !== undefined && { details: reply.details }) }),
    });
    if (this.#recent.length > rememberedCalls) this.#recent.shift();
    connection.reply(reply, undelivered);
  }
}

function subjectOf(request: AgentRequest): { pod?: string; attachment?: string } {
  if (request.verb === "GC" || request.verb === "STATUS") return {};
  const attachment = `${request.containerId.slice(0, 12)}/${request.ifname}`;
  return { ...(request.podName !== "" && { pod: `${request.podNamespace}/${request.podName}` }), attachment };
}
