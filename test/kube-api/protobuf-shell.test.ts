// Bodies as kubectl 1.32 sent them, byte by byte.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readProtobuf } from "./protobuf-shell.ts";

const bodies: Readonly<Record<string, readonly [string, unknown]>> = {
  "kubectl create namespace demo": [
    "6b3873000a0f0a02763112094e616d657370616365121c0a140a0464656d6f12001a0022002a0032003800420012001a020a001a002200",
    { apiVersion: "v1", kind: "Namespace", metadata: { name: "demo", generation: 0 } },
  ],
  "kubectl create clusterrole r --verb=get,list --resource=nodes": [
    "6b3873000a2b0a1c726261632e617574686f72697a6174696f6e2e6b38732e696f2f7631120b436c7573746572526f6c6512290a110a017212001a0022002a0032003800420012140a036765740a046c69737412001a056e6f6465731a002200",
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: "r", generation: 0 },
      rules: [{ verbs: ["get", "list"], apiGroups: [""], resources: ["nodes"] }],
    },
  ],
  "kubectl create token default --audience cattail --duration 20m --bound-object-kind Node --bound-object-name n": [
    "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e5265717565737412370a100a0012001a0022002a00320038004200121d0a076361747461696c1a0f0a044e6f6465120276311a016e220020b0091a040a0012001a002200",
    {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      metadata: { generation: 0 },
      spec: {
        audiences: ["cattail"],
        boundObjectRef: { kind: "Node", apiVersion: "v1", name: "n" },
        expirationSeconds: 1200,
      },
    },
  ],
  "kubectl auth can-i get pods -n demo": [
    "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a65637441636365737352657669657712390a100a0012001a0022002a00320038004200121b0a190a0464656d6f12036765741a0022002a04706f647332003a001a08080012001a0020001a002200",
    {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectAccessReview",
      metadata: { generation: 0 },
      spec: { resourceAttributes: { namespace: "demo", verb: "get", resource: "pods" } },
    },
  ],
  "kubectl create configmap a --from-literal=x=y": [
    "6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a016112001a0022002a0032003800420012060a01781201791a002200",
    { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a", generation: 0 }, data: { x: "y" } },
  ],
};

for (const [command, [hex, object]] of Object.entries(bodies)) {
  test(command, () => assert.deepEqual(readProtobuf(Buffer.from(hex, "hex")), object));
}

test("other bytes are no objects, and never an error", () => {
  const recorded = fc.constantFrom(...Object.values(bodies).map(([hex]) => Buffer.from(hex, "hex")));
  fc.assert(fc.property(fc.uint8Array(), (bytes) => readProtobuf(Buffer.from(bytes)) === undefined));
  fc.assert(
    fc.property(recorded, fc.nat(), fc.nat(255), (body, where, byte) => {
      const damaged = Buffer.from(body);
      damaged[where % body.length] = byte;
      readProtobuf(damaged);
      readProtobuf(damaged.subarray(0, where % body.length));
    }),
  );
});
