// Runs Helm, the real one, on our chart. Leaves to the tests what comes out of it.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import { chartFolder } from "../chart/values-schema.ts";
import type { Manifest } from "../cluster/api.ts";
import { realPart } from "./parts.ts";

const run = promisify(execFile);

/** Rejects with what it said if it is not content. */
export async function helm(...args: readonly string[]): Promise<string> {
  const { stdout } = await run(await realPart("helm"), [...args], { maxBuffer: 64 << 20 });
  return stdout;
}

export type Values = { readonly [key: string]: unknown };

/** Values as flags; each of the first level whole, so that lists and numbers stay what they are. */
export function valueFlags(values: Values): string[] {
  return Object.entries(values).flatMap(([key, value]) => ["--set-json", `${key}=${JSON.stringify(value)}`]);
}

export async function rendered(values: Values, ...flags: readonly string[]): Promise<readonly Manifest[]> {
  const text = await helm("template", "cattail", chartFolder, "-n", namespace, ...valueFlags(values), ...flags);
  return parseAllDocuments(text)
    .map((document) => document.toJS() as Manifest)
    .filter((manifest) => manifest !== null);
}

export const namespace = "cattail-system";
