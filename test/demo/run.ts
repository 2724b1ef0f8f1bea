// One demo: a cluster of nodes, pods added and deleted by executing the compiled CNI executable as kubelet's runtime would.
// Leaves to main.ts flags and signals, to report.ts how it is said, to test/cluster how a cluster is made.
import { join } from "node:path";
import { Cluster, ipPool, prepare } from "../cluster/cluster.ts";
import { temporaryFolder } from "../cluster/daemon.ts";
import { inParallel } from "../cluster/pool-of-work.ts";
import { newSandbox, type Runtime, type Sandbox } from "../cluster/runtime.ts";
import type { DemoOptions } from "./options.ts";
import type { Report, Totals } from "./report.ts";
import { type Counts, embedded, fromKubeconfig, type Target } from "./target.ts";
import { keepOffPoolsInUse, removeTraces } from "./traces.ts";

/** Sandboxes that a kubelet sets up at the same time, over all nodes. */
const atATime = 8;
const namespace = "cattail-demo";
/** Says what is asked for under Calico's own name: an IPv4 and an IPv6 address for each pod. */
const ipam = { assign_ipv4: "true", assign_ipv6: "true" };

interface Pod {
  readonly node: string;
  readonly runtime: Runtime;
  readonly sandbox: Sandbox;
}

export interface Demo {
  readonly totals: Totals;
  /** Runs pods until everything is stopped. */
  stop(): Promise<void>;
}

export async function runDemo(options: DemoOptions, report: Report, signal: AbortSignal): Promise<Demo> {
  const target = options.kubeconfig === undefined ? await embedded() : await fromKubeconfig(options.kubeconfig);
  report.step(`API server ${target.api.url}${target.isOurs ? " (embedded)" : ""}`);
  const nodes = Array.from({ length: options.nodes }, (_, index) => `cattail-demo-${index + 1}`);
  const pools = [
    ipPool("cattail-demo-ipv4", "10.244.0.0/16", { nodeSelector: "has(cattail-demo)" }),
    ipPool("cattail-demo-ipv6", "fd00:10:244::/48", { nodeSelector: "has(cattail-demo)" }),
  ];
  const setup = {
    api: target.api,
    folder: await temporaryFolder("ct"),
    nodes,
    pools,
    namespace,
    labels: { "cattail-demo": "yes" },
  };
  if (!target.isOurs) await keepOffPoolsInUse(setup);
  const undo = async (): Promise<void> => {
    if (!target.isOurs) await removeTraces(setup);
    await target.stop();
  };
  try {
    await prepare(setup);
    const cluster = await Cluster.start(setup);
    const stop = async (): Promise<void> => {
      await cluster.stop();
      await undo();
    };
    report.step(`server ready: stream ${cluster.server.streamUrl}, pages ${cluster.server.url}`);
    report.step(`${nodes.length} agents ready: ${nodes.join(", ")}`);
    try {
      const totals = await lifeOfPods(options, cluster, target, report, signal);
      if (!options.once && !signal.aborted) invite(cluster, report);
      return { totals, stop };
    } catch (cause) {
      await stop();
      throw cause;
    }
  } catch (cause) {
    await undo();
    throw cause;
  }
}

async function lifeOfPods(
  options: DemoOptions,
  cluster: Cluster,
  target: Target,
  report: Report,
  signal: AbortSignal,
): Promise<Totals> {
  const nodes = [...cluster.agents.values()];
  const pods = Array.from({ length: options.pods }, (_, index): Pod => {
    const agent = nodes[index % nodes.length] ?? cluster.agent("");
    return { node: agent.node, runtime: agent.runtime(ipam), sandbox: newSandbox(namespace, `pod-${index + 1}`) };
  });
  const start = await target.counts(cluster);
  const added = await perform("ADD", pods, report, signal);
  const afterAdd = await target.counts(cluster);
  report.requests("adding", pods.length, difference(start, afterAdd));
  const deleted = await perform("DEL", pods, report, signal);
  const end = await target.counts(cluster);
  report.requests("deleting", pods.length, difference(afterAdd, end));
  const requests = [...end.values()].reduce((sum, count) => sum + count, 0);
  const errors = added.errors.concat(deleted.errors);
  return { nodes: nodes.length, added: added.done, deleted: deleted.done, requests, errors: errors.length };
}

async function perform(
  verb: "ADD" | "DEL",
  pods: readonly Pod[],
  report: Report,
  signal: AbortSignal,
): Promise<{ done: number; errors: string[] }> {
  const held = new Map<string, Pod>();
  const errors: string[] = [];
  let done = 0;
  await inParallel(pods, atATime, async (pod) => {
    if (signal.aborted) return;
    const outcome = await (verb === "ADD" ? pod.runtime.add(pod.sandbox) : pod.runtime.del(pod.sandbox));
    const twice = outcome.ok ? outcome.addresses.filter((address) => held.has(address)) : [];
    if (outcome.ok) for (const address of outcome.addresses) held.set(address, pod);
    const error = outcome.ok ? twice.map((address) => `${address} was given twice`).join() : outcome.error.msg;
    if (error === "") done += 1;
    else errors.push(error);
    const said = error === "" ? (outcome.ok ? outcome.addresses.join("  ") : "") : `error: ${error}`;
    report.pod(verb, pod.node, pod.sandbox, said, outcome.milliseconds);
  });
  return { done, errors };
}

function difference(before: Counts, after: Counts): Counts {
  const entries = [...after].map(([what, count]) => [what, count - (before.get(what) ?? 0)] as const);
  return new Map(entries.filter(([, count]) => count > 0));
}

/** A line for the reader's shell that does what a runtime does. */
function invite(cluster: Cluster, report: Report): void {
  const [agent] = cluster.agents.values();
  if (agent === undefined) return;
  const runtime = agent.runtime(ipam);
  const sandbox = { ...newSandbox(namespace, "by-hand"), containerId: "by-hand-1" };
  const variables = Object.entries(runtime.environment("ADD", sandbox)).map(([name, value]) => `${name}='${value}'`);
  const executable = join(agent.stateFolder, "..", "bin", "calico-ipam");
  report.step("");
  report.step(
    `The cluster goes on until Ctrl-C. State: ${cluster.server.url}/readyz?verbose   ${cluster.server.url}/metrics   ${cluster.server.adminUrl}/`,
  );
  report.step(
    "One more pod by hand (CNI_COMMAND=DEL gives its addresses back; another CNI_CONTAINERID is another pod):",
  );
  report.step("");
  report.step(`  echo '${JSON.stringify(runtime.netconf())}' | env ${variables.join(" ")} ${executable}`);
}
