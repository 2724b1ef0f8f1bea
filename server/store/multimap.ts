// An index: for each key the set of values that have it. Empty sets are dropped, so that memory follows the data.
// Leaves to others which keys a value has.

const nothing: ReadonlySet<never> = new Set<never>();

export class Multimap<Value> {
  readonly #sets = new Map<string, Set<Value>>();

  get(key: string): ReadonlySet<Value> {
    return this.#sets.get(key) ?? nothing;
  }

  /** The value had the keys `before` and now has the keys `after`. */
  move(value: Value, before: ReadonlySet<string>, after: ReadonlySet<string>): void {
    for (const key of before) if (!after.has(key)) this.#delete(key, value);
    for (const key of after) if (!before.has(key)) this.#add(key, value);
  }

  #add(key: string, value: Value): void {
    const set = this.#sets.get(key);
    if (set) set.add(value);
    else this.#sets.set(key, new Set([value]));
  }

  #delete(key: string, value: Value): void {
    const set = this.#sets.get(key);
    set?.delete(value);
    if (set?.size === 0) this.#sets.delete(key);
  }
}
