// What follows from what the agent answered, or from its silence: what is printed, what is taken back, what is queued
// (spec/cni.md 3.3, 3.4, 3.7). Leaves to others: doing it.
import type { AddRequest, AgentReply, DelRequest, Refusal, SpooledDel } from "../shared/protocol/socket.ts";
import { type Complaint, cniCode, complaint, refusalOf } from "./complaint.ts";
import type { Question } from "./question.ts";
import { resultDocument } from "./result.ts";

export type Exchange =
  | { readonly kind: "reply"; readonly reply: AgentReply }
  /** The request never left: nothing can have been done. */
  | { readonly kind: "unreachable"; readonly why: string }
  /** From here on the agent may have acted. */
  | { readonly kind: "closed" }
  | { readonly kind: "undecodable" }
  | { readonly kind: "silent"; readonly waitedMs: number }
  /** Our caller died: nobody will read an answer. */
  | { readonly kind: "abandoned" };

export type Outcome =
  /** `undo`: the ADD to take back if nobody reads the answer. */
  | { readonly kind: "success"; readonly stdout: string; readonly undo?: AddRequest }
  /** `undo`: the ADD that may have been carried out all the same. */
  | { readonly kind: "refused"; readonly refusal: Refusal; readonly undo?: AddRequest }
  /** A DEL is a success as soon as the spool has it. `why`: what kept the agent from it; `otherwise`: the answer if the spool fails too. */
  | { readonly kind: "spool"; readonly del: DelRequest; readonly why: string; readonly otherwise: Refusal };

export function outcomeOf(question: Question, exchange: Exchange, dropIn: boolean): Outcome {
  const { request } = question;
  switch (request.verb) {
    case "ADD":
      return outcomeOfAdd(question, request, exchange, dropIn);
    case "DEL":
      return outcomeOfDel(question, request, exchange);
    case "STATUS":
      return outcomeOfStatus(question, exchange);
    case "CHECK":
    case "GC":
      if (exchange.kind !== "reply") return refused(question, failureOf(question, exchange));
      return exchange.reply.ok ? nothingToPrint : { kind: "refused", refusal: exchange.reply };
  }
}

const nothingToPrint: Outcome = { kind: "success", stdout: "" };

function outcomeOfAdd(question: Question, request: AddRequest, exchange: Exchange, dropIn: boolean): Outcome {
  if (exchange.kind === "unreachable") return refused(question, failureOf(question, exchange));
  if (exchange.kind !== "reply") return refused(question, failureOf(question, exchange), request);
  const { reply } = exchange;
  if (!reply.ok) return { kind: "refused", refusal: reply };
  if ((reply.ips ?? []).length === 0) {
    const empty = complaint(cniCode.decoding, "Internal", "the agent's answer holds no address", agentsFault);
    return refused(question, empty, request);
  }
  const result = resultDocument(question.cniVersion, dropIn, reply, question.routes);
  return result.ok ? { kind: "success", stdout: result.stdout, undo: request } : refused(question, result, request);
}

function outcomeOfDel(question: Question, request: DelRequest, exchange: Exchange): Outcome {
  if (exchange.kind === "reply") {
    const { reply } = exchange;
    if (reply.ok) return nothingToPrint;
    // An agent that says no for good would say so again when it finds the record in its spool.
    if (reply.code !== cniCode.tryLater) return { kind: "refused", refusal: reply };
    return { kind: "spool", del: request, why: reply.msg, otherwise: reply };
  }
  const { reason, why } = failureOf(question, exchange);
  const failed = complaint(cniCode.tryLater, reason, `${why}, and the release could not be queued on disk`, {
    next: "Check the agent on this node, and that its spool directory can be written",
  });
  return { kind: "spool", del: request, why, otherwise: refusalOf(failed, { command: "DEL", ...request }) };
}

/** 50 is the only answer that tells a runtime to wait; 51 only the agent can know. */
function outcomeOfStatus(question: Question, exchange: Exchange): Outcome {
  if (exchange.kind !== "reply") {
    return refused(question, { ...failureOf(question, exchange), code: cniCode.notAvailable });
  }
  const { reply } = exchange;
  if (reply.ok) return nothingToPrint;
  const code = reply.code === cniCode.notAvailableAndLimited ? reply.code : cniCode.notAvailable;
  return { kind: "refused", refusal: { ...reply, code } };
}

const agentsFault = { next: "Check that the agent and this executable are of the same release" };
const checkAgent = { next: "Check that cattail-agent runs on this node and listens there" };

function failureOf(question: Question, exchange: Exclude<Exchange, { kind: "reply" }>): Complaint {
  switch (exchange.kind) {
    case "unreachable":
      return complaint(cniCode.tryLater, "AgentAway", `the node agent cannot be reached: ${exchange.why}`, checkAgent);
    case "closed":
      return complaint(cniCode.io, "AgentAway", "the node agent hung up before its answer was complete", checkAgent);
    case "undecodable":
      return complaint(cniCode.decoding, "Internal", "the node agent's answer cannot be understood", agentsFault);
    case "silent":
      return complaint(
        cniCode.tryLater,
        "CommitTimeout",
        `the node agent has not answered for ${exchange.waitedMs} ms`,
        checkAgent,
      );
    case "abandoned":
      return complaint(cniCode.tryLater, "BadRequest", `the caller of ${question.request.verb} is gone`);
  }
}

function refused(question: Question, found: Complaint, undo?: AddRequest): Outcome {
  const { request } = question;
  const nobody = { podNamespace: "", podName: "", containerId: "" };
  const refusal = refusalOf(found, { command: request.verb, ...nobody, ...request });
  return { kind: "refused", refusal, ...(undo === undefined ? {} : { undo }) };
}

/** Takes back what this very ADD may have been given, and forbids what it may still be given (spec/cni.md 3.3). */
export function undoOf(add: AddRequest, deadline: number): DelRequest {
  const { protocol, request, network, cniVersion, containerId, ifname, podNamespace, podName, podUid, startedAt } = add;
  return {
    verb: "DEL",
    protocol,
    request,
    network,
    cniVersion,
    containerId,
    ifname,
    podNamespace,
    podName,
    podUid,
    startedAt,
    deadline,
    undoes: request,
  };
}

export function spooled(del: DelRequest, spooledAt: number): SpooledDel {
  return { ...del, spooledAt };
}
