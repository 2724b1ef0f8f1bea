// The `ipam` section and what else of the configuration shapes an ADD: families, pools, addresses asked for, our own key.
// Leaves to others: whether a pool exists or an address is free (the agent). No other verb may fail for anything in here.
import type { Address } from "../shared/kinds.ts";
import { suggestion } from "../shared/nearest.ts";
import type { AddRequest } from "../shared/protocol/socket.ts";
import { type Complaint, cniCode, complaint } from "./complaint.ts";
import { asObject, field, type JsonObject } from "./netconf.ts";

export interface AddConfig {
  readonly ok: true;
  readonly families: AddRequest["families"];
  readonly pools: AddRequest["pools"];
  readonly requested: readonly Address[];
  readonly result: AddRequest["result"];
  /** `ipam.routes`, passed through as host-local does; only the name `cattail-ipam` uses them. */
  readonly routes: readonly Route[];
}

export interface Route {
  readonly dst: string;
  readonly gw?: string;
  readonly mtu?: number;
  readonly advmss?: number;
  readonly priority?: number;
  readonly table?: number;
  readonly scope?: number;
}

/** Canonical text, or nothing if it is no address. Passed in: the executable loads it only when there is one to read (address.ts). */
export type AddressReader = (text: string) => Address | undefined;

/** Where the agent is to be found. Every verb reads these; only ADD insists that they are right. */
export interface Places {
  readonly socketPath: string;
  readonly spoolPath: string;
}

const defaultPlaces: Places = { socketPath: "/run/cattail/agent.sock", spoolPath: "/var/lib/cattail/spool" };

export const addTimeoutMs = { least: 2_000, default: 60_000, most: 90_000 } as const;

/** As many as one message to the agent may list (shared/protocol/socket.ts). */
export const maxListed = 64;
const maxTextChars = 4096;
/** sockaddr_un has room for 107 bytes and a zero. */
const maxSocketPathBytes = 107;

export function parseAddConfig(
  netconf: JsonObject,
  ipArgument: string,
  addressOf: AddressReader,
): AddConfig | Complaint {
  try {
    const ipam = section(netconf, "ipam");
    const requested = requestedAddresses(netconf, ipArgument, addressOf);
    const own = parseOwnKey(ipam, addressOf);
    return {
      ok: true,
      families: familiesOf(ipam, requested),
      pools: { ipv4: textList(ipam, "ipv4_pools"), ipv6: textList(ipam, "ipv6_pools") },
      requested,
      result: { prefix: own.prefix, gateway: own.gateway },
      routes: routesOf(ipam, addressOf),
    };
  } catch (thrown) {
    if (thrown instanceof Unusable) return thrown.found;
    throw thrown;
  }
}

/** `ipam.cattail.socket` and `.spool` where they are usable, else the defaults: a broken section must not stop a DEL. */
export function placesOf(netconf: JsonObject): Places {
  const own = asObject(asObject(field(netconf, "ipam"))?.cattail) ?? {};
  return {
    socketPath: isSocketPath(own.socket) ? own.socket : defaultPlaces.socketPath,
    spoolPath: isAbsolutePath(own.spool) ? own.spool : defaultPlaces.spoolPath,
  };
}

export function addTimeoutOf(netconf: JsonObject): number {
  const own = asObject(asObject(field(netconf, "ipam"))?.cattail) ?? {};
  return isAddTimeout(own.timeoutMs) ? own.timeoutMs : addTimeoutMs.default;
}

/** Leaves the parser from wherever it stands; never leaves this file. */
class Unusable extends Error {
  readonly found: Complaint;
  constructor(found: Complaint) {
    super(found.why);
    this.found = found;
  }
}

function unusable(why: string, next: string): never {
  throw new Unusable(complaint(cniCode.config, "BadConfig", why, { next }));
}

function section(object: JsonObject, name: string): JsonObject {
  const value = field(object, name) ?? {};
  return asObject(value) ?? unusable(`"${name}" is ${kindOf(value)}, not an object`, "Correct the CNI configuration");
}

// ---- families, pools, addresses --------------------------------------------------------------------------------------

/** Calico's defaults. An address asked for decides the families alone, whatever the section says (spec 4.4). */
function familiesOf(ipam: JsonObject, requested: readonly Address[]): AddConfig["families"] {
  const ipv4 = flag(ipam, "assign_ipv4") !== "false";
  const ipv6 = flag(ipam, "assign_ipv6") === "true";
  if (requested.length === 0) return { ipv4, ipv6 };
  const six = requested.filter((address) => address.includes(":")).length;
  return { ipv4: six < requested.length, ipv6: six > 0 };
}

/** Calico's main plugin insists on a string; everybody else writes a boolean. */
function flag(ipam: JsonObject, name: string): string {
  const value = field(ipam, name) ?? "";
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return String(value);
  return unusable(`"ipam.${name}" is ${kindOf(value)}`, 'Write "true" or "false"');
}

function textList(object: JsonObject, name: string, path = `ipam.${name}`): string[] {
  const value = field(object, name) ?? [];
  const next = "Write a list of texts";
  if (!Array.isArray(value)) return unusable(`"${path}" is ${kindOf(value)}`, next);
  if (value.length > maxListed)
    return unusable(`"${path}" has ${value.length} entries`, `At most ${maxListed} are accepted`);
  return value.map((entry: unknown) => {
    if (typeof entry !== "string") return unusable(`"${path}" holds ${kindOf(entry)}`, next);
    if (entry.length > maxTextChars) return unusable(`"${path}" holds a text of ${entry.length} characters`, next);
    return entry;
  });
}

/** runtimeConfig.ips before args.cni.ips before IP=, as the CNI conventions rank them. The first that says anything wins. */
function requestedAddresses(netconf: JsonObject, ipArgument: string, addressOf: AddressReader): Address[] {
  const addressIn = (text: string, path: string): Address =>
    // The length in "address/length" is the asker's idea of the subnet and means nothing here.
    addressOf(withoutLength(text)) ?? unusable(`"${path}" holds ${quoted(text)}, not an address`, "Correct it");
  const runtime = asObject(field(netconf, "runtimeConfig"));
  const capability = runtime === undefined ? [] : textList(runtime, "ips", "runtimeConfig.ips");
  if (capability.length > 0) return capability.map((text) => addressIn(text, "runtimeConfig.ips"));
  const convention = asObject(asObject(field(netconf, "args"))?.cni);
  const asked = convention === undefined ? [] : textList(convention, "ips", "args.cni.ips");
  if (asked.length > 0) return asked.map((text) => addressIn(text, "args.cni.ips"));
  return ipArgument === "" ? [] : [ipArgumentAddress(ipArgument, addressOf)];
}

function ipArgumentAddress(text: string, addressOf: AddressReader): Address {
  const address = addressOf(text);
  if (address !== undefined) return address;
  throw new Unusable(
    complaint(cniCode.environment, "BadRequest", `IP=${quoted(text)} in CNI_ARGS is not an address`, {
      next: "Write one address without a prefix length",
      details: `ARGS: error parsing value of pair "IP=${text}": invalid IP address: ${text}`,
    }),
  );
}

// ---- ipam.routes -----------------------------------------------------------------------------------------------------

function routesOf(ipam: JsonObject, addressOf: AddressReader): Route[] {
  const value = field(ipam, "routes") ?? [];
  const next = 'Write a list of {"dst": "<range>", "gw": "<address>"}';
  if (!Array.isArray(value)) return unusable(`"ipam.routes" is ${kindOf(value)}`, next);
  if (value.length > maxListed)
    return unusable(`"ipam.routes" has ${value.length} entries`, `At most ${maxListed} are accepted`);
  return value.map((entry: unknown): Route => {
    const route = asObject(entry);
    const dst = route === undefined ? undefined : field(route, "dst");
    if (route === undefined || typeof dst !== "string" || !isRange(dst, addressOf))
      return unusable(`"ipam.routes" holds ${quoted(entry)}`, next);
    const gw = field(route, "gw") ?? "";
    if (typeof gw !== "string" || (gw !== "" && addressOf(gw) === undefined))
      return unusable(`"gw" of ${dst} is no address`, next);
    return { dst, ...(gw === "" ? {} : { gw }), ...numbersOf(route, dst) };
  });
}

const routeNumbers = ["mtu", "advmss", "priority", "table", "scope"] as const;

function numbersOf(route: JsonObject, dst: string): Partial<Record<(typeof routeNumbers)[number], number>> {
  const numbers: Partial<Record<(typeof routeNumbers)[number], number>> = {};
  for (const name of routeNumbers) {
    const value = field(route, name);
    if (value === undefined) continue;
    if (!isWhole(value)) return unusable(`"${name}" of route ${dst} is ${quoted(value)}`, "Write a whole number");
    numbers[name] = value;
  }
  return numbers;
}

function isRange(text: string, addressOf: AddressReader): boolean {
  const [address = "", length = "", ...rest] = text.split("/");
  const bits = address.includes(":") ? 128 : 32;
  return addressOf(address) !== undefined && rest.length === 0 && /^\d{1,3}$/.test(length) && Number(length) <= bits;
}

/** `10.0.0.7/26` or `10.0.0.7`. */
export function withoutLength(text: string): string {
  return text.split("/", 1)[0] ?? "";
}

// ---- our own key -----------------------------------------------------------------------------------------------------

const prefixes = ["block", "pool", "host"] as const;

/** Strict: a misspelt key here would otherwise be noticed by nobody. */
function parseOwnKey(ipam: JsonObject, addressOf: AddressReader): AddConfig["result"] {
  const value = ipam.cattail ?? {};
  const own = asObject(value);
  if (own === undefined) return unsupported("ipam.cattail", value, "an object");
  for (const [key, entry] of Object.entries(own)) {
    const rule = ownKeys.get(key);
    if (rule === undefined) return unknownKey(key, entry);
    if (!rule.accepts(entry, addressOf)) return unsupported(`ipam.cattail.${key}`, entry, rule.wanted);
  }
  const { prefix, gateway } = own;
  return {
    prefix: isPrefix(prefix) ? prefix : "pool",
    gateway: isGatewayWord(gateway) ? gateway : typeof gateway === "string" ? (addressOf(gateway) ?? "") : "",
  };
}

const ownKeys = new Map<string, { accepts(value: unknown, addressOf: AddressReader): boolean; wanted: string }>([
  ["socket", { accepts: isSocketPath, wanted: `an absolute path of at most ${maxSocketPathBytes} bytes` }],
  ["spool", { accepts: isAbsolutePath, wanted: "an absolute path" }],
  ["timeoutMs", { accepts: isAddTimeout, wanted: `a whole number from ${addTimeoutMs.least} to ${addTimeoutMs.most}` }],
  ["prefix", { accepts: isPrefix, wanted: `one of "${prefixes.join('", "')}"` }],
  ["gateway", { accepts: isGateway, wanted: 'an address, "first" or ""' }],
]);

function unknownKey(key: string, value: unknown): never {
  throw new Unusable(
    complaint(cniCode.unsupportedField, "BadConfig", `unknown key "ipam.cattail.${key}" with value ${quoted(value)}`, {
      next: suggestion(key, ownKeys.keys()).trim() || `Known keys: ${[...ownKeys.keys()].join(", ")}`,
    }),
  );
}

function unsupported(path: string, value: unknown, wanted: string): never {
  throw new Unusable(
    complaint(cniCode.unsupportedField, "BadConfig", `"${path}" is ${quoted(value)}`, { next: `Write ${wanted}` }),
  );
}

function isPrefix(value: unknown): value is (typeof prefixes)[number] {
  return prefixes.some((prefix) => prefix === value);
}

function isGateway(value: unknown, addressOf: AddressReader): boolean {
  return isGatewayWord(value) || (typeof value === "string" && addressOf(value) !== undefined);
}

/** The pool's first address, or none. */
function isGatewayWord(value: unknown): value is "first" | "" {
  return value === "first" || value === "";
}

function isAddTimeout(value: unknown): value is number {
  return isWhole(value) && value >= addTimeoutMs.least && value <= addTimeoutMs.most;
}

function isAbsolutePath(value: unknown): value is string {
  return typeof value === "string" && value.startsWith("/") && value.length <= maxTextChars && !value.includes("\0");
}

function isSocketPath(value: unknown): value is string {
  // Every character has at least one byte, and paths outside ASCII are rare enough to be told apart by trying.
  return isAbsolutePath(value) && value.length <= maxSocketPathBytes;
}

function isWhole(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value);
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  return typeof value === "object" ? "an object" : `the ${typeof value} ${quoted(value)}`;
}

const maxQuotedChars = 60;

function quoted(value: unknown): string {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length <= maxQuotedChars ? text : `${text.slice(0, maxQuotedChars)}…`;
}
