// Takes part in the election: reads or writes the Lease every round, and hands the leader's terms to this server's limits.
// Leaves who may lead when to election.ts.
import { Failure } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import type { Logger } from "../../shared/log.ts";
import type { Clock, Random } from "../../shared/world.ts";
import { Election, type LeaseRecord, leaseName, readLease, roundMs, type Step } from "./election.ts";
import type { Limits } from "./limits.ts";

export interface ElectorParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly namespace: string;
  /** Name of this server, for whoever looks at the Lease. */
  readonly replica: string;
  readonly limits: Limits;
  /** The API server permits this server not even to look: nobody's lease can be renewed here. */
  readonly onForbidden: (message: string) => void;
}

/** So much later at most, so that servers do not come in step. */
const jitterMs = 3_000;

export class Elector {
  readonly #parts: ElectorParts;
  readonly #election: Election;
  readonly #log: Logger;
  #cancel = (): void => {};
  #round: Promise<void> = Promise.resolve();
  #stopped = false;
  #wasLeader = false;

  constructor(parts: ElectorParts) {
    this.#parts = parts;
    this.#election = new Election(`${parts.replica}_${parts.random.hex(8)}`);
    this.#log = parts.logger.with({ replica: parts.replica });
  }

  start(): void {
    this.#round = this.#run();
  }

  /** To be asked again before each thing that only the leader may do. */
  leads(): boolean {
    return !this.#stopped && this.#election.leads(this.#parts.clock.monotonic());
  }

  /** Gives the Lease back. Whatever the leader was doing must have ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel();
    await this.#round;
    const resignation = this.#election.resignation(this.#parts.clock.monotonic());
    if (resignation === undefined) return;
    try {
      await this.#parts.api.patch(this.#path(leaseName), resignation);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#log.debug("Could not give the reaper's Lease back", { err: error });
    }
  }

  async #run(): Promise<void> {
    try {
      await this.#once();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      this.#election.failed();
      this.#log.warn("Could not read or write the reaper's Lease", { err: error });
      if (error.code === "api-forbidden") this.#parts.onForbidden(error.message);
    }
    this.#tellChange();
    if (this.#stopped) return;
    const { clock, random } = this.#parts;
    this.#cancel = clock.after(roundMs + random.below(jitterMs), () => this.start());
  }

  async #once(): Promise<void> {
    const { clock } = this.#parts;
    if (this.#election.next(clock.monotonic()) === "read") await this.#read();
    const step = this.#election.next(clock.monotonic());
    if (step !== "read") await this.#write(step);
  }

  async #read(): Promise<void> {
    const { api, clock, limits } = this.#parts;
    const sentAt = clock.monotonic();
    const lease = await api.get(this.#path(leaseName)).then(readLease, missing);
    this.#election.read(lease, clock.monotonic());
    if (lease?.terms !== undefined) limits.told(lease.terms, sentAt);
  }

  async #write(step: Exclude<Step, "read">): Promise<void> {
    const { clock, limits } = this.#parts;
    const sentAt = clock.monotonic();
    const terms = limits.terms(sentAt);
    limits.offers(terms, sentAt);
    const body = this.#election.body(step, terms, clock.wall());
    const lease = await this.#send(step, body);
    if (lease === undefined) {
      this.#election.failed();
      return this.#read();
    }
    this.#election.written(lease, sentAt, clock.monotonic());
    limits.said(terms, sentAt);
  }

  /** Undefined: another server was quicker. */
  async #send(step: Exclude<Step, "read">, body: unknown): Promise<LeaseRecord | undefined> {
    const { api } = this.#parts;
    try {
      return readLease(
        await (step === "create" ? api.create(this.#path(), body) : api.patch(this.#path(leaseName), body)),
      );
    } catch (error) {
      // A Lease that is not there to be changed was deleted; one that cannot be made for that reason has no namespace to be in.
      const lost = step === "create" ? ["api-exists"] : ["api-conflict", "api-missing"];
      if (error instanceof Failure && lost.includes(error.code)) return undefined;
      throw error;
    }
  }

  #tellChange(): void {
    const isLeader = this.leads();
    if (isLeader === this.#wasLeader) return;
    this.#wasLeader = isLeader;
    this.#log.info(isLeader ? "Took over cleaning up after vanished nodes" : "Left cleaning up to another server");
  }

  #path(name?: string): string {
    const leases = `/apis/coordination.k8s.io/v1/namespaces/${this.#parts.namespace}/leases`;
    return name === undefined ? leases : `${leases}/${name}`;
  }
}

function missing(error: unknown): undefined {
  if (error instanceof Failure && error.code === "api-missing") return undefined;
  throw error;
}
