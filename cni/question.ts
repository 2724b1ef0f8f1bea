// From a call and its configuration to the one question for the agent, or to an end without it (spec/cni.md 2.1, 3.3 to 3.7).
// Leaves to others: asking (agent-shell.ts) and what follows from the answer (outcome.ts).
import { type AgentRequest, maxRequestBytes, socketProtocol } from "../shared/protocol/socket.ts";
import type { Call } from "./call.ts";
import { type Complaint, cniCode, complaint } from "./complaint.ts";
import {
  type AddressReader,
  addTimeoutOf,
  maxListed,
  type Places,
  parseAddConfig,
  placesOf,
  type Route,
  withoutLength,
} from "./ipam-config.ts";
import {
  asObject,
  type CniVersion,
  cniVersions,
  field,
  isAtLeast,
  isSupported,
  type JsonObject,
  type Netconf,
} from "./netconf.ts";
import { resultDocument } from "./result.ts";
import { type Schedule, scheduleOf } from "./schedule.ts";

/** What is known of this process when it starts. */
export interface Run {
  readonly request: string;
  readonly startedAt: number;
  /** Installed under the name `calico-ipam`: results are Calico's. */
  readonly dropIn: boolean;
}

export interface Question {
  readonly ok: true;
  readonly kind: "ask";
  readonly request: AgentRequest;
  readonly cniVersion: CniVersion;
  readonly places: Places;
  readonly schedule: Schedule;
  /** Added to the answer of an ADD. */
  readonly routes: readonly Route[];
}
export interface Answered {
  readonly ok: true;
  readonly kind: "answered";
  readonly stdout: string;
}

export function questionFor(
  call: Call,
  netconf: Netconf,
  run: Run,
  addressOf: AddressReader,
): Question | Answered | Complaint {
  const since = verbSince(call.command);
  if (since === undefined) return unknownCommand(call.command);
  const { cniVersion } = netconf;
  if (!isSupported(cniVersion)) return incompatible(cniVersion);
  if (!isAtLeast(cniVersion, since)) return tooOldFor(call.command, cniVersion, since);
  const schedule = scheduleOf(call.command, addTimeoutOf(netconf.fields));
  const common = {
    protocol: socketProtocol,
    request: run.request,
    network: netconf.name,
    cniVersion,
    deadline: run.startedAt + schedule.deadlineMs,
  } as const;
  const ask = (request: AgentRequest, routes: readonly Route[] = []): Question | Complaint =>
    bounded({ ok: true, kind: "ask", request, cniVersion, places: placesOf(netconf.fields), schedule, routes });
  switch (call.command) {
    case "ADD": {
      const config = parseAddConfig(netconf.fields, call.args.ip, addressOf);
      if (!config.ok) return config;
      const { families, pools, result, routes } = config;
      if (!families.ipv4 && !families.ipv6) return nothingWanted(cniVersion, run.dropIn);
      const ifnameIsFirst = isFirstInterface(call.ifname, netconf.mainPlugin);
      const requested = [...config.requested];
      return ask(
        {
          verb: "ADD",
          ...common,
          ...attachmentOf(call, run),
          ifnameIsFirst,
          netns: call.netns,
          families,
          pools,
          requested,
          dropIn: run.dropIn,
          result,
        },
        run.dropIn ? [] : routes,
      );
    }
    case "DEL":
      return ask({ verb: "DEL", ...common, ...attachmentOf(call, run) });
    case "CHECK": {
      const previous = previousAddresses(netconf.fields, addressOf);
      return Array.isArray(previous)
        ? ask({ verb: "CHECK", ...common, ...attachmentOf(call, run), previous })
        : previous;
    }
    case "GC": {
      const valid = validAttachments(netconf.fields);
      return Array.isArray(valid) ? ask({ verb: "GC", ...common, valid }) : valid;
    }
    default:
      return ask({ verb: "STATUS", ...common });
  }
}

function verbSince(command: string): CniVersion | undefined {
  switch (command) {
    case "ADD":
    case "DEL":
      return "0.1.0";
    case "CHECK":
      return "0.4.0";
    case "GC":
    case "STATUS":
      return "1.1.0";
    default:
      return undefined;
  }
}

function attachmentOf(call: Call, run: Run) {
  const { podNamespace, podName, podUid } = call.args;
  return {
    containerId: call.containerId,
    ifname: call.ifname,
    podNamespace: storable(podNamespace),
    podName: storable(podName),
    podUid: storable(podUid),
    startedAt: run.startedAt,
  };
}

/** Kubernetes names have 253 characters at most; what is longer comes from nobody, and must not fail a DEL. */
function storable(text: string): string {
  return text.length <= 253 ? text : "";
}

/** eth0 is what every runtime calls a pod's first interface; what Calico's main plugin asks for, Calico stamps with the pod. */
function isFirstInterface(ifname: string, mainPlugin: string): boolean {
  return ifname === "eth0" || mainPlugin === "calico";
}

/** Both families off: Calico prints a result without addresses; under our own name it is a mistake that is better named. */
function nothingWanted(cniVersion: CniVersion, dropIn: boolean): Answered | Complaint {
  if (!dropIn) {
    return complaint(cniCode.config, "BadConfig", '"assign_ipv4" is false and "assign_ipv6" is not true', {
      next: "Let the ipam section assign at least one family",
    });
  }
  const result = resultDocument(cniVersion, dropIn, { ok: true }, []);
  return result.ok ? { ok: true, kind: "answered", stdout: result.stdout } : result;
}

// ---- CHECK and GC ----------------------------------------------------------------------------------------------------

/** Every address of the chain's result, ours and others'; which are ours the agent knows. */
function previousAddresses(netconf: JsonObject, addressOf: AddressReader): string[] | Complaint {
  const previous = asObject(field(netconf, "prevResult"));
  if (previous === undefined) {
    return complaint(cniCode.config, "BadConfig", "CHECK came without a prevResult", {
      next: "The runtime must pass the result of the ADD",
    });
  }
  const ips = field(previous, "ips");
  const addresses = Array.isArray(ips) ? ips.flatMap((entry: unknown) => addressOfEntry(entry, addressOf)) : [];
  if (addresses.length <= maxListed) return addresses;
  return complaint(cniCode.config, "BadConfig", `prevResult has ${addresses.length} addresses`, {
    next: `At most ${maxListed} are accepted`,
  });
}

function addressOfEntry(entry: unknown, addressOf: AddressReader): string[] {
  const text = field(asObject(entry) ?? {}, "address");
  const address = typeof text === "string" ? addressOf(withoutLength(text)) : undefined;
  return address === undefined ? [] : [address];
}

interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** Either key may be missing, not both; null means that none is valid; when they differ, what either holds is kept (3.6). */
function validAttachments(netconf: JsonObject): Attachment[] | Complaint {
  const lists = ["cni.dev/valid-attachments", "cni.dev/attachments"].filter((key) => key in netconf);
  if (lists.length === 0) {
    return complaint(cniCode.config, "BadConfig", 'GC came without "cni.dev/valid-attachments"', {
      next: "The runtime must say which attachments are valid; nothing was released",
    });
  }
  const valid = new Map<string, Attachment>();
  for (const key of lists) {
    const entries = netconf[key] ?? [];
    if (!Array.isArray(entries)) return malformed(key);
    for (const entry of entries) {
      const attachment = attachmentIn(entry);
      if (attachment === undefined) return malformed(key);
      valid.set(`${attachment.containerId}/${attachment.ifname}`, attachment);
    }
  }
  return [...valid.values()];
}

function attachmentIn(entry: unknown): Attachment | undefined {
  const fields = asObject(entry) ?? {};
  const containerId = field(fields, "containerID");
  const ifname = field(fields, "ifname");
  if (typeof containerId !== "string" || typeof ifname !== "string") return undefined;
  return containerId === "" || ifname === "" ? undefined : { containerId, ifname };
}

function malformed(key: string): Complaint {
  return complaint(cniCode.decoding, "BadConfig", `"${key}" is not a list of {"containerID", "ifname"}`, {
    next: "Nothing was released",
  });
}

// ---- refusals --------------------------------------------------------------------------------------------------------

function unknownCommand(command: string): Complaint {
  return complaint(cniCode.environment, "BadRequest", `CNI_COMMAND ${JSON.stringify(command)} is unknown`, {
    next: "Known are ADD, DEL, CHECK, GC, STATUS and VERSION",
    details: `unknown CNI_COMMAND: ${command}`,
  });
}

function incompatible(version: string): Complaint {
  return complaint(cniCode.incompatibleVersion, "BadConfig", `cniVersion ${JSON.stringify(version)} is not supported`, {
    next: `Supported are ${cniVersions.join(", ")}`,
    details: `incompatible CNI versions: config is "${version}", plugin supports ["${cniVersions.join('" "')}"]`,
  });
}

function tooOldFor(command: string, version: CniVersion, since: CniVersion): Complaint {
  return complaint(cniCode.incompatibleVersion, "BadConfig", `cniVersion ${version} has no ${command}`, {
    next: `It exists since ${since}`,
    details: `config version does not allow ${command}`,
  });
}

/** A shorter list would make GC release what is valid, so a longer one is refused. */
function bounded(question: Question): Question | Complaint {
  if (question.request.verb !== "GC" || JSON.stringify(question.request).length <= maxRequestBytes) return question;
  return complaint(cniCode.config, "BadConfig", `GC names ${question.request.valid.length} valid attachments`, {
    next: `Together they may have ${maxRequestBytes} bytes; nothing was released`,
  });
}
