// Keeps this node's lease: asks servers for it, and what of it survives a restart. It runs from when the question was sent.
// Leaves to ledger/lease.ts what may be done under it.
import type { Instant, UnixMs } from "../shared/kinds.ts";
import type { ServerMessage } from "../shared/protocol/stream.ts";
import type { LedgerEvent } from "./ledger/ledger.ts";

/** Three of them fit into the time that a server's view may be old, and forty into the shortest lease. */
export const pingMs = 5_000;
/** How old what the journal says of the lease may be: a restart loses so much of it. */
export const keptMs = 60_000;

export interface LeaseParts {
  /** Runs on while the machine sleeps. */
  readonly now: () => Instant;
  readonly after: (delayMs: number, wake: () => void) => () => void;
  readonly ping: (sent: number) => void;
  /** This agent's own limit; undefined: the servers'. */
  readonly limitMs: () => number | undefined;
  readonly timestamp: () => string;
  readonly tell: (event: LedgerEvent) => void;
  readonly keep: (leftMs: number) => void;
}

export class LeaseKeeper {
  readonly #parts: LeaseParts;
  readonly #sent = new Set<number>();
  #cancel = (): void => {};
  #keptAt: Instant | undefined;

  constructor(parts: LeaseParts) {
    this.#parts = parts;
  }

  online(): void {
    this.offline();
    this.#ask();
  }

  offline(): void {
    this.#cancel();
    this.#sent.clear();
  }

  heard({ echo, lease, node }: Extract<ServerMessage, { type: "beat" }>): void {
    const { now, limitMs, timestamp, tell } = this.#parts;
    if (node === "gone") return tell({ kind: "node-gone" });
    // Of another connection, or of nobody: it says nothing about when this server saw our Node. One ping may be answered twice.
    if (echo === undefined || !this.#sent.has(echo) || lease === undefined) return;
    const until = (echo + Math.min(lease.limitMs, limitMs() ?? Number.POSITIVE_INFINITY)) as Instant;
    tell({ kind: "leased", until, limitMs: lease.limitMs, timestamp: timestamp() });
    this.#keep(until, now());
  }

  #ask(): void {
    const sent = this.#parts.now();
    this.#sent.add(sent);
    const [oldest] = this.#sent;
    if (this.#sent.size > maxSent && oldest !== undefined) this.#sent.delete(oldest);
    this.#parts.ping(sent);
    this.#cancel = this.#parts.after(pingMs, () => this.#ask());
  }

  #keep(until: Instant, now: Instant): void {
    if (this.#keptAt !== undefined && now - this.#keptAt < keptMs) return;
    this.#keptAt = now;
    this.#parts.keep(until - now);
  }
}

/** Whatever comes later than so many others is of no use. */
const maxSent = 16;

type Meta = Readonly<Record<string, string>>;

/** What is kept: counted from the machine's start, which a reboot ends, and by the wall, which may only shorten it. */
export function leaseToMeta(leftMs: number, uptimeMs: number, wall: UnixMs): Meta {
  return { leaseUptimeMs: String(Math.floor(uptimeMs + leftMs)), leaseWallMs: String(Math.floor(wall + leftMs)) };
}

/** Undefined: there never was one. Zero: it has ended. */
export function leaseLeftMs(meta: Meta, bootId: string, uptimeMs: number, wall: UnixMs): number | undefined {
  const { leaseUptimeMs, leaseWallMs } = meta;
  if (leaseUptimeMs === undefined || leaseWallMs === undefined) return undefined;
  if (bootId === "" || meta.bootId !== bootId) return 0;
  return Math.max(0, Math.min(Number(leaseUptimeMs) - uptimeMs, Number(leaseWallMs) - wall));
}
