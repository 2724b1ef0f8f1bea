import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { completionScript, completionShells } from "./completion.ts";

const commands = [
  { name: "config", help: "Shows it: all" },
  { name: "completion", help: "Writes the user's completion" },
];

/** What bash offers after these words. */
function offered(...words: string[]): string[] {
  const script = `${completionScript("bash", commands)}
COMP_WORDS=(${words.map((word) => `'${word}'`).join(" ")}); COMP_CWORD=${words.length - 1}; _cattail; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { status, stdout, stderr } = spawnSync("bash", ["--norc", "-c", script], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  return stdout.split("\n").filter((line) => line !== "");
}

test("bash completes commands, flags, the words of a flag and the shells", () => {
  assert.deepEqual(offered("cattail", "co"), ["config", "completion"]);
  assert.deepEqual(offered("cattail", "--o"), ["--output"]);
  assert.deepEqual(offered("cattail", "config", "-o", "j"), ["json"]);
  assert.deepEqual(offered("cattail", "completion", ""), [...completionShells]);
});

test("zsh and fish are given commands with their help, quoted, and flags with their words", () => {
  const zsh = completionScript("zsh", commands);
  assert.ok(zsh.includes(`'config:Shows it\\: all' 'completion:Writes the user'\\''s completion'`), zsh);
  assert.ok(zsh.includes("'--output=[Form of the result of a command]:word:(table wide json yaml name)'"), zsh);
  const fish = completionScript("fish", commands);
  assert.ok(
    fish.includes(`complete -c cattail -n __fish_use_subcommand -a completion -d 'Writes the user'\\''s completion'`),
    fish,
  );
  assert.ok(fish.includes("complete -c cattail -l output -s o -x -a 'table wide json yaml name' -d 'Form"), fish);
});
