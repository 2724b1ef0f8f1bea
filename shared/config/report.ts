// What --help, `config` and `version` print, generated from the catalogue. Leaves to others: printing it.
import { type Listing, render } from "../output.ts";
import {
  type CommandConfig,
  catalogue,
  commandOptions,
  type Executable,
  executables,
  frameOptions,
} from "./catalogue.ts";
import type { Provenance } from "./load.ts";
import { type Entry, entriesOf, type Option, type OptionTable, type PlainOption } from "./options.ts";
import { describeSource } from "./source.ts";
import { flagOf, variableOf } from "./spelling.ts";
import { allowed, type Text } from "./value.ts";

export interface CommandHelp {
  readonly name: string;
  readonly help: string;
}

export function helpText(executable: Executable, commands: readonly CommandHelp[]): string {
  const { name, summary } = executables[executable];
  const own = entriesOf(catalogue[executable]);
  const others = [...entriesOf(frameOptions), ...(executable === "cli" ? [] : entriesOf(commandOptions))];
  const width = Math.max(...commands.map((command) => command.name.length));
  const example = own[0]?.key ?? "";
  return [
    `${name}: ${summary}`,
    "",
    `Usage: ${name} ${executable === "cli" ? "COMMAND" : "[COMMAND]"} [OPTION]...`,
    "",
    ...(executable === "cli" ? [] : ["Without a command it runs until SIGTERM or SIGINT.", ""]),
    "Commands:",
    ...commands.map((command) => `  ${command.name.padEnd(width)}   ${command.help}`),
    "",
    `Options, each also a variable and a key of the file: ${flagOf(example)} is ${variableOf(example)} and ${example}.`,
    "A flag wins over the environment, the environment over the file.",
    ...own.flatMap((entry) => optionHelp(entry, true)),
    "",
    "Flags only:",
    ...others.flatMap((entry) => optionHelp(entry, false)),
    "",
  ].join("\n");
}

/** Of one command of the command line tool. */
export function commandHelpText(
  command: CommandHelp & { readonly usage: string; readonly flags: OptionTable },
): string {
  const { name } = executables.cli;
  const flags = entriesOf(command.flags);
  return [
    command.help,
    "",
    `Usage: ${[name, command.name, command.usage, "[OPTION]..."].filter(Boolean).join(" ")}`,
    ...(flags.length === 0
      ? []
      : ["", "Flags of this command:", ...flags.flatMap((entry) => optionHelp(entry, false))]),
    "",
    `Options of all commands: ${name} --help`,
    "",
  ].join("\n");
}

function optionHelp({ key, option }: Entry, withKey: boolean): string[] {
  const short = option.short === undefined ? "" : `-${option.short}, `;
  const argument = option.kind === "boolean" ? "" : ` ${argumentOf(option)}`;
  const remarks = [
    ...(withKey ? [`key ${key}`] : []),
    ...(option.default === undefined || option.kind === "boolean" ? [] : [`default ${option.default}`]),
    ...(option.required ? ["must be set"] : []),
    ...(option.reloadable ? ["reloadable"] : []),
  ];
  const remark = remarks.length === 0 ? "" : `   (${remarks.join(", ")})`;
  return [`  ${short}${flagOf(key)}${argument}${remark}`, `      ${option.help}${limits(option)}`];
}

function argumentOf(option: Option | PlainOption): string {
  if (option.kind === "enum") return option.values.join("|");
  return option.kind === "list" ? `${argumentOf(option.item)},...` : option.kind.toUpperCase();
}

/** Of kinds whose name leaves open how they are written, or how large they may be. */
function limits(option: Option): string {
  const isOpen = option.kind === "duration" || option.kind === "size" || option.kind === "integer";
  return isOpen ? `; ${allowed(option)}` : "";
}

/** Effective value, source, default, reloadable: the answer to "why does it do that?". */
export function configReport(provenance: readonly Provenance[], command: CommandConfig): string {
  return render(
    {
      kind: "Config",
      items: provenance.map((row) => ({ ...row, source: describeSource(row.source) })),
      name: (row) => row.key,
      columns: [
        ["KEY", (row) => row.key],
        ["VALUE", (row) => shown(row.value)],
        ["SOURCE", (row) => row.source],
        ["DEFAULT", (row) => shown(row.default)],
        ["RELOADABLE", (row) => (row.reloadable ? "yes" : "no")],
      ],
    },
    command,
  );
}

function shown(text: Text | undefined): string {
  if (text === undefined) return "-";
  return typeof text === "string" ? text : text.join(",");
}

/** What is known of a build; filled in where it runs. */
export interface Version {
  readonly component: string;
  readonly version: string;
  readonly revision: string;
  readonly runtime: string;
}

export function versionReport(version: Version, command: CommandConfig): string {
  const listing: Listing<Version> = {
    kind: "Version",
    items: [version],
    name: (row) => `${row.component}/${row.version}`,
    columns: [
      ["COMPONENT", (row) => row.component],
      ["VERSION", (row) => row.version],
      ["REVISION", (row) => row.revision],
      ["RUNTIME", (row) => row.runtime],
    ],
  };
  return render(listing, command);
}
