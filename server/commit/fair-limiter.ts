// How many requests may be under way at a time, and whose turn is next: nodes take turns, so that a busy one delays nobody.
// Leaves to others what the requests are, and what the limit should be (it may be changed at any time).
import type { Clock } from "../../shared/world.ts";

interface Waiting {
  start(): void;
}

export class FairLimiter {
  #limit: number;
  #inFlight = 0;
  #queued = 0;
  readonly #clock: Clock;
  /** The node whose turn is next stands first. */
  readonly #queues = new Map<string, Waiting[]>();
  #resume: (() => void) | undefined;
  #pausedUntil = 0;

  constructor(limit: number, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Runs the request when there is room and it is the node's turn. */
  async run<T>(node: string, request: () => Promise<T>): Promise<T> {
    await this.#turn(node);
    try {
      return await request();
    } finally {
      this.#inFlight--;
      this.#startNext();
    }
  }

  /** Nothing starts for so long: the API server has asked for it (Retry-After). */
  pause(delayMs: number): void {
    const until = this.#clock.monotonic() + delayMs;
    if (until <= this.#pausedUntil) return;
    this.#pausedUntil = until;
    this.#resume?.();
    this.#resume = this.#clock.after(delayMs, () => {
      this.#resume = undefined;
      this.#startNext();
    });
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get queued(): number {
    return this.#queued;
  }

  get limit(): number {
    return this.#limit;
  }

  set limit(limit: number) {
    this.#limit = limit;
    this.#startNext();
  }

  #turn(node: string): Promise<void> {
    return new Promise((start) => {
      const queue = this.#queues.get(node);
      if (queue) queue.push({ start });
      else this.#queues.set(node, [{ start }]);
      this.#queued++;
      this.#startNext();
    });
  }

  #startNext(): void {
    while (this.#inFlight < this.#limit && this.#resume === undefined) {
      const [next] = this.#queues;
      if (next === undefined) return;
      const [node, queue] = next;
      const waiting = queue.shift();
      this.#queues.delete(node);
      if (queue.length > 0) this.#queues.set(node, queue);
      if (waiting === undefined) continue;
      this.#queued--;
      this.#inFlight++;
      waiting.start();
    }
  }
}
