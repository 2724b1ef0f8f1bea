// Feeds the metrics that every process has: memory, CPU, descriptors, how late the event loop runs (ux 3).
// Leaves to others: the metrics that parts of the process feed themselves.
import { readdir, readFile } from "node:fs/promises";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { getHeapStatistics } from "node:v8";
import type { MetricHandles, MetricsRegistry, processMetrics } from "../metrics.ts";
import type { Clock } from "../world.ts";

const loopWindowMs = 10_000;
const loopResolutionMs = 10;

/** Returns what ends the measuring. */
export function observeRuntime(
  handles: MetricHandles<typeof processMetrics>,
  registry: MetricsRegistry,
  clock: Clock,
): () => void {
  handles.startTime.set(performance.timeOrigin / 1000);
  let countedCpuSeconds = 0;
  registry.beforeScrape(async () => {
    const { user, system } = process.cpuUsage();
    const cpuSeconds = (user + system) / 1e6;
    handles.cpuSeconds.inc(Math.max(0, cpuSeconds - countedCpuSeconds));
    countedCpuSeconds = cpuSeconds;
    handles.residentBytes.set(process.memoryUsage.rss());
    handles.heapUsedBytes.set(getHeapStatistics().used_heap_size);
    const [openFds, maxFds] = await Promise.all([countOpenFds(), readMaxFds()]);
    handles.openFds.set(openFds);
    handles.maxFds.set(maxFds);
  });
  return observeLoopDelay(handles.eventLoopDelay, clock);
}

/** Not prom-client's own: that one is reset by whoever scrapes, so two scrapers halve each other's view. */
function observeLoopDelay(gauge: MetricHandles<typeof processMetrics>["eventLoopDelay"], clock: Clock): () => void {
  const monitor = monitorEventLoopDelay({ resolution: loopResolutionMs });
  monitor.enable();
  // The monitor measures from one of its ticks to the next, so an idle loop shows the resolution.
  const seconds = (nanos: number): number => Math.max(0, nanos / 1e9 - loopResolutionMs / 1000);
  let cancel = clock.after(loopWindowMs, endWindow);
  function endWindow(): void {
    gauge.set({ quantile: "0.5" }, seconds(monitor.percentile(50)));
    gauge.set({ quantile: "0.99" }, seconds(monitor.percentile(99)));
    gauge.set({ quantile: "1" }, seconds(monitor.max));
    monitor.reset();
    cancel = clock.after(loopWindowMs, endWindow);
  }
  return () => {
    cancel();
    monitor.disable();
  };
}

/** In the thread pool: with thousands of sockets this takes milliseconds. */
async function countOpenFds(): Promise<number> {
  return (await readdir("/proc/self/fd")).length;
}

async function readMaxFds(): Promise<number> {
  const limits = await readFile("/proc/self/limits", "utf8");
  return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
}
