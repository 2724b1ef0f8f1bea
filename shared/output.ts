// Forms of a command's result: table, JSON, YAML, names (ux 9). Leaves to others: what the result is.
import { stringify } from "yaml";
import type { CommandConfig } from "./config/catalogue.ts";

export const outputVersion = "cattail.io/v1";

export interface Listing<Item extends object> {
  readonly kind: string;
  readonly items: readonly Item[];
  /** Heading and text of a cell, left to right. */
  readonly columns: readonly (readonly [heading: string, cell: (item: Item) => string])[];
  readonly name: (item: Item) => string;
}

export function render<Item extends object>(listing: Listing<Item>, { output, noHeaders }: CommandConfig): string {
  const document = { apiVersion: outputVersion, kind: listing.kind, items: listing.items };
  switch (output) {
    case "json":
      return `${JSON.stringify(document)}\n`;
    case "yaml":
      return stringify(document);
    case "name":
      return lines(listing.items.map(listing.name));
    case "table":
      return table([
        ...(noHeaders ? [] : [listing.columns.map(([heading]) => heading)]),
        ...listing.items.map((item) => listing.columns.map(([, cell]) => cell(item))),
      ]);
  }
}

/** Columns with three spaces between them, no boxes. */
export function table(rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map((cell) => cell.replace(/\p{Cc}/gu, " ")));
  const columns = Math.max(0, ...cells.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  );
  return lines(
    cells.map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("   ")
        .trimEnd(),
    ),
  );
}

function lines(texts: readonly string[]): string {
  return texts.map((text) => `${text}\n`).join("");
}
