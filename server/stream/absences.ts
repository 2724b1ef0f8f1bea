// Agents whose stream has ended in silence and that have not come back: when that is worth telling, and that one is back.
// Decides only. An agent that was moved on, or that took its leave, may be with another server and is not missed here.
import type { Instant, NodeName } from "../../shared/kinds.ts";

/** More nodes than a cluster has. Beyond: whoever fell silent first is not missed. */
const maxAbsent = 16_384;

export class Absences {
  /** Since when; the longest absent first. */
  readonly #silent = new Map<NodeName, Instant>();
  readonly #told = new Set<NodeName>();

  lost(node: NodeName, now: Instant): void {
    this.#silent.delete(node);
    this.#silent.set(node, now);
    if (this.#silent.size <= maxAbsent) return;
    for (const first of this.#silent.keys()) return this.forget(first);
  }

  /** True: it had been told that this one is absent. */
  back(node: NodeName): boolean {
    const wasTold = this.#told.has(node);
    this.forget(node);
    return wasTold;
  }

  forget(node: NodeName): void {
    this.#silent.delete(node);
    this.#told.delete(node);
  }

  /** Whoever has been silent for so long and was not told of; each once. */
  due(now: Instant, limitMs: number): NodeName[] {
    const due: NodeName[] = [];
    for (const [node, since] of this.#silent) {
      if (now - since < limitMs) break;
      if (!this.#told.has(node)) due.push(node);
      this.#told.add(node);
    }
    return due;
  }
}
