// The embedded API server against what the real one is known to do.
import { after } from "node:test";
import { conformance } from "./conformance.ts";
import { type KubeApi, startKubeApi } from "./shell.ts";

let api: KubeApi | undefined;
conformance("embedded API server", async () => {
  api = await startKubeApi({ rbac: true, tls: true });
  return { url: api.url, token: api.adminToken, ca: api.ca };
});
after(() => api?.stop());
