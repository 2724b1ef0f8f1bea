// `npm run bench -- NAME [--json]`: measures, keeps the result in bench/results/local-NAME.json and shows it. `compare A.json B.json`: what got worse.
// Leaves what is measured and how to the benchmarks.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { compare, comparisonText } from "./compare.ts";
import { type Figure, type Result, resultText } from "./figures.ts";
import { machine } from "./machine.ts";
import * as fanout from "./stream/fanout.ts";

interface Options {
  readonly clients: number;
}

interface Benchmark {
  readonly measures: string;
  readonly run: (options: Options) => Promise<Figure[]>;
}

const benchmarks: Readonly<Record<string, Benchmark>> = {
  fanout: { measures: fanout.measures, run: fanout.fanout },
};

const usage = `npm run bench -- NAME [--json] [--clients N]
npm run bench -- compare BEFORE.json AFTER.json

${Object.entries(benchmarks)
  .map(([name, { measures }]) => `  ${name.padEnd(10)} ${measures}`)
  .join("\n")}
`;

process.exitCode = await run();

async function run(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: "boolean", default: false },
      clients: { type: "string", default: "1000" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  const [name = "", ...rest] = positionals;
  if (name === "compare") return compareFiles(rest);
  const benchmark = benchmarks[name];
  const clients = Number(values.clients);
  if (values.help || benchmark === undefined || !Number.isInteger(clients) || clients < 1) {
    console.error(usage);
    return values.help ? 0 : 2;
  }
  const result: Result = {
    bench: name,
    measures: benchmark.measures,
    at: new Date().toISOString(),
    machine: machine(),
    figures: await benchmark.run({ clients }),
  };
  const folder = join(import.meta.dirname, "results");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `local-${name}.json`), `${JSON.stringify(result, undefined, 2)}\n`);
  console.log(values.json ? JSON.stringify(result) : resultText(result));
  return 0;
}

/** 1: something got worse. */
function compareFiles([before, after]: readonly string[]): number {
  if (before === undefined || after === undefined) {
    console.error(usage);
    return 2;
  }
  const comparisons = compare(read(before), read(after));
  console.log(comparisonText(comparisons));
  return comparisons.some(({ verdict }) => verdict === "worse") ? 1 : 0;
}

function read(file: string): Result {
  return JSON.parse(readFileSync(file, "utf8")) as Result;
}
