// What the demo says while it runs: lines for a person, or one JSON object per line for a program.
// Leaves to run.ts what is worth saying.
import type { Sandbox } from "../cluster/runtime.ts";

export interface Totals {
  readonly nodes: number;
  readonly added: number;
  readonly deleted: number;
  readonly requests: number;
  readonly errors: number;
}

export interface Report {
  step(text: string): void;
  pod(verb: "ADD" | "DEL", node: string, sandbox: Sandbox, outcome: string, milliseconds: number): void;
  requests(phase: string, pods: number, counts: ReadonlyMap<string, number>): void;
  totals(totals: Totals): void;
}

export function jsonReport(write: (line: string) => void): Report {
  const print = (event: string, fields: object): void => write(JSON.stringify({ event, ...fields }));
  return {
    step: (text) => print("step", { text }),
    pod: (verb, node, { namespace, pod }, outcome, milliseconds) =>
      print("pod", { verb, node, pod: `${namespace}/${pod}`, outcome, milliseconds: Math.round(milliseconds) }),
    requests: (phase, pods, counts) => print("requests", { phase, pods, ...Object.fromEntries(counts) }),
    totals: (totals) => print("totals", totals),
  };
}

/** Pods said one by one before only every so many-th is. */
const saidOneByOne = 12;

export function textReport(write: (line: string) => void): Report {
  const said = { ADD: 0, DEL: 0 };
  return {
    step: write,
    pod(verb, node, { namespace, pod }, outcome, milliseconds) {
      said[verb] += 1;
      if (said[verb] > saidOneByOne && said[verb] % 50 !== 0 && !outcome.startsWith("error")) return;
      if (said[verb] === saidOneByOne + 50) write("  …");
      const name = `${namespace}/${pod}`.padEnd(16);
      write(
        `  ${String(said[verb]).padStart(5)}  ${verb}  ${node}  ${name}  ${outcome}  ${Math.round(milliseconds)} ms`,
      );
    },
    requests(phase, pods, counts) {
      const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
      write(`  API requests while ${phase} ${pods} pods: ${total}, ${(total / pods).toFixed(2)} per pod`);
      for (const [what, count] of [...counts].sort((a, b) => b[1] - a[1]))
        write(`    ${String(count).padStart(6)}  ${what}`);
    },
    totals: ({ nodes, added, deleted, requests, errors }) =>
      write(
        `demo: ${nodes} nodes, ${added} pods added, ${deleted} deleted, ${requests} API requests, ${errors} errors`,
      ),
  };
}
