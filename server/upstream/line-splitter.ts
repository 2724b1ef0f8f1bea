// Cuts the body of a watch into lines, on bytes: chunks end anywhere, also inside a character (kube-watch 12).
// Leaves decoding to others. What follows the last newline when a stream ends is half an event, and is never given out.

/** An object is at most about 3 MiB, wide ones through conversion more. */
export const maxLineBytes = 16 << 20;
const newline = 0x0a;

export type Split = { readonly lines: readonly Uint8Array[]; readonly tooLong: boolean };

export class LineSplitter {
  #parts: Uint8Array[] = [];
  #length = 0;
  readonly #maxBytes: number;

  constructor(maxBytes = maxLineBytes) {
    this.#maxBytes = maxBytes;
  }

  /** The lines that this chunk completes, in order. After `tooLong` the stream is of no more use. */
  push(chunk: Uint8Array): Split {
    const lines: Uint8Array[] = [];
    let start = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
      const tail = chunk.subarray(start, end);
      if (this.#length + tail.length > this.#maxBytes) return { lines, tooLong: true };
      lines.push(this.#complete(tail));
      start = end + 1;
    }
    const rest = chunk.subarray(start);
    if (this.#length + rest.length > this.#maxBytes) return { lines, tooLong: true };
    if (rest.length > 0) this.#parts.push(rest);
    this.#length += rest.length;
    return { lines, tooLong: false };
  }

  /** Parts are joined once per line, so that a line in many parts costs no more than its length. */
  #complete(tail: Uint8Array): Uint8Array {
    if (this.#parts.length === 0) return tail;
    const line = new Uint8Array(this.#length + tail.length);
    let at = 0;
    for (const part of this.#parts) {
      line.set(part, at);
      at += part.length;
    }
    line.set(tail, at);
    this.#parts = [];
    this.#length = 0;
    return line;
  }
}
