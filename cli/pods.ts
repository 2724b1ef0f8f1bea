// A pod as far as its addresses go. Leaves to others: what follows from it.
import { isFields, list, type Reading, reading, record, requiredText, text } from "../shared/calico/fields.ts";
import { parseAddress, printAddress } from "../shared/ip/address.ts";
import type { Address } from "../shared/kinds.ts";

export interface Pod {
  /** "namespace/name" */
  readonly key: string;
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Empty: not scheduled yet. */
  readonly node: string;
  readonly hostNetwork: boolean;
  readonly phase: string;
  /** Its containers have ended, or it is marked for deletion and its sandbox was taken down: its addresses are nobody's (spec 6.4). */
  readonly isFinished: boolean;
  readonly isTerminating: boolean;
  readonly addresses: readonly Address[];
  readonly startedAt: string;
  /** What of the annotations says which address it may have. */
  readonly annotations: Readonly<Record<string, string>>;
}

const takenDown = ["cni.projectcalico.org/podIP", "vpc.amazonaws.com/pod-ips"];

export function readPod(raw: unknown): Reading<Pod> {
  return reading(() => {
    const object = isFields(raw) ? raw : {};
    const metadata = record(object, "metadata");
    const [spec, status] = [record(object, "spec"), record(object, "status")];
    const [namespace, name] = [requiredText(metadata, "namespace"), requiredText(metadata, "name")];
    const annotations = record(metadata, "annotations");
    const isTerminating = text(metadata, "deletionTimestamp") !== "";
    const phase = text(status, "phase");
    return {
      key: `${namespace}/${name}`,
      namespace,
      name,
      uid: requiredText(metadata, "uid"),
      node: text(spec, "nodeName"),
      hostNetwork: spec.hostNetwork === true,
      phase,
      isTerminating,
      isFinished:
        phase === "Failed" ||
        phase === "Succeeded" ||
        (isTerminating && takenDown.some((key) => annotations[key] === "")),
      addresses: addressesOf(status),
      startedAt: text(status, "startTime") || text(metadata, "creationTimestamp"),
      annotations: Object.fromEntries(
        Object.entries(annotations).flatMap(([key, value]) =>
          key.startsWith("cni.projectcalico.org/") && typeof value === "string" ? [[key, value]] : [],
        ),
      ),
    };
  });
}

function addressesOf(status: Readonly<Record<string, unknown>>): Address[] {
  const all = list(status, "podIPs").flatMap((entry) => (isFields(entry) ? [text(entry, "ip")] : []));
  const written = all.length > 0 ? all : [text(status, "podIP")];
  return written.flatMap((one) => {
    const address = parseAddress(one);
    return address === undefined ? [] : [printAddress(address.family, address.value)];
  });
}
