// The agent's side of the stream as a state machine: which server, when, how long to wait for a sign of life, when to move on.
// Decides only. Leaves sockets to client-shell.ts and what messages mean to agent-shell.ts.
import { type Instant, impossible } from "../../shared/kinds.ts";
import { type ServerMessage, streamProtocol } from "../../shared/protocol/stream.ts";
import type { Random } from "../../shared/world.ts";

/** Why a connection ended; the label of cattail_agent_reconnects_total. */
export type EndReason = "closed" | "timeout" | "stale" | "redirect" | "tls" | "refused";

export type Phase =
  | { readonly kind: "waiting"; readonly until: Instant }
  /** Nothing but a dial tone yet, or none. */
  | { readonly kind: "opening"; readonly until: Instant }
  | { readonly kind: "greeting"; readonly until: Instant }
  | {
      readonly kind: "syncing" | "live";
      readonly heartbeatMs: number;
      /** The server was asked for a sign of life and gave none yet. */
      readonly probed: boolean;
      readonly until: Instant;
    }
  /** The server has said good-bye and answers what it has been asked. */
  | { readonly kind: "leaving"; readonly retryAfterMs: number; readonly until: Instant }
  | { readonly kind: "stopped" };

export interface Client {
  readonly urls: readonly string[];
  readonly random: Random;
  phase: Phase;
  /** Which of the urls. */
  turn: number;
  /** Connections in a row that never became live. */
  failures: number;
  heardAt: Instant | undefined;
  /** What was asked on this connection and is not answered. */
  awaited: number;
  replica: string | undefined;
}

export type ClientEvent =
  | { readonly kind: "opened" }
  | { readonly kind: "message"; readonly message: ServerMessage }
  /** Something was sent that the server owes an answer for. */
  | { readonly kind: "asked" }
  /** Something came that is no message of ours: a ping or pong, a type of a newer server. */
  | { readonly kind: "heard" }
  | { readonly kind: "ended"; readonly reason: EndReason; readonly retryAfterMs?: number | undefined }
  /** The ledger misses an answer. */
  | { readonly kind: "distrust" }
  | { readonly kind: "stop" }
  | { readonly kind: "tick" };

export type ClientEffect =
  | { readonly kind: "open"; readonly url: string }
  | { readonly kind: "greet" }
  | { readonly kind: "deliver"; readonly message: ServerMessage }
  /** A ping, which the server's WebSocket answers at once. */
  | { readonly kind: "probe" }
  | { readonly kind: "end" }
  | { readonly kind: "online" }
  | { readonly kind: "offline"; readonly reason: EndReason };

/** From dialling to the welcome, in two halves. */
export const openingMs = 10_000;
/** A client that hears nothing for so many heartbeats moves on. */
const silentHeartbeats = 3;
/**
 * While somebody waits for the server, it is asked for a sign of life after so much silence, and left after as much again:
 * 8 s, with the ledger's patience of 10 s, are what a pod may wait for a dead server. An idle connection costs no more for it.
 */
export const probeMs = 4_000;
const firstBackOffMs = 500;
export const longestBackOffMs = 30_000;
/** A server that said good-bye closes within this time, or we do. */
const leavingMs = 5_000;
/** A tick that comes this late means that this process stood still, not that the server was silent. */
const stoodStillMs = 1_000;

export function createClient(urls: readonly string[], random: Random, now: Instant): Client {
  const turn = random.below(urls.length);
  return {
    urls,
    random,
    phase: { kind: "waiting", until: now },
    turn,
    failures: 0,
    heardAt: undefined,
    awaited: 0,
    replica: undefined,
  };
}

export function stepClient(client: Client, event: ClientEvent, now: Instant): ClientEffect[] {
  if (client.phase.kind === "stopped") return [];
  switch (event.kind) {
    case "opened":
      client.phase = { kind: "greeting", until: after(now, openingMs) };
      return [{ kind: "greet" }];
    case "asked":
      asked(client, now);
      return [];
    case "heard":
      heard(client, now);
      return [];
    case "message":
      if (isAnswer(event.message)) client.awaited = Math.max(0, client.awaited - 1);
      heard(client, now);
      return receive(client, event.message, now);
    case "ended":
      return ended(client, event.reason, event.retryAfterMs, now);
    case "distrust":
      return isOpen(client) ? giveUp(client, "stale", now) : [];
    case "stop":
      client.phase = { kind: "stopped" };
      return [{ kind: "end" }];
    case "tick":
      return tick(client, now);
    default:
      return impossible(event);
  }
}

export function isLive({ phase }: Client): boolean {
  return phase.kind === "live";
}

/** When a tick is due. */
export function nextTick({ phase }: Client): Instant | undefined {
  return phase.kind === "stopped" ? undefined : phase.until;
}

function asked(client: Client, now: Instant): void {
  const { phase } = client;
  if (phase.kind !== "live") return; // nobody will answer it
  client.awaited += 1;
  if (client.awaited === 1 && phase.until > now + probeMs) client.phase = { ...phase, until: after(now, probeMs) };
}

function isAnswer({ type }: ServerMessage): boolean {
  return type === "ack" || type === "claimed" || type === "indexed";
}

function heard(client: Client, now: Instant): void {
  client.heardAt = now;
  const { phase } = client;
  if (phase.kind !== "syncing" && phase.kind !== "live") return;
  const patienceMs = isWaitedFor(client) ? probeMs : silentHeartbeats * phase.heartbeatMs;
  client.phase = { ...phase, probed: false, until: after(now, patienceMs) };
}

function isWaitedFor({ phase, awaited }: Client): boolean {
  return phase.kind === "syncing" || awaited > 0;
}

function receive(client: Client, message: ServerMessage, now: Instant): ClientEffect[] {
  const { phase } = client;
  switch (message.type) {
    case "welcome": {
      if (phase.kind !== "greeting") return [];
      if (message.protocol !== streamProtocol) return giveUp(client, "refused", now);
      const { heartbeatMs } = message;
      client.replica = message.replica;
      client.phase = { kind: "syncing", heartbeatMs, probed: false, until: after(now, probeMs) };
      return [{ kind: "deliver", message }];
    }
    case "synced":
      if (phase.kind !== "syncing") return [];
      client.phase = { ...phase, kind: "live", until: after(now, silentHeartbeats * phase.heartbeatMs) };
      client.failures = 0;
      return [{ kind: "deliver", message }, { kind: "online" }];
    case "bye":
      if (!isOpen(client)) return [];
      client.phase = { kind: "leaving", retryAfterMs: message.retryAfterMs, until: after(now, leavingMs) };
      return [{ kind: "deliver", message }];
    case "reset":
    case "put":
    case "gone":
    case "beat":
    case "ack":
    case "claimed":
    case "indexed":
      return phase.kind === "greeting" ? [] : [{ kind: "deliver", message }];
    default:
      return impossible(message);
  }
}

function ended(client: Client, reason: EndReason, retryAfterMs: number | undefined, now: Instant): ClientEffect[] {
  const { phase } = client;
  if (phase.kind === "waiting") return [];
  if (phase.kind === "leaving") return moveOn(client, "redirect", phase.retryAfterMs, now);
  return moveOn(client, reason, retryAfterMs, now);
}

function giveUp(client: Client, reason: EndReason, now: Instant): ClientEffect[] {
  return [{ kind: "end" }, ...ended(client, reason, undefined, now)];
}

function moveOn(client: Client, reason: EndReason, retryAfterMs: number | undefined, now: Instant): ClientEffect[] {
  const longestMs = Math.min(longestBackOffMs, firstBackOffMs * 2 ** Math.min(client.failures, 10));
  // Full jitter: after a server's death its agents come back spread out. Who is told when to come is spread by the one who tells.
  const delayMs = Math.min(retryAfterMs ?? client.random.below(longestMs), longestBackOffMs);
  client.failures += 1;
  client.awaited = 0;
  client.turn = (client.turn + 1) % client.urls.length;
  client.phase = { kind: "waiting", until: after(now, delayMs) };
  return [{ kind: "offline", reason }];
}

function tick(client: Client, now: Instant): ClientEffect[] {
  const { phase } = client;
  if (phase.kind === "stopped" || phase.until > now) return [];
  switch (phase.kind) {
    case "waiting":
      client.phase = { kind: "opening", until: after(now, openingMs) };
      return [{ kind: "open", url: client.urls[client.turn] ?? "" }];
    case "syncing":
    case "live":
      // What the server sent meanwhile waits in the socket and is read after this.
      if (now - phase.until > stoodStillMs) {
        client.phase = { ...phase, until: after(now, isWaitedFor(client) ? probeMs : phase.heartbeatMs) };
        return [];
      }
      if (phase.probed || !isWaitedFor(client)) return giveUp(client, "timeout", now);
      client.phase = { ...phase, probed: true, until: after(now, probeMs) };
      return [{ kind: "probe" }];
    case "opening":
    case "greeting":
    case "leaving":
      return giveUp(client, "timeout", now);
    default:
      return impossible(phase);
  }
}

function isOpen({ phase }: Client): boolean {
  return phase.kind === "greeting" || phase.kind === "syncing" || phase.kind === "live";
}

function after(now: Instant, ms: number): Instant {
  return (now + ms) as Instant;
}
