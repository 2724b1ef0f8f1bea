// Which of the two API groups holds Calico's objects in this cluster (spec 1.1).
// Leaves what follows from the answer to others; asks the API server once, and again when told to.
import { isFields } from "../calico/fields.ts";
import type { ApiGroup } from "../calico/resources.ts";
import type { Api } from "./api.ts";

/**
 * v3 only where Calico's own custom resources are the new ones: with both groups present the new one is an aggregated API in front
 * of the old. Rejects when the API server cannot be asked; a guess could have us watch the wrong group for ever.
 */
export async function discoverGroup(api: Api): Promise<ApiGroup> {
  const answer = await api.get("/apis");
  const groups = isFields(answer) && Array.isArray(answer.groups) ? answer.groups : [];
  const names = new Set(groups.map((group: unknown) => (isFields(group) ? group.name : undefined)));
  return names.has("projectcalico.org") && !names.has("crd.projectcalico.org") ? "v3" : "crd";
}

/** The configured word, as Calico reads it: anything but the new group's name means the old one. */
export function groupOf(configured: string): ApiGroup | undefined {
  if (configured === "") return undefined;
  return configured.toLowerCase() === "projectcalico.org/v3" ? "v3" : "crd";
}
