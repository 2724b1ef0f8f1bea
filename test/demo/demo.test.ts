import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { parseOptions } from "./options.ts";

const main = join(import.meta.dirname, "main.ts");

interface Run {
  readonly code: number | null;
  readonly lines: readonly string[];
}

/** `onLine` may answer with a signal for the demo. */
async function demo(
  args: readonly string[],
  onLine: (line: string) => NodeJS.Signals | undefined = () => undefined,
): Promise<Run> {
  const child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    const signal = onLine(line);
    if (signal) child.kill(signal);
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, lines };
}

test("given --once, then the demo ends by itself with its totals as the last line, and every pod had an address of each family", async () => {
  const { code, lines } = await demo(["--once", "--nodes", "2", "--pods", "10"]);
  assert.equal(code, 0);
  assert.match(lines.at(-1) ?? "", /^demo: 2 nodes, 10 pods added, 10 deleted, [1-9][0-9]* API requests, 0 errors$/);
  const added = lines.filter((line) => / ADD .* 10\.244\.[0-9.]+ {2}fd00:10:244:[0-9a-f:]+ /.test(line));
  assert.equal(added.length, 10);
});

for (const signal of ["SIGINT", "SIGHUP"] as const) {
  test(`given no --once, then the demo runs until ${signal}, having shown how to add a pod by hand, exits 0 and leaves nothing`, async () => {
    let folder = "";
    const { code, lines } = await demo(["--nodes", "1", "--pods", "2"], (line) => {
      if (!line.includes("| env CNI_COMMAND='ADD'")) return undefined;
      folder = dirname(dirname(line.split(" ").at(-1) ?? ""));
      assert.ok(existsSync(folder), folder);
      return signal;
    });
    assert.equal(code, 0);
    assert.match(lines.at(-1) ?? "", /^demo: 1 nodes, 2 pods added, 2 deleted,/);
    assert.ok(!existsSync(folder), folder);
  });
}

test("given --json, then every line is one JSON document", async () => {
  const { code, lines } = await demo(["--once", "--json", "--nodes", "1", "--pods", "3"]);
  assert.equal(code, 0);
  const events = lines.map((line) => JSON.parse(line) as { event: string; added?: number });
  assert.equal(events.filter(({ event }) => event === "pod").length, 6);
  assert.deepEqual(events.at(-1)?.added, 3);
});

test("given a wrong flag or value, then it is named, with what is allowed", () => {
  const problemOf = (...args: string[]): string => {
    const parsed = parseOptions(args);
    assert.ok(typeof parsed === "object" && "problem" in parsed);
    return parsed.problem;
  };
  assert.match(problemOf("--nodes", "0"), /--nodes is "0"; it must be a whole number from 1 to 20/);
  assert.match(problemOf("--pods", "many"), /--pods is "many"/);
  assert.match(problemOf("--node", "3"), /--node/);
  const tooMany =
    "--pods is 2401, but 2 nodes hold 2400 at most: Calico gives a node 20 blocks of 64 addresses, and some are kept in stock. Use at least 3 nodes";
  assert.equal(problemOf("--nodes", "2", "--pods", "2401"), tooMany);
  assert.ok("pods" in Object(parseOptions(["--nodes", "2", "--pods", "2400"])));
  assert.ok("pods" in Object(parseOptions(["--nodes", "9", "--pods", "10000"])));
});
