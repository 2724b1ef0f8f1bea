// `cattail check`: what findings.ts finds in two looks at the cluster, and the repair of what may be repaired (repair.ts).
// What is only under way looks like a fault for a moment, so a fault counts when the same one is seen again.
import { exitCode } from "../shared/exit-code.ts";
import type { UnixMs } from "../shared/kinds.ts";
import { command, noWords, type Session } from "./command.ts";
import { type Finding, findingsIn, keyOf, type Observed, type Severity } from "./findings.ts";
import { repair } from "./repair.ts";

export const check = command({
  name: "check",
  help: "Compares API objects, journals and what the runtimes wrote down, and names each fault with its remedy",
  usage: "",
  flags: {
    fix: {
      kind: "enum",
      values: ["AddressLeaked", "HandleOrphan"],
      help: "Repairs the findings of this reason that can be repaired; shows them and asks first",
    },
    dryRun: { kind: "boolean", default: "false", help: "With --fix: shows what would be done and does nothing" },
    yes: { kind: "boolean", default: "false", help: "With --fix: does not ask" },
    again: {
      kind: "duration",
      default: "15s",
      min: "0s",
      max: "1h",
      help: "After how long what looks wrong is looked at again; what is gone by then was only under way",
    },
  },
  async run(session, words, { fix, dryRun, yes, againMs }) {
    noWords("check", words);
    const findings = await seenTwice(session, againMs);
    const summary = {
      error: count(findings, "error"),
      warning: count(findings, "warning"),
      info: count(findings, "info"),
    };
    const facts = { asOf: new Date(session.clock.wall()).toISOString(), summary };
    if (fix === undefined) {
      show(session, findings, facts);
      return summary.error + summary.warning > 0 ? exitCode.findings : exitCode.ok;
    }
    const due = findings.filter(({ reason, fixable }) => reason === fix && fixable);
    const left = findings.filter(({ reason, fixable }) => reason === fix && !fixable).length;
    if (left > 0)
      session.say(`${left} more of ${fix} are left alone: see the evidence and the remedy of each in cattail check`);
    show(session, due, facts, `There is no ${fix} that can be repaired`);
    if (due.length === 0) return exitCode.ok;
    if (dryRun) {
      session.say(`would repair ${due.length} of ${fix}; nothing was done`);
      return exitCode.findings;
    }
    if (!yes && !(await session.agrees(`Repair these ${due.length}?`))) {
      session.say("nothing was done: nobody agreed (reason BadRequest). Write --yes where nobody can be asked");
      return exitCode.refused;
    }
    return repair(session, due);
  },
});

/** A healthy cluster is looked at once. */
async function seenTwice(session: Session, againMs: number): Promise<readonly Finding[]> {
  const first = findingsIn(await observe(session));
  if (first.length === 0) return first;
  session.say(`looking again in ${againMs / 1000} s at what may only be under way: ${first.length} findings`);
  await session.pause(againMs);
  const known = new Set(first.map(keyOf));
  return findingsIn(await observe(session)).filter((finding) => known.has(keyOf(finding)));
}

/** Straight from the API server: a cache's age would look like a fault. Blocks before pods and journals, which are then the newer. */
async function observe({ sources, clock, say }: Session): Promise<Observed> {
  const blocks = await sources.fresh("block");
  const [pools, affinities, handles, nodes, pods] = await Promise.all([
    sources.fresh("pool"),
    sources.fresh("affinity"),
    sources.fresh("handle"),
    sources.tunnels(),
    sources.pods(),
  ]);
  const agents = await sources.agents();
  for (const [who, why] of agents.silent) say(`agent ${who} was not asked: ${why}`);
  for (const { name, problem } of [...pools.unread, ...affinities.unread, ...handles.unread])
    say(`${name} cannot be read and is left out: ${problem}`);
  return {
    now: clock.wall() satisfies UnixMs,
    pools: pools.objects,
    blocks: blocks.objects,
    unreadBlocks: blocks.unread,
    affinities: affinities.objects,
    handles: handles.objects,
    nodes,
    pods,
    agents: agents.states,
  };
}

function show(
  session: Session,
  items: readonly Finding[],
  facts: Readonly<Record<string, unknown>>,
  nothing?: string,
): void {
  session.show(
    {
      kind: "CheckReport",
      facts,
      items,
      name: ({ reason, address, block, handle }) => `${reason}/${address ?? block ?? handle ?? ""}`,
      tone: ({ severity }) => (severity === "error" ? "bad" : severity === "warning" ? "doubtful" : undefined),
      columns: [
        ["SEVERITY", ({ severity }) => severity],
        ["REASON", ({ reason }) => reason],
        ["WHAT", ({ message }) => message],
        ["EVIDENCE", ({ evidence }) => evidence.join("; ")],
        ["REMEDY", ({ remedy }) => remedy],
      ],
    },
    nothing,
  );
}

function count(findings: readonly Finding[], severity: Severity): number {
  return findings.filter((finding) => finding.severity === severity).length;
}
