// The operators' command line as a person starts it. Leaves to others: the cluster it looks at.
import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { TestApi } from "./api.ts";
import type { ServiceAccount } from "./install.ts";

const main = resolve(import.meta.dirname, "../../cli/main.ts");

export interface Said {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** `heard` is told all of stderr each time something is added to it. */
export function cattail(argv: readonly string[], heard: (stderr: string) => void = () => {}): Promise<Said> {
  const child = spawn(process.execPath, [main, ...argv], { env: {}, stdio: ["ignore", "pipe", "pipe"] });
  const said = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk: Buffer) => (said.stdout += chunk));
  child.stderr.on("data", (chunk: Buffer) => {
    said.stderr += chunk;
    heard(said.stderr);
  });
  return new Promise((done, failed) => {
    child.on("error", failed);
    child.on("close", (status) => done({ status, ...said }));
  });
}

/** A file with the rights of an account, or those of whoever may do everything. */
export async function kubeconfigFor({ admin }: Pick<TestApi, "admin">, folder: string, account?: ServiceAccount) {
  const client = account === undefined ? admin : admin.as(await admin.createToken(account.namespace, account.name));
  const file = join(folder, "kubeconfig");
  await writeFile(file, client.kubeconfig(), { mode: 0o600 });
  return file;
}
