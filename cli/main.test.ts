import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const main = join(import.meta.dirname, "main.ts");

function cattail(
  argv: readonly string[],
  { env = {}, script = main }: { env?: Record<string, string>; script?: string } = {},
) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...argv], { env, encoding: "utf8" });
  return { status, stdout, stderr };
}

test("without a command it says how to use it, on stderr, and ends with 2", () => {
  const { status, stdout, stderr } = cattail([]);
  assert.deepEqual([status, stdout], [2, ""]);
  assert.match(stderr, /^cattail: .*\n\nUsage: cattail COMMAND \[OPTION\]\.\.\.\n/);
});

test("what it says about itself goes to stdout and ends with 0", () => {
  assert.match(
    cattail(["--help"]).stdout,
    /\n {2}completion {3}Writes .*\n {2}config {7}Shows .*\n {2}version {6}Shows /,
  );
  assert.match(cattail(["--version"]).stdout, /^cattail \d+\.\d+\.\d+\n$/);
  assert.equal(JSON.parse(cattail(["version", "-ojson"]).stdout).items[0].component, "cattail");
  const { status, stdout, stderr } = cattail(["config"], { env: { CATTAIL_NO_HEADERS: "true", CATTAIL_OUTPT: "x" } });
  assert.equal(status, 0);
  assert.match(stdout, /^output +table +default +table +no\nnoHeaders +true +variable CATTAIL_NO_HEADERS +false +no\n/);
  assert.match(stderr, /^config variable CATTAIL_OUTPT: unknown, ignored\. Did you mean "CATTAIL_OUTPUT"\?\n$/);
});

test("an unknown command, flag or value ends with 2 and names the nearest", () => {
  for (const [argv, complaint] of [
    [["completoin"], 'cattail: unknown command "completoin" (reason BadRequest). Did you mean "completion"?\n'],
    [["--outptu=json"], 'config flag --outptu: unknown flag (reason BadConfig). Did you mean "--output"?\n'],
    [["version", "config"], 'cattail: "version" takes no argument "config" (reason BadRequest). See cattail --help\n'],
    [
      ["version", "-o", "xml"],
      '"xml" is not allowed for "output" (reason BadConfig). Write table, wide, json, yaml or name\n',
    ],
    [
      ["completion", "zhs"],
      'cattail: "completion" takes the name of a shell (reason BadRequest). Did you mean "zsh"?\n',
    ],
    [["completion", "bash", "x"], "Write one of bash, zsh, fish and nothing more\n"],
  ] as const) {
    const { status, stdout, stderr } = cattail(argv);
    assert.deepEqual([status, stdout], [2, ""], argv.join(" "));
    assert.ok(stderr.includes(complaint), stderr);
  }
});

test("it works under the name by which kubectl finds a plugin", (t) => {
  const directory = mkdtempSync(join(tmpdir(), "cattail-cli-"));
  t.after(() => rmSync(directory, { recursive: true }));
  symlinkSync(main, join(directory, "kubectl-cattail"));
  assert.equal(spawnSync(join(directory, "kubectl-cattail"), ["--version"], { encoding: "utf8" }).status, 0);
});
