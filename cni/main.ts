// The CNI executable: reads environment and stdin, asks the node agent, prints one JSON document (spec/cni.md).
// Leaves every decision to the cores beside it; here are the process, its clock, its streams and its parent.
import { executableMark } from "../shared/executable-mark.ts";
import type { Address } from "../shared/kinds.ts";
import type { AddRequest } from "../shared/protocol/socket.ts";
import { askAgent } from "./agent-shell.ts";
import { bun } from "./bun-shell.ts";
import { type Call, readCall } from "./call.ts";
import { type Complaint, cniCode, complaint, errorDocument, refusalOf } from "./complaint.ts";
import { runFlag } from "./flags-shell.ts";
import { addTimeoutMs, type Places } from "./ipam-config.ts";
import { cniVersions, isSupported, newestCniVersion, parseNetconf } from "./netconf.ts";
import { outcomeOf, spooled, undoOf } from "./outcome.ts";
import { type Question, questionFor, type Run } from "./question.ts";
import { versionDocument } from "./result.ts";
import { scheduleOf, undoMs } from "./schedule.ts";
import { spool } from "./spool-shell.ts";

const success = 0;
const failure = 1;
const maxStdinBytes = 16 << 20;
const parentPollMs = 100;

const executable = process.argv0.slice(process.argv0.lastIndexOf("/") + 1);
const run: Run = {
  request: [...crypto.getRandomValues(new Uint8Array(4))].map((byte) => byte.toString(16).padStart(2, "0")).join(""),
  // performance.now() counts from the start of the process.
  startedAt: Math.floor(Date.now() - performance.now()),
  dropIn: executable === "calico-ipam",
};
/** What errors are said in: the configuration's version once it is known. */
let errorVersion: string = newestCniVersion;
let hasPrinted = false;

process.exit(await main());

async function main(): Promise<number> {
  const flag = process.argv[2];
  if (flag !== undefined) return runFlag(flag, executable);
  const command = process.env.CNI_COMMAND ?? "";
  if (command === "") return help();
  if (command === "VERSION") return (await print(`${versionDocument()}\n`)) ? success : failure;
  try {
    return await serve(command);
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    return refuse(command, complaint(cniCode.internal, "Internal", why, { next: "Report this as a bug" }));
  }
}

async function serve(command: string): Promise<number> {
  const call = readCall(process.env);
  if (!call.ok) return refuse(command, call);
  const lastResort = endAt(scheduleOf(command, addTimeoutMs.default).endByMs, call);
  const inOwnNetns = isOwnNetns(call);
  const text = await readStdin();
  if (typeof text !== "string") return refuse(command, text, call);
  const netconf = parseNetconf(text);
  if (!netconf.ok) return refuse(command, netconf, call);
  if (isSupported(netconf.cniVersion)) errorVersion = netconf.cniVersion;
  const question = questionFor(call, netconf, run, addressOf);
  if (!question.ok) return refuse(command, question, call);
  if (question.kind === "answered") return (await print(question.stdout)) ? success : failure;
  if (await inOwnNetns) return refuse(command, ownNetns(call), call);
  clearTimeout(lastResort);
  endAt(question.schedule.endByMs, call);
  return carryOut(question);
}

async function carryOut(question: Question): Promise<number> {
  const { request, places, schedule } = question;
  const exchange = await askAgent(places.socketPath, request, {
    connectBy: schedule.connectByMs,
    replyBy: schedule.replyByMs,
    mayAskTwice: request.verb !== "ADD",
    abandoned: parentDeath(),
  });
  const outcome = outcomeOf(question, exchange, run.dropIn);
  switch (outcome.kind) {
    case "success": {
      if (outcome.stdout === "" || (await print(outcome.stdout))) return success;
      if (outcome.undo) await undo(outcome.undo, places);
      return failure;
    }
    case "refused": {
      if (outcome.undo) await undo(outcome.undo, places);
      await print(errorDocument(errorVersion, outcome.refusal));
      return failure;
    }
    case "spool": {
      const problem = await spool(places.spoolPath, spooled(outcome.del, Date.now()));
      if (problem === undefined) {
        await note(`the release of ${outcome.del.containerId} is queued (request ${run.request}): ${outcome.why}`);
        return success;
      }
      await print(errorDocument(errorVersion, { ...outcome.otherwise, details: problem.message }));
      return failure;
    }
  }
}

/** Nobody will ever use what this ADD was given: the agent is told, or finds it in its spool. */
async function undo(add: AddRequest, places: Places): Promise<void> {
  const del = undoOf(add, Date.now() + undoMs);
  const now = performance.now();
  const never = new Promise<void>(() => {});
  const exchange = await askAgent(places.socketPath, del, {
    connectBy: now,
    replyBy: now + undoMs,
    mayAskTwice: false,
    abandoned: never,
  });
  if (exchange.kind === "reply" && exchange.reply.ok) return;
  await spool(places.spoolPath, spooled(del, Date.now()));
}

/** Bun's own require: synchronous, and lazy even inside one compiled file. */
function addressOf(text: string): Address | undefined {
  const reader: typeof import("./address.ts") = require("./address.ts");
  return reader.addressOf(text);
}

// ---- the process -----------------------------------------------------------------------------------------------------

function refuse(command: string, found: Complaint, call?: Call): Promise<number> {
  const { podNamespace = "", podName = "" } = call?.args ?? {};
  const subject = { command, podNamespace, podName, containerId: call?.containerId ?? "", request: run.request };
  return print(errorDocument(errorVersion, refusalOf(found, subject))).then(() => failure);
}

/** Whatever hangs, a caller that never closes our stdin or a disk, the process is gone at its limit. */
function endAt(limitMs: number, call: Call): NodeJS.Timeout {
  const over = complaint(cniCode.tryLater, "CommitTimeout", `the limit of ${limitMs} ms is over`, {
    next: "Check the agent on this node, and that the main plugin closes stdin",
  });
  const code = call.command === "STATUS" ? cniCode.notAvailable : over.code;
  return setTimeout(
    () => refuse(call.command, { ...over, code }, call).then((status) => process.exit(status)),
    limitMs - performance.now(),
  );
}

async function readStdin(): Promise<string | Complaint> {
  // A byte order mark is not JSON, and Go refuses it too.
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const reader = bun.stdin.stream().getReader();
  let text = "";
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || value === undefined) return text + decoder.decode();
      bytes += value.length;
      if (bytes > maxStdinBytes) return tooLarge();
      text += decoder.decode(value, { stream: true });
    }
  } catch {
    return complaint(cniCode.io, "BadRequest", "stdin cannot be read", {
      next: "The main plugin must pass the network configuration on stdin",
    });
  }
}

function tooLarge(): Complaint {
  return complaint(cniCode.decoding, "BadConfig", `stdin has more than ${maxStdinBytes} bytes`, {
    next: "Make the network configuration smaller",
  });
}

/** False when the caller is gone (a broken pipe), or has had its one document already: at the limit two may want to speak. */
function print(text: string): Promise<boolean> {
  if (hasPrinted) return Promise.resolve(false);
  hasPrinted = true;
  return bun.write(bun.stdout, text).then(
    () => true,
    () => false,
  );
}

/** For people; a runtime shows it only with a success. */
function note(text: string): Promise<unknown> {
  return bun.write(bun.stderr, `${executable}: ${text}\n`).catch(() => undefined);
}

/**
 * A runtime's timeout kills only its direct child, the main plugin; we are left an orphan (spec/cni.md 2.5). A parent that
 * was gone before we looked cannot be noticed.
 */
function parentDeath(): Promise<void> {
  const parent = process.ppid;
  return new Promise((resolve) => {
    setInterval(() => process.ppid !== parent && resolve(), parentPollMs);
  });
}

/** ADD only: an address for the namespace we run in would be the node's (spec/cni.md 2.1). One that is not there is no error. */
async function isOwnNetns(call: Call): Promise<boolean> {
  if (call.command !== "ADD" || call.netnsMayBeOurs) return false;
  try {
    const [ours, theirs] = await Promise.all([bun.file("/proc/self/ns/net").stat(), bun.file(call.netns).stat()]);
    return ours.dev === theirs.dev && ours.ino === theirs.ino;
  } catch {
    return false;
  }
}

function ownNetns(call: Call): Complaint {
  return complaint(cniCode.ownNetns, "BadRequest", `CNI_NETNS ${call.netns} is the plugin's own network namespace`, {
    next: "Set CNI_NETNS_OVERRIDE=1 if this is meant",
    details: "plugin's netns and netns from CNI_NETNS should not be the same",
  });
}

async function help(): Promise<number> {
  await note(`${executableMark}. CNI protocol versions supported: ${cniVersions.join(", ")}`);
  return success;
}
