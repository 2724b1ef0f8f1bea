// A background process of a test: it logs to a file and never outlives the test, however that ends.
// What it is and when it is ready is left to whoever starts it.
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { closeSync, openSync, rmSync } from "node:fs";
import { mkdtemp, readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

export interface Daemon {
  readonly pid: number;
  running(): boolean;
  /** Resolves once it has ended, by whatever cause. */
  kill(signal: NodeJS.Signals): Promise<void>;
  /** The last lines of its log, for the message of an error. */
  lastWords(): Promise<string>;
}

export function startDaemon(executable: string, args: readonly string[], logFile: string): Daemon {
  const log = openSync(logFile, "a");
  // The parent-death signal reaches it even if we are killed with SIGKILL; setpriv becomes the executable, so the process id is its own.
  const child = spawn("setpriv", ["--pdeathsig", "KILL", executable, ...args], { stdio: ["ignore", log, log] });
  closeSync(log);
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  child.on("error", (cause) => console.error(cause)); // setpriv is missing; "close" follows
  return {
    pid: child.pid ?? 0,
    running: () => child.exitCode === null && child.signalCode === null && child.pid !== undefined,
    async kill(signal) {
      child.kill(signal);
      await ended;
    },
    async lastWords() {
      const lines = (await readFile(logFile, "utf8")).trimEnd().split("\n");
      return `${basename(executable)} said last:\n${lines.slice(-15).join("\n")}`;
    },
  };
}

/** A folder that is removed at the latest when this process ends. */
export async function temporaryFolder(name: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), `${name}-`));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  // The test runner ends a test file that takes too long with SIGTERM, a terminal that closes ends all with SIGHUP; by themselves these
  // skip "exit". The demo ends in its own way.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    if (process.listenerCount(signal) === 0) process.once(signal, () => process.exit(1));
  }
  return folder;
}

/** A loopback port below the range that the kernel gives to outgoing connections: none of those takes it before its owner has bound it. */
export async function freePort(): Promise<number> {
  for (;;) {
    const probe = createServer().listen(randomInt(10_000, 32_768), "127.0.0.1");
    const free = await once(probe, "listening").then(
      () => true,
      () => false,
    );
    const address = probe.address();
    if (!free || typeof address !== "object" || address === null) continue;
    await new Promise((resolve) => probe.close(resolve));
    return address.port;
  }
}
