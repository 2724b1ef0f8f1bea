// What got worse between two results: by more than the noise that both runs show. Decides only; main.ts reads the files.
import { type Figure, moreIsBetter, type Result, table } from "./figures.ts";

/** Two runs on one machine differ by so much for no reason, even where their repetitions agree. */
const noise = 0.1;

export interface Comparison {
  readonly name: string;
  readonly before: Figure;
  readonly after: Figure;
  /** Above 1: more of it than before. */
  readonly factor: number;
  readonly verdict: "worse" | "better" | "same";
}

/** Only figures that both have: a new one has nothing to be held against. */
export function compare(before: Result, after: Result): Comparison[] {
  const known = new Map(before.figures.map((figure) => [figure.name, figure]));
  return after.figures.flatMap((figure) => {
    const old = known.get(figure.name);
    return old === undefined || old.unit !== figure.unit ? [] : [judged(old, figure)];
  });
}

/** Worse is only what lies outside the other's spread as well. */
function judged(before: Figure, after: Figure): Comparison {
  const factor = after.value / before.value;
  const above = after.value > before.value * (1 + noise) && after.low > before.high;
  const below = after.value < before.value * (1 - noise) && after.high < before.low;
  const [worse, better] = moreIsBetter(after.unit) ? [below, above] : [above, below];
  return { name: after.name, before, after, factor, verdict: worse ? "worse" : better ? "better" : "same" };
}

export function comparisonText(comparisons: readonly Comparison[]): string {
  const rows = comparisons.map(({ name, before, after, factor, verdict }) => [
    name,
    after.unit,
    String(before.value),
    String(after.value),
    factor.toFixed(2),
    verdict === "worse" ? "WORSE" : verdict,
  ]);
  return table(["figure", "unit", "before", "after", "factor", ""], rows);
}
