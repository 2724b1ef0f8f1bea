// What lies where our executable should be: ours, ours of another release, or somebody else's. By content, since names and times prove nothing.
// Leaves to others: what follows (plan.ts).
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, stat } from "node:fs/promises";
import { executableMark } from "../../shared/executable-mark.ts";
import type { Found } from "./plan.ts";

export class Recogniser {
  readonly #own: string;
  readonly #mode: number;
  /** A hundred megabytes are not read again while nothing has changed. */
  #seen: { readonly state: string; readonly found: Found } | undefined;

  constructor(own: string, mode: number) {
    this.#own = own;
    this.#mode = mode;
  }

  async look(target: string): Promise<Found> {
    const state = `${await stateOf(this.#own)}, ${await stateOf(target)}`;
    if (state !== this.#seen?.state) this.#seen = { state, found: await this.#recognise(target) };
    return this.#seen.found;
  }

  async #recognise(target: string): Promise<Found> {
    const own = await contentsOf(this.#own).catch((cause: unknown) => {
      throw new Error(`our own executable ${this.#own} cannot be read: it is part of every release`, { cause });
    });
    const mode = await modeOf(target);
    if (mode === undefined) return (await isLink(target)) ? "another's" : "nothing";
    const contents = await contentsOf(target);
    if (contents.digest === own.digest) return mode === this.#mode ? "current" : "outdated";
    if (contents.isMarked) return "outdated";
    const isCutOff =
      contents.sizeBytes < own.sizeBytes &&
      contents.digest === (await contentsOf(this.#own, contents.sizeBytes)).digest;
    return isCutOff ? "outdated" : "another's";
  }
}

interface Contents {
  readonly digest: string;
  readonly sizeBytes: number;
  readonly isMarked: boolean;
}

/** Of the whole file, or of its beginning. */
async function contentsOf(path: string, sizeBytes = Number.POSITIVE_INFINITY): Promise<Contents> {
  const hash = createHash("sha256");
  const mark = Buffer.from(executableMark);
  let tail = Buffer.alloc(0);
  let read = 0;
  let isMarked = false;
  if (sizeBytes > 0) {
    for await (const chunk of createReadStream(path, { end: sizeBytes - 1, highWaterMark: 1 << 20 })) {
      hash.update(chunk);
      read += chunk.length;
      const text = Buffer.concat([tail, chunk]);
      isMarked ||= text.includes(mark);
      tail = text.subarray(-(mark.length - 1));
    }
  }
  return { digest: hash.digest("hex"), sizeBytes: read, isMarked };
}

async function stateOf(path: string): Promise<string> {
  const { ino, size, mode, mtimeNs, ctimeNs } = (await stat(path, { bigint: true }).catch(orNothing)) ?? {};
  return [ino, size, mode, mtimeNs, ctimeNs].join();
}

async function modeOf(path: string): Promise<number | undefined> {
  const mode = (await stat(path).catch(orNothing))?.mode;
  return mode === undefined ? undefined : mode & 0o7777;
}

/** One that leads nowhere, as `stat` finds nothing there. */
async function isLink(path: string): Promise<boolean> {
  return (await lstat(path).catch(orNothing)) !== undefined;
}

function orNothing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}
