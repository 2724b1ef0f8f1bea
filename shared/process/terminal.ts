// What a process reads from and says to whoever started it: arguments, environment, lines.
// Leaves to others: the log of a daemon.
import { readFileSync } from "node:fs";
import type { Inputs } from "../config/load.ts";

export function processInputs(): Inputs {
  return { argv: process.argv.slice(2), env: process.env, readFile: (path) => readFileSync(path, "utf8") };
}

export function print(stream: NodeJS.WritableStream, lines: readonly string[]): void {
  for (const line of lines) stream.write(`${line}\n`);
}
