import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import type { CommandConfig } from "./config/catalogue.ts";
import { type Listing, render } from "./output.ts";

const listing: Listing<{ name: string; used: number }> = {
  kind: "PoolList",
  items: [
    { name: "blue-ipv4", used: 7 },
    { name: "red", used: 12 },
  ],
  columns: [
    ["POOL", (pool) => pool.name],
    ["USED", (pool) => String(pool.used)],
  ],
  name: (pool) => `pool/${pool.name}`,
};

function rendered(output: CommandConfig["output"], noHeaders = false): string {
  return render(listing, { output, noHeaders });
}

test("a table has three spaces between its columns and none at the end of a line", () => {
  assert.equal(rendered("table"), "POOL        USED\nblue-ipv4   7\nred         12\n");
  assert.equal(rendered("table", true), "blue-ipv4   7\nred         12\n");
});

test("JSON and YAML carry the same document, names one per line", () => {
  const document = { apiVersion: "cattail.io/v1", kind: "PoolList", items: listing.items };
  assert.deepEqual(JSON.parse(rendered("json")), document);
  assert.deepEqual(parse(rendered("yaml")), document);
  assert.equal(rendered("name"), "pool/blue-ipv4\npool/red\n");
});

test("control characters of a value do not reach the terminal", () => {
  const text = render(
    { ...listing, items: [{ name: "a\u001b[31m\nb", used: 1 }] },
    { output: "table", noHeaders: true },
  );
  assert.equal(text, "a [31m b   1\n");
});
