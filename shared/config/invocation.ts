// What a command line asks an executable to do: run, say something and end, or be refused. The same for all three executables.
// Leaves to others: doing it (shared/process, cli/main.ts).
import { suggestion } from "../nearest.ts";
import type { Executable } from "./catalogue.ts";
import type { Loaded } from "./load.ts";
import { type CommandHelp, configReport, helpText, type Version, versionReport } from "./report.ts";

/** What an executable can say about itself. */
export const selfCommands: readonly CommandHelp[] = [
  {
    name: "config",
    help: "Shows every option: value, where it comes from, default, whether it changes without a restart",
  },
  { name: "version", help: "Shows which build this is" },
];

export type Wish<E extends Executable> =
  | { readonly kind: "say"; readonly text: string; readonly warnings: readonly string[] }
  | { readonly kind: "refuse"; readonly errors: readonly string[] }
  /** None of the above: to run (a daemon), or a command of its own (the command line tool). */
  | {
      readonly kind: "run";
      readonly loaded: Extract<Loaded<E>, { kind: "loaded" }>;
      readonly words: readonly string[];
    };

export function wishOf<E extends Executable>(
  executable: E,
  loaded: Loaded<E>,
  version: Version,
  commands: readonly CommandHelp[] = [],
): Wish<E> {
  const { invocation } = loaded;
  const say = (text: string): Wish<E> => {
    return { kind: "say", text, warnings: loaded.kind === "loaded" ? loaded.warnings : [] };
  };
  const all = [...commands, ...selfCommands];
  if (invocation.help) return say(helpText(executable, all));
  if (invocation.version) return say(`${version.component} ${version.version}\n`);
  const isUsable = invocation.errors.length === 0;
  const [command, ...rest] = invocation.words;
  // The value of a misspelt flag looks like a command.
  if (command !== undefined && !isUsable) return { kind: "refuse", errors: invocation.errors };
  if (command !== undefined && !all.some(({ name }) => name === command)) {
    return { kind: "refuse", errors: [unknownCommand(version.component, command, all)] };
  }
  // Needs no configuration, so one that is refused does not matter.
  if (command === "version" && rest.length === 0) return say(versionReport(version, invocation.command));
  if (loaded.kind === "refused") return { kind: "refuse", errors: loaded.errors };
  if (command === "config" && rest.length === 0) return say(configReport(loaded.provenance, invocation.command));
  if (selfCommands.some(({ name }) => name === command)) {
    const why = `"${command}" takes no argument "${rest[0]}"`;
    return {
      kind: "refuse",
      errors: [`${version.component}: ${why} (reason BadRequest). See ${version.component} --help`],
    };
  }
  // The refused half has been dealt with above; the compiler does not follow that through a generic.
  return { kind: "run", loaded: loaded as Extract<Loaded<E>, { kind: "loaded" }>, words: invocation.words };
}

function unknownCommand(executable: string, command: string, known: readonly CommandHelp[]): string {
  const guess = suggestion(
    command,
    known.map(({ name }) => name),
  );
  return `${executable}: unknown command "${command}" (reason BadRequest).${guess || ` See ${executable} --help`}`;
}
