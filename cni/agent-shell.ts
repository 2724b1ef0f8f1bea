// Asks the node agent: one connection, one request, one reply (shared/protocol/socket.ts), within the verb's schedule.
// Leaves to others: what an answer or its absence means (outcome.ts).
import * as v from "valibot";
import { type AgentRequest, agentReply, maxReplyBytes } from "../shared/protocol/socket.ts";
import { bun, type Socket } from "./bun-shell.ts";
import type { Exchange } from "./outcome.ts";

export interface Patience {
  /** On the clock of performance.now(). */
  readonly connectBy: number;
  readonly replyBy: number;
  /** Ask again after a connection that ended without a byte: only for a request that may be carried out twice. */
  readonly mayAskTwice: boolean;
  /** Resolves when our caller has died. */
  readonly abandoned: Promise<void>;
}

/** A restarting agent is back within a second or so; its socket is looked for often at first, then four times a second. */
const firstPauseMs = 10;
const longestPauseMs = 250;

export async function askAgent(socketPath: string, request: AgentRequest, patience: Patience): Promise<Exchange> {
  const bytes = new TextEncoder().encode(`${JSON.stringify(request)}\n`);
  const abandoned = patience.abandoned.then((): Exchange => ({ kind: "abandoned" }));
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
    const attempt = await oneAttempt(socketPath, bytes, patience.replyBy, abandoned);
    const again = attempt.kind === "unreachable" || (attempt.kind === "closed" && patience.mayAskTwice);
    if (!again || performance.now() + pauseMs >= patience.connectBy) return attempt;
    if ((await Promise.race([after(pauseMs), abandoned])) !== undefined) return attempt;
  }
}

async function oneAttempt(
  socketPath: string,
  bytes: Uint8Array,
  replyBy: number,
  abandoned: Promise<Exchange>,
): Promise<Exchange> {
  const startedAt = performance.now();
  const connection = new Connection(bytes);
  const silent = after(replyBy - startedAt).then(
    (): Exchange => ({ kind: "silent", waitedMs: Math.round(performance.now() - startedAt) }),
  );
  connection.open(socketPath);
  const exchange = await Promise.race([connection.exchange, silent, abandoned]);
  connection.terminate();
  const endedByUs = exchange.kind === "silent" || exchange.kind === "abandoned";
  return endedByUs && !connection.isSent ? { kind: "unreachable", why: `${socketPath} takes no request` } : exchange;
}

/** One connection's life; `exchange` resolves with its first and only outcome. */
class Connection {
  readonly exchange: Promise<Exchange>;
  readonly #settle: (exchange: Exchange) => void;
  readonly #bytes: Uint8Array;
  #written = 0;
  #received = "";
  readonly #decoder = new TextDecoder();
  #socket: Socket | undefined;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    const { promise, resolve } = Promise.withResolvers<Exchange>();
    this.exchange = promise;
    this.#settle = resolve;
  }

  /** The agent acts on a whole line only: until its last byte has been handed over, nothing can have been done. */
  get isSent(): boolean {
    return this.#written === this.#bytes.length;
  }

  open(socketPath: string): void {
    const failed = (error: unknown): void =>
      this.#settle({ kind: "unreachable", why: `${socketPath} ${reasonFor(error)}` });
    bun
      .connect({
        unix: socketPath,
        socket: {
          open: (socket) => {
            this.#socket = socket;
            this.#write(socket);
          },
          drain: (socket) => this.#write(socket),
          data: (_socket, bytes) => this.#take(bytes),
          close: () => this.#ended(),
          error: () => this.#ended(),
          connectError: (_socket, error) => failed(error),
        },
      })
      .catch(failed);
  }

  terminate(): void {
    this.#socket?.terminate();
  }

  #write(socket: Socket): void {
    if (this.isSent) return;
    const taken = socket.write(this.#bytes.subarray(this.#written));
    if (taken > 0) this.#written += taken;
  }

  #take(bytes: Uint8Array): void {
    this.#received += this.#decoder.decode(bytes, { stream: true });
    const end = this.#received.indexOf("\n");
    if (end >= 0) this.#settle(parseReply(this.#received.slice(0, end)));
    else if (this.#received.length > maxReplyBytes) this.#settle({ kind: "undecodable" });
  }

  #ended(): void {
    this.#settle(
      this.isSent ? { kind: "closed" } : { kind: "unreachable", why: "it hung up before the request was sent" },
    );
  }
}

function parseReply(line: string): Exchange {
  try {
    const parsed = v.safeParse(agentReply, JSON.parse(line));
    if (parsed.success) return { kind: "reply", reply: parsed.output };
  } catch {
    // Not JSON: undecodable like any other answer that is not the contract's.
  }
  return { kind: "undecodable" };
}

/** In words of our own: the system's would be taken by containerd for a DEL that is done (complaint.ts). */
function reasonFor(error: unknown): string {
  switch (error instanceof Error && "code" in error ? error.code : undefined) {
    case "ENOENT":
      return "does not exist";
    case "ECONNREFUSED":
      return "has nobody listening";
    case "EACCES":
    case "EPERM":
      return "may not be opened by this user";
    default:
      return "cannot be connected to";
  }
}

function after(delayMs: number): Promise<undefined> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, delayMs), undefined));
}
