// What an option is: its kind, what its value may be, and the type of a configuration inferred from a table of options.
// Leaves to others: which options there are (catalogue.ts), how text becomes a value (value.ts), where text comes from (load.ts).

interface Common {
  /** One sentence without a full stop; for a number it names the unit. */
  readonly help: string;
  /** As a person would write it. Without one the value is undefined until set. */
  readonly default?: string;
  readonly required?: true;
  /** Takes effect when the configuration file changes, without a restart. */
  readonly reloadable?: true;
  /** The key of an option that must be set too. */
  readonly needs?: string;
  /** The key of an option of the same kind, integer, than which this one must not be smaller. */
  readonly atLeast?: string;
  /** One letter: `-o json`. */
  readonly short?: string;
}

/** Kinds whose value is one piece of text. There is no kind for a secret: secrets come by file, so their option is a path. */
export type PlainOption =
  | { readonly kind: "string" }
  | { readonly kind: "path" }
  | { readonly kind: "url"; readonly schemes: readonly string[] }
  | { readonly kind: "enum"; readonly values: readonly string[] }
  /** `45m`, `1h30m`; milliseconds, in a property whose name ends in Ms. */
  | { readonly kind: "duration"; readonly min?: string; readonly max?: string }
  /** `64Mi`; bytes, in a property whose name ends in Bytes. */
  | { readonly kind: "size"; readonly min?: string; readonly max?: string }
  | { readonly kind: "integer"; readonly min: number; readonly max: number }
  /** `zeroIsOff`: 0 means that nothing listens. */
  | { readonly kind: "port"; readonly zeroIsOff: boolean }
  | { readonly kind: "boolean" };
/** A YAML list in the file; separated by commas, or the flag repeated, elsewhere. */
type ListOption = { readonly kind: "list"; readonly item: PlainOption };

export type Option = Common & (PlainOption | ListOption);
/** Nested as in the file: `tls: {certFile: …}`. */
export interface OptionTable {
  readonly [key: string]: Option | OptionTable;
}

export type ConfigOf<Table> = {
  readonly [Key in keyof Table & string as PropertyName<Key, Table[Key]>]: Table[Key] extends Option
    ? ValueOf<Table[Key]> | (Table[Key] extends { default: string } | { required: true } ? never : undefined)
    : ConfigOf<Table[Key]>;
};

type PropertyName<Key extends string, Entry> = Entry extends { readonly kind: keyof typeof unitOf }
  ? `${Key}${(typeof unitOf)[Entry["kind"]]}`
  : Key;
const unitOf = { duration: "Ms", size: "Bytes" } as const;

type ValueOf<Entry> = Entry extends { readonly kind: "list"; readonly item: infer Item }
  ? readonly ValueOf<Item>[]
  : Entry extends { readonly kind: "enum"; readonly values: readonly (infer Word)[] }
    ? Word
    : Entry extends { readonly kind: "duration" | "size" | "integer" | "port" }
      ? number
      : Entry extends { readonly kind: "boolean" }
        ? boolean
        : string;

/** One option with its place: the key is written with dots (`tls.certFile`). */
export interface Entry {
  readonly key: string;
  readonly path: readonly string[];
  readonly option: Option;
}

export function entriesOf(table: OptionTable, above: readonly string[] = []): Entry[] {
  return Object.entries(table).flatMap(([name, item]) => {
    const path = [...above, name];
    return isOption(item) ? [{ key: path.join("."), path, option: item }] : entriesOf(item, path);
  });
}

/** A group that had an option named `kind` would have a table there, not a word. */
function isOption(item: Option | OptionTable): item is Option {
  return typeof item.kind === "string";
}

/** The name in the configuration object: `offlineLimit` becomes `offlineLimitMs`. */
export function propertyName(name: string, option: Option): string {
  return name + (option.kind === "duration" || option.kind === "size" ? unitOf[option.kind] : "");
}
