// What a process gives its parts: configuration, log, metrics, health, clock. A test can make one without a process.
// Leaves to others: when a process starts and ends (daemon.ts). This folder is the one place in shared/ that does I/O.
import type { Config, Daemon } from "../config/catalogue.ts";
import type { Health } from "../health.ts";
import type { Logger } from "../log.ts";
import type { MetricsRegistry } from "../metrics.ts";
import type { Clock, Random } from "../world.ts";

export interface Frame<E extends Daemon> {
  /** As of now: options marked reloadable change when the file does. */
  config(): Config<E>;
  /** Called after `config()` has changed. */
  onReload(changed: () => void): void;
  readonly logger: Logger;
  readonly metrics: MetricsRegistry;
  readonly health: Health;
  readonly clock: Clock;
  readonly random: Random;
  readonly version: Version;
}

export interface Version {
  readonly component: string;
  readonly version: string;
  readonly revision: string;
  readonly runtime: string;
}

/** A started daemon. */
export interface Running {
  /** Stops taking work, finishes what is under way, closes everything. Bounds itself to less than `drainLimitMs`. */
  stop(): Promise<void>;
}
