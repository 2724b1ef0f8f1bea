// Splits a command line into settings and words, by the flags there are. Leaves to others: what the values mean (value.ts, load.ts).
import { levelOfVerbosity } from "../log.ts";
import { suggestion } from "../nearest.ts";
import type { Entry } from "./options.ts";
import { configError, type Setting } from "./source.ts";
import { flagOf } from "./spelling.ts";

export interface CommandLine {
  readonly settings: readonly Setting[];
  /** What is no flag: the command and its arguments. */
  readonly words: readonly string[];
  readonly errors: readonly string[];
}

export function readCommandLine(entries: readonly Entry[], argv: readonly string[]): CommandLine {
  const flags = new Map<string, Entry>();
  for (const entry of entries) {
    flags.set(flagOf(entry.key), entry);
    if (entry.option.short !== undefined) flags.set(`-${entry.option.short}`, entry);
  }
  const settings: Setting[] = [];
  const words: string[] = [];
  const errors: string[] = [];
  const rest = [...argv];
  for (let argument = rest.shift(); argument !== undefined; argument = rest.shift()) {
    if (argument === "--") {
      words.push(...rest);
      break;
    }
    const { name, attached } = splitFlag(argument);
    const entry = flags.get(name);
    if (!argument.startsWith("-") || argument === "-") words.push(argument);
    else if (name === verbosityFlag && flags.has(flagOf("log.level"))) readVerbosity(attached ?? rest.shift());
    else if (entry === undefined) errors.push(unknownFlag(name, flags.keys()));
    else {
      const text = attached ?? (entry.option.kind === "boolean" ? "true" : rest.shift());
      if (text === undefined) errors.push(configError(`flag ${name}`, "its value is missing", `Write ${name}=…`));
      else settings.push({ key: entry.key, text, source: { kind: "flag", name } });
    }
  }
  return { settings: joinLists(settings, entries), words, errors };

  function readVerbosity(text: string | undefined): void {
    if (text !== undefined && /^\d{1,3}$/.test(text)) {
      const source = { kind: "flag", name: `${verbosityFlag}=${text}` } as const;
      settings.push({ key: "log.level", text: levelOfVerbosity(Number(text)), source });
    } else
      errors.push(configError(`flag ${verbosityFlag}`, "it takes a whole number", "0 is quiet, 5 says everything"));
  }
}

/** The spelling of log.level that the programs of Kubernetes share. */
const verbosityFlag = "--v";

/** `--key=value`, `-o=json` and `-ojson` carry their value with them. */
function splitFlag(argument: string): { name: string; attached: string | undefined } {
  const isShort = /^-[a-z]/i.test(argument);
  const equals = argument.indexOf("=");
  if (isShort && equals !== 2) return { name: argument.slice(0, 2), attached: argument.slice(2) || undefined };
  if (equals < 0) return { name: argument, attached: undefined };
  return { name: argument.slice(0, equals), attached: argument.slice(equals + 1) };
}

function unknownFlag(name: string, known: Iterable<string>): string {
  return configError(`flag ${name}`, "unknown flag", suggestion(name, known) || "See --help");
}

/** A list flag may be repeated; of any other flag the last one counts. */
function joinLists(settings: readonly Setting[], entries: readonly Entry[]): Setting[] {
  const lists = new Set(entries.filter(({ option }) => option.kind === "list").map(({ key }) => key));
  const joined = new Map<string, Setting>();
  for (const setting of settings) {
    const before = lists.has(setting.key) ? joined.get(setting.key) : undefined;
    joined.set(setting.key, before === undefined ? setting : { ...setting, text: `${before.text},${setting.text}` });
  }
  return [...joined.values()];
}
