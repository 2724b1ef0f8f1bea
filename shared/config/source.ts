// Where the text of a setting came from, and how an error says so (ux 8). Leaves to others: reading those places.
import type { Text } from "./value.ts";

export type Source =
  | { readonly kind: "flag"; readonly name: string }
  | { readonly kind: "environment"; readonly name: string }
  | { readonly kind: "file"; readonly path: string; readonly line: number }
  | { readonly kind: "default" };

/** One key that somebody has set. */
export interface Setting {
  readonly key: string;
  readonly text: Text;
  readonly source: Source;
}

/** "flag --offline-limit", "/etc/cattail/server.yaml line 7" */
export function describeSource(source: Source): string {
  switch (source.kind) {
    case "flag":
      return `flag ${source.name}`;
    case "environment":
      return `variable ${source.name}`;
    case "file":
      return `${source.path} line ${source.line}`;
    case "default":
      return "default";
  }
}

/** `<where>: <why> (reason BadConfig). <next step>` */
export function configError(source: string, why: string, next: string): string {
  return `config ${source}: ${why} (reason BadConfig).${next === "" ? "" : ` ${next.trim()}`}`;
}
