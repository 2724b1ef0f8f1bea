// What is wrong between blocks, handles, affinities, pods, journals and what the runtimes wrote down: each fault named, with evidence and remedy.
// A function of what was read. Leaves to others: reading, seeing it twice (check.ts), repairing (fix.ts).
import {
  blockOwner,
  checkBlock,
  holderOf,
  isEmpty,
  ownerAttributes,
  windowsReservedHandle,
} from "../shared/calico/block.ts";
import { isTunnel } from "../shared/calico/census.ts";
import { isWarmHandle, warmHandle } from "../shared/calico/names.ts";
import type { Affinity, Block, Handle, Holder, Pool } from "../shared/calico/resources.ts";
import { addressAt, contains, overlaps } from "../shared/ip/cidr.ts";
import type { Address, HandleId, NodeName, UnixMs } from "../shared/kinds.ts";
import type { NodeState } from "../shared/protocol/node-state.ts";
import type { Unread } from "./command.ts";
import type { Pod } from "./pods.ts";

export const findingReasons = [
  "AddressLeaked",
  "AddressUnrecorded",
  "AddressDouble",
  "HandleOrphan",
  "HandleMissing",
  "BlockOrphan",
  "BlockInvalid",
  "ClaimHalfDone",
  "WarmStale",
] as const;
export type FindingReason = (typeof findingReasons)[number];
/** info: worth knowing, and no fault. */
export type Severity = "error" | "warning" | "info";

export interface Finding {
  readonly reason: FindingReason;
  readonly severity: Severity;
  readonly message: string;
  readonly address?: string;
  readonly block?: string;
  readonly node?: string;
  readonly pod?: string;
  readonly handle?: string;
  /** The owner's, in decimal: what a repair expects to find. */
  readonly sequence?: string;
  readonly evidence: readonly string[];
  readonly remedy: string;
  /** All that could speak against it was looked at: `check --fix` may repair it. */
  readonly fixable: boolean;
}

export interface Observed {
  readonly now: UnixMs;
  readonly pools: readonly Pool[];
  readonly blocks: readonly Block[];
  readonly unreadBlocks: readonly Unread[];
  readonly affinities: readonly Affinity[];
  readonly handles: readonly Handle[];
  /** Names of the Nodes, with the addresses of their tunnels as the Node has them. */
  readonly nodes: ReadonlyMap<string, readonly string[]>;
  readonly pods: readonly Pod[];
  /** By node; a node without an entry was not asked or did not answer. */
  readonly agents: ReadonlyMap<string, NodeState>;
}

/** Retags may wait this long at most (flushDelay), and then some: an older pod's address should show in its block. */
const longestWaitMs = 10 * 60_000;

/** Errors first, then by place. */
export function findingsIn(seen: Observed): Finding[] {
  const index = indexOf(seen);
  return [
    ...blockFindings(seen),
    ...allocationFindings(seen, index),
    ...podFindings(seen, index),
    ...journalFindings(seen, index),
    ...handleFindings(seen, index),
    ...claimFindings(seen),
  ].toSorted((a, b) => rank[a.severity] - rank[b.severity] || keyOf(a).localeCompare(keyOf(b)));
}

const rank: Readonly<Record<Severity, number>> = { error: 0, warning: 1, info: 2 };

/** The same fault of the same owner. */
export function keyOf({ reason, address, block, node, pod, handle, sequence }: Finding): string {
  return [reason, block, address, node, pod, handle, sequence].map((part) => part ?? "").join(" ");
}

interface Allocation {
  readonly block: Block;
  readonly address: Address;
  readonly holder: Holder;
  readonly attributes: Readonly<Record<string, string>>;
}

interface Index {
  readonly allocations: ReadonlyMap<Address, readonly Allocation[]>;
  readonly perHandle: ReadonlyMap<HandleId, ReadonlyMap<string, number>>;
  readonly pods: ReadonlyMap<string, Pod>;
  /** Pods that have their address now. */
  readonly users: ReadonlyMap<Address, readonly Pod[]>;
  /** What the journals say is a container's. */
  readonly journalled: ReadonlyMap<string, readonly { readonly node: string; readonly holding: Journalled }[]>;
}
type Journalled = NodeState["holdings"][number];

function indexOf({ blocks, pods, agents }: Observed): Index {
  const allocations = new Map<Address, Allocation[]>();
  const perHandle = new Map<HandleId, Map<string, number>>();
  for (const block of blocks) {
    if (block.deleted) continue;
    for (const ordinal of block.allocations.keys()) {
      const holder = holderOf(block, ordinal);
      if (holder === undefined) continue;
      const address = addressAt(block.cidr, ordinal);
      push(allocations, address, { block, address, holder, attributes: ownerAttributes(block, ordinal) ?? {} });
      const counts = perHandle.get(holder.handle) ?? new Map<string, number>();
      perHandle.set(holder.handle, counts.set(block.cidr, (counts.get(block.cidr) ?? 0) + 1));
    }
  }
  const users = new Map<Address, Pod[]>();
  for (const pod of pods) {
    if (pod.hostNetwork || pod.isFinished || pod.node === "") continue;
    for (const address of pod.addresses) push(users, address, pod);
  }
  const journalled = new Map<string, { node: string; holding: Journalled }[]>();
  for (const [node, state] of agents) {
    for (const holding of state.holdings) if (isUse(holding)) push(journalled, holding.address, { node, holding });
  }
  return { allocations, perHandle, pods: new Map(pods.map((pod) => [pod.key, pod])), users, journalled };
}

/** A container has it, or is about to. */
function isUse({ attachment, state }: Journalled): boolean {
  return attachment !== "" && (state === "held" || state === "owned" || state === "reserving");
}

function blockFindings({ blocks, unreadBlocks, pools, nodes, now }: Observed): Finding[] {
  const live = blocks.filter((block) => !block.deleted);
  const findings: Finding[] = unreadBlocks.map(({ name, problem }) => ({
    ...invalid(name, problem),
    message: `block ${name} cannot be read: ${problem}`,
  }));
  for (const block of live) {
    for (const problem of checkBlock(block, now)) findings.push(invalid(block.cidr, problem));
    if (!pools.some(({ cidr }) => overlaps(cidr, block.cidr))) {
      findings.push({
        reason: "BlockOrphan",
        severity: "warning",
        message: `block ${block.cidr} lies in no IPPool`,
        block: block.cidr,
        evidence: [isEmpty(block) ? "it is empty" : "it still holds addresses"],
        remedy:
          "Create the IPPool again while its addresses are in use; an empty block goes when its owner releases it",
        fixable: false,
      });
    }
    const owner = blockOwner(block);
    if (owner?.type === "host" && !nodes.has(owner.name)) {
      findings.push({
        reason: "BlockOrphan",
        severity: "warning",
        message: `block ${block.cidr} belongs to node ${owner.name}, which is not there`,
        block: block.cidr,
        node: owner.name,
        evidence: ["no Node of this name", isEmpty(block) ? "it is empty" : "it still holds addresses"],
        remedy:
          "calico-kube-controllers releases it once nothing of that node is left in it, the servers its stock; if it stays, see what AddressLeaked says of this node",
        fixable: false,
      });
    }
  }
  const sorted = live.toSorted((a, b) => (a.cidr < b.cidr ? -1 : 1));
  for (const [at, block] of sorted.entries()) {
    const other = sorted.slice(at + 1).find(({ cidr }) => overlaps(cidr, block.cidr));
    if (other !== undefined) findings.push(invalid(block.cidr, `it overlaps block ${other.cidr}`));
  }
  return findings;
}

function invalid(block: string, problem: string): Finding {
  return {
    reason: "BlockInvalid",
    severity: "error",
    message: `block ${block}: ${problem}`,
    block,
    evidence: [problem],
    remedy:
      "Cattail leaves it untouched. Find out who wrote it (metadata.managedFields), and correct it by hand or delete it once it is empty",
    fixable: false,
  };
}

function allocationFindings(seen: Observed, index: Index): Finding[] {
  return [...index.allocations].flatMap(([address, all]) => {
    const doubled: Finding[] =
      all.length < 2
        ? []
        : [
            twice(
              address,
              all.map(({ block, holder }) => `${block.cidr} gives it to ${holder.handle}`),
            ),
          ];
    return [...doubled, ...all.flatMap((one) => judged(one, seen, index))];
  });
}

function twice(address: string, evidence: readonly string[]): Finding {
  return {
    reason: "AddressDouble",
    severity: "error",
    message: `address ${address} belongs to more than one`,
    address,
    evidence,
    remedy:
      "Delete the pod that came later: its successor gets another address. Then look in both nodes' logs for conflict",
    fixable: false,
  };
}

function judged(one: Allocation, seen: Observed, index: Index): Finding[] {
  const { holder, attributes } = one;
  if (holder.handle === windowsReservedHandle) return [];
  if (isWarmHandle(holder.handle)) return warmFindings(one, seen);
  if (isTunnel(attributes)) return tunnelFindings(one, seen);
  const key = podKey(attributes);
  if (key === undefined) return unknownFindings(one);
  return leakFindings(one, key, seen, index);
}

function podKey(attributes: Readonly<Record<string, string>>): string | undefined {
  const namespace = attributes.namespace ?? attributes["cattail.io/namespace"];
  const pod = attributes.pod ?? attributes["cattail.io/pod"];
  return namespace && pod ? `${namespace}/${pod}` : undefined;
}

function about({ block, address, holder }: Allocation) {
  return { address, block: block.cidr, handle: holder.handle, sequence: String(holder.sequence) };
}

/** A pod that exists and does not say otherwise may have it: absence of one witness proves nothing. */
function leakFindings(one: Allocation, key: string, { nodes, agents }: Observed, index: Index): Finding[] {
  const { address, attributes, holder } = one;
  const node = attributes.node ?? "";
  const pod = index.pods.get(key);
  const isFirst = attributes.pod !== undefined;
  const users = index.users.get(address) ?? [];
  const stranger = users.find((user) => user.key !== key);
  if (stranger !== undefined)
    return [twice(address, [`the block gives it to pod ${key}`, `pod ${stranger.key} has it`])];
  if (users.length > 0 || attributes["vmi-name"] !== undefined) return [];
  const gone =
    pod === undefined
      ? `there is no pod ${key}`
      : pod.isFinished
        ? `pod ${key} has ended`
        : pod.node !== "" && node !== "" && pod.node !== node
          ? `pod ${key} is on node ${pod.node}`
          : isFirst && pod.addresses.length > 0
            ? `pod ${key} has ${pod.addresses.join(" and ")}`
            : undefined;
  if (gone === undefined) return [];
  const agent = agents.get(node);
  const holding = agent?.holdings.find((each) => each.address === address);
  // In use, or on its way out: the journal knows what becomes of it.
  if (
    holding !== undefined &&
    holding.handle === holder.handle &&
    holding.state !== "lost" &&
    holding.state !== "suspect"
  )
    return [];
  if (agent?.runtime.seen.some((seen) => seen.addresses.includes(address))) return [];
  const isNodeGone = node === "" || !nodes.has(node);
  const journal =
    agent !== undefined
      ? [`not in the journal of ${node}`, agent.runtime.gap ?? "not among what the runtime wrote down"]
      : [isNodeGone ? `there is no node ${node || "in the record"}` : `the journal of ${node} was not seen`];
  return [
    {
      reason: "AddressLeaked",
      severity: "warning",
      message: `address ${address} is held for pod ${key}, which does not use it`,
      ...about(one),
      node,
      pod: key,
      evidence: [gone, ...journal],
      remedy:
        "calico-kube-controllers releases it after its leakGracePeriod (15m); sooner: cattail check --fix AddressLeaked",
      fixable: node !== "" && (isNodeGone || (agent !== undefined && agent.runtime.gap === undefined)),
    },
  ];
}

function tunnelFindings(one: Allocation, { nodes }: Observed): Finding[] {
  const node = one.attributes.node ?? "";
  const own = nodes.get(node);
  if (own?.includes(one.address)) return [];
  const why = own === undefined ? `there is no node ${node}` : `node ${node} has ${own.join(" and ") || "no tunnel"}`;
  return [
    {
      reason: "AddressLeaked",
      severity: own === undefined ? "warning" : "info",
      message: `address ${one.address} is held for the tunnel of node ${node}, which does not use it`,
      ...about(one),
      node,
      evidence: [why],
      remedy:
        own === undefined
          ? "calico-kube-controllers releases it once nothing else of that node is left"
          : "calico-node puts this right when it starts: restart it on this node",
      fixable: false,
    },
  ];
}

function unknownFindings(one: Allocation): Finding[] {
  // Calico's load-balancer controller looks after its own blocks.
  if (blockOwner(one.block)?.type === "virtual") return [];
  return [
    {
      reason: "AddressLeaked",
      severity: "info",
      message: `address ${one.address} is held by ${one.holder.handle || "nobody"}, which names no pod`,
      ...about(one),
      evidence: ["neither a pod nor a tunnel is named, so nobody can tell whether it is in use"],
      remedy: "Ask whoever made this handle; calicoctl ipam release --ip frees it",
      fixable: false,
    },
  ];
}

function warmFindings(one: Allocation, { nodes, agents }: Observed): Finding[] {
  const { address, holder, attributes, block } = one;
  const node = attributes.node ?? "";
  const base = { reason: "WarmStale", severity: "warning", ...about(one), node, fixable: false } as const;
  const message = `address ${address} is in the stock of node ${node}`;
  if (!nodes.has(node)) {
    const remedy =
      "The servers release it once the Node has been missing for reaper.after; if it stays, see whether a server leads (Lease cattail-reaper)";
    return [{ ...base, message: `${message}, which is not there`, evidence: [`there is no node ${node}`], remedy }];
  }
  if (holder.handle !== warmHandle(node as NodeName) || blockOwner(block)?.name !== node) {
    const evidence = [`the block belongs to ${block.affinity ?? "nobody"}`, `the handle is ${holder.handle}`];
    return [
      {
        ...base,
        message: `${message}, in a block that is not its own`,
        evidence,
        remedy: "Restart the agent on this node, which then looks through its stock",
      },
    ];
  }
  const agent = agents.get(node);
  if (agent === undefined || agent.holdings.some((holding) => holding.address === address)) return [];
  const remedy =
    "The agent gives it back after twice the lease, when the runtime's records show that nobody has it; no action is needed unless it stays";
  const mark = attributes["cattail.io/incarnation"];
  const evidence = [
    `not in the journal of ${node}`,
    `marked by ${mark ?? "nobody"}, the journal is ${agent.incarnation}`,
  ];
  return [{ ...base, message: `${message}, whose journal does not know it`, evidence, remedy }];
}

function podFindings({ pods, pools, agents, now }: Observed, index: Index): Finding[] {
  const findings: Finding[] = [];
  for (const [address, users] of index.users) {
    if (users.length > 1)
      findings.push(
        twice(
          address,
          users.map((pod) => `pod ${pod.key} on ${pod.node} has it`),
        ),
      );
  }
  for (const pod of pods) {
    if (pod.hostNetwork || pod.isFinished || pod.node === "") continue;
    for (const address of pod.addresses) {
      const unrecorded = unrecordedOf(pod, address, index, agents, now);
      if (unrecorded !== undefined) findings.push(unrecorded);
      const around = pools.filter(({ cidr }) => contains(cidr, address));
      if (around.some((pool) => !pool.disabled)) continue;
      const disabled = around[0];
      findings.push({
        reason: "AddressUnrecorded",
        severity: disabled === undefined ? "warning" : "info",
        message: `address ${address} of pod ${pod.key} lies in no enabled IPPool`,
        address,
        pod: pod.key,
        node: pod.node,
        evidence: [disabled === undefined ? "no IPPool contains it" : `IPPool ${disabled.name} is disabled`],
        remedy:
          disabled === undefined
            ? "Another IPAM gave it, or its IPPool was deleted: create the pool again, or restart the pod"
            : "It stays the pod's until it ends; restart the pod to move it to an enabled pool",
        fixable: false,
      });
    }
  }
  return findings;
}

function unrecordedOf(
  pod: Pod,
  address: Address,
  index: Index,
  agents: Observed["agents"],
  now: UnixMs,
): Finding | undefined {
  const all = index.allocations.get(address) ?? [];
  if (all.some(({ attributes }) => podKey(attributes) !== undefined)) return undefined; // this pod's, or judged as double
  const isJournalled = (index.journalled.get(address) ?? []).some(({ node }) => node === pod.node);
  const [one] = all;
  const inStock = one !== undefined && one.holder.handle === warmHandle(pod.node as NodeName);
  if (isJournalled && inStock) return undefined; // answered from stock, and the write waits for company
  const isYoung = now - Date.parse(pod.startedAt) < longestWaitMs;
  if (inStock && (agents.get(pod.node) === undefined || isYoung)) return undefined;
  if (one !== undefined && !inStock && !isWarmHandle(one.holder.handle)) return undefined; // a handle without attributes
  return {
    reason: "AddressUnrecorded",
    severity: "error",
    message: `address ${address} of pod ${pod.key} is not allocated to it`,
    address,
    ...(one && { block: one.block.cidr }),
    pod: pod.key,
    node: pod.node,
    evidence: [
      one === undefined ? "no block has it allocated" : `block ${one.block.cidr} has it under ${one.holder.handle}`,
      isJournalled
        ? `the journal of ${pod.node} says that it is in use`
        : `no journal that was seen says that it is in use`,
    ],
    remedy: isJournalled
      ? "The agent takes it back while it is free; if another has it, restart the pod"
      : "Restart the pod: another one may be given this address",
    fixable: false,
  };
}

function journalFindings({ agents }: Observed, index: Index): Finding[] {
  const findings: Finding[] = [];
  for (const [address, uses] of index.journalled) {
    if (new Set(uses.map(({ node }) => node)).size > 1)
      findings.push(
        twice(
          address,
          uses.map(({ node, holding }) => `the journal of ${node} gives it to ${holding.attachment}`),
        ),
      );
  }
  for (const [node, state] of agents) {
    for (const { address, handle, attachment, block, state: kind } of state.holdings) {
      const all = index.allocations.get(address as Address) ?? [];
      const other = all.find(
        ({ holder }) => holder.handle !== handle && holder.handle !== warmHandle(node as NodeName),
      );
      const isPods = kind === "owned" || kind === "held";
      if (isPods && other !== undefined) {
        findings.push({
          ...twice(address, [
            `the journal of ${node} gives it to ${attachment}`,
            `block ${block} has it under ${other.holder.handle}`,
          ]),
          block,
          node,
        });
      } else if (kind === "owned" && all.length === 0) {
        findings.push({
          reason: "AddressUnrecorded",
          severity: "error",
          message: `address ${address} is in use on node ${node} and free in block ${block}`,
          address,
          block,
          node,
          handle,
          evidence: [`the journal of ${node} gives it to ${attachment}`, "the block does not have it allocated"],
          remedy: "The agent takes it back while it is free. Find out who released it: calicoctl ipam release does",
          fixable: false,
        });
      }
    }
  }
  return findings;
}

function handleFindings({ handles, agents }: Observed, index: Index): Finding[] {
  const journalled = new Set(
    [...agents.values()].flatMap(({ attachments }) => attachments.map(({ handle }) => handle)),
  );
  return handles.flatMap((handle): Finding[] => {
    if (handle.deleted) return [];
    const shown = index.perHandle.get(handle.handleId) ?? new Map<string, number>();
    const base = { handle: handle.handleId, severity: "warning", fixable: false } as const;
    const counts: ReadonlyMap<string, number> = handle.block;
    const more = [...counts].filter(([block, count]) => count > (shown.get(block) ?? 0));
    const less = [...shown].filter(([block, count]) => count > (counts.get(block) ?? 0));
    if (shown.size === 0) {
      return [
        {
          ...base,
          reason: "HandleOrphan",
          message: `handle ${handle.handleId} holds no address`,
          evidence: [
            "no block has an address under it",
            ...(journalled.has(handle.handleId) ? ["a journal names it"] : []),
          ],
          remedy: "It is in nobody's way but counts in etcd: cattail check --fix HandleOrphan deletes it",
          fixable: !journalled.has(handle.handleId),
        },
      ];
    }
    const counted = ([block]: readonly [string, number]): string =>
      `${block}: the handle says ${counts.get(block) ?? 0}, the block ${shown.get(block) ?? 0}`;
    return [
      ...(more.length === 0
        ? []
        : [
            {
              ...base,
              reason: "HandleOrphan",
              severity: "info",
              message: `handle ${handle.handleId} counts more addresses than it holds`,
              evidence: more.map(counted),
              remedy: "It goes with its last address; until then it does no harm",
            } as const,
          ]),
      ...(less.length === 0
        ? []
        : [
            {
              ...base,
              reason: "HandleMissing",
              message: `handle ${handle.handleId} counts fewer addresses than it holds`,
              evidence: less.map(counted),
              remedy:
                "After a way back to calico-ipam its DEL would leave these behind, for calico-kube-controllers to release; restarting the pod puts it right",
            } as const,
          ]),
    ];
  });
}

function claimFindings({ affinities, blocks, nodes }: Observed): Finding[] {
  const byCidr = new Map(blocks.filter((block) => !block.deleted).map((block) => [block.cidr, block]));
  const rows = new Set(
    affinities.filter(({ deleted }) => !deleted).map(({ type, node, cidr }) => `${type}:${node} ${cidr}`),
  );
  const findings: Finding[] = [];
  const half = (message: string, node: string, block: string, evidence: readonly string[]): void =>
    void findings.push({
      reason: "ClaimHalfDone",
      severity: "warning",
      message,
      node,
      block,
      evidence,
      remedy: nodes.has(node)
        ? "The node's next claim completes or removes it; if it stays, look in the server's log for this block"
        : "The servers remove it after reaper.after",
      fixable: false,
    });
  for (const { cidr, node, type, state, deleted } of affinities) {
    if (deleted || type !== "host") continue;
    const block = byCidr.get(cidr);
    const isOwner = block?.affinity === `host:${node}`;
    if (isOwner && (state === "confirmed" || state === "")) continue;
    const owner = block === undefined ? "there is no such block" : `the block belongs to ${block.affinity ?? "nobody"}`;
    half(`node ${node} has half a claim to block ${cidr}`, node, cidr, [
      `the affinity is ${state || "confirmed"}`,
      owner,
    ]);
  }
  for (const block of byCidr.values()) {
    const owner = blockOwner(block);
    if (owner?.type !== "host" || rows.has(`host:${owner.name} ${block.cidr}`)) continue;
    half(`block ${block.cidr} belongs to node ${owner.name} without an affinity`, owner.name, block.cidr, [
      "no BlockAffinity names it",
    ]);
  }
  return findings;
}

function push<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key);
  if (list === undefined) map.set(key, [value]);
  else list.push(value);
}
