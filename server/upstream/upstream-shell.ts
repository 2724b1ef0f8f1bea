// The way from the API server into the store: one reflector per kind, started one after another.
// Leaves the work to reflector-shell.ts and says of each kind how it is doing.
import { type Kind, kinds } from "../../shared/calico/resources.ts";
import type { MetricHandles, serverMetrics } from "../../shared/metrics.ts";
import type { Freshness } from "../store/store.ts";
import type { Streaming } from "./reflector.ts";
import { type ReflectorParts, ReflectorShell } from "./reflector-shell.ts";
import { requestLabels } from "./requests.ts";
import { Turns } from "./turns.ts";

export type UpstreamMetrics = Pick<
  MetricHandles<typeof serverMetrics>,
  "upstreamObjects" | "upstreamSynced" | "upstreamAge" | "upstreamEvents" | "upstreamRestarts"
>;

export interface UpstreamParts extends Omit<ReflectorParts, "streaming" | "turns" | "onReached" | "metrics"> {
  readonly metrics: UpstreamMetrics;
}

export interface KindStatus extends Freshness {
  readonly kind: Kind;
  readonly objects: number;
  /** Objects that exist and could not be read. */
  readonly unread: number;
  /** Why this kind is not being kept up, as the API server or the network put it; undefined while it is. */
  readonly problem: string | undefined;
}

export interface Upstream {
  status(): readonly KindStatus[];
  /** Sets the gauges: for just before a scrape. */
  measure(): void;
  stop(): Promise<void>;
}

/** Between the starts of two reflectors, so that they do not come in step. */
const staggerMs = 50;

export function startUpstream(parts: UpstreamParts): Upstream {
  const { clock, random, store, metrics } = parts;
  const turns = new Turns();
  const newStreaming = (): Streaming => ({ support: "unknown", askAgainAt: clock.monotonic() });
  // Core and custom resources are served by different handlers: each group finds out for itself.
  const streaming = { core: newStreaming(), calico: newStreaming() };
  const reflectors = new Map<Kind, ReflectorShell<Kind>>();
  const onReached = (): void => {
    for (const reflector of reflectors.values()) reflector.reachable();
  };
  for (const [index, kind] of kinds.entries()) {
    const group = kind === "node" || kind === "namespace" ? "core" : "calico";
    const reflector = new ReflectorShell<Kind>(kind, { ...parts, streaming: streaming[group], turns, onReached });
    reflectors.set(kind, reflector);
    reflector.start(1 + index * staggerMs + random.below(staggerMs));
  }
  const status = (): KindStatus[] =>
    kinds.map((kind) => ({
      kind,
      ...store.freshness(kind),
      objects: store.all(kind).size,
      unread: store.unread(kind).size,
      problem: reflectors.get(kind)?.problem,
    }));
  return {
    status,
    measure: () => {
      for (const { kind, objects, synced, ageMs } of status()) {
        metrics.upstreamObjects.set({ resource: kind }, objects);
        metrics.upstreamSynced.set({ resource: kind }, synced ? 1 : 0);
        metrics.upstreamAge.set({ resource: kind }, ageMs / 1000);
      }
    },
    stop: async () => {
      for (const reflector of reflectors.values()) reflector.stop();
    },
  };
}

export type RequestMetrics = Pick<MetricHandles<typeof serverMetrics>, "apiRequests" | "apiRequestDuration">;

/** For `Http`: counts every request to the API server, and times those that are not watches. */
export function requestCounter(metrics: RequestMetrics) {
  return (call: { method: string; path: string; stream: boolean }, status: number, seconds: number): void => {
    const { verb, resource } = requestLabels(call.method, call.path, call.stream);
    metrics.apiRequests.inc({ verb, resource, code: status === 0 ? "none" : String(status) });
    if (verb !== "watch") metrics.apiRequestDuration.observe({ verb }, seconds);
  };
}
