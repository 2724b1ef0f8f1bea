// The flags that Calico's own executable of this name knows, and --help. A runtime passes none.
// Leaves to others: everything that CNI_COMMAND asks for.
import { suggestion } from "../shared/nearest.ts";
import { bun } from "./bun-shell.ts";

/** Put in by the build, from package.json. */
declare const CATTAIL_VERSION: string;

/** Where host-local keeps the addresses of Calico's default network. */
const hostLocalPath = "/var/lib/cni/networks/k8s-pod-network";

const known = ["-v", "-upgrade", "-h", "--version", "--upgrade", "--help"];

export async function runFlag(flag: string, executable: string): Promise<number> {
  switch (flag) {
    case "-v":
    case "--v":
    case "-version":
    case "--version":
      await bun.write(bun.stdout, `${CATTAIL_VERSION}\n`);
      return 0;
    case "-upgrade":
    case "--upgrade":
      return upgrade(executable);
    case "-h":
    case "-help":
    case "--help":
      await say(
        executable,
        "-v prints the version, -upgrade looks for addresses of host-local. CNI_COMMAND asks for the rest.",
      );
      return 0;
    default:
      await say(executable, `unknown flag ${JSON.stringify(flag)}.${suggestion(flag, known)}`);
      return 2;
  }
}

/** Calico's executable turns host-local's addresses into Calico's; ours must not pass over them as if there were none. */
async function upgrade(executable: string): Promise<number> {
  const { readdir } = await import("node:fs/promises");
  const entries = await readdir(hostLocalPath).catch((error: NodeJS.ErrnoException) =>
    error.code === "ENOENT" ? [] : [error.message],
  );
  if (entries.length === 0) return 0;
  await say(
    executable,
    `${hostLocalPath} holds addresses of host-local. Run Calico's own calico-ipam -upgrade first, then install this one.`,
  );
  return 1;
}

async function say(executable: string, text: string): Promise<void> {
  await bun.write(bun.stderr, `${executable}: ${text}\n`);
}
