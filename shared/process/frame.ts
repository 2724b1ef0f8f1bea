// What a process gives its parts: configuration, log, metrics, health, files, pages, clock. A test can open one without a process.
// Leaves to others: when a process starts and ends (daemon.ts). This folder is the one place in shared/ that does I/O.
import type { Config, Daemon } from "../config/catalogue.ts";
import { type Inputs, type Loaded, loadConfig } from "../config/load.ts";
import { reload } from "../config/reload.ts";
import type { Version } from "../config/report.ts";
import { createHealth, type Health } from "../health.ts";
import { createLog, type Log, type Logger } from "../log.ts";
import { type MetricHandles, type MetricsRegistry, processMetrics } from "../metrics.ts";
import type { Clock, Random } from "../world.ts";
import { guardAdmin, logLevelPage } from "./admin.ts";
import {
  type Authorities,
  type Certificate,
  openAuthorities,
  openCertificate,
  openRotating,
  openToken,
  type Rotating,
} from "./files.ts";
import { json, listenPages, networkPages, type Page } from "./http.ts";
import { createMetrics } from "./metrics.ts";
import { observeRuntime } from "./runtime-metrics.ts";
import { versionOf } from "./version.ts";
import { systemClock, systemRandom } from "./world.ts";

export interface Frame<E extends Daemon> {
  /** As of now: options marked reloadable change when the file does. */
  config(): Config<E>;
  /** Called after `config()` has changed. */
  onReload(changed: () => void): void;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly health: Health;
  readonly files: Files;
  /** Adds a page about a part of the process to the admin port: `/debug/…`. */
  adminPage(path: string, page: Page): void;
  readonly clock: Clock;
  readonly random: Random;
  readonly version: Version;
}

/** Files that may be replaced at any time; they are closed with the frame, and their certificates' ends are in the metrics. */
export interface Files {
  token(path: string): Promise<Rotating<string>>;
  certificate(use: "server" | "client", certFile: string, keyFile: string): Promise<Rotating<Certificate>>;
  authorities(caFile: string): Promise<Rotating<Authorities>>;
}

export interface OpenFrame<E extends Daemon> extends Frame<E> {
  readonly log: Log;
  close(): Promise<void>;
}

export interface Surroundings {
  readonly inputs: Inputs;
  /** Takes one line of the log, without its newline. */
  readonly write: (line: string) => void;
  readonly isTerminal: boolean;
}

export async function openFrame<E extends Daemon>(
  executable: E,
  loaded: Extract<Loaded<E>, { kind: "loaded" }>,
  { inputs, write, isTerminal }: Surroundings,
): Promise<OpenFrame<E>> {
  const clock = systemClock;
  const version = versionOf(executable);
  const metrics = createMetrics();
  const own = metrics.create(processMetrics);
  const health = createHealth();
  const { log: logOptions, ports, listen } = common(loaded.config);
  const log = createLog({
    level: logOptions.level,
    format: logOptions.format === "auto" ? (isTerminal ? "text" : "json") : logOptions.format,
    clock,
    write,
    count: (level) => own.logMessages.inc({ level }),
  });
  const logger = log.logger.with({ component: executable });
  for (const warning of loaded.warnings) logger.warn("Found a doubtful setting", { reason: "BadConfig", err: warning });
  own.buildInfo.set({ ...version, component: executable }, 1);

  const closers: (() => void | Promise<void>)[] = [observeRuntime(own, metrics, clock), () => log.flush()];
  const files = watchedFiles({ clock, logger, expiry: own.certificateExpiry, closers });
  const live = liveConfig(executable, loaded, { inputs, log, logger, own });
  const path = loaded.invocation.file;
  if (path !== undefined) {
    const file = await openRotating([path], ([text = ""]) => text, { clock, logger });
    closers.push(() => file.close());
    live.take(file.current());
    file.onChange(live.take);
  }

  const logLevel = logLevelPage({ log, logger, clock, configured: () => common(live.config()).log.level });
  closers.push(logLevel.close);
  const adminPages = new Map<string, Page>([
    ["/debug/config", { get: () => json(200, live.provenance()) }],
    ["/debug/log-level", logLevel.page],
  ]);
  const networkPort = { host: listen.http, port: ports.http, logger };
  const adminPort = { host: "127.0.0.1", port: ports.admin, logger, guard: guardAdmin };
  for (const { pages, port } of [
    { pages: networkPages({ health, metrics, version }), port: networkPort },
    { pages: adminPages, port: adminPort },
  ]) {
    if (port.port === 0) continue;
    const listener = await listenPages(pages, port);
    closers.push(listener.close);
    logger.info("Opened a port for pages", { listen: listener.listen });
  }

  return {
    config: live.config,
    onReload: live.onReload,
    logger,
    metrics,
    health,
    files,
    adminPage: (where, page) => void adminPages.set(where, page),
    clock,
    random: systemRandom,
    version,
    log,
    close: async () => {
      for (const close of closers.splice(0).reverse()) await close();
    },
  };
}

/** What all daemons have: every configuration is one of them, which the compiler does not see for a type parameter. */
function common(config: object): Config<Daemon> {
  return config as Config<Daemon>;
}

interface WatchedFiles {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly expiry: MetricHandles<typeof processMetrics>["certificateExpiry"];
  readonly closers: (() => void)[];
}

function watchedFiles({ clock, logger, expiry, closers }: WatchedFiles): Files {
  const watching = { clock, logger };
  const keep = async <T>(opening: Promise<Rotating<T>>, taken: (value: T) => void = () => {}): Promise<Rotating<T>> => {
    const file = await opening;
    closers.push(() => file.close());
    taken(file.current());
    file.onChange(taken);
    return file;
  };
  return {
    token: (path) => keep(openToken(path, watching)),
    certificate: (use, certFile, keyFile) =>
      keep(openCertificate(certFile, keyFile, watching), (pair) => expiry.set({ use }, pair.expiry / 1000)),
    authorities: (caFile) =>
      keep(openAuthorities(caFile, watching), (bundle) => expiry.set({ use: "ca" }, bundle.expiry / 1000)),
  };
}

interface LiveParts {
  readonly inputs: Inputs;
  readonly log: Log;
  readonly logger: Logger;
  readonly own: MetricHandles<typeof processMetrics>;
}

/** The configuration as the file changes under it. */
function liveConfig<E extends Daemon>(
  executable: E,
  loaded: Extract<Loaded<E>, { kind: "loaded" }>,
  { inputs, log, logger, own }: LiveParts,
) {
  let config = loaded.config;
  let provenance = loaded.provenance;
  const listeners: (() => void)[] = [];
  own.configReloadSuccess.set(1);
  own.configDrift.set(0);

  function take(text: string): void {
    const next: Loaded<E> = loadConfig(executable, { ...inputs, readFile: () => text });
    own.configReloadSuccess.set(next.kind === "loaded" ? 1 : 0);
    if (next.kind === "refused") {
      own.configDrift.set(1);
      for (const err of next.errors) logger.error("Kept the old configuration", { reason: "BadConfig", err });
      return;
    }
    const { config: merged, changed, waiting } = reload(executable, config, next.config);
    own.configDrift.set(waiting.length > 0 ? 1 : 0);
    for (const option of waiting) logger.warn("Left an option as it was until the next start", { option });
    if (changed.length === 0) return;
    config = merged;
    provenance = provenance.map((row) =>
      changed.includes(row.key) ? (next.provenance.find(({ key }) => key === row.key) ?? row) : row,
    );
    if (changed.includes("log.level")) log.setLevel(common(config).log.level);
    for (const option of changed) logger.info("Took over a changed option", { option });
    for (const listener of listeners) listener();
  }

  return {
    config: () => config,
    provenance: () => provenance,
    onReload: (changed: () => void) => void listeners.push(changed),
    take,
  };
}
