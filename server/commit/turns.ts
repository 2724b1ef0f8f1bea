// Work on one thing, one piece after the other, in the order in which it was asked for; what is done to different things does not wait.
// Leaves to its users what the things are called, and what comes of a piece that fails: the next one runs all the same.

export class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Things that are worked on. */
  get size(): number {
    return this.#last.size;
  }

  async idle(): Promise<void> {
    while (this.#last.size > 0) await Promise.allSettled(this.#last.values());
  }

  async take<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(name) ?? Promise.resolve();
    const mine = before.then(work, work);
    this.#last.set(name, mine);
    try {
      return await mine;
    } finally {
      if (this.#last.get(name) === mine) this.#last.delete(name);
    }
  }
}
