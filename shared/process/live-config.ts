// The configuration of a running process: it follows its file, as far as options are reloadable (ux 2).
// Leaves to others: which options differ (shared/config/reload.ts), what a new value means to a part of the process.
import type { Config, Daemon } from "../config/catalogue.ts";
import { type Inputs, type Loaded, loadConfig } from "../config/load.ts";
import { reload } from "../config/reload.ts";
import type { Log, Logger } from "../log.ts";
import type { MetricHandles, processMetrics } from "../metrics.ts";
import { openRotating, type Watching } from "./files.ts";

export type LoadedConfig<E extends Daemon> = Extract<Loaded<E>, { kind: "loaded" }>;

interface LiveParts {
  readonly inputs: Inputs;
  readonly log: Log;
  readonly logger: Logger;
  readonly own: MetricHandles<typeof processMetrics>;
}

/** `take` is given the contents of the file whenever they may have changed. */
export function liveConfig<E extends Daemon>(
  executable: E,
  loaded: LoadedConfig<E>,
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
    if (waiting.length > 0)
      logger.warn("Left options as they were until the next start", { option: waiting.join(" ") });
    if (changed.length === 0) return;
    config = merged;
    provenance = provenance.map((row) =>
      changed.includes(row.key) ? (next.provenance.find(({ key }) => key === row.key) ?? row) : row,
    );
    if (changed.includes("log.level")) log.setLevel(common(config).log.level);
    logger.info("Took over changed options", { option: changed.join(" ") });
    for (const listener of listeners) listener();
  }

  return {
    config: () => config,
    provenance: () => provenance,
    onReload: (changed: () => void) => void listeners.push(changed),
    take,
  };
}

/** Takes the file as it is by now, then every time it changes. */
export async function followFile(path: string, take: (text: string) => void, watching: Watching): Promise<() => void> {
  const file = await openRotating([path], ([text = ""]) => text, watching);
  take(file.current());
  file.onChange(take);
  return file.close;
}

/** What all daemons have: every configuration is one of them, which the compiler does not see for a type parameter. */
export function common(config: object): Config<Daemon> {
  return config as Config<Daemon>;
}
