// One entry of libcni's result cache, where every container runtime leaves what an ADD gave (spec/cni.md 7): whose it is, and its addresses.
// Leaves to libcni-cache-shell.ts which files there are, and to the ledger what follows from them.
import * as v from "valibot";
import { canonicalAddress } from "../../shared/ip/address.ts";
import type { Address } from "../../shared/kinds.ts";
import type { Witness } from "../ledger/evidence.ts";

/** `ip4` and `ip6` are how results before CNI 0.3 give addresses. */
const addresses = {
  ips: v.optional(v.nullable(v.array(v.object({ address: v.string() })))),
  ip4: v.optional(v.nullable(v.object({ ip: v.string() }))),
  ip6: v.optional(v.nullable(v.object({ ip: v.string() }))),
};
const result = v.object(addresses);
const bareResult = v.object({ ...addresses, cniVersion: v.string() });

/** The parts of an attachment's identity are joined by slashes. */
const name = v.pipe(v.string(), v.regex(/^[^/]+$/));

/** Its `config` is left alone: it may hold credentials. */
const entry = v.object({
  kind: v.literal("cniCacheV1"),
  containerId: name,
  ifName: name,
  networkName: name,
  cniArgs: v.optional(v.nullable(v.array(v.tuple([v.string(), v.string()])))),
  result,
});

/** Throws when it is no whole entry: libcni does not write them in one piece. */
export function parseCacheEntry(text: string): Witness {
  const json = v.parse(v.looseObject({ kind: v.optional(v.string()) }), JSON.parse(text));
  // Older releases of libcni kept the bare result, and their files' names do not tell the parts of an attachment apart.
  if (json.kind === undefined)
    return { attachment: undefined, pod: undefined, addresses: addressesOf(v.parse(bareResult, json)) };
  const { containerId, ifName, networkName, cniArgs, result: given } = v.parse(entry, json);
  const args = new Map(cniArgs ?? []);
  const pod = { namespace: args.get("K8S_POD_NAMESPACE") ?? "", name: args.get("K8S_POD_NAME") ?? "" };
  return { attachment: { network: networkName, containerId, ifname: ifName }, pod, addresses: addressesOf(given) };
}

function addressesOf({ ips, ip4, ip6 }: v.InferOutput<typeof result>): Address[] {
  const texts = [...(ips ?? []).map(({ address }) => address), ...[ip4, ip6].flatMap((one) => one?.ip ?? [])];
  return texts.map((text) => {
    const address = canonicalAddress(text.split("/")[0] ?? "");
    if (address === undefined) throw new Error(`${JSON.stringify(text.slice(0, 64))} is no IP address`);
    return address;
  });
}
