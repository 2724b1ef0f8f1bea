// The demo's own flags.
import { parseArgs } from "node:util";

export interface DemoOptions {
  readonly nodes: number;
  readonly pods: number;
  /** Ends by itself. */
  readonly once: boolean;
  readonly json: boolean;
  /** Use this cluster's API server instead of the embedded one. */
  readonly kubeconfig: string | undefined;
}

/** What Calico does unless told otherwise. */
const blocksPerNode = 20;
const blockSize = 64;
/** A little less than fits, as agents keep some addresses in stock. */
const podsPerNode = 1200;

export const usage = `npm start -- [options]

  --nodes N           nodes, each with an agent of its own (1 to 20; default 3)
  --pods N            pods to add and delete in all (1 to 10000, 1200 for each node; default 60)
  --once              end when all pods are deleted; exit 0 if nothing went wrong
  --kubeconfig FILE   use this API server instead of the embedded one; it gets Calico's kinds and the access rules
                      if it lacks them, and nodes, pods and pools named cattail-demo…, which are removed at the end
  --json              one JSON object per line instead of text
  --help              this text
`;

/** Text instead of options: what is wrong, and what to do. */
export function parseOptions(args: readonly string[]): DemoOptions | "help" | { readonly problem: string } {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        nodes: { type: "string", default: "3" },
        pods: { type: "string", default: "60" },
        once: { type: "boolean", default: false },
        json: { type: "boolean", default: false },
        kubeconfig: { type: "string" },
        help: { type: "boolean", short: "h", default: false },
      },
    });
    if (values.help) return "help";
    const nodes = count("--nodes", values.nodes, 20);
    const pods = count("--pods", values.pods, 10_000);
    if (pods > nodes * podsPerNode) throw new Error(tooMany(nodes, pods));
    return { nodes, pods, once: values.once, json: values.json, kubeconfig: values.kubeconfig };
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}

function tooMany(nodes: number, pods: number): string {
  const limit = `Calico gives a node ${blocksPerNode} blocks of ${blockSize} addresses, and some are kept in stock`;
  const atLeast = Math.ceil(pods / podsPerNode);
  return `--pods is ${pods}, but ${nodes} nodes hold ${nodes * podsPerNode} at most: ${limit}. Use at least ${atLeast} nodes`;
}

function count(flag: string, text: string, max: number): number {
  const value = Number(text);
  if (/^[0-9]+$/.test(text) && value >= 1 && value <= max) return value;
  throw new Error(`${flag} is ${JSON.stringify(text)}; it must be a whole number from 1 to ${max}`);
}
