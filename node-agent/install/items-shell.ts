// The files on the host that are ours while we are installed: how each is looked at, put in its place and given back.
// Leaves to others: when (installer-shell.ts), by what rule (plan.ts), and how one file becomes another in one step (exchange-shell.ts).
import { lstat, readFile, stat } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { impossible, invariant } from "../../shared/kinds.ts";
import { type Ipam, oursIn, patchConflist } from "./conflist.ts";
import { backupOf, exchange, type Files, restoreBackup } from "./exchange-shell.ts";
import type { Found, WayBack } from "./plan.ts";
import { Recogniser } from "./recogniser-shell.ts";

export interface InstallOptions {
  /** Path of our own executable. */
  readonly executable: string;
  /** Path on the host of the name that the runtime asks for. */
  readonly target: string;
  /** Path of a network configuration that is to be changed. */
  readonly conflist: string | undefined;
  /** What the executable must be told because its defaults are not right. */
  readonly places: { readonly socket?: string; readonly spool?: string };
}

const executableMode = 0o755;

/** A file that is ours while we are installed. */
export interface Item {
  readonly path: string;
  hasBackup(): Promise<boolean>;
  look(): Promise<Found>;
  put(keepsOriginal: boolean): Promise<void>;
  restore(wayBack: Exclude<WayBack, "nothing">): Promise<void>;
}

/** The configuration last: it must not name an executable that is not there. */
export function itemsOf(options: InstallOptions, files: Files): readonly Item[] {
  const executable = executableItem(options, files);
  return options.conflist === undefined ? [executable] : [executable, conflistItem(options, options.conflist, files)];
}

function executableItem({ executable, target }: InstallOptions, files: Files): Item {
  const recogniser = new Recogniser(executable, executableMode);
  const fill = (path: string): Promise<void> => files.copy(executable, path);
  return {
    path: target,
    hasBackup: () => exists(backupOf(target)),
    look: () => recogniser.look(target),
    put: (keepsOriginal) => exchange(files, { target, mode: executableMode, fill, keepsOriginal }),
    async restore(wayBack) {
      if (wayBack === "restore-backup") return restoreBackup(files, target);
      await files.remove(wayBack === "remove-ours" ? target : backupOf(target));
      await files.syncFolder(dirname(target));
    },
  };
}

function conflistItem({ target, places }: InstallOptions, path: string, files: Files): Item {
  const ours = oursIn(basename(target), places);
  const write = async (text: string, keepsOriginal: boolean): Promise<void> => {
    const mode = (await stat(path)).mode & 0o777;
    await exchange(files, { target: path, mode, fill: (fresh) => files.write(fresh, text), keepsOriginal });
  };
  return {
    path,
    hasBackup: () => exists(backupOf(path)),
    async look() {
      const text = await textOf(path);
      if (text === undefined) return "no-place";
      return patch(path, text, ours) === text ? "current" : "another's";
    },
    put: async (keepsOriginal) => write(patch(path, (await textOf(path)) ?? "", ours), keepsOriginal),
    async restore(wayBack) {
      if (wayBack === "restore-backup") {
        const [now, original] = [(await textOf(path)) ?? "", (await textOf(backupOf(path))) ?? ""];
        if (now === patch(path, original, ours)) return restoreBackup(files, path);
        // Changed by its operator since: only our part is taken out of it.
        await write(
          patch(path, now, () => ipamOf(path, original)),
          false,
        );
      }
      // Without a backup it was its operator who wrote it so: it stays.
      await files.remove(backupOf(path));
      await files.syncFolder(dirname(path));
    },
  };
}

/** The text with the change made, or the same one. */
function patch(path: string, text: string, wanted: (now: Ipam) => Ipam): string {
  const patched = patchConflist(text, wanted);
  switch (patched.kind) {
    case "same":
      return text;
    case "changed":
      return patched.text;
    case "unusable":
      throw new Error(`${path} cannot be used as a network configuration: ${patched.why}`);
    default:
      return impossible(patched);
  }
}

function ipamOf(path: string, text: string): Ipam {
  let found: Ipam | undefined;
  patch(path, text, (now) => {
    found = now;
    return now;
  });
  invariant(found !== undefined, "a configuration that can be used has been read");
  return found;
}

function textOf(path: string): Promise<string | undefined> {
  return readFile(path, "utf8").catch(orNothing);
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(orNothing)) !== undefined;
}

function orNothing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}
