// Which build this is. Leaves to others: where it is shown.
import manifest from "../../package.json" with { type: "json" };
import { type Executable, executables, revisionVariable } from "../config/catalogue.ts";
import type { Version } from "../config/report.ts";

export function versionOf(executable: Executable): Version {
  return {
    component: executables[executable].name,
    version: manifest.version,
    revision: process.env[revisionVariable] || "unknown",
    runtime: `node ${process.versions.node}`,
  };
}
