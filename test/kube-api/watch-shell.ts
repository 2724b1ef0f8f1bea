// Writes one watch to its connection at the reader's pace, and cuts it when the reader falls too far behind or a fault says so.
// What the lines say, and when they come, is decided in watches.ts.
import type { ServerResponse } from "node:http";
import type { StartWatch, WatchSink } from "./watches.ts";

/** Ends the watch after so many lines, or so many characters and then perhaps within a line. */
export interface Cut {
  readonly after: "lines" | "characters";
  readonly count: number;
  /** With a reset; otherwise as if the watch had ended by itself. */
  readonly reset: boolean;
}

/** Events that a reader may be behind, beyond the state that the watch began with. The real server does not wait either (kube-watch 4). */
const eventsBehind = 10_000;

export function streamWatch(start: StartWatch, outgoing: ServerResponse, cut?: Cut): void {
  outgoing.writeHead(200, { "content-type": "application/json", "cache-control": "no-cache, private" });
  outgoing.flushHeaders();
  const stream = new WatchStream(outgoing, cut);
  stream.began(start(stream));
}

class WatchStream implements WatchSink {
  readonly #outgoing: ServerResponse;
  readonly #cut: Cut | undefined;
  #waiting: string[] = [];
  /** Lines of `#waiting` that are written already. */
  #next = 0;
  /** Lines, or characters if those are what the cut counts. */
  #written = 0;
  #mayWait = Number.POSITIVE_INFINITY;
  #stop: (() => void) | undefined;
  #ending = false;
  #closed = false;

  constructor(outgoing: ServerResponse, cut: Cut | undefined) {
    this.#outgoing = outgoing;
    this.#cut = cut;
    outgoing.on("drain", () => this.#write());
    outgoing.on("close", () => this.#close("destroy"));
    this.#cutIfDue();
  }

  get #behind(): number {
    return this.#waiting.length - this.#next;
  }

  /** Everything that was there at the start has been handed over. */
  began(stop: () => void): void {
    this.#stop = stop;
    this.#mayWait = this.#behind + eventsBehind;
    if (this.#closed) stop();
  }

  line(text: string): void {
    if (this.#closed) return;
    this.#waiting.push(text);
    if (this.#behind > this.#mayWait) this.#close("destroy");
    else this.#write();
  }

  end(): void {
    this.#ending = true;
    this.#write();
  }

  #write(): void {
    while (!this.#closed && this.#next < this.#waiting.length && !this.#outgoing.writableNeedDrain) {
      this.#send(`${this.#waiting[this.#next]}\n`);
      this.#next += 1;
    }
    // Half at a time: each line is moved once on average, however long the queue.
    if (this.#next * 2 > this.#waiting.length) {
      this.#waiting = this.#waiting.slice(this.#next);
      this.#next = 0;
    }
    if (this.#ending && this.#waiting.length === 0) this.#close("end");
  }

  #send(line: string): void {
    const inside = this.#cut?.after === "characters" ? line.slice(0, this.#cut.count - this.#written) : line;
    this.#outgoing.write(inside);
    this.#written += this.#cut?.after === "characters" ? inside.length : 1;
    this.#cutIfDue();
  }

  #cutIfDue(): void {
    if (this.#written === this.#cut?.count) this.#close(this.#cut.reset ? "destroy" : "end");
  }

  #close(how: "end" | "destroy"): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#waiting = [];
    this.#next = 0;
    this.#stop?.();
    if (how === "end") this.#outgoing.end();
    else this.#outgoing.destroy();
  }
}
