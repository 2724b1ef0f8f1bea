// One invocation as the environment describes it: which variables a verb needs and what they may look like (spec/cni.md 2.1).
// Leaves to others: stdin, and whether the verb exists, which is asked only after stdin has been judged.
import { type CniArgs, parseCniArgs } from "./args.ts";
import { type Complaint, cniCode, complaint } from "./complaint.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface Call {
  readonly ok: true;
  readonly command: string;
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: CniArgs;
  /** CNI_NETNS_OVERRIDE: the caller means it when the namespace is our own. */
  readonly netnsMayBeOurs: boolean;
}

export function readCall(environment: Environment): Call | Complaint {
  const value = (name: string): string => environment[name] ?? "";
  const call: Call = {
    ok: true,
    command: value("CNI_COMMAND"),
    containerId: value("CNI_CONTAINERID"),
    netns: value("CNI_NETNS"),
    ifname: value("CNI_IFNAME"),
    args: parseCniArgs(value("CNI_ARGS")),
    netnsMayBeOurs: ["1", "true"].includes(value("CNI_NETNS_OVERRIDE").toLowerCase()),
  };
  const required = requiredFor(call.command);
  // What is written wrongly is said before what is missing, in the order of the specification's table.
  const wrong =
    (required.includes("CNI_CONTAINERID") && call.containerId !== "" && wrongContainerId(call.containerId)) ||
    (required.includes("CNI_IFNAME") && call.ifname !== "" && wrongInterfaceName(call.ifname));
  if (wrong) return wrong;
  const missing = required.filter((name) => value(name) === "");
  return missing.length === 0 ? call : missingVariables(missing);
}

/** In the order in which they are reported. DEL may lack CNI_PATH: we delegate to nobody. */
function requiredFor(command: string): readonly string[] {
  switch (command) {
    case "ADD":
    case "CHECK":
      return ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"];
    case "DEL":
      return ["CNI_CONTAINERID", "CNI_IFNAME"];
    case "GC":
    case "STATUS":
      return ["CNI_PATH"];
    default:
      return [];
  }
}

function missingVariables(names: readonly string[]): Complaint {
  return complaint(cniCode.environment, "BadRequest", `${names.join(", ")} not set in the environment`, {
    next: "The container runtime or the main plugin must set it",
    details: `required env variables [${names.join(",")}] missing`,
  });
}

/** CNI's own rule for container ids and network names. */
export const identifier = /^[A-Za-z0-9][A-Za-z0-9_.-]*$/;
/** The socket's bound on one text (shared/protocol/socket.ts); CNI itself has none. */
export const maxIdentifierChars = 4096;

function wrongContainerId(id: string): Complaint | undefined {
  if (id.length > maxIdentifierChars) {
    return complaint(cniCode.environment, "BadRequest", `CNI_CONTAINERID has ${id.length} characters`, {
      next: `At most ${maxIdentifierChars} are accepted`,
    });
  }
  if (identifier.test(id)) return undefined;
  return complaint(cniCode.environment, "BadRequest", `CNI_CONTAINERID ${JSON.stringify(id)} is not a container id`, {
    next: "It must begin with a letter or digit and hold only letters, digits, _, . and -",
    details: `invalid characters in containerID: ${id}`,
  });
}

/** IFNAMSIZ less the terminating zero. */
const maxInterfaceNameBytes = 15;
/** `/`, `:` and Unicode's white space as Go's unicode.IsSpace has it (JavaScript's \s differs in two characters). */
const forbiddenInInterfaceName = /[/:\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

function wrongInterfaceName(name: string): Complaint | undefined {
  const calicosWords = problemOfInterfaceName(name);
  if (calicosWords === undefined) return undefined;
  return complaint(cniCode.environment, "BadRequest", `CNI_IFNAME ${JSON.stringify(name)} is not an interface name`, {
    next: `It must have 1 to ${maxInterfaceNameBytes} bytes, no "/", ":" or white space, and not be "." or ".."`,
    details: calicosWords,
  });
}

function problemOfInterfaceName(name: string): string | undefined {
  if (utf8Length(name) > maxInterfaceNameBytes) return "interface name is too long";
  if (name === "." || name === "..") return "interface name is . or ..";
  if (forbiddenInInterfaceName.test(name)) return "interface name contains / or : or whitespace characters";
  return undefined;
}

function utf8Length(text: string): number {
  let bytes = 0;
  for (const character of text) {
    const point = character.codePointAt(0) ?? 0;
    bytes += point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  }
  return bytes;
}
