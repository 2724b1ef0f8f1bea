#!/usr/bin/env node
// cattail, the operators' command line; under the name kubectl-cattail it is the plugin `kubectl cattail`.
// Leaves to others: options and what an executable says about itself (shared/config), each command (its own file).
import { executables } from "../shared/config/catalogue.ts";
import { selfCommands, wishOf } from "../shared/config/invocation.ts";
import { loadConfig } from "../shared/config/load.ts";
import { type CommandHelp, helpText } from "../shared/config/report.ts";
import { messageOf } from "../shared/log.ts";
import { suggestion } from "../shared/nearest.ts";
import { exitCode, print, processInputs } from "../shared/process/terminal.ts";
import { versionOf } from "../shared/process/version.ts";
import { completionScript, completionShells } from "./completion.ts";

const { name } = executables.cli;

const commands: readonly Command[] = [
  { name: "completion", help: `Writes the completion for a shell: ${completionShells.join(", ")}`, run: completion },
];

interface Command extends CommandHelp {
  /** Takes the words behind its name and returns the exit code. */
  readonly run: (words: readonly string[]) => number;
}

process.stdout.on("error", () => {}); // `cattail … | head`
try {
  process.exitCode = main();
} catch (error) {
  print(process.stderr, [`${name}: ${messageOf(error)} (reason Internal). This is a bug of ${name}`]);
  process.exitCode = exitCode.bug;
}

function main(): number {
  const loaded = loadConfig("cli", processInputs());
  const wish = wishOf("cli", loaded, versionOf("cli"), commands);
  switch (wish.kind) {
    case "say":
      print(process.stderr, wish.warnings);
      process.stdout.write(wish.text);
      return exitCode.ok;
    case "refuse":
      print(process.stderr, wish.errors);
      return exitCode.usage;
    case "run": {
      print(process.stderr, wish.loaded.warnings);
      const [asked, ...words] = wish.words;
      const command = commands.find((known) => known.name === asked);
      if (command !== undefined) return command.run(words);
      process.stderr.write(helpText("cli", [...commands, ...selfCommands]));
      return exitCode.usage;
    }
  }
}

function completion([shell, ...rest]: readonly string[]): number {
  const known = completionShells.find((each) => each === shell);
  if (known !== undefined && rest.length === 0) {
    process.stdout.write(completionScript(known, [...commands, ...selfCommands]));
    return exitCode.ok;
  }
  const guess = known === undefined && shell !== undefined ? suggestion(shell, completionShells) : "";
  const next = guess || ` Write one of ${completionShells.join(", ")} and nothing more`;
  print(process.stderr, [`${name}: "completion" takes the name of a shell (reason BadRequest).${next}`]);
  return exitCode.usage;
}
