// Reads one object as it is now and tells the store: for those to whom the watch's word, which may be old, is not enough.
// Leaves to them what follows. A list of one name, as the watch has it, so that nothing more need be permitted than the watch does.
import { readers } from "../../shared/calico/codec.ts";
import { isFields } from "../../shared/calico/fields.ts";
import { apiPath } from "../../shared/calico/names.ts";
import type { ApiGroup, Kind } from "../../shared/calico/resources.ts";
import { Failure, type NodeName, type ResourceVersion } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import type { Clock } from "../../shared/world.ts";
import { FairLimiter } from "../commit/fair-limiter.ts";
import type { Store } from "../store/store.ts";
import { acceptOf } from "./requests.ts";

/** What a consistent read has shown. */
export interface Sight {
  /** Of the object; undefined: there is none. */
  readonly version: ResourceVersion | undefined;
  /** Of all the data, at the time of the read. */
  readonly dataVersion: ResourceVersion;
}

export interface ObjectReaderParts {
  readonly api: Api;
  readonly group: ApiGroup;
  readonly store: Store;
  readonly clock: Clock;
}

/** After an outage every agent's Node may have to be looked at: so many at a time. */
const maxReads = 16;

export class ObjectReader {
  readonly #parts: ObjectReaderParts;
  readonly #limiter: FairLimiter;

  constructor(parts: ObjectReaderParts) {
    this.#parts = parts;
    this.#limiter = new FairLimiter(maxReads, parts.clock);
  }

  /**
   * When it resolves, the store says of this object what was so after the call, or something newer. Rejects when nobody can tell.
   * `asker`: each gets its share.
   */
  refresh(asker: string, kind: Kind, name: string): Promise<Sight> {
    return this.#limiter.run(asker, () => this.#read(kind, name));
  }

  async refreshNode(name: NodeName): Promise<void> {
    await this.refresh(name, "node", name);
  }

  async #read<K extends Kind>(kind: K, name: string): Promise<Sight> {
    const { api, group, store } = this.#parts;
    const before = store.get(kind, name);
    const path = `${apiPath(group, kind)}?fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`;
    const accept = acceptOf(kind, { kind: "page", atLeast: undefined, next: "", limit: 0 });
    const { dataVersion, items } = listOf(await api.get(path, accept), kind, name);
    const [raw] = items;
    if (raw === undefined) {
      if (before !== undefined) store.remove(kind, name, before);
      return { version: undefined, dataVersion };
    }
    const reading = readers[kind](raw, group);
    if (!reading.ok || reading.object.name !== name) throw unreadable(kind, name);
    store.put(kind, reading.object);
    return { version: reading.object.resourceVersion, dataVersion };
  }
}

function listOf(answer: unknown, kind: Kind, name: string): { dataVersion: ResourceVersion; items: unknown[] } {
  if (!isFields(answer) || !String(answer.kind).endsWith("List")) throw unreadable(kind, name);
  const dataVersion = isFields(answer.metadata) ? answer.metadata.resourceVersion : undefined;
  if (typeof dataVersion !== "string") throw unreadable(kind, name);
  // An empty list of built-in kinds is null in old versions.
  return { dataVersion: dataVersion as ResourceVersion, items: Array.isArray(answer.items) ? answer.items : [] };
}

function unreadable(kind: Kind, name: string): Failure {
  return new Failure("bad-message", `the API server's answer about ${kind} ${name} cannot be read`);
}
