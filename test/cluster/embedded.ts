// The embedded API server as a TestApi, with RBAC on as in any real cluster.
// What else it can do (faults, compaction, going back in time) is reached through `kube`.
import { type KubeApi, type KubeApiOptions, startKubeApi } from "../kube-api/shell.ts";
import { ApiClient, type TestApi } from "./api.ts";

export interface EmbeddedApi extends TestApi {
  readonly kube: KubeApi;
}

export async function startEmbedded(options: KubeApiOptions = {}): Promise<EmbeddedApi> {
  const kube = await startKubeApi({ rbac: true, ...options });
  return {
    kube,
    url: kube.url,
    ca: kube.ca,
    admin: new ApiClient(kube.url, kube.ca, kube.adminToken),
    mark: async () => kube.log.mark(),
    requests: async (since) => kube.log.since(since).entries,
    stop: () => kube.stop(),
  };
}
