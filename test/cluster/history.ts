// Every version that the objects of one kind have had, as a watch tells them: what a look now and then would miss.
// Leaves what to make of it to the tests.
import type { IncomingMessage } from "node:http";
import { createInterface } from "node:readline";
import { apiPath } from "../../shared/calico/names.ts";
import type { Kind } from "../../shared/calico/resources.ts";
import { parseLossless } from "../../shared/json/lossless.ts";
import type { ApiClient, Manifest } from "./api.ts";

export interface Change {
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly object: Manifest;
}

export class History {
  /** Oldest first. */
  readonly changes: Change[] = [];
  readonly #admin: ApiClient;
  readonly #path: string;
  readonly #watch: IncomingMessage;
  #ended: Error | undefined;

  private constructor(admin: ApiClient, path: string, watch: IncomingMessage) {
    this.#admin = admin;
    this.#path = path;
    this.#watch = watch;
    watch.on("end", () => {
      this.#ended = new Error(`the watch of ${path} ended`);
    });
    watch.on("error", () => {}); // destroyed by `stop`
    createInterface({ input: watch }).on("line", (line) => this.#take(parseLossless(line) as Change));
  }

  /** From now on; what is there already is not told. */
  static async begin(admin: ApiClient, kind: Kind): Promise<History> {
    const path = apiPath("crd", kind);
    const { metadata } = (await admin.must("GET", path)) as { metadata: { resourceVersion: string } };
    const watch = await admin.open(`${path}?watch=true&resourceVersion=${metadata.resourceVersion}`);
    return new History(admin, path, watch);
  }

  /** Fails unless all that has been written until now is told. */
  async isComplete(): Promise<void> {
    if (this.#ended) throw this.#ended;
    const { items } = (await this.#admin.must("GET", this.#path)) as { items: Manifest[] };
    const told = new Map<string, string>();
    for (const { type, object } of this.changes) {
      if (type === "DELETED") told.delete(object.metadata.name);
      else told.set(object.metadata.name, versionOf(object));
    }
    for (const object of items) {
      const name = object.metadata.name;
      if (told.get(name) !== versionOf(object)) throw new Error(`the watch has not told ${name} as it is`);
      told.delete(name);
    }
    if (told.size > 0) throw new Error(`the watch has not told that ${[...told.keys()].join(", ")} went`);
  }

  stop(): void {
    this.#watch.destroy();
  }

  #take(change: Change): void {
    if (!["ADDED", "MODIFIED", "DELETED"].includes(change.type)) {
      this.#ended = new Error(`the watch of ${this.#path} says ${JSON.stringify(change)}`);
      return;
    }
    this.changes.push(change);
  }
}

export function versionOf({ metadata }: Manifest): string {
  return String(metadata.resourceVersion);
}
