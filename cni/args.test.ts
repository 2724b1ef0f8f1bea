// CNI_ARGS: what runtimes really send, and that nothing in it can fail a pod.
import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { parseCniArgs } from "./args.ts";

test("Kubernetes' keys are found in any order, empty segments skipped, the last duplicate wins", () => {
  const args = parseCniArgs(
    "IgnoreUnknown=1;;K8S_POD_NAME=old;X=a=b;K8S_POD_UID=u;K8S_POD_NAME=p;K8S_POD_NAMESPACE=n;IP=10.0.0.1;",
  );
  assert.deepEqual(args, { podNamespace: "n", podName: "p", podUid: "u", ip: "10.0.0.1" });
});

test("keys are case-sensitive, and a segment without = says nothing", () => {
  assert.deepEqual(parseCniArgs("k8s_pod_name=p;ip=1;IP;=x"), { podNamespace: "", podName: "", podUid: "", ip: "" });
});

test("the first = splits", () => {
  assert.equal(parseCniArgs("K8S_POD_NAME=a=b=c").podName, "a=b=c");
});

test("whatever the text, there is an answer", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) =>
      Object.values(parseCniArgs(text)).every((value) => typeof value === "string"),
    ),
  );
});
