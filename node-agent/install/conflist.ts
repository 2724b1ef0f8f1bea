// The one change to a network configuration that makes its main plugin ask us for addresses; everything else in it stays as it is.
// Leaves to others: reading and writing it, and whether it is wanted at all.
import { parseLossless, printLossless } from "../../shared/json/lossless.ts";

/** What of the section `ipam` is ours. `cattail` undefined: there is no such key. */
export interface Ipam {
  readonly type: unknown;
  readonly cattail: unknown;
}

export type Patched =
  | { readonly kind: "same" }
  | { readonly kind: "changed"; readonly text: string }
  | { readonly kind: "unusable"; readonly why: string };

/** In the first plugin that has a section `ipam`: the main plugin. Keys keep their order, unknown ones included. */
export function patchConflist(text: string, wanted: (now: Ipam) => Ipam): Patched {
  const network = parsed(text);
  if (network === undefined) return { kind: "unusable", why: "it is no JSON object" };
  const plugins: readonly unknown[] = Array.isArray(network.plugins) ? network.plugins : [network];
  const main = plugins.find((plugin): plugin is JsonObject => isObject(plugin) && isObject(plugin.ipam));
  if (main === undefined || !isObject(main.ipam))
    return { kind: "unusable", why: 'no plugin in it has a section "ipam"' };
  const before: Ipam = { type: main.ipam.type, cattail: main.ipam.cattail };
  const after = wanted(before);
  if (printLossless(after) === printLossless(before)) return { kind: "same" };
  main.ipam.type = after.type;
  if (after.cattail === undefined) delete main.ipam.cattail;
  else main.ipam.cattail = after.cattail;
  return { kind: "changed", text: `${printLossless(network, indent)}\n` };
}

/** Our type; socket and spool beside what else an operator has written there. Undefined: the executable's own default is right. */
export function oursIn(
  type: string,
  places: { readonly socket?: string; readonly spool?: string },
): (now: Ipam) => Ipam {
  return (now) => {
    if (Object.keys(places).length === 0) return { type, cattail: now.cattail };
    return { type, cattail: { ...(isObject(now.cattail) ? now.cattail : {}), ...places } };
  };
}

/** As Calico's and most others' are printed. */
const indent = 2;

type JsonObject = { [key: string]: unknown };

function parsed(text: string): JsonObject | undefined {
  try {
    const value = parseLossless(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
