// The network configuration on stdin: what every verb needs of it (spec/cni.md 2.2). Keys match as in Go, whatever their case.
// Leaves to others: the `ipam` section (ipam-config.ts). Never logged: it can hold credentials.
import { identifier, maxIdentifierChars } from "./call.ts";
import { type Complaint, cniCode, complaint } from "./complaint.ts";

export const cniVersions = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;
export type CniVersion = (typeof cniVersions)[number];
export const newestCniVersion: CniVersion = "1.1.0";

export type JsonObject = { readonly [key: string]: unknown };

export interface Netconf {
  readonly ok: true;
  readonly name: string;
  /** As written, "0.1.0" when absent: a list member is asked for later, after the verb. */
  readonly cniVersion: string;
  /** The main plugin's type, `calico` or `bridge`; "" when absent. */
  readonly mainPlugin: string;
  readonly fields: JsonObject;
}

export function parseNetconf(text: string): Netconf | Complaint {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    // The parser's own message quotes what it read, and that may be a token.
    return undecodable(text.trim() === "" ? "stdin is empty" : "stdin is not one JSON document");
  }
  const fields = parsed === null ? {} : asObject(parsed);
  if (fields === undefined) return undecodable("stdin is JSON, but not an object");
  const name = field(fields, "name") ?? "";
  if (typeof name !== "string") return undecodable(`"name" is a ${typeof name}, not a string`);
  const wrongName = name === "" ? missingName() : identifier.test(name) ? tooLong(name) : badName(name);
  if (wrongName) return wrongName;
  const cniVersion = field(fields, "cniVersion") ?? "";
  if (typeof cniVersion !== "string") return undecodable(`"cniVersion" is a ${typeof cniVersion}, not a string`);
  const mainPlugin = field(fields, "type");
  return {
    ok: true,
    name,
    cniVersion: cniVersion === "" ? "0.1.0" : cniVersion,
    mainPlugin: typeof mainPlugin === "string" ? mainPlugin : "",
    fields,
  };
}

export function asObject(value: unknown): JsonObject | undefined {
  // The excuse for this cast: an object that is neither null nor an array is what JsonObject says.
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
}

/** The value Go's decoder would leave in a field: any case of the key, the last one that is not null. */
export function field(object: JsonObject, name: string): unknown {
  const exact = object[name];
  const wanted = folded(name);
  let found: unknown;
  for (const key of Object.keys(object)) {
    if (key !== name && (key.length !== name.length || folded(key) !== wanted)) continue;
    const value = key === name ? exact : object[key];
    if (value !== null) found = value;
  }
  return found;
}

/** Go folds two letters from outside ASCII into it: the long s and the Kelvin sign. */
function folded(key: string): string {
  return key.replaceAll("\u017f", "s").replaceAll("\u212a", "k").toLowerCase();
}

export function isSupported(version: string): version is CniVersion {
  return cniVersions.some((supported) => supported === version);
}

/** Whether a configuration of `version` may use what came with `since`. Versions are compared by their place in the list. */
export function isAtLeast(version: CniVersion, since: CniVersion): boolean {
  return cniVersions.indexOf(version) >= cniVersions.indexOf(since);
}

function undecodable(why: string): Complaint {
  return complaint(cniCode.decoding, "BadConfig", why, {
    next: "The main plugin must pass its whole network configuration on stdin",
    details: "error unmarshall network config",
  });
}

function missingName(): Complaint {
  return complaint(cniCode.config, "BadConfig", 'the network configuration has no "name"', {
    next: "Give the network a name in the CNI configuration list",
    details: "missing network name",
  });
}

function badName(name: string): Complaint {
  return complaint(cniCode.config, "BadConfig", `network name ${JSON.stringify(name)} has characters CNI forbids`, {
    next: "It must begin with a letter or digit and hold only letters, digits, _, . and -",
    details: `invalid characters found in network name: ${name}`,
  });
}

function tooLong(name: string): Complaint | undefined {
  if (name.length <= maxIdentifierChars) return undefined;
  return complaint(cniCode.config, "BadConfig", `the network name has ${name.length} characters`, {
    next: `At most ${maxIdentifierChars} are accepted`,
  });
}
