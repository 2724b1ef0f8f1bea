// The cache server put together: upstream, store, stream, commits, pages. main.ts runs it; the demo and tests start it in their process.
// Leaves to others: where options come from, and when the process ends (shared/process).
import { hostname } from "node:os";
import type { ApiGroup } from "../shared/calico/resources.ts";
import { kinds } from "../shared/calico/resources.ts";
import { type Config, defaultMaxInFlight } from "../shared/config/catalogue.ts";
import { Failure } from "../shared/kinds.ts";
import type { Api } from "../shared/kube/api.ts";
import { createApi } from "../shared/kube/client-shell.ts";
import { type Connection, connectByKubeconfig, connectInCluster } from "../shared/kube/connection-shell.ts";
import { discoverGroup } from "../shared/kube/discovery.ts";
import { Http } from "../shared/kube/http-shell.ts";
import { messageOf } from "../shared/log.ts";
import { clusterMetrics, serverMetrics } from "../shared/metrics.ts";
import type { Running } from "../shared/process/daemon.ts";
import type { Frame } from "../shared/process/frame.ts";
import { Census } from "./census/census.ts";
import { measureCensus } from "./census/measure.ts";
import { countStandings } from "./census/standings.ts";
import { Issuer } from "./certificates/issuer-shell.ts";
import { FairLimiter } from "./commit/fair-limiter.ts";
import { type Core, startCore } from "./core-shell.ts";
import { Limits, reapAfterLimits } from "./reaper/limits.ts";
import { Store } from "./store/store.ts";
import { tokenVerifier, type Verifier } from "./stream/identity.ts";
import { type Door, listenStream } from "./stream/listener-shell.ts";
import { ClusterKeys } from "./stream/signing-keys-shell.ts";
import { requestCounter } from "./upstream/upstream-shell.ts";
import { statusPages } from "./web/pages-shell.ts";

export interface RunningServer extends Running {
  /** `ws://127.0.0.1:4480/v1/stream` */
  readonly streamUrl: string;
  /** Resolves when nothing is being written for agents, handles that trail behind included. */
  idle(): Promise<void>;
}

/** A client that hears nothing for three of these moves on. */
const heartbeatMs = 10_000;
const discoveryRetryMs = 2_000;
/** At the end, for what was begun for agents; then it is left to the next server, whose agents ask again. */
const lastWritesMs = 10_000;

/** Runs at once; what it still waits for is told by its checks of readiness. */
export async function startServer(frame: Frame<"server">, given?: Connection): Promise<RunningServer> {
  const { logger, clock, random, health } = frame;
  const config = frame.config();
  const metrics = frame.metrics.create(serverMetrics);
  const cluster = frame.metrics.create(clusterMetrics);
  const connection = given ?? (await connect(config, frame));
  const replica = `${hostname()}-${random.hex(2)}`;
  const http = new Http({ connection, clock, userAgent: userAgent(frame), onAnswer: requestCounter(metrics) });
  const api = createApi(http);
  const store = new Store(clock, (err) => logger.error("A listener of the store failed", { reason: "Internal", err }));
  const census = new Census(store, clock);
  const limiter = new FairLimiter(inFlightLimit(config), clock);
  const limits = new Limits(config.offlineLimitMs, config.reaper.afterMs);
  warnOfHaste(frame);
  frame.onReload(() => {
    const { offlineLimitMs, reaper } = frame.config();
    limiter.limit = inFlightLimit(frame.config());
    limits.configure(offlineLimitMs, reaper.afterMs);
    warnOfHaste(frame);
  });
  const keys = new ClusterKeys({ api, clock, logger });
  const { audience, agents, observers = [] } = config.auth;
  const verifier = tokenVerifier({ api, clock, random, keys, rules: { audience, agents, observers } });

  let core: Core | undefined;
  let isStopping = false;
  const stopped = Promise.withResolvers<undefined>();
  const discovery = untilKnown(frame, config.apiGroup, api, stopped.promise).then((group) => {
    if (group === undefined || isStopping) return;
    void keys.prefetch();
    const log = logger.with({ replica });
    const { namespace } = config;
    const { version } = frame.version;
    core = startCore({
      http,
      api,
      group,
      store,
      limiter,
      limits,
      clock,
      random,
      logger,
      log,
      metrics,
      namespace,
      replica,
      version,
      heartbeatMs,
      hasEvents: config.events.enabled,
    });
  });

  const issuer = issuerOf(frame, api);
  issuer?.start();
  const { certFile, keyFile } = config.tls;
  const certificate =
    certFile === undefined || keyFile === undefined
      ? issuer
      : await frame.files.certificate("server", certFile, keyFile);
  const listener = await listenStream({
    host: config.listen.stream,
    port: config.ports.stream,
    certificate,
    door: () => doorTo(core, store, verifier, isStopping),
    random,
    logger,
    metrics,
  });

  health.check("ready", "streams", () => (isStopping ? "draining" : undefined));
  if (issuer !== undefined) health.check("ready", "certificate", () => issuer.problem);
  health.check("ready", "synced", () => unsynced(store, core));
  health.check("ready", "fresh", () => stale(store, frame.config().upstream.staleAfterMs));
  const commit = () => ({
    inFlight: limiter.inFlight,
    limit: limiter.limit,
    queued: limiter.queued,
    waitingForBlocks: core?.committer.queued ?? 0,
    claims: core?.claims.underWay ?? 0,
  });
  frame.metrics.beforeScrape(() => {
    core?.upstream.measure();
    core?.hub.measure();
    const { inFlight, limit, queued, waitingForBlocks } = commit();
    metrics.commitInFlight.set(inFlight);
    metrics.commitLimit.set(limit);
    metrics.commitQueued.set(queued + waitingForBlocks);
    const { checkFindings } = metrics;
    measureCensus({ ...cluster, checkFindings }, census, countStandings(store, census, core?.hub.status() ?? []));
  });
  const pages = statusPages({
    clock,
    replica,
    version: frame.version.version,
    store,
    apiGroup: () => core?.group,
    streamUrl: () => listener.url,
    resources: () => core?.upstream.status() ?? [],
    clients: () => core?.hub.status() ?? [],
    commit,
  });
  for (const [path, page] of pages) frame.adminPage(path, page);

  const idle = async (): Promise<void> => {
    await core?.claims.idle();
    await core?.indexer.idle();
    await core?.committer.idle();
  };
  return {
    streamUrl: listener.url,
    idle,
    async stop() {
      isStopping = true;
      stopped.resolve(undefined);
      await core?.hub.drain();
      await listener.close();
      await within(lastWritesMs, leave(core, idle), frame);
      await core?.upstream.stop();
      http.stop();
      await issuer?.stop();
      census.stop();
      await discovery;
    },
  };
}

/** What was begun is finished; only when nothing is being cleaned up any more may another server begin to. */
async function leave(core: Core | undefined, idle: () => Promise<void>): Promise<void> {
  await Promise.all([idle(), core?.reaper.stop()]);
  await Promise.all([core?.elector.stop(), core?.events.stop()]);
}

/** Undefined: the certificate comes from a file, or there is none. */
function issuerOf({ config, clock, random, logger, files }: Frame<"server">, api: Api): Issuer | undefined {
  const { tls, namespace } = config();
  if (tls.issueFor === undefined) return undefined;
  if (tls.certFile !== undefined)
    throw new Failure("bad-config", "both tls.certFile and tls.issueFor are set: unset one");
  return new Issuer({ api, clock, random, logger, namespace, name: tls.issueFor, expires: files.expires });
}

function connect({ kubeconfig }: Config<"server">, { clock }: Frame<"server">): Promise<Connection> {
  if (kubeconfig !== undefined) return connectByKubeconfig(kubeconfig, clock);
  return Promise.resolve(connectInCluster(process.env, clock));
}

/** `<product>/<version> (<os>/<arch>) <component>`: the API server's audit log and metrics show it (kube-watch 10). */
function userAgent({ version }: Frame<"server">): string {
  return `${version.component}/${version.version} (${process.platform}/${process.arch})`;
}

function warnOfHaste({ config, logger }: Frame<"server">): void {
  const { offlineLimitMs, reaper } = config();
  if (reaper.afterMs === undefined || reaper.afterMs >= reapAfterLimits * offlineLimitMs) return;
  const err = `reaper.after is ${reaper.afterMs / 60_000} min, and offlineLimit ${offlineLimitMs / 60_000} min`;
  logger.warn("Waits for twice offlineLimit, as reaper.after is shorter", { option: "reaper.after", err });
}

function inFlightLimit({ commit }: Config<"server">): number {
  return commit.maxInFlight === 0 ? defaultMaxInFlight : commit.maxInFlight;
}

/** Asks until the API server answers. Undefined: stopped before that. */
async function untilKnown(
  { logger, clock, health }: Frame<"server">,
  configured: Config<"server">["apiGroup"],
  api: Api,
  stopped: Promise<undefined>,
): Promise<ApiGroup | undefined> {
  if (configured !== "auto") return configured;
  let problem: string | undefined = "the API server has not answered yet";
  health.check("ready", "discovery", () => problem);
  for (;;) {
    try {
      const group = await Promise.race([discoverGroup(api), stopped]);
      problem = undefined;
      return group;
    } catch (err) {
      problem = messageOf(err);
      logger.warn("Could not ask the API server where Calico's resources are", { err });
    }
    let cancel = (): void => {};
    const again = new Promise<"again">((wake) => {
      cancel = clock.after(discoveryRetryMs, () => wake("again"));
    });
    const next = await Promise.race([again, stopped]);
    cancel();
    if (next === undefined) return undefined;
  }
}

function doorTo(core: Core | undefined, store: Store, verifier: Verifier, isStopping: boolean): Door | string {
  if (isStopping) return "this server stops";
  if (core === undefined) return "this server has not reached the API server yet";
  // A partial view would be taken for the whole: what is missing in it would be forgotten.
  if (!store.synced() || core.hub.lineage === undefined) return "this server has not read everything yet";
  return { hub: core.hub, verifier };
}

function unsynced(store: Store, core: Core | undefined): string | undefined {
  const waiting = kinds.filter((kind) => !store.freshness(kind).synced);
  if (waiting.length === 0)
    return core?.hub.lineage === undefined ? "the namespace kube-system is not there" : undefined;
  const problems = core?.upstream.status().flatMap(({ problem }) => problem ?? []) ?? [];
  return [`not read yet: ${waiting.join(", ")}`, ...new Set(problems)].join("; ");
}

function stale(store: Store, staleAfterMs: number): string | undefined {
  const old = kinds.filter((kind) => store.freshness(kind).ageMs > staleAfterMs);
  if (old.length === 0) return undefined;
  const oldest = Math.max(...old.map((kind) => store.freshness(kind).ageMs));
  return `not heard of for up to ${Math.round(oldest / 1000)} s: ${old.join(", ")}`;
}

async function within(limitMs: number, work: Promise<void>, { clock, logger }: Frame<"server">): Promise<void> {
  let cancel = (): void => {};
  const limit = new Promise<void>((resolve) => {
    cancel = clock.after(limitMs, () => {
      logger.warn("Left writes to the next server, as they took too long", { seconds: limitMs / 1000 });
      resolve();
    });
  });
  await Promise.race([work, limit]);
  cancel();
}
