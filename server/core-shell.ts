// A server between the API server and its streams, once it is known where Calico's resources are: what watches, writes, cleans up and tells.
// Leaves ports, certificates, pages and the process itself to server-shell.ts.
import type { ApiGroup, Kind } from "../shared/calico/resources.ts";
import type { NodeName } from "../shared/kinds.ts";
import type { Api } from "../shared/kube/api.ts";
import type { Http } from "../shared/kube/http-shell.ts";
import type { Logger } from "../shared/log.ts";
import type { MetricHandles, serverMetrics } from "../shared/metrics.ts";
import type { Clock, Random } from "../shared/world.ts";
import { Affinities } from "./commit/affinities.ts";
import { Claims } from "./commit/claims.ts";
import { Committer } from "./commit/committer.ts";
import { Desk } from "./commit/desk.ts";
import type { FairLimiter } from "./commit/fair-limiter.ts";
import { Handles } from "./commit/handles.ts";
import { Indexer } from "./commit/indexer.ts";
import { Recorder } from "./events/recorder.ts";
import { Elector } from "./reaper/elector.ts";
import type { Limits } from "./reaper/limits.ts";
import { Reaper } from "./reaper/reaper.ts";
import type { Store } from "./store/store.ts";
import { Hub } from "./stream/hub-shell.ts";
import { ObjectReader } from "./upstream/object-reader.ts";
import { startUpstream, type Upstream } from "./upstream/upstream-shell.ts";

type Metrics = MetricHandles<typeof serverMetrics>;

export interface CoreParts {
  readonly http: Pick<Http, "unary" | "stream">;
  readonly api: Api;
  readonly group: ApiGroup;
  readonly store: Store;
  readonly limiter: FairLimiter;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  /** With this server's name. */
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly namespace: string;
  readonly replica: string;
  readonly version: string;
  readonly heartbeatMs: number;
  readonly hasEvents: boolean;
}

/** What exists once it is known which resources Calico has here. */
export interface Core {
  readonly group: ApiGroup;
  readonly upstream: Upstream;
  readonly committer: Committer;
  readonly claims: Claims;
  readonly indexer: Indexer;
  readonly hub: Hub;
  readonly events: Recorder;
  readonly elector: Elector;
  readonly reaper: Reaper;
}

export function startCore(parts: CoreParts): Core {
  const { http, api, group, store, limiter, limits, clock, random, logger, log, metrics } = parts;
  const { namespace, replica, version, heartbeatMs } = parts;
  const events = new Recorder({
    api,
    group,
    store,
    clock,
    random,
    logger,
    namespace,
    replica,
    enabled: parts.hasEvents,
    onDropped: () => metrics.eventsDropped.inc(),
  });
  const onForbidden = (why: string): void => events.aboutServer("UpstreamForbidden", forbidden(why));
  const upstream = startUpstream({
    http,
    store,
    group,
    clock,
    random,
    log: logger,
    metrics,
    onForbidden: (_, why) => onForbidden(why),
  });
  const desk = new Desk({ api, group, store, limiter, clock, random, onSetback: counting(metrics) });
  const affinities = new Affinities(desk);
  const handles = new Handles(desk);
  const committer = new Committer(desk, affinities, handles, log, metrics);
  const indexer = new Indexer(desk, handles, log);
  const claims = new Claims(desk, affinities, random, log, metrics);
  const reader = new ObjectReader({ api, group, store, clock });
  const elector = new Elector({ api, clock, random, logger, namespace, replica, limits, onForbidden });
  elector.start();
  const refresh = (node: NodeName): Promise<void> => reader.refreshNode(node);
  const reaper = new Reaper({
    desk,
    committer,
    affinities,
    events,
    leads: () => elector.leads(),
    reapAfterMs: () => limits.reapAfter(clock.monotonic()),
    refresh,
    random,
    logger: log,
    metrics,
  });
  reaper.start();
  const hub = new Hub({
    events,
    indexer,
    grantMs: () => limits.grant(clock.monotonic()),
    refresh,
    reader,
    store,
    committer,
    claims,
    group,
    clock,
    random,
    logger,
    metrics,
    replica,
    version,
    heartbeatMs,
  });
  return { group, upstream, committer, claims, indexer, hub, events, elector, reaper };
}

function forbidden(why: string): string {
  return `${why} (reason Forbidden). Apply the roles of this version of the chart, or set rbac.create=true`;
}

function counting(metrics: Metrics): (what: "conflict" | "throttled", kind: Kind) => void {
  return (what, resource) => {
    if (what === "conflict") metrics.commitConflicts.inc({ resource });
    else metrics.commitThrottled.inc({ resource });
  };
}
