// The cache server inside the test's own process, on free ports, against any API server.
// For tests that look at what it says on the wire; the executable as a process is in cluster.ts.

import { type RunningServer, startServer } from "../../server/server-shell.ts";
import { loadConfig } from "../../shared/config/load.ts";
import { invariant } from "../../shared/kinds.ts";
import { connectTo } from "../../shared/kube/connection-shell.ts";
import { openFrame } from "../../shared/process/frame.ts";
import type { Page } from "../../shared/process/http.ts";
import type { Clock } from "../../shared/world.ts";
import { type ApiClient, until } from "./api.ts";
import { serverAccount } from "./install.ts";

export interface ServerInProcess extends RunningServer {
  /** Why it is not ready, check by check; empty once it is. */
  problems(): string[];
  ready(): Promise<void>;
  /** Of the admin port, which is not open. */
  readonly pages: ReadonlyMap<string, Page>;
  /** Lines of the log. */
  readonly lines: readonly string[];
}

/** `admin` is asked for the server's own token. */
export async function serverInProcess(
  admin: ApiClient,
  flags: readonly string[] = [],
  clock?: Clock,
): Promise<ServerInProcess> {
  const token = await admin.createToken(serverAccount.namespace, serverAccount.name);
  const ca = admin.ca === undefined ? {} : { ca: admin.ca };
  return serverAt(admin.url, { token, ...ca }, flags, clock);
}

export async function serverAt(
  url: string,
  credentials: { readonly token?: string; readonly ca?: string },
  flags: readonly string[] = [],
  clock?: Clock,
): Promise<ServerInProcess> {
  const off = ["--ports-http", "0", "--ports-admin", "0", "--listen-stream", "127.0.0.1", "--log-level", "debug"];
  const inputs = { argv: [...off, ...flags], env: {}, readFile: () => "" };
  const loaded = loadConfig("server", inputs);
  invariant(loaded.kind === "loaded", "the flags are right");
  const lines: string[] = [];
  const frame = await openFrame("server", loaded, { inputs, write: (line) => lines.push(line), isTerminal: false });
  // Any free port, which an operator cannot ask for: agents would not find it.
  const config = (): ReturnType<typeof frame.config> => ({
    ...frame.config(),
    ports: { ...frame.config().ports, stream: 0 },
  });
  const pages = new Map<string, Page>();
  const adminPage = (path: string, page: Page): void => void pages.set(path, page);
  const server = await startServer(
    { ...frame, config, adminPage, clock: clock ?? frame.clock },
    connectTo(url, credentials),
  );
  const problems = (): string[] => {
    const { ok, text } = frame.health.report("ready");
    return ok ? [] : text.split("\n").filter((line) => line.startsWith("[-]"));
  };
  return {
    ...server,
    pages,
    lines,
    problems,
    ready: () => until("the server is ready", async () => problems().length === 0),
    stop: async () => {
      await server.stop();
      await frame.close();
    },
  };
}
