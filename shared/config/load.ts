// Flags, environment and file become one configuration, checked, with where each value came from (ux 2).
// Leaves to others: printing (report.ts), watching the file and ending the process (shared/process).
import { messageOf } from "../log.ts";
import { suggestion } from "../nearest.ts";
import {
  type CommandConfig,
  type Config,
  catalogue,
  commandOptions,
  type Executable,
  executables,
  frameOptions,
  revisionVariable,
} from "./catalogue.ts";
import { readCommandLine } from "./command-line.ts";
import { readConfigFile } from "./file.ts";
import { type ConfigOf, type Entry, entriesOf, type OptionTable, propertyName } from "./options.ts";
import { configError, describeSource, type Setting, type Source } from "./source.ts";
import { flagOf, isServiceVariable, variableOf, variablePrefix } from "./spelling.ts";
import { allowed, parseValue, type Text, type Value } from "./value.ts";

export interface Inputs {
  /** Without the names of the runtime and the script. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Throws if the file cannot be read. */
  readonly readFile: (path: string) => string;
}

/** What the command line asks for; known even when the configuration is refused, so that --help always works. */
export interface Invocation {
  readonly words: readonly string[];
  readonly help: boolean;
  readonly version: boolean;
  readonly command: CommandConfig;
  /** The command's own flags, nested as their table. */
  readonly flags: Readonly<Record<string, unknown>>;
  readonly file: string | undefined;
  /** What is wrong with the command line itself, whatever the configuration is worth. */
  readonly errors: readonly string[];
}

export type Loaded<E extends Executable> = { readonly invocation: Invocation } & (
  | {
      readonly kind: "loaded";
      readonly config: Config<E>;
      readonly provenance: readonly Provenance[];
      readonly warnings: readonly string[];
    }
  | { readonly kind: "refused"; readonly errors: readonly string[] }
);

/** One row of `config`. */
export interface Provenance {
  readonly key: string;
  /** As it was written; undefined = not set. */
  readonly value: Text | undefined;
  readonly source: Source;
  readonly default: string | undefined;
  readonly reloadable: boolean;
}

/** `flags`: what the command that is asked for takes on the command line alone. */
export function loadConfig<E extends Executable>(executable: E, inputs: Inputs, flags: OptionTable = {}): Loaded<E> {
  const entries = entriesOf(catalogue[executable]);
  const frameEntries = entriesOf(frameOptions);
  const commandEntries = executable === "cli" ? [] : entriesOf(commandOptions);
  const flagEntries = entriesOf(flags);
  const line = readCommandLine([...entries, ...frameEntries, ...commandEntries, ...flagEntries], inputs.argv);
  const environment = readEnvironment([...entries, ...frameEntries.filter(({ key }) => key === "config")], inputs.env);

  const frame = resolve(frameEntries, [line.settings, environment.settings]);
  const { config: path, help, version } = assemble<ConfigOf<typeof frameOptions>>(frame);
  const file = path === undefined ? { settings: [], errors: [] } : readFile(executable, path, entries, inputs);
  const own = resolve(entries, [line.settings, environment.settings, file.settings]);
  const command = executable === "cli" ? own : resolve(commandEntries, [line.settings]);

  const ofCommand = resolve(flagEntries, [line.settings]);

  const misused = [...line.errors, ...frame.errors, ...command.errors, ...ofCommand.errors];
  const invocation: Invocation = {
    words: line.words,
    help,
    version,
    command: assemble<CommandConfig>(command),
    flags: assemble<Readonly<Record<string, unknown>>>(ofCommand),
    file: path,
    errors: misused,
  };
  const errors = [...new Set([...misused, ...file.errors, ...own.errors])];
  if (errors.length > 0) return { kind: "refused", invocation, errors };
  // The table that is walked is the one the type is inferred from.
  const config = assemble<Config<E>>(own);
  return {
    kind: "loaded",
    invocation,
    config,
    provenance: own.resolved.map(provenanceOf),
    warnings: environment.warnings,
  };
}

interface Environment {
  readonly settings: readonly Setting[];
  readonly warnings: readonly string[];
}

/** An empty variable is one that is not set: templates and downward API leave such behind. */
function readEnvironment(entries: readonly Entry[], env: Inputs["env"]): Environment {
  const known = new Map(entries.map(({ key }) => [variableOf(key), key]));
  const settings: Setting[] = [];
  const warnings: string[] = [];
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith(variablePrefix) || text === undefined || text === "") continue;
    const key = known.get(name);
    if (key !== undefined) settings.push({ key, text, source: { kind: "environment", name } });
    else if (name !== revisionVariable && !isServiceVariable(name)) {
      warnings.push(`config variable ${name}: unknown, ignored.${suggestion(name, known.keys())}`);
    }
  }
  return { settings, warnings };
}

function readFile(
  executable: Executable,
  path: string,
  entries: readonly Entry[],
  inputs: Inputs,
): ReturnType<typeof readConfigFile> {
  try {
    return readConfigFile(path, inputs.readFile(path), entries, (key) => ownerOf(key, executable));
  } catch (cause) {
    const why = `the file cannot be read: ${messageOf(cause)}`;
    return { settings: [], errors: [configError(path, why, "Check --config")] };
  }
}

function ownerOf(key: string, not: Executable): string | undefined {
  const others = (["server", "agent", "cli"] as const).filter((other) => other !== not);
  const owner = others.find((other) => entriesOf(catalogue[other]).some((entry) => entry.key === key));
  return owner && executables[owner].name;
}

interface Resolved {
  readonly entry: Entry;
  readonly value: Value | undefined;
  readonly text: Text | undefined;
  readonly source: Source;
}

interface Resolution {
  readonly resolved: readonly Resolved[];
  readonly errors: readonly string[];
}

/** The first source that has a key wins; every source is checked, so that a hidden mistake does not wait for its day. */
function resolve(entries: readonly Entry[], sources: readonly (readonly Setting[])[]): Resolution {
  const errors: string[] = [];
  const resolved = entries.map((entry): Resolved => {
    const settings = sources.flatMap((source) => source.filter(({ key }) => key === entry.key));
    for (const { text, source } of settings) {
      if (parseValue(entry.option, text) === undefined) errors.push(notAllowed(entry, text, source));
    }
    const text = settings[0]?.text ?? entry.option.default;
    const value = text === undefined ? undefined : parseValue(entry.option, text);
    return { entry, value, text, source: settings[0]?.source ?? { kind: "default" } };
  });
  return { resolved, errors: [...errors, ...missing(resolved), ...tooSmall(resolved)] };
}

function notAllowed({ key, option }: Entry, text: Text, source: Source): string {
  const shown = typeof text === "string" ? text : text.join(",");
  const cut = shown.length > maxShownChars ? `${shown.slice(0, maxShownChars)}…` : shown;
  return configError(describeSource(source), `"${cut}" is not allowed for "${key}"`, `Write ${allowed(option)}`);
}

const maxShownChars = 200;

function missing(resolved: readonly Resolved[]): string[] {
  const isSet = (key: string): boolean => resolved.some(({ entry, text }) => entry.key === key && text !== undefined);
  return resolved.flatMap(({ entry: { key, option }, text, source }) => {
    if (text === undefined && option.required) {
      return [configError("option", `"${key}" is not set`, howToSet(key))];
    }
    if (text !== undefined && option.needs !== undefined && !isSet(option.needs)) {
      const why = `"${key}" needs "${option.needs}", which is not set`;
      return [configError(describeSource(source), why, howToSet(option.needs))];
    }
    return [];
  });
}

function tooSmall(resolved: readonly Resolved[]): string[] {
  return resolved.flatMap(({ entry: { key, option }, value, source }) => {
    const other = resolved.find(({ entry }) => entry.key === option.atLeast);
    if (typeof value !== "number" || typeof other?.value !== "number" || value >= other.value) return [];
    const why = `"${key}" is ${value} and "${other.entry.key}" is ${other.value}, which is more`;
    // Whichever of the two a person has set is where to look.
    const where = source.kind === "default" ? other.source : source;
    return [configError(describeSource(where), why, `Raise "${key}" or lower "${other.entry.key}"`)];
  });
}

function howToSet(key: string): string {
  return `Set ${flagOf(key)}, ${variableOf(key)} or "${key}" in the file of --config`;
}

/** Nests the values as the table is nested. `C` is inferred from the same table that was resolved. */
function assemble<C>({ resolved }: Resolution): C {
  const root: Record<string, unknown> = {};
  for (const { entry, value } of resolved) {
    let group = root;
    for (const name of entry.path.slice(0, -1)) {
      group[name] ??= {};
      group = group[name] as Record<string, unknown>;
    }
    group[propertyName(entry.path.at(-1) ?? "", entry.option)] = value;
  }
  return root as C;
}

function provenanceOf({ entry: { key, option }, text, source }: Resolved): Provenance {
  return { key, value: text, source, default: option.default, reloadable: option.reloadable === true };
}
