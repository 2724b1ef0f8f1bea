// Writes the IPAMHandles that agents have left for later, from what the blocks say by then; few at a time, behind the blocks' own writes.
// Leaves to handles.ts how one is written, and to the agents for which pods it is worth while.
import { handleName } from "../../shared/calico/names.ts";
import type { BlockCidr, HandleId, Instant, NodeName } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { Problem } from "../../shared/protocol/stream.ts";
import { type Desk, type Errand, failureIn } from "./desk.ts";
import { FairLimiter } from "./fair-limiter.ts";
import { countsIn, type Entry, type Handles } from "./handles.ts";
import { datastoreLocked, problemOf } from "./problems.ts";

/** Handles being written at a time, for all nodes. */
const maxAtOnce = 4;
const handleLimitMs = 120_000;
/** Among the nodes' writes all handles together take one node's turn. */
const indexTurn = "" as NodeName;

export class Indexer {
  readonly #desk: Desk;
  readonly #handles: Handles;
  readonly #log: Logger;
  readonly #limiter: FairLimiter;
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(desk: Desk, handles: Handles, log: Logger) {
    this.#desk = desk;
    this.#handles = handles;
    this.#log = log;
    this.#limiter = new FairLimiter(maxAtOnce, desk.clock);
  }

  /** Undefined: the handles are as the blocks say. A handle that no block of the node names by now needs no object. Never rejects. */
  index(node: NodeName, handles: readonly HandleId[]): Promise<Problem | undefined> {
    const work = this.#run(node, handles);
    this.#underWay.add(work);
    return work.finally(() => this.#underWay.delete(work));
  }

  async idle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  async #run(node: NodeName, handles: readonly HandleId[]): Promise<Problem | undefined> {
    if (this.#desk.locked) return datastoreLocked;
    const entries = this.#entriesOf(node, handles);
    const problems = await Promise.all(entries.map((entry) => this.#limiter.run(node, () => this.#write(entry))));
    return problems.find((problem) => problem !== undefined);
  }

  #entriesOf(node: NodeName, handles: readonly HandleId[]): Entry[] {
    const wanted = new Map(handles.map((handle) => [handleName(handle), handle]));
    return [...this.#desk.store.blocksWithStake(node)].flatMap((block: BlockCidr) =>
      [...countsIn(this.#desk.store.blockAt(block))].flatMap(([name, count]) => {
        const handle = wanted.get(name);
        return handle === undefined ? [] : [{ handle, block, count }];
      }),
    );
  }

  async #write(entry: Entry): Promise<Problem | undefined> {
    const until = (this.#desk.clock.monotonic() + handleLimitMs) as Instant;
    const errand: Errand = { node: indexTurn, until };
    try {
      await this.#handles.bring(errand, entry, { mayRaise: true, sure: false });
      return undefined;
    } catch (error) {
      this.#log.warn("Could not write a handle", { handle: entry.handle, block: entry.block, err: failureIn(error) });
      return problemOf(error, `the write of handle ${entry.handle}`);
    }
  }
}
