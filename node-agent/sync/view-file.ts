// The view on disk, so that an agent that starts without a server still knows pools, labels and its blocks.
// It is a copy that may be old: a server brings what has changed since, by versions. A file that cannot be read is no file.
import * as v from "valibot";
import type { Logger } from "../../shared/log.ts";
import { streamedKinds, toWire } from "../../shared/protocol/stream.ts";
import type { Clock } from "../../shared/world.ts";
import type { View } from "./view.ts";

/** What changed is on disk after so long; what a start without a server cannot do without, sooner. */
export const saveDelayMs = 30_000;
const saveSoonMs = 500;

const stored = v.object({
  format: v.literal(1),
  node: v.string(),
  lineage: v.string(),
  objects: v.array(
    v.tuple([v.picklist(streamedKinds), v.looseObject({ name: v.string(), resourceVersion: v.string() })]),
  ),
});

/** Kept whole or not at all. */
export interface TextFile {
  readonly path: string;
  /** Undefined: there is none. Throws when it cannot be read, as `write` does. */
  read(): string | undefined;
  write(text: string): void;
}

export interface ViewFileOptions {
  readonly file: TextFile;
  readonly node: string;
  readonly view: View;
  readonly clock: Pick<Clock, "after">;
  readonly logger: Logger;
}

export class ViewFile {
  readonly #options: ViewFileOptions;
  #cancel: (() => void) | undefined;
  #isSoon = false;

  constructor(options: ViewFileOptions) {
    this.#options = options;
  }

  /** True: the view holds what the file had. */
  load(): boolean {
    const { view, node, logger, file } = this.#options;
    try {
      const text = file.read();
      if (text === undefined) return false;
      const found = v.parse(stored, JSON.parse(text));
      if (found.node !== node) return false;
      view.welcome(found.lineage);
      for (const [kind, object] of found.objects) view.putWire(kind, object);
      return true;
    } catch (err) {
      logger.warn("Could not read the copy of what the servers had told", { path: file.path, err });
      return false;
    }
  }

  changed(isSoon: boolean): void {
    if (this.#cancel && (this.#isSoon || !isSoon)) return;
    this.close();
    this.#isSoon = isSoon;
    this.#cancel = this.#options.clock.after(isSoon ? saveSoonMs : saveDelayMs, () => this.save());
  }

  save(): void {
    this.close();
    const { view, node, logger, file } = this.#options;
    if (view.lineage === undefined || !view.isComplete) return;
    const objects = streamedKinds.flatMap((kind) =>
      [...view.all(kind).values()].map((object) => [kind, toWire(kind, object)]),
    );
    try {
      file.write(JSON.stringify({ format: 1, node, lineage: view.lineage, objects }));
    } catch (err) {
      logger.warn("Could not write the copy of what the servers tell", { path: file.path, err });
    }
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
