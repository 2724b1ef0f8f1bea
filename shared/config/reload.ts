// What a changed configuration file changes in a running process: reloadable options take their new value, the others keep theirs.
// Leaves to others: noticing the change and telling people (shared/process/frame.ts).
import { type Config, catalogue, type Executable } from "./catalogue.ts";
import { type Entry, entriesOf, propertyName } from "./options.ts";

export interface Reload<E extends Executable> {
  readonly config: Config<E>;
  /** Keys that have a new value now. */
  readonly changed: readonly string[];
  /** Keys that would have one after a restart. */
  readonly waiting: readonly string[];
}

export function reload<E extends Executable>(executable: E, running: Config<E>, next: Config<E>): Reload<E> {
  const differing = entriesOf(catalogue[executable]).filter(
    (entry) => JSON.stringify(valueAt(running, entry)) !== JSON.stringify(valueAt(next, entry)),
  );
  const waiting = differing.filter(({ option }) => option.reloadable !== true);
  const config = structuredCopy(next);
  for (const entry of waiting) groupOf(config, entry)[nameOf(entry)] = valueAt(running, entry);
  return {
    config: config as Config<E>,
    changed: differing.filter(({ option }) => option.reloadable === true).map(({ key }) => key),
    waiting: waiting.map(({ key }) => key),
  };
}

type Group = Record<string, unknown>;

function structuredCopy(group: object): Group {
  return Object.fromEntries(
    Object.entries(group).map(([name, value]) => [
      name,
      typeof value === "object" && value !== null && !Array.isArray(value) ? structuredCopy(value) : value,
    ]),
  );
}

function valueAt(config: object, entry: Entry): unknown {
  return groupOf(config as Group, entry)[nameOf(entry)];
}

/** The configuration is nested as the table is. */
function groupOf(config: Group, { path }: Entry): Group {
  return path.slice(0, -1).reduce((group, name) => group[name] as Group, config);
}

function nameOf({ path, option }: Entry): string {
  return propertyName(path.at(-1) ?? "", option);
}
