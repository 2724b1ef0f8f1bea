// What the chart says of the options is what the catalogue says. What Helm makes of the chart is left to test/real/chart.test.ts.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { chartFolder, configurable, valuesSchema } from "./values-schema.ts";

test("values.schema.json is what the catalogue makes it (node test/chart/values-schema.ts writes it)", () => {
  const written = JSON.parse(readFileSync(join(chartFolder, "values.schema.json"), "utf8"));
  assert.deepEqual(written, valuesSchema());
});

for (const daemon of ["server", "agent"] as const) {
  test(`the options that restart no ${daemon} are those that it takes over by itself`, () => {
    const helpers = readFileSync(join(chartFolder, "templates/_helpers.tpl"), "utf8");
    const listed = new RegExp(`${daemon}Config"[^\\n]*\\n[^\\n]*"reloadable" \\(list ([^)]*)\\)`).exec(helpers);
    const reloadable = configurable(daemon).filter(({ option }) => option.reloadable);
    assert.deepEqual(
      listed?.[1]?.split(" ").map((quoted) => JSON.parse(quoted)),
      reloadable.map(({ key }) => key),
    );
  });
}
