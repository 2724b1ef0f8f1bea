// Forms of a command's result: table, JSON, YAML, names (ux 9). Leaves to others: what the result is.
import { stringify } from "yaml";
import type { CommandConfig } from "./config/catalogue.ts";

export const outputVersion = "cattail.io/v1";

/** Heading and text of a cell. */
export type Column<Item> = readonly [heading: string, cell: (item: Item) => string];

export interface Listing<Item extends object> {
  readonly kind: string;
  /** What holds for the whole, such as its age: beside the items, for programs only. */
  readonly facts?: Readonly<Record<string, unknown>>;
  readonly items: readonly Item[];
  /** Left to right. */
  readonly columns: readonly Column<Item>[];
  /** To the right of the others, when somebody asks for them. */
  readonly wide?: readonly Column<Item>[];
  /** For people, instead of a table. */
  readonly text?: string;
  readonly name: (item: Item) => string;
  /** How the line of an item is to catch the eye; it says so in words as well. */
  readonly tone?: (item: Item) => Tone | undefined;
}

export type Tone = "bad" | "doubtful";
export type Paint = (tone: Tone, line: string) => string;

export function render<Item extends object>(
  listing: Listing<Item>,
  { output, noHeaders }: Pick<CommandConfig, "output" | "noHeaders">,
  paint: Paint = (_, line) => line,
): string {
  const { kind, facts, items, text } = listing;
  const document = { apiVersion: outputVersion, kind, ...facts, items };
  switch (output) {
    case "json":
      return `${JSON.stringify(document)}\n`;
    case "yaml":
      return stringify(document);
    case "name":
      return lines(items.map(listing.name));
    case "table":
    case "wide": {
      if (text !== undefined) return text;
      const columns = output === "wide" ? [...listing.columns, ...(listing.wide ?? [])] : listing.columns;
      const rows = items.map((item) => columns.map(([, cell]) => cell(item)));
      const head = columns.map(([heading]) => heading);
      const [first, ...rest] = tableLines([head, ...rows]);
      const painted = rest.map((line, index) => {
        const item = items[index];
        const tone = item && listing.tone?.(item);
        return tone === undefined ? line : paint(tone, line);
      });
      if (noHeaders) return lines(tableLines(rows));
      return items.length === 0 ? "" : lines([first ?? "", ...painted]);
    }
  }
}

/** Columns with three spaces between them, no boxes. */
export function table(rows: readonly (readonly string[])[]): string {
  return lines(tableLines(rows));
}

function tableLines(rows: readonly (readonly string[])[]): string[] {
  const cells = rows.map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, " ")));
  const columns = Math.max(0, ...cells.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  );
  return cells.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("   ")
      .trimEnd(),
  );
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join("");
}
