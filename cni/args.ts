// CNI_ARGS: `K=V;K2=V2` from the runtime (spec/cni.md 2.3). Lenient: a runtime's additions must never fail a pod.
// Leaves to others: whether an address in it can be had.

export interface CniArgs {
  readonly podNamespace: string;
  readonly podName: string;
  readonly podUid: string;
  /** As written; "" when absent. */
  readonly ip: string;
}

/** Empty segments are skipped, the first `=` splits, the last duplicate wins, unknown keys are ignored. */
export function parseCniArgs(text: string): CniArgs {
  const values = new Map<string, string>();
  for (const segment of text.split(";")) {
    const equals = segment.indexOf("=");
    if (equals > 0) values.set(segment.slice(0, equals), segment.slice(equals + 1));
  }
  return {
    podNamespace: values.get("K8S_POD_NAMESPACE") ?? "",
    podName: values.get("K8S_POD_NAME") ?? "",
    podUid: values.get("K8S_POD_UID") ?? "",
    ip: values.get("IP") ?? "",
  };
}
