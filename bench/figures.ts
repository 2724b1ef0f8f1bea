// What a benchmark gives: figures with their spread, the peer of the same run beside them, and the goal they are held to.
// Leaves measuring to the benchmarks and printing to main.ts.

export interface Figure {
  readonly name: string;
  readonly unit: string;
  /** The median of the repetitions. */
  readonly value: number;
  readonly low: number;
  readonly high: number;
  /** What the same costs when it is done in the usual way, measured in the same run; null: there is nothing to compare with. */
  readonly peer: number | null;
  /** value / peer */
  readonly ratio: number | null;
  /** At most so much, or at least when `unit` is a rate ("/s"). */
  readonly goal: number | null;
  readonly met: boolean | null;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly system: string;
  readonly node: string;
  /** Of the whole machine in the minute before: others share it. */
  readonly load: number;
}

export interface Result {
  readonly bench: string;
  /** What was measured, in a sentence. */
  readonly measures: string;
  readonly at: string;
  readonly machine: Machine;
  readonly figures: readonly Figure[];
}

interface Wish {
  readonly peer?: number | undefined;
  readonly goal?: number | undefined;
}

/** From the repetitions of one measurement. */
export function figure(name: string, unit: string, samples: readonly number[], { peer, goal }: Wish = {}): Figure {
  const sorted = samples.toSorted((a, b) => a - b);
  const value = quantile(sorted, 0.5);
  return {
    name,
    unit,
    value: round(value),
    low: round(sorted[0] ?? Number.NaN),
    high: round(sorted.at(-1) ?? Number.NaN),
    peer: peer === undefined ? null : round(peer),
    ratio: peer === undefined ? null : round(value / peer),
    goal: goal ?? null,
    met: goal === undefined ? null : moreIsBetter(unit) ? value >= goal : value <= goal,
  };
}

export function moreIsBetter(unit: string): boolean {
  return unit.endsWith("/s");
}

/** Of values in ascending order, the nearest that was measured. */
export function quantile(sorted: ArrayLike<number>, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** Four digits say all that such a measurement knows. */
function round(value: number): number {
  return Number.isFinite(value) ? Number(value.toPrecision(4)) : value;
}

export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [headings, ...rows];
  const widths = headings.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join("  ");
  return all.map((row) => line(row).trimEnd()).join("\n");
}

export function resultText({ bench, measures, machine, figures }: Result): string {
  const gib = (machine.memoryBytes / 2 ** 30).toFixed(0);
  const about = `${machine.cores} × ${machine.cpu}, ${gib} GiB, ${machine.system}, Node ${machine.node}, load ${machine.load}`;
  const rows = figures.map(({ name, unit, value, low, high, peer, ratio, goal, met }) => [
    name,
    unit,
    String(value),
    `${low} to ${high}`,
    peer === null ? "" : `${peer} (${ratio} times)`,
    goal === null ? "" : `${moreIsBetter(unit) ? "≥" : "≤"} ${goal}`,
    met === null ? "" : met ? "met" : "MISSED",
  ]);
  return `${bench}: ${measures}\n${about}\n${table(["figure", "unit", "median", "spread", "peer", "goal", ""], rows)}`;
}
