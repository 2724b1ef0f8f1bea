// Which server cleans up: the one that holds the Lease. As client-go does it: whoever sees a holder's record unchanged for a whole term,
// by its own clock, may take over; the holder stops well before that. Decides only; elector.ts reads and writes.
import { isFields, reading, record, text } from "../../shared/calico/fields.ts";
import { microTime } from "../../shared/calico/timestamps.ts";
import type { Instant, UnixMs } from "../../shared/kinds.ts";
import type { Terms } from "./limits.ts";

export interface LeaseRecord {
  readonly resourceVersion: string;
  /** Empty: given back. */
  readonly holder: string;
  readonly termMs: number;
  readonly transitions: number;
  /** As the API has it. */
  readonly acquireTime: string;
  /** The leader's word on leases of agents; undefined: somebody else has made this Lease, or spoiled it. */
  readonly terms: Terms | undefined;
}

export const leaseName = "cattail-reaper";
/** How often the holder writes and the others read. */
export const roundMs = 15_000;
/** Others may take over after so long without a write. Cleaning up is in no hurry. */
export const termMs = 60_000;
/** From when the last write that succeeded was sent: a leader that cannot write stops, long before another may begin. */
const leadMs = 40_000;

const grantAnnotation = "cattail.io/offline-limit-ms";
const owedAnnotation = "cattail.io/offline-limit-owed-ms";

export type Step = "read" | "create" | "take" | "renew";

export class Election {
  readonly #self: string;
  /** Undefined: there is none. "unread": it is not known what the Lease says. */
  #known: LeaseRecord | undefined | "unread" = "unread";
  /** The version that was seen last, and since when it has not changed. */
  #seen: { readonly version: string; readonly since: Instant } | undefined;
  #leadsUntil: Instant | undefined;

  /** `self` must be another one each time a server starts. */
  constructor(self: string) {
    this.#self = self;
  }

  /** What to do about the Lease now. */
  next(now: Instant): Step {
    const known = this.#known;
    if (known === "unread") return "read";
    if (known === undefined) return "create";
    if (known.holder === this.#self) return "renew";
    if (known.holder === "") return "take";
    return this.#seen !== undefined && now - this.#seen.since > Math.max(known.termMs, termMs) ? "take" : "read";
  }

  /** The Lease as it has been read. */
  read(lease: LeaseRecord | undefined, now: Instant): void {
    this.#known = lease;
    if (lease?.holder !== this.#self) this.#leadsUntil = undefined;
    if (lease === undefined) this.#seen = undefined;
    else if (this.#seen?.version !== lease.resourceVersion) this.#seen = { version: lease.resourceVersion, since: now };
  }

  /** This server has written it. What counts is when that was sent: since then others wait. */
  written(lease: LeaseRecord, sentAt: Instant, now: Instant): void {
    this.read(lease, now);
    this.#leadsUntil = lease.holder === this.#self ? ((sentAt + leadMs) as Instant) : undefined;
  }

  /** A write failed, or may have: what the Lease says must be read first. A leader remains one until its time is over. */
  failed(): void {
    this.#known = "unread";
  }

  leads(now: Instant): boolean {
    return this.#leadsUntil !== undefined && now < this.#leadsUntil;
  }

  /** The record that `next` asks to be written. */
  body(step: Exclude<Step, "read">, terms: Terms, now: UnixMs): unknown {
    const before = step === "create" || this.#known === "unread" ? undefined : this.#known;
    const isNew = step !== "renew";
    return {
      ...(before === undefined && { apiVersion: "coordination.k8s.io/v1", kind: "Lease" }),
      metadata: {
        ...(before === undefined ? { name: leaseName } : { resourceVersion: before.resourceVersion }),
        annotations: { [grantAnnotation]: String(terms.grantMs), [owedAnnotation]: String(terms.owedMs) },
      },
      spec: {
        holderIdentity: this.#self,
        leaseDurationSeconds: termMs / 1000,
        acquireTime: isNew ? microTime(now) : (before?.acquireTime ?? microTime(now)),
        renewTime: microTime(now),
        leaseTransitions: (before?.transitions ?? -1) + (isNew ? 1 : 0),
      },
    };
  }

  /** Gives the Lease back, so that nobody need wait; undefined: it is not ours. */
  resignation(now: Instant): unknown {
    const known = this.#known;
    if (!this.leads(now) || known === undefined || known === "unread") return undefined;
    this.#leadsUntil = undefined;
    return { metadata: { resourceVersion: known.resourceVersion }, spec: { holderIdentity: "" } };
  }
}

/** Undefined: this is no Lease. */
export function readLease(raw: unknown): LeaseRecord | undefined {
  const read = reading(() => {
    const lease = isFields(raw) ? raw : {};
    const metadata = record(lease, "metadata");
    const spec = record(lease, "spec");
    return {
      resourceVersion: text(metadata, "resourceVersion"),
      holder: text(spec, "holderIdentity"),
      termMs: 1000 * (Number(spec.leaseDurationSeconds) || 0),
      transitions: Number(spec.leaseTransitions) || 0,
      acquireTime: text(spec, "acquireTime"),
      terms: termsIn(record(metadata, "annotations")),
    };
  });
  return read.ok && read.object.resourceVersion !== "" ? read.object : undefined;
}

function termsIn(annotations: Readonly<Record<string, unknown>>): Terms | undefined {
  const [grantMs, owedMs] = [Number(annotations[grantAnnotation]), Number(annotations[owedAnnotation])];
  return grantMs > 0 && owedMs > 0 ? { grantMs, owedMs } : undefined;
}
