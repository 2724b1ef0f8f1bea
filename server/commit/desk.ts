// Where the server's writers meet the API: each request waits its turn, is repeated while it certainly was not carried out, and its
// answer goes into the store. Leaves to its users what to do when an outcome is unknown, and what to write.
import { collect } from "../../shared/calico/block.ts";
import { readers } from "../../shared/calico/codec.ts";
import { apiPath } from "../../shared/calico/names.ts";
import {
  type ApiGroup,
  type Block,
  type BlockState,
  defaultIpamConfig,
  type IpamConfig,
  type Kind,
  type Meta,
  type Objects,
} from "../../shared/calico/resources.ts";
import { Failure, type Instant, type NodeName } from "../../shared/kinds.ts";
import { type Api, ApiFailure } from "../../shared/kube/api.ts";
import type { Clock, Random } from "../../shared/world.ts";
import type { Store } from "../store/store.ts";
import type { FairLimiter } from "./fair-limiter.ts";

/** What the server writes for agents. */
export type WrittenKind = Extract<Kind, "block" | "affinity" | "handle">;

export interface DeskParts {
  readonly api: Api;
  readonly group: ApiGroup;
  readonly store: Store;
  readonly limiter: FairLimiter;
  readonly clock: Clock;
  readonly random: Random;
  /** 409: somebody else has written meanwhile. 429: the API server has put a request off. */
  readonly onSetback: (what: "conflict" | "throttled", kind: WrittenKind) => void;
}

/** For whom, and until when somebody waits for it. */
export interface Errand {
  readonly node: NodeName;
  readonly until: Instant;
}

const firstPauseMs = 40;
const longestPauseMs = 2_000;

export class Desk {
  readonly #parts: DeskParts;
  readonly group: ApiGroup;
  readonly store: Store;
  readonly clock: Clock;

  constructor(parts: DeskParts) {
    this.#parts = parts;
    this.group = parts.group;
    this.store = parts.store;
    this.clock = parts.clock;
  }

  /** Calico's lock, set while its data is migrated or restored: nothing may be written (trap 76). */
  get locked(): boolean {
    return this.store.get("cluster", "default")?.datastoreReady !== true;
  }

  get config(): IpamConfig {
    return this.store.get("config", "default") ?? defaultIpamConfig;
  }

  /** As Calico sees a block that it loads for use: what has cooled down is free. */
  loaded(block: Block): BlockState {
    return collect(block, { now: this.clock.wall(), cooldownSeconds: this.config.ipCooldownSeconds });
  }

  /** The object as it is now, from a consistent read. */
  async read<K extends WrittenKind>(errand: Errand, kind: K, name: string): Promise<Objects[K] | undefined> {
    const path = apiPath(this.group, kind, name);
    for (let attempt = 1; ; attempt++) {
      const known = this.store.get(kind, name);
      try {
        return this.#take(kind, await this.#send(errand, kind, () => this.#parts.api.get(path)));
      } catch (error) {
        if (codeOf(error) === "api-missing") {
          if (known !== undefined) this.store.remove(kind, name, known);
          return undefined;
        }
        if (!isUnknown(error) || !(await this.pause(errand, attempt))) throw error;
      }
    }
  }

  async create<K extends WrittenKind>(errand: Errand, kind: K, body: unknown): Promise<Objects[K]> {
    const path = apiPath(this.group, kind);
    return this.#take(kind, await this.#send(errand, kind, () => this.#parts.api.create(path, body)));
  }

  /** `mergePatch` carries the version it was made for. */
  async patch<K extends WrittenKind>(errand: Errand, kind: K, name: string, mergePatch: unknown): Promise<Objects[K]> {
    const path = apiPath(this.group, kind, name);
    try {
      return this.#take(kind, await this.#send(errand, kind, () => this.#parts.api.patch(path, mergePatch)));
    } catch (error) {
      if (codeOf(error) === "api-conflict") this.#parts.onSetback("conflict", kind);
      throw error;
    }
  }

  /** Only this very version is deleted; that it is gone already, or another object, is success. */
  async remove(errand: Errand, kind: WrittenKind, { name, uid, resourceVersion }: Meta): Promise<void> {
    const path = apiPath(this.group, kind, name);
    try {
      await this.#send(errand, kind, () => this.#parts.api.remove(path, { uid, resourceVersion }));
    } catch (error) {
      if (codeOf(error) === "api-conflict") this.#parts.onSetback("conflict", kind);
      if (codeOf(error) !== "api-missing") throw error;
    }
    this.store.remove(kind, name, { uid, resourceVersion });
  }

  /** Waits before another try, longer each time; false = nobody waits for the result any more. */
  async pause({ until }: Errand, attempt: number): Promise<boolean> {
    const { clock, random } = this.#parts;
    const longest = Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(attempt - 1, 10));
    const delayMs = 1 + random.below(longest);
    if (clock.monotonic() + delayMs >= until) return false;
    await new Promise<void>((wake) => clock.after(delayMs, wake));
    return true;
  }

  /** Sends, and sends again while the API server says that it is too busy: that much is certainly not written. */
  async #send<T>(errand: Errand, kind: WrittenKind, request: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#parts.limiter.run(errand.node, () => {
          if (this.clock.monotonic() >= errand.until) throw new Failure("api-throttled", "its turn came too late");
          return request();
        });
      } catch (error) {
        if (codeOf(error) !== "api-throttled") throw error;
        this.#parts.onSetback("throttled", kind);
        if (error instanceof ApiFailure && error.detail.retryAfterMs !== undefined) {
          this.#parts.limiter.pause(error.detail.retryAfterMs);
        }
        if (!(await this.pause(errand, attempt))) throw error;
      }
    }
  }

  #take<K extends WrittenKind>(kind: K, raw: unknown): Objects[K] {
    const reading = readers[kind](raw, this.group);
    if (!reading.ok)
      throw new Failure("bad-message", `cannot read a ${kind} that the API server sent: ${reading.problem}`);
    this.store.put(kind, reading.object);
    return reading.object;
  }
}

export function codeOf(error: unknown): Failure["code"] | undefined {
  return error instanceof Failure ? error.code : undefined;
}

/** For whoever goes on without what failed: our own mistakes are not among it. */
export function failureIn(error: unknown): Failure {
  if (error instanceof Failure) return error;
  throw error;
}

/** Certainly not carried out, and it will not be. */
export function isRefusal(error: unknown): boolean {
  const code = codeOf(error);
  return code === "api-forbidden" || code === "api-unauthorized" || code === "api-invalid" || code === "api-throttled";
}

/** The request may have been carried out, or may still be. */
export function isUnknown(error: unknown): boolean {
  const code = codeOf(error);
  return code === "api-unavailable" || code === "timeout";
}

/** Somebody else was quicker, or nobody knows: read and try again. What the API server refuses for good is not asked for twice (trap 27). */
export function isWorthAnotherTry(error: unknown): boolean {
  const code = codeOf(error);
  return code === "api-conflict" || code === "api-exists" || code === "api-missing" || isUnknown(error);
}
