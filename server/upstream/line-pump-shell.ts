// Works off the lines of one stream a slice of time at a time, reading no further meanwhile: a burst of events must not stop the process.
// Leaves cutting to line-splitter.ts and meaning to its user.

import type { Stream } from "../../shared/kube/http-shell.ts";
import type { Clock } from "../../shared/world.ts";

/** How long lines are worked off before others get their turn (kube-watch 14). */
const sliceMs = 10;

export class LinePump {
  readonly #clock: Clock;
  readonly #onLine: (line: Uint8Array) => void;
  #lines: readonly Uint8Array[] = [];
  #done = 0;
  #after: (() => void) | undefined;
  #resting = false;

  constructor(clock: Clock, onLine: (line: Uint8Array) => void) {
    this.#clock = clock;
    this.#onLine = onLine;
  }

  /** The lines of one chunk. A paused stream brings no second one before these are worked off. */
  push(lines: readonly Uint8Array[], stream: Pick<Stream, "pause" | "resume">): void {
    this.#lines = this.#resting ? [...this.#lines, ...lines] : lines;
    if (this.#resting) return;
    this.#done = 0;
    this.#work(stream);
  }

  /** Called once all lines have been worked off: a stream may end while some still wait. */
  after(then: () => void): void {
    if (this.#resting) this.#after = then;
    else then();
  }

  #work(stream: Pick<Stream, "pause" | "resume">): void {
    const until = this.#clock.monotonic() + sliceMs;
    for (let line = this.#lines[this.#done]; line !== undefined; line = this.#lines[this.#done]) {
      if (this.#clock.monotonic() >= until) {
        this.#rest(stream);
        return;
      }
      this.#done++;
      this.#onLine(line);
    }
    this.#lines = [];
    if (this.#resting) stream.resume();
    this.#resting = false;
    const then = this.#after;
    this.#after = undefined;
    then?.();
  }

  #rest(stream: Pick<Stream, "pause" | "resume">): void {
    stream.pause();
    this.#resting = true;
    setImmediate(() => this.#work(stream));
  }
}
