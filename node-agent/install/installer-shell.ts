// Keeps the CNI executable where the host's runtime looks for it: puts it there, and back when Calico's installer has overwritten it; on
// request changes the network configuration too. Touches nothing else. A failure only says why and is tried again: no pod may fail for it.
// Leaves to others: what is to be done (plan.ts) and how (items-shell.ts).
import { type FSWatcher, watch } from "node:fs";
import { dirname, join } from "node:path";
import { type AgentConfig, catalogue } from "../../shared/config/catalogue.ts";
import type { Logger } from "../../shared/log.ts";
import type { Reason } from "../../shared/reasons.ts";
import type { Clock } from "../../shared/world.ts";
import { type Files, realFiles } from "./exchange-shell.ts";
import { type InstallOptions, type Item, itemsOf } from "./items-shell.ts";
import { planToPut, planToRestore } from "./plan.ts";

export interface InstallParts {
  /** Until then nothing is touched: only what can answer takes the place of what could. */
  readonly ready: Promise<void>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Ours had been there, was replaced or removed, and is there again. */
  readonly repaired: () => void;
  readonly files?: Files;
}

export interface Installer {
  /** Resolves when nothing more is done. What is installed stays: a restart is no uninstall. */
  stop(): Promise<void>;
}

/** A watch may miss something, as on a folder that was mounted over. */
export const lookEveryMs = 30_000;
/** After something has changed: whoever installs is mostly not done yet, and two who put their own there do not fight without a pause. */
export const settleMs = 1_000;

export function startInstaller(options: InstallOptions, parts: InstallParts): Installer {
  const { clock, logger } = parts;
  const items = itemsOf(options, parts.files ?? realFiles);
  const watchers = new Map<string, FSWatcher>();
  const wasOurs = new Set<Item>();
  let running: Promise<void> | undefined;
  /** Something has changed since the last look began. */
  let hasChanged = false;
  let isClosed = false;
  let cancel = (): void => {};

  function look(): void {
    hasChanged = false;
    running = lookAtAll().finally(() => {
      running = undefined;
      wakeAfter(hasChanged ? settleMs : lookEveryMs);
    });
  }

  function wakeAfter(delayMs: number): void {
    cancel();
    if (!isClosed) cancel = clock.after(delayMs, look);
  }

  function changed(): void {
    if (!hasChanged && running === undefined) wakeAfter(settleMs);
    hasChanged = true;
  }

  async function lookAtAll(): Promise<void> {
    for (const item of items) {
      keepWatching(item.path);
      try {
        await putRight(item);
      } catch (err) {
        logger.warn("Could not install a file on the host", { path: item.path, ...wordsFor(err, item.path) });
        return; // what comes later needs it
      }
    }
  }

  async function putRight(item: Item): Promise<void> {
    const found = await item.look();
    const plan = planToPut(found, wasOurs.has(item) || (await item.hasBackup()));
    if (plan.kind === "put") {
      await item.put(plan.keepsOriginal);
      logger.info(plan.isRepair ? "Put a file on the host back" : "Installed a file on the host", { path: item.path });
      if (plan.isRepair) parts.repaired();
    }
    if (plan.kind === "put" || found === "current") wasOurs.add(item);
  }

  function keepWatching(path: string): void {
    const folder = dirname(path);
    if (watchers.has(folder)) return;
    try {
      const watcher = watch(folder, (_event, name) => {
        if (items.some((item) => item.path === join(folder, name ?? ""))) changed();
      });
      watcher.on("error", () => watchers.delete(folder)); // tried again with the next look
      watchers.set(folder, watcher);
    } catch {
      // The folder is not there: the look at its file says so.
    }
  }

  void parts.ready.then(() => {
    if (!isClosed) look();
  });
  return {
    async stop() {
      isClosed = true;
      cancel();
      await running;
      for (const watcher of watchers.values()) watcher.close();
    },
  };
}

/** Gives the host back what was there before, configuration first. For an uninstall, when no installer runs any more. */
export async function restoreOriginal(options: InstallOptions, logger: Logger, files = realFiles): Promise<void> {
  for (const item of itemsOf(options, files).toReversed()) {
    const wayBack = planToRestore(await item.look(), await item.hasBackup());
    if (wayBack === "nothing") continue;
    await item.restore(wayBack);
    logger.info("Gave a file on the host back", { path: item.path, value: wayBack });
  }
}

/** What the configuration of an agent says of it; undefined: nothing is to be installed. */
export function installOptionsOf({ install, socket, stateDir }: AgentConfig): InstallOptions | undefined {
  if (!install.enabled) return undefined;
  const spool = join(stateDir, "spool");
  const isUsual = socket === usual.socket.default && spool === join(usual.stateDir.default, "spool");
  return {
    executable: join(import.meta.dirname, "../../dist/cattail-ipam"),
    target: join(install.binDir, install.name),
    conflist: install.patchConflist,
    places: isUsual ? {} : { socket, spool },
  };
}

const usual = catalogue.agent;

/** What the world said, and what an operator can do about it. */
function wordsFor(cause: unknown, path: string): { readonly reason?: Reason; readonly err: unknown } {
  const folder = dirname(path);
  switch (cause instanceof Error && "code" in cause ? cause.code : undefined) {
    case "ENOSPC":
    case "EDQUOT":
      return { reason: "DiskFull", err: new Error(`the disk of ${folder} is full: make room there`, { cause }) };
    case "EACCES":
    case "EPERM":
    case "EROFS":
      return {
        reason: "Forbidden",
        err: new Error(`${folder} may not be written: mount it writable, for root`, { cause }),
      };
    case "ENOENT":
      return {
        reason: "BadConfig",
        err: new Error(`${folder} does not exist: mount the host's folder there`, { cause }),
      };
    default:
      return { err: cause };
  }
}
