// Blocks as a cluster has them: a node each, sixteen pods in it, about three kilobytes on the wire. Leaves writing them to stage.ts.
import { podAttributes, podHandle } from "../../shared/calico/attributes.ts";
import { assign, newBlock } from "../../shared/calico/block.ts";
import { newBlockObject } from "../../shared/calico/codec.ts";
import type { BlockAttribute, BlockState } from "../../shared/calico/resources.ts";
import type { BlockCidr, NodeName, Sequence, UnixMs } from "../../shared/kinds.ts";

const podsPerBlock = 16;
const madeAt = Date.UTC(2026, 0, 1) as UnixMs;
const nanos = BigInt(madeAt) * 1_000_000n;

export interface BenchBlock {
  readonly cidr: BlockCidr;
  readonly node: NodeName;
  readonly state: BlockState;
}

/** The `index`th block of 10.0.0.0/8. */
export function benchBlock(index: number, node: NodeName): BenchBlock {
  const cidr = `10.${index >> 10}.${(index >> 2) & 255}.${(index & 3) * 64}/26` as BlockCidr;
  let state = newBlock({ cidr, affinity: `host:${node}`, now: madeAt, sequence: nanos as Sequence });
  for (let pod = 0; pod < podsPerBlock; pod++) {
    const attributes = podAttributes({ node, nanos, podName: `web-${index}-${pod}`, podNamespace: "shop" });
    state = assign(state, [pod], {
      handle: podHandle("k8s-pod-network", `${index}-${pod}`.padStart(64, "0")),
      secondary: attributes,
    });
  }
  return { cidr, node, state };
}

export function apiObject({ cidr, state }: BenchBlock): Record<string, unknown> {
  return newBlockObject("crd", cidr, state);
}

/** A change of one pod's attributes that says when it was written. */
export function stampPatch({ state }: BenchBlock, sentUs: number): unknown {
  const attributes: BlockAttribute[] = [...state.attributes];
  const last = attributes.length - 1;
  attributes[last] = {
    ...attributes[last],
    secondary: { ...attributes[last]?.secondary, "bench-stamp": String(sentUs) },
  };
  return { spec: { attributes } };
}
