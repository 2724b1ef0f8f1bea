// At most a few lists at a time, over all reflectors: after an outage everybody wants one, and lists are what hurts an API server most.
// Leaves to its users to give each turn back.

/** Two, so that one slow list does not stop all others (kube-watch 10). */
export const maxLists = 2;

export class Turns {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count = maxLists) {
    this.#free = count;
  }

  /** `granted` is called when it is the caller's turn, in order of asking; at once if nobody else is at it. */
  ask(granted: () => void): void {
    if (this.#free === 0) {
      this.#waiting.push(granted);
      return;
    }
    this.#free--;
    granted();
  }

  end(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }
}
