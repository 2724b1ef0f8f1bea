// Completion for the shells, generated from the commands and the catalogue of options. Leaves to others: installing it.
import { catalogue, frameOptions } from "../shared/config/catalogue.ts";
import { entriesOf, type Option, type OptionTable } from "../shared/config/options.ts";
import type { CommandHelp } from "../shared/config/report.ts";
import { flagOf } from "../shared/config/spelling.ts";
import { exitCode } from "../shared/exit-code.ts";
import { impossible } from "../shared/kinds.ts";
import { suggestion } from "../shared/nearest.ts";
import { type Command, command, usage } from "./command.ts";

export const completionShells = ["bash", "zsh", "fish"] as const;
export type CompletionShell = (typeof completionShells)[number];

export function completionCommand(all: () => readonly (CommandHelp & Partial<Command>)[]): Command {
  return command({
    name: "completion",
    help: `Writes the completion for a shell: ${completionShells.join(", ")}`,
    usage: completionShells.join("|"),
    flags: {},
    async run({ write }, [shell, ...rest]) {
      const known = completionShells.find((each) => each === shell);
      if (known === undefined || rest.length > 0) {
        const guess = known === undefined && shell !== undefined ? suggestion(shell, completionShells).trim() : "";
        const next = guess || `Write one of ${completionShells.join(", ")} and nothing more`;
        throw usage('"completion" takes the name of a shell', next);
      }
      write(completionScript(known, all()));
      return exitCode.ok;
    },
  });
}

export function completionScript(
  shell: CompletionShell,
  commands: readonly (CommandHelp & { readonly flags?: OptionTable })[],
): string {
  const names = commands.map(({ name }) => name);
  const own = Object.assign({}, ...commands.map(({ flags }) => flags)) as OptionTable;
  const options = entriesOf({ ...catalogue.cli, ...frameOptions, ...own }).map(({ key, option }) => ({
    flag: flagOf(key),
    option,
  }));
  switch (shell) {
    case "bash":
      return bash(names, options);
    case "zsh":
      return zsh(commands, options);
    case "fish":
      return fish(commands, options);
    default:
      return impossible(shell);
  }
}

interface Flag {
  readonly flag: string;
  readonly option: Option;
}

function bash(names: readonly string[], options: readonly Flag[]): string {
  const values = options.flatMap(({ flag, option }) =>
    option.kind === "enum"
      ? [`    ${flagNames({ flag, option }).join("|")}) words="${option.values.join(" ")}" ;;`]
      : [],
  );
  return `# source <(cattail completion bash)
_cattail() {
  local words="${[...names, ...options.map(({ flag }) => flag)].join(" ")}"
  case "\${COMP_WORDS[COMP_CWORD-1]}" in
${values.join("\n")}
    completion) words="${completionShells.join(" ")}" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _cattail cattail
`;
}

function zsh(commands: readonly CommandHelp[], options: readonly Flag[]): string {
  const flags = options.map(({ flag, option }) => {
    const action =
      option.kind === "enum" ? `:word:(${option.values.join(" ")})` : option.kind === "boolean" ? "" : ":file:_files";
    return `    ${quote(`${flag}${option.kind === "boolean" ? "" : "="}[${brackets(option.help)}]${action}`)}`;
  });
  const named = commands.map(({ name, help }) => quote(`${name}:${help.replaceAll(":", "\\:")}`));
  return `#compdef cattail
# source <(cattail completion zsh)
_cattail() {
  local -a commands=(${named.join(" ")})
  _arguments \\
${flags.map((line) => `${line} \\`).join("\n")}
    '1:command:{_describe command commands}' \\
    '2:shell:(${completionShells.join(" ")})'
}
compdef _cattail cattail
`;
}

function fish(commands: readonly CommandHelp[], options: readonly Flag[]): string {
  return [
    "# cattail completion fish | source",
    "complete -c cattail -f",
    ...commands.map(({ name, help }) => `complete -c cattail -n __fish_use_subcommand -a ${name} -d ${quote(help)}`),
    `complete -c cattail -n '__fish_seen_subcommand_from completion' -a ${quote(completionShells.join(" "))}`,
    ...options.map(({ flag, option }) => {
      const short = option.short === undefined ? "" : ` -s ${option.short}`;
      const values =
        option.kind === "enum" ? ` -x -a ${quote(option.values.join(" "))}` : option.kind === "path" ? " -r -F" : "";
      return `complete -c cattail -l ${flag.slice(2)}${short}${values} -d ${quote(option.help)}`;
    }),
    "",
  ].join("\n");
}

function flagNames({ flag, option }: Flag): string[] {
  return option.short === undefined ? [flag] : [flag, `-${option.short}`];
}

/** In single quotes, for all three shells. */
function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function brackets(text: string): string {
  return text.replace(/[[\]:]/g, "\\$&");
}
