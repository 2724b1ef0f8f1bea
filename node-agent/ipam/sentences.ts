// What Calico's sentence about pools means in our words: the reason, and what to do about it (spec 2.5, 3.13; ux 8).
import { isUsable } from "../../shared/calico/pools.ts";
import type { IpamConfig, Pool } from "../../shared/calico/resources.ts";
import { familyOf } from "../../shared/ip/cidr.ts";
import type { Family } from "../../shared/kinds.ts";
import type { Reason } from "../../shared/reasons.ts";
import { type Trouble, trouble } from "../trouble.ts";

/** What Calico's plugin says when a node gets no further block (spec 2.6, 2.7). */
export function claimSentence(reason: Reason, pools: readonly Pool[], config: IpamConfig): string {
  if (!config.autoAllocateBlocks) return "failed to find or claim a block";
  if (reason === "BlockLimitReached") return "cannot allocate new block due to per host block limit";
  const family = pools[0] === undefined ? 4 : familyOf(pools[0].cidr);
  const short = `failed to request IPv${family} addresses: Assigned 0 out of 1 requested IPv${family} addresses`;
  if (config.strictAffinity) return `${short}; No more free affine blocks and strict affinity enabled`;
  return `${short}; No IPs available in pools: [${pools.map(({ cidr }) => cidr).join(" ")}]`;
}

/** `sentence` is one of those of shared/calico/pools.ts and shared/calico/selector.ts. */
export function troubleOfChoice(sentence: string, family: Family, pools: readonly Pool[]): Trouble {
  const ofFamily = pools.filter(({ cidr }) => familyOf(cidr) === family);
  const enabled = ofFamily.filter((pool) => isUsable(pool, family)).length;
  const counted = `${enabled} of ${ofFamily.length} IPv${family} pools are enabled`;
  const details = sentence;
  if (sentence.startsWith("the given pool")) {
    return trouble("PoolDisabled", `${sentence}; ${counted}`, { details, next: "Check the pools that were asked for" });
  }
  if (sentence.startsWith("no configured Calico pools") || sentence.includes("no pools match the required use")) {
    const next = "Check nodeSelector, namespaceSelector, assignmentMode and allowedUses of the pools";
    return trouble("NoPoolSelected", `${counted}, and none of them may be used for this pod on this node`, {
      details,
      next,
    });
  }
  if (sentence === "cannot find a qualified ippool") {
    const reason = ofFamily.length > 0 ? "PoolDisabled" : "NoPoolSelected";
    return trouble(reason, counted, { details, next: `Create or enable an IPPool for IPv${family}` });
  }
  return trouble("BadConfig", sentence, { details });
}
