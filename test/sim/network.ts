// Ways between processes: in order, with delay, held back while they are cut. A cut way loses nothing until one end gives up, as TCP.
// Leaves to its users what goes over it, and what an end that is gone makes of it.
import type { World } from "./world.ts";

export class Network {
  readonly #world: World;
  readonly #cut = new Set<string>();
  readonly #ways = new Map<string, Set<Way>>();

  constructor(world: World) {
    this.#world = world;
  }

  way(from: string, to: string, leastMs = 1, mostMs = 4): Way {
    const name = `${from}>${to}`;
    const way = new Way(this.#world, () => this.#cut.has(name), [leastMs, mostMs]);
    const known = this.#ways.get(name) ?? new Set();
    this.#ways.set(name, known.add(way));
    return way;
  }

  /** Of a connection that has ended. */
  forget(from: string, to: string, way: Way): void {
    this.#ways.get(`${from}>${to}`)?.delete(way);
  }

  cut(from: string, to: string): void {
    this.#cut.add(`${from}>${to}`);
  }

  heal(): void {
    const were = [...this.#cut];
    this.#cut.clear();
    for (const name of were) for (const way of this.#ways.get(name) ?? []) way.resume();
  }
}

export class Way {
  readonly #world: World;
  readonly #isCut: () => boolean;
  readonly #delay: readonly [number, number];
  readonly #held: (() => void)[] = [];
  #lastDue = 0;
  #pausedUntil = 0;

  constructor(world: World, isCut: () => boolean, delay: readonly [number, number]) {
    this.#world = world;
    this.#isCut = isCut;
    this.#delay = delay;
  }

  send(arrive: () => void): void {
    const due = Math.max(this.#lastDue, this.#world.now + this.#world.between(...this.#delay));
    this.#lastDue = due;
    this.#world.after(due - this.#world.now, () => {
      if (this.#isStopped() || this.#held.length > 0) this.#held.push(arrive);
      else arrive();
    });
  }

  /** Nothing more arrives for so long. */
  pause(forMs: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.#world.now + forMs);
    this.#world.after(forMs, () => this.resume());
  }

  resume(): void {
    if (this.#isStopped()) return;
    for (let next = this.#held.shift(); next !== undefined; next = this.#held.shift()) {
      next();
      if (this.#isStopped()) return;
    }
  }

  #isStopped(): boolean {
    return this.#isCut() || this.#pausedUntil > this.#world.now;
  }
}
