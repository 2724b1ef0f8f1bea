// Carries out the stream client's effects on one line at a time, dialled anew at each attempt.
// Leaves when and where to client.ts, and what a line is made of to whoever dials (client-shell.ts).
import * as v from "valibot";
import type { Logger } from "../../shared/log.ts";
import { type ClientMessage, type Hello, type ServerMessage, serverMessage } from "../../shared/protocol/stream.ts";
import type { Clock, Random } from "../../shared/world.ts";
import {
  type ClientEffect,
  type ClientEvent,
  createClient,
  type EndReason,
  isLive,
  nextTick,
  stepClient,
} from "./client.ts";
import { tidy } from "./refusals.ts";

/** A connection being made, or made. */
export interface Line {
  readonly isOpen: boolean;
  send(text: string): void;
  ping(): void;
  /** Without a word to the other end. */
  terminate(): void;
}

/** What a line tells; what one that was given up says is no news. */
export interface LineListener {
  happened(event: ClientEvent): void;
  isGivenUp(): boolean;
  refused(why: string): void;
}

export interface StreamParts {
  readonly urls: readonly string[];
  readonly dial: (url: string, listener: LineListener) => Line;
  readonly hello: () => Hello;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly deliver: (message: ServerMessage) => void;
  readonly online: () => void;
  readonly offline: (reason: EndReason) => void;
}

export interface Stream {
  /** Goes nowhere when no server is connected: what was sent is then unsettled, which the ledger knows. */
  send(message: ClientMessage): void;
  distrust(): void;
  stop(): void;
  readonly status: () => StreamStatus;
}

export interface StreamStatus {
  readonly live: boolean;
  /** Since something was heard of a server; undefined: never. */
  readonly silentMs: number | undefined;
  /** Why the last attempt came to nothing, in a sentence; undefined: it did not. */
  readonly refusal: string | undefined;
}

export function keepStream(parts: StreamParts): Stream {
  const { clock, logger } = parts;
  const client = createClient(parts.urls, parts.random, clock.monotonic());
  let line: Line | undefined;
  let attempt = 0;
  let cancel = (): void => {};
  let refusal: string | undefined;
  /** What the server gave as the reason for its good-bye. */
  let farewell: string | undefined;

  function handle(event: ClientEvent): void {
    for (const effect of stepClient(client, event, clock.monotonic())) perform(effect);
    cancel();
    const due = nextTick(client);
    if (due !== undefined) cancel = clock.after(Math.max(0, due - clock.monotonic()), () => handle({ kind: "tick" }));
  }

  function dial(url: string): Line {
    attempt += 1;
    const mine = attempt;
    return parts.dial(url, {
      happened: (event) => {
        if (mine === attempt) handle(event);
      },
      isGivenUp: () => mine !== attempt,
      refused: (why) => {
        refusal = why;
      },
    });
  }

  function letGo(): void {
    line = undefined;
    attempt += 1;
  }

  function perform(effect: ClientEffect): void {
    switch (effect.kind) {
      case "open":
        farewell = undefined;
        line = dial(effect.url);
        return;
      case "probe":
        return line?.ping();
      case "greet":
        return send(parts.hello());
      case "deliver":
        if (effect.message.type === "bye") farewell = tidy(effect.message.reason);
        return parts.deliver(effect.message);
      case "end":
        line?.terminate();
        return letGo();
      case "online":
        refusal = undefined;
        logger.info("Connected to a server", { replica: client.replica, url: client.urls[client.turn] });
        return parts.online();
      case "offline":
        letGo();
        if (effect.reason === "timeout") refusal = "the server did not answer in time";
        logger.info("Lost the server", { replica: client.replica, value: effect.reason, err: farewell ?? refusal });
        client.replica = undefined;
        return parts.offline(effect.reason);
    }
  }

  function send(message: ClientMessage): void {
    if (!line?.isOpen) return;
    line.send(JSON.stringify(message));
    if (isQuestion(message)) handle({ kind: "asked" });
  }

  handle({ kind: "tick" });
  return {
    send,
    distrust: () => handle({ kind: "distrust" }),
    stop: () => handle({ kind: "stop" }),
    status: () => ({
      live: isLive(client),
      silentMs: client.heardAt === undefined ? undefined : clock.monotonic() - client.heardAt,
      refusal,
    }),
  };
}

/** What somebody waits for. A ping for the lease is not: nobody is worse off if it goes unanswered for a while. */
function isQuestion({ type }: ClientMessage): boolean {
  return type === "commit" || type === "claim" || type === "claim-block" || type === "index";
}

const knownTypes: ReadonlySet<unknown> = new Set(serverMessage.options.map(({ entries }) => entries.type.literal));

/** What cannot be understood of a known type ends the connection: to go on would be to miss something. */
export function eventOf(text: string, logger: Logger): ClientEvent {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch (err) {
    logger.warn("Could not read a message", { err });
    return { kind: "distrust" };
  }
  const type = typeof raw === "object" && raw !== null && "type" in raw ? raw.type : undefined;
  if (!knownTypes.has(type)) return { kind: "heard" };
  const parsed = v.safeParse(serverMessage, raw, { abortEarly: true });
  if (parsed.success) return { kind: "message", message: parsed.output };
  const [issue] = parsed.issues;
  logger.warn("Could not read a message", {
    value: String(type),
    err: `${v.getDotPath(issue) ?? ""} ${issue.message}`,
  });
  return { kind: "distrust" };
}
