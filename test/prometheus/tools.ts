// Debian's Prometheus and promtool, as an operator has them; nothing is downloaded. What is missing fails with the name of the package.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { until } from "../cluster/api.ts";
import { freePort } from "../cluster/daemon.ts";

export interface Ran {
  readonly code: number;
  readonly output: string;
}

export function promtool(args: readonly string[], input = ""): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = execFile("promtool", [...args], (error, stdout, stderr) => {
      if (error !== null && error.code === "ENOENT")
        reject(new Error("promtool is missing: apt-get install prometheus"));
      resolve({ code: typeof error?.code === "number" ? error.code : 0, output: stdout + stderr });
    });
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
  });
}

export interface Target {
  readonly job: string;
  /** `127.0.0.1:4481` */
  readonly address: string;
}

export interface Prometheus {
  readonly url: string;
  query(expression: string): Promise<readonly Sample[]>;
  rules(): Promise<readonly { readonly name: string; readonly health: string; readonly lastError?: string }[]>;
  stop(): Promise<void>;
}

export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

/** Scrapes every second. Returns once every target is up. */
export async function startPrometheus(
  folder: string,
  targets: readonly Target[],
  rules: readonly string[],
): Promise<Prometheus> {
  await mkdir(folder, { recursive: true });
  const port = await freePort();
  const config = {
    global: { scrape_interval: "1s", evaluation_interval: "1s" },
    rule_files: rules,
    scrape_configs: targets.map(({ job, address }) => ({ job_name: job, static_configs: [{ targets: [address] }] })),
  };
  const file = join(folder, "prometheus.json");
  // YAML is a superset of JSON.
  await writeFile(file, JSON.stringify(config));
  const flags = [
    `--config.file=${file}`,
    `--storage.tsdb.path=${join(folder, "data")}`,
    `--web.listen-address=127.0.0.1:${port}`,
  ];
  const child = spawn("prometheus", flags, { stdio: ["ignore", "ignore", "ignore"] });
  const failed = once(child, "error").then(([cause]) => {
    throw new Error("prometheus is missing: apt-get install prometheus", { cause });
  });
  const url = `http://127.0.0.1:${port}`;
  const ask = async <T>(path: string): Promise<T> => {
    const answer = (await (await fetch(`${url}/api/v1/${path}`)).json()) as { status: string; error?: string; data: T };
    if (answer.status !== "success") throw new Error(`${path}: ${answer.error}`);
    return answer.data;
  };
  const query = async (expression: string): Promise<readonly Sample[]> =>
    (await ask<{ result: readonly Sample[] }>(`query?query=${encodeURIComponent(expression)}`)).result;
  await Promise.race([
    failed,
    until("Prometheus has scraped every target", async () => (await query("up == 1")).length === targets.length),
  ]);
  return {
    url,
    query,
    rules: async () =>
      (await ask<{ groups: { rules: { name: string; health: string }[] }[] }>("rules")).groups.flatMap(
        (group) => group.rules,
      ),
    async stop() {
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    },
  };
}
