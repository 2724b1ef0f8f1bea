// The machine that a result was measured on, and what its processes have used so far, as the kernel counts it.
import { readFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem, type } from "node:os";
import type { Machine } from "./figures.ts";

export function machine(): Machine {
  const [first] = cpus();
  return {
    cpu: first?.model.trim() ?? "unknown",
    cores: cpus().length,
    memoryBytes: totalmem(),
    system: `${type()} ${release()}`,
    node: process.versions.node,
    load: Number((loadavg()[0] ?? 0).toFixed(2)),
  };
}

/** The kernel's clock tick, the same on every Linux that Node runs on. */
const tickUs = 10_000;

/** User and system time of a process and all its threads. */
export function cpuUs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The program's name, in parentheses, may have spaces in it.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * tickUs;
}

export function residentBytes(pid: number): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}

/** One clock for all processes of a machine: monotonic, in microseconds. */
export function nowUs(): number {
  return Number(process.hrtime.bigint() / 1000n);
}

export function sleep(ms: number): Promise<void> {
  return new Promise((wake) => setTimeout(wake, ms));
}
