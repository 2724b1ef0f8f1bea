// Exchanges a file for another in one step, so that whoever opens it finds the old one or the new one, whole, whatever ends us in between.
// Leaves to others: whether (plan.ts).
import { copyFile, link, open, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/** The calls that change a file system; a test lets them fail one by one. */
export interface Files {
  /** A new file, with what is in another one. */
  copy(from: string, to: string): Promise<void>;
  /** A new file, with a text. */
  write(to: string, text: string): Promise<void>;
  /** Sets the mode, and returns when the contents are on disk. */
  finish(path: string, mode: number): Promise<void>;
  link(existing: string, path: string): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  /** Nothing there is fine. */
  remove(path: string): Promise<void>;
  /** Returns when the names in it are on disk. */
  syncFolder(path: string): Promise<void>;
}

export interface Replacement {
  readonly target: string;
  readonly mode: number;
  readonly fill: (path: string) => Promise<void>;
  readonly keepsOriginal: boolean;
}

export async function exchange(files: Files, { target, mode, fill, keepsOriginal }: Replacement): Promise<void> {
  const folder = dirname(target);
  const [fresh, spare] = [besides(target, "new"), besides(target, "original")];
  await files.remove(fresh); // left over by one that was ended
  await files.remove(spare);
  try {
    await fill(fresh);
    await files.finish(fresh, mode);
    if (keepsOriginal) {
      // A second name for the very file: needs no room on the disk, and whoever is still writing to it writes to the backup.
      await files.link(target, spare);
      await files.rename(spare, backupOf(target));
      await files.remove(spare); // rename does nothing where the backup was that very file
      await files.syncFolder(folder);
    }
    await files.rename(fresh, target);
  } catch (failure) {
    for (const path of [fresh, spare]) await files.remove(path).catch(() => {}); // the first failure says why
    throw failure;
  }
  await files.syncFolder(folder);
}

export async function restoreBackup(files: Files, target: string): Promise<void> {
  await files.rename(backupOf(target), target);
  await files.syncFolder(dirname(target));
}

/** Beside its file, so that a person finds it; no runtime takes a name that ends so for a configuration. */
export function backupOf(target: string): string {
  return `${target}.before-cattail`;
}

/** One name per purpose: only one process installs, the one that has the journal. */
function besides(target: string, purpose: string): string {
  return join(dirname(target), `.${basename(target)}.cattail-${purpose}`);
}

export const realFiles: Files = {
  copy: (from, to) => copyFile(from, to),
  write: (to, text) => writeFile(to, text, { flag: "wx", mode: 0o600 }),
  finish: async (path, mode) => {
    const file = await open(path, "r+");
    try {
      await file.chmod(mode);
      await file.sync();
    } finally {
      await file.close();
    }
  },
  link,
  rename,
  remove: (path) => rm(path, { force: true }),
  syncFolder: async (path) => {
    const folder = await open(path, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  },
};
