#!/usr/bin/env node
// cattail, the operators' command line; under the name kubectl-cattail it is the plugin `kubectl cattail`.
// Leaves to others: options and what an executable says about itself (shared/config), each command (its own file).
import { catalogue, executables, frameOptions } from "../shared/config/catalogue.ts";
import { readCommandLine } from "../shared/config/command-line.ts";
import { selfCommands, wishOf } from "../shared/config/invocation.ts";
import { loadConfig } from "../shared/config/load.ts";
import { entriesOf } from "../shared/config/options.ts";
import { commandHelpText, helpText } from "../shared/config/report.ts";
import { exitCode } from "../shared/exit-code.ts";
import { Failure, type FailureCode } from "../shared/kinds.ts";
import { messageOf } from "../shared/log.ts";
import { print, processInputs } from "../shared/process/terminal.ts";
import { versionOf } from "../shared/process/version.ts";
import { blocks } from "./blocks.ts";
import { check } from "./check.ts";
import type { Command } from "./command.ts";
import { completionCommand } from "./completion.ts";
import { nodes } from "./nodes.ts";
import { pools } from "./pools.ts";
import { withSession } from "./session-shell.ts";

const { name } = executables.cli;

const exitOf: Readonly<Record<FailureCode, number>> = {
  "bad-config": exitCode.usage,
  "api-forbidden": exitCode.forbidden,
  "api-unauthorized": exitCode.forbidden,
  "api-conflict": exitCode.unreachable,
  "api-exists": exitCode.unreachable,
  "api-gone": exitCode.unreachable,
  "api-invalid": exitCode.unreachable,
  "api-missing": exitCode.unreachable,
  "api-throttled": exitCode.unreachable,
  "api-unavailable": exitCode.unreachable,
  "bad-message": exitCode.unreachable,
  "server-unreachable": exitCode.unreachable,
  timeout: exitCode.unreachable,
  "journal-read": exitCode.bug,
  "journal-write": exitCode.bug,
};

const commands: readonly Command[] = [
  pools,
  nodes,
  blocks,
  check,
  completionCommand(() => [...commands, ...selfCommands]),
];

process.stdout.on("error", () => {}); // `cattail … | head`
try {
  process.exitCode = await main();
} catch (error) {
  process.exitCode = error instanceof Failure ? exitOf[error.code] : exitCode.bug;
  const isBug = process.exitCode === exitCode.bug;
  print(process.stderr, [`${name}: ${messageOf(error)}${isBug ? ` (reason Internal). This is a bug of ${name}` : ""}`]);
}

async function main(): Promise<number> {
  const inputs = processInputs();
  const command = commands.find((known) => known.name === commandAskedFor(inputs.argv));
  const loaded = loadConfig("cli", inputs, command?.flags);
  if (command !== undefined && loaded.invocation.help) {
    process.stdout.write(commandHelpText(command));
    return exitCode.ok;
  }
  const version = versionOf("cli");
  const wish = wishOf("cli", loaded, version, commands);
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
      if (command === undefined) {
        process.stderr.write(helpText("cli", [...commands, ...selfCommands]));
        return exitCode.usage;
      }
      const { config, invocation } = wish.loaded;
      const userAgent = `${name}/${version.version} (${process.platform}/${process.arch})`;
      return withSession(config, userAgent, (session) => command.run(session, wish.words.slice(1), invocation.flags));
    }
  }
}

/** Which flags take a value depends on the command, and where the command stands on which flags do: so all of them are known at first. */
function commandAskedFor(argv: readonly string[]): string | undefined {
  const tables = [catalogue.cli, frameOptions, ...commands.map(({ flags }) => flags)];
  return readCommandLine(
    tables.flatMap((table) => entriesOf(table)),
    argv,
  ).words[0];
}
