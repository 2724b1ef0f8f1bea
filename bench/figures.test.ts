// Figures are judged by rule, not by eye: median and spread, goals in both directions, and what a comparison calls worse.
import assert from "node:assert/strict";
import { test } from "node:test";
import { compare } from "./compare.ts";
import { type Figure, figure, type Result } from "./figures.ts";

const machine = { cpu: "c", cores: 2, memoryBytes: 1, system: "s", node: "26", load: 0 };
const result = (...figures: Figure[]): Result => ({ bench: "b", measures: "", at: "", machine, figures });

test("a figure is the median of its samples, with the extremes, its peer's ratio and whether it meets its goal", () => {
  assert.deepEqual(figure("cost", "µs", [9, 1, 2, 3, 4], { peer: 6, goal: 3 }), {
    name: "cost",
    unit: "µs",
    value: 3,
    low: 1,
    high: 9,
    peer: 6,
    ratio: 0.5,
    goal: 3,
    met: true,
  });
  assert.equal(figure("cost", "µs", [4], { goal: 3 }).met, false);
  assert.equal(figure("rate", "ADD/s", [4], { goal: 3 }).met, true, "of a rate more is better");
  assert.equal(figure("cost", "µs", [4]).met, null);
});

test("worse is what is worse by more than a tenth and outside both runs' spread", () => {
  const before = result(figure("a", "µs", [10, 11, 12]), figure("b", "ADD/s", [100]), figure("gone", "µs", [1]));
  const verdicts = (...figures: Figure[]): string[] =>
    compare(before, result(...figures)).map(({ name, verdict }) => `${name} ${verdict}`);
  assert.deepEqual(verdicts(figure("a", "µs", [13, 14, 15])), ["a worse"]);
  assert.deepEqual(verdicts(figure("a", "µs", [12, 14, 15])), ["a same"], "the spreads touch");
  assert.deepEqual(verdicts(figure("a", "µs", [5, 6, 7])), ["a better"]);
  assert.deepEqual(verdicts(figure("b", "ADD/s", [80])), ["b worse"]);
  assert.deepEqual(verdicts(figure("b", "ADD/s", [95])), ["b same"], "within the noise");
  assert.deepEqual(verdicts(figure("b", "µs", [200]), figure("new", "µs", [1])), [], "another unit, another figure");
});
