// The table in docs/traps.md is complete, and what it says holds a trap is there: a test of exactly that name, or a recording.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "..");
const trapCount = 83;

interface Row {
  readonly trap: number;
  readonly heldBy: string;
}

const rows: readonly Row[] = [
  ...readFileSync(join(root, "docs/traps.md"), "utf8").matchAll(/^\| (\d+) \| [^|]+ \| ([^|]+) \|$/gm),
].map(([, trap, heldBy = ""]) => ({ trap: Number(trap), heldBy }));

/** `file` "name" */
function testsIn({ heldBy }: Row): { file: string; name: string }[] {
  return [...heldBy.matchAll(/`([^`]+\.ts)` "([^"]+)"/g)].map(([, file = "", name = ""]) => ({ file, name }));
}

/** recording `group/name` */
function recordingsIn({ heldBy }: Row): string[] {
  return [...heldBy.matchAll(/recording `([^`]+)`/g)].map(([, name = ""]) => name);
}

/** Names of tests as they stand in the file, what is filled in at run time as `…`. */
function namesIn(file: string): ReadonlySet<string> {
  const path = join(root, file);
  if (!existsSync(path)) return new Set();
  const calls = readFileSync(path, "utf8").matchAll(/\b(?:test|it)\(\s*(?:"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`)/g);
  return new Set([...calls].map(([, plain, template]) => plain ?? template?.replace(/\$\{[^}]*\}/g, "…") ?? ""));
}

test("every trap has its line, in order", () => {
  assert.deepEqual(
    rows.map(({ trap }) => trap),
    Array.from({ length: trapCount }, (_, index) => index + 1),
  );
});

test("every line names what holds the trap, or says why nothing does", () => {
  for (const row of rows) {
    const isExplained = /^(Does not arise|Open): \S/.test(row.heldBy);
    assert.ok(isExplained || testsIn(row).length + recordingsIn(row).length > 0, `trap ${row.trap}: ${row.heldBy}`);
  }
});

test("every test that is named is in its file, under exactly that name", () => {
  const named = rows.flatMap((row) => testsIn(row).map((one) => ({ trap: row.trap, ...one })));
  const known = new Map([...new Set(named.map(({ file }) => file))].map((file) => [file, namesIn(file)]));
  const missing = named.filter(({ file, name }) => known.get(file)?.has(name) !== true);
  assert.deepEqual(missing, []);
});

test("a quoted name always stands behind its file", () => {
  for (const row of rows) assert.equal(row.heldBy.split('"').length, 1 + 2 * testsIn(row).length, `trap ${row.trap}`);
});

test("every recording that is named and could be in the repository is", () => {
  for (const row of rows) {
    for (const name of recordingsIn(row)) {
      assert.match(name, /^[a-z0-9]+\/[a-z0-9-]+$/, `trap ${row.trap}`);
      const isHere = name.startsWith("basics/");
      if (isHere) assert.ok(existsSync(join(root, "test/data/fixtures", `${name}.json`)), `trap ${row.trap}: ${name}`);
    }
  }
});
