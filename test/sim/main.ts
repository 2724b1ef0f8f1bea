// npm run sim -- --seeds N [--seed S] [--history]: so many lifetimes from seed S on; exit code 1 if a promise was broken.
import { parseArgs } from "node:util";
import { live } from "./lifetime.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "100" },
    seed: { type: "string", default: "1" },
    history: { type: "boolean", default: false },
  },
});
const [seeds, first] = [Number(values.seeds), Number(values.seed)];
const began = performance.now();
let violations = 0;
for (let seed = first; seed < first + seeds; seed++) {
  const lifetime = await live(seed);
  if (values.history) console.log(lifetime.history.join("\n"));
  for (const violation of lifetime.violations) console.log(`seed ${seed}: ${violation}`);
  violations += lifetime.violations.length;
}
const perSecond = seeds / ((performance.now() - began) / 1000);
console.log(`sim: ${seeds} seeds, ${violations} violations, ${perSecond.toFixed(1)} lifetimes/s`);
process.exit(violations > 0 ? 1 : 0);
