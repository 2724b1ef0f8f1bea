// Reads the CustomResourceDefinitions of Calico's kinds from test/data/crds, to seed a server with.
// What they demand is said there.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import type { ApiGroup } from "../../shared/calico/resources.ts";

export function calicoDefinitions(group: ApiGroup): unknown[] {
  const folder = join(import.meta.dirname, "../data/crds", group);
  return readdirSync(folder)
    .sort()
    .map((file): unknown => parse(readFileSync(join(folder, file), "utf8")));
}
