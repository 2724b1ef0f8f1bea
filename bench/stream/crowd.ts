// Thousands of clients of a server, in processes of their own so that they do not share its core. Ends with whoever made it.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { sleep } from "../machine.ts";

export type CrowdOrder =
  | {
      readonly kind: "connect";
      readonly server: { readonly urls: readonly string[]; readonly ca: string | undefined };
      readonly remembers: boolean;
      readonly clients: readonly { readonly node: string | undefined; readonly token: string }[];
    }
  /** Asks for a report, and begins a new one. */
  | { readonly kind: "collect" }
  /** So many stop reading. */
  | { readonly kind: "stall"; readonly clients: number }
  | { readonly kind: "read" };

export interface CrowdReport {
  readonly puts: number;
  /** From the write to its arrival, ms, one for each object that carried its time. */
  readonly delays: Float64Array;
  /** From the loss of a server to being served again, ms. */
  readonly returns: Float64Array;
  /** Clients that have had everything once. */
  readonly everSynced: number;
  readonly synced: number;
  readonly receivedBytes: number;
}

/** One process is busy with about so many. */
const clientsPerProcess = 2500;

export class Crowd {
  readonly #processes: readonly ChildProcess[];
  readonly size: number;

  private constructor(size: number) {
    this.size = size;
    const script = join(import.meta.dirname, "crowd-main.ts");
    this.#processes = Array.from({ length: Math.ceil(size / clientsPerProcess) }, () =>
      fork(script, { serialization: "advanced" }),
    );
  }

  static connect(order: Omit<Extract<CrowdOrder, { kind: "connect" }>, "kind">): Crowd {
    const crowd = new Crowd(order.clients.length);
    const share = Math.ceil(order.clients.length / crowd.#processes.length);
    crowd.#processes.forEach((child, index) => {
      const clients = order.clients.slice(index * share, (index + 1) * share);
      child.send({ kind: "connect", ...order, clients });
    });
    return crowd;
  }

  /** Once every client has been told everything, ms after the call. */
  async synced(limitMs: number): Promise<number> {
    const began = performance.now();
    for (;;) {
      const { synced } = await this.collect();
      if (synced === this.size) return performance.now() - began;
      if (performance.now() - began > limitMs)
        throw new Error(`${synced} of ${this.size} clients are served after ${limitMs} ms`);
      await sleep(20);
    }
  }

  async collect(): Promise<CrowdReport> {
    const reports = await Promise.all(
      this.#processes.map(async (child) => {
        const answer = once(child, "message");
        child.send({ kind: "collect" });
        return (await answer)[0] as CrowdReport;
      }),
    );
    return reports.reduce((a, b) => ({
      puts: a.puts + b.puts,
      delays: joined(a.delays, b.delays),
      returns: joined(a.returns, b.returns),
      everSynced: a.everSynced + b.everSynced,
      synced: a.synced + b.synced,
      receivedBytes: a.receivedBytes + b.receivedBytes,
    }));
  }

  stall(clients: number): void {
    const share = Math.round(clients / this.#processes.length);
    for (const child of this.#processes) child.send({ kind: "stall", clients: share });
  }

  read(): void {
    for (const child of this.#processes) child.send({ kind: "read" });
  }

  stop(): void {
    for (const child of this.#processes) child.disconnect();
  }
}

function joined(a: Float64Array, b: Float64Array): Float64Array {
  const all = new Float64Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}
