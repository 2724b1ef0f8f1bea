// Runs the embedded API server by itself: `node test/kube-api/main.ts [--port 6443] [--kubeconfig FILE] [--rbac] MANIFEST...`
// Manifests are YAML or JSON files, stored before the server is announced. Ends on Ctrl-C.
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { parseAllDocuments } from "yaml";
import { startKubeApi } from "./shell.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    port: { type: "string", default: "6443" },
    host: { type: "string", default: "127.0.0.1" },
    kubeconfig: { type: "string", default: "embedded.kubeconfig" },
    rbac: { type: "boolean", default: false },
  },
});
const seed = positionals.flatMap((file) =>
  parseAllDocuments(readFileSync(file, "utf8")).map((document): unknown => document.toJS()),
);
const api = await startKubeApi({ port: Number(values.port), host: values.host, tls: true, rbac: values.rbac, seed });
await api.kubeconfig(values.kubeconfig);
console.log(`API server at ${api.url}; kubectl --kubeconfig ${values.kubeconfig} get all`);
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    api.stop().then(() => process.exit(0));
  });
}
