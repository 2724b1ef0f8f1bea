// Reads one Node as it is now and tells the store: for those to whom the watch's word, which may be old, is not enough.
// Leaves to them what follows. A list of one name, as metadata, so that nothing more need be permitted than the watch does.
import { readNode } from "../../shared/calico/codec.ts";
import { isFields } from "../../shared/calico/fields.ts";
import { apiPath } from "../../shared/calico/names.ts";
import { Failure, type NodeName } from "../../shared/kinds.ts";
import type { Clock } from "../../shared/world.ts";
import { FairLimiter } from "../commit/fair-limiter.ts";
import type { Store } from "../store/store.ts";
import type { Api } from "./api.ts";
import { acceptOf } from "./requests.ts";

/** After an outage every agent's Node may have to be looked at: so many at a time. */
const maxReads = 16;

export class NodeReader {
  readonly #api: Api;
  readonly #store: Store;
  readonly #limiter: FairLimiter;

  constructor(api: Api, store: Store, clock: Clock) {
    this.#api = api;
    this.#store = store;
    this.#limiter = new FairLimiter(maxReads, clock);
  }

  /** When it resolves, the store says of this Node what was so after the call, or something newer. Rejects when nobody can tell. */
  async refresh(name: NodeName): Promise<void> {
    await this.#limiter.run(name, () => this.#read(name));
  }

  async #read(name: NodeName): Promise<void> {
    const before = this.#store.get("node", name);
    const path = `${apiPath("crd", "node")}?fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`;
    const answer = await this.#api.get(path, nodeMetadata);
    const items = isFields(answer) && Array.isArray(answer.items) ? answer.items : undefined;
    // An empty list of built-in kinds is null in old versions.
    if (!isFields(answer) || !String(answer.kind).endsWith("List")) throw unreadable(name);
    const [raw] = items ?? [];
    if (raw === undefined) {
      if (before !== undefined) this.#store.remove("node", name, before);
      return;
    }
    const reading = readNode(raw, "crd");
    if (!reading.ok || reading.object.name !== name) throw unreadable(name);
    this.#store.put("node", reading.object);
  }
}

const nodeMetadata = acceptOf("node", { kind: "page", atLeast: undefined, next: "", limit: 0 });

function unreadable(name: NodeName): Failure {
  return new Failure("bad-message", `the API server's answer about node ${name} cannot be read`);
}
