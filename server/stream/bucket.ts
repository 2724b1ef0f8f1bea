// A token bucket: so much a second, so much at once. It may be overdrawn by what is only known afterwards; then nobody gets anything for a while.
// Decides only; what is counted is its users' business.
import type { Instant } from "../../shared/kinds.ts";

export class Bucket {
  readonly #perSecond: number;
  readonly #burst: number;
  #level: number;
  #at: Instant;

  constructor(perSecond: number, burst: number, now: Instant) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#level = burst;
    this.#at = now;
  }

  /** 0: taken. Otherwise nothing is taken, and so many ms later there may be enough. */
  take(now: Instant, amount = 1): number {
    const waitMs = this.waitMs(now, amount);
    if (waitMs === 0) this.#level -= amount;
    return waitMs;
  }

  /** How long until so much is there; more than the burst never is, so that much is waited for at most. */
  waitMs(now: Instant, amount = 1): number {
    this.#fill(now);
    const missing = Math.min(amount, this.#burst) - this.#level;
    return missing <= 0 ? 0 : Math.ceil((missing / this.#perSecond) * 1000);
  }

  /** Taken, whether or not it is there. */
  charge(now: Instant, amount: number): void {
    this.#fill(now);
    this.#level -= amount;
  }

  #fill(now: Instant): void {
    this.#level = Math.min(this.#burst, this.#level + ((now - this.#at) / 1000) * this.#perSecond);
    this.#at = now;
  }
}
