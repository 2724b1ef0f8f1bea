#!/usr/bin/env node
// `npm start`: shows Cattail at work on this machine, see options.ts for its flags.
import { parseOptions, usage } from "./options.ts";
import { jsonReport, textReport } from "./report.ts";
import { runDemo } from "./run.ts";

const options = parseOptions(process.argv.slice(2));
if (options === "help") {
  console.log(usage);
} else if ("problem" in options) {
  console.error(`${options.problem}\n\n${usage}`);
  process.exitCode = 2;
} else {
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => interrupted.abort());
  const write = (line: string): void => console.log(line);
  const report = options.json ? jsonReport(write) : textReport(write);
  const demo = await runDemo(options, report, interrupted.signal);
  if (!options.once) await aborted(interrupted.signal);
  await demo.stop();
  report.totals(demo.totals);
  process.exitCode = demo.totals.errors === 0 ? 0 : 1;
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    // A timer keeps the process alive; a signal handler alone does not.
    const idle = setInterval(() => {}, 60_000);
    signal.addEventListener("abort", () => {
      clearInterval(idle);
      resolve();
    });
  });
}
