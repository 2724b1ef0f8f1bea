// What a process gives its parts: configuration, log, metrics, health, files, pages, clock. A test can open one without a process.
// Leaves to others: when a process starts and ends (daemon.ts). This folder is the one place in shared/ that does I/O.
import type { Config, Daemon } from "../config/catalogue.ts";
import type { Inputs } from "../config/load.ts";
import type { Version } from "../config/report.ts";
import { createHealth, type Health } from "../health.ts";
import type { UnixMs } from "../kinds.ts";
import { createLog, type Log, type Logger } from "../log.ts";
import { type MetricHandles, type MetricsRegistry, processMetrics } from "../metrics.ts";
import type { Clock, Random } from "../world.ts";
import { guardAdmin, logLevelPage } from "./admin.ts";
import {
  type Authorities,
  type Certificate,
  openAuthorities,
  openCertificate,
  openToken,
  type Rotating,
} from "./files.ts";
import { json, type ListenOptions, listenPages, networkPages, type Page, type Pages } from "./http.ts";
import { common, followFile, type LoadedConfig, liveConfig } from "./live-config.ts";
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
  /** For a certificate that is in no file: tells the metrics when it ends. */
  expires(use: "server" | "ca", at: UnixMs): void;
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

/** Run in reverse order when the frame closes. */
type Closers = (() => void | Promise<void>)[];

export async function openFrame<E extends Daemon>(
  executable: E,
  loaded: LoadedConfig<E>,
  surroundings: Surroundings,
): Promise<OpenFrame<E>> {
  const clock = systemClock;
  const version = versionOf(executable);
  const metrics = createMetrics();
  const own = metrics.create(processMetrics);
  own.buildInfo.set({ ...version, component: executable }, 1);
  const health = createHealth();
  const log = openLog(common(loaded.config), surroundings, own);
  const logger = log.logger.with({ component: executable });
  for (const err of loaded.warnings) logger.warn("Ignored a doubtful setting", { reason: "BadConfig", err });
  const live = liveConfig(executable, loaded, { inputs: surroundings.inputs, log, logger, own });
  const configured = (): Config<Daemon> => common(live.config());

  const closers: Closers = [() => log.flush(), observeRuntime(own, metrics, clock)];
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).reverse()) await closer();
  };
  const logLevel = logLevelPage({ log, logger, clock, configured: () => configured().log.level });
  closers.push(logLevel.close);
  const adminPages = new Map<string, Page>([
    ["/debug/config", { get: () => json(200, live.provenance()) }],
    ["/debug/log-level", logLevel.page],
  ]);
  try {
    if (loaded.invocation.file !== undefined)
      closers.push(await followFile(loaded.invocation.file, live.take, { clock, logger }));
    const { ports, listen } = configured();
    const open = async (pages: Pages, options: ListenOptions): Promise<void> => {
      const listener = await listenPages(pages, options);
      closers.push(listener.close);
      logger.info("Opened a port for pages", { listen: listener.listen });
    };
    if (ports.http !== 0) {
      await open(networkPages({ health, metrics, version }), { host: listen.http, port: ports.http, logger });
    }
    if (ports.admin !== 0) {
      await open(adminPages, { host: "127.0.0.1", port: ports.admin, logger, guard: guardAdmin });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    config: live.config,
    onReload: live.onReload,
    logger,
    metrics,
    health,
    files: watchedFiles({ clock, logger, expiry: own.certificateExpiry, closers }),
    adminPage: (path, page) => void adminPages.set(path, page),
    clock,
    random: systemRandom,
    version,
    log,
    close,
  };
}

function openLog(
  { log: { level, format } }: Config<Daemon>,
  { write, isTerminal }: Surroundings,
  own: MetricHandles<typeof processMetrics>,
): Log {
  const auto = isTerminal ? "text" : "json";
  const count = (counted: "error" | "warn"): void => own.logMessages.inc({ level: counted });
  return createLog({ level, format: format === "auto" ? auto : format, clock: systemClock, write, count });
}

interface WatchedFiles {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly expiry: MetricHandles<typeof processMetrics>["certificateExpiry"];
  readonly closers: Closers;
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
    expires: (use, at) => expiry.set({ use }, at / 1000),
  };
}
