// The configuration file: YAML to settings, each with the line it stands on. Leaves to others: reading the file, checking values.
import { type Document, isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument } from "yaml";
import { suggestion } from "../nearest.ts";
import { fileVersion } from "./catalogue.ts";
import type { Entry } from "./options.ts";
import { configError, describeSource, type Setting, type Source } from "./source.ts";
import type { Text } from "./value.ts";

/** A larger file is no configuration of ours. */
const maxFileChars = 1 << 20;

export interface FileContents {
  readonly settings: readonly Setting[];
  readonly errors: readonly string[];
}

/** `elsewhere` names the executable that an unknown key belongs to, if there is one. */
export function readConfigFile(
  path: string,
  text: string,
  entries: readonly Entry[],
  elsewhere: (key: string) => string | undefined,
): FileContents {
  if (text.length > maxFileChars) {
    return { settings: [], errors: [configError(path, `the file has more than ${maxFileChars} characters`, "")] };
  }
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const sourceAt = (offset: number): Source => ({ kind: "file", path, line: lines.linePos(offset).line });
  const walk: Walk = { document, sourceAt, entries, elsewhere, settings: new Map(), errors: [] };
  for (const error of document.errors) refuse(walk, error.pos[0], `not valid YAML: ${error.message}`, "");
  if (document.errors.length === 0) {
    walkGroup(walk, document.contents, [], 0);
    checkVersion(walk, path);
  }
  return { settings: [...walk.settings.values()], errors: walk.errors };
}

interface Walk {
  readonly document: Document;
  readonly sourceAt: (offset: number) => Source;
  readonly entries: readonly Entry[];
  readonly elsewhere: (key: string) => string | undefined;
  readonly settings: Map<string, Setting>;
  readonly errors: string[];
}

function walkGroup(walk: Walk, node: unknown, above: readonly string[], offset: number): void {
  const group = isAlias(node) ? node.resolve(walk.document) : node;
  if (isMap(group)) {
    for (const { key, value } of group.items) {
      const name = isScalar(key) ? String(key.value) : String(key);
      walkKey(walk, value, [...above, name], isScalar(key) ? (key.range?.[0] ?? offset) : offset);
    }
  } else if (textOf(walk.document, group) !== "unset") {
    const what = above.length === 0 ? "the file" : `"${above.join(".")}"`;
    refuse(walk, offset, `${what} is a group of keys`, 'Write one "key: value" on each line');
  }
}

function walkKey(walk: Walk, value: unknown, path: readonly string[], offset: number): void {
  const key = path.join(".");
  if (key === versionKey || walk.entries.some((entry) => entry.key === key)) walkValue(walk, value, key, offset);
  else if (walk.entries.some((entry) => entry.key.startsWith(`${key}.`))) walkGroup(walk, value, path, offset);
  else refuse(walk, offset, `unknown key "${key}"`, guess(walk, key));
}

function walkValue(walk: Walk, value: unknown, key: string, offset: number): void {
  const text = textOf(walk.document, value);
  if (walk.settings.has(key)) refuse(walk, offset, `"${key}" is set for the second time`, "Remove one of them");
  else if (text === "wrong") refuse(walk, offset, `"${key}" takes a value, not a group of keys`, "");
  else if (text !== "unset") walk.settings.set(key, { key, text: text.text, source: walk.sourceAt(offset) });
}

/** `key:` with nothing after it is a key that is not set, as in Helm's values. */
function textOf(document: Document, node: unknown): "unset" | "wrong" | { readonly text: Text } {
  const value = isAlias(node) ? node.resolve(document) : node;
  if (value === null || value === undefined) return "unset";
  if (isScalar(value)) {
    // The source, not the value: 0x10 or 1e3 is refused as it is in a flag, and "007" keeps its zeros.
    return value.value === null
      ? "unset"
      : { text: typeof value.value === "string" ? value.value : String(value.source) };
  }
  if (!isSeq(value)) return "wrong";
  const items = value.items.map((item) => textOf(document, item));
  const texts = items.flatMap((item) => (typeof item === "object" && typeof item.text === "string" ? [item.text] : []));
  return texts.length === items.length ? { text: texts } : "wrong";
}

const versionKey = "apiVersion";

function checkVersion(walk: Walk, path: string): void {
  const version = walk.settings.get(versionKey);
  walk.settings.delete(versionKey);
  const next = `Write "${versionKey}: ${fileVersion}"`;
  if (version === undefined) walk.errors.push(configError(path, `"${versionKey}" is not set`, next));
  else if (version.text !== fileVersion) {
    walk.errors.push(configError(describeSource(version.source), `${versionKey} "${version.text}" is not known`, next));
  }
}

function guess(walk: Walk, key: string): string {
  const owner = walk.elsewhere(key);
  if (owner !== undefined) return `It is a key of ${owner}`;
  const groups = walk.entries.flatMap(({ path }) =>
    path.slice(1).map((_, depth) => path.slice(0, depth + 1).join(".")),
  );
  return suggestion(key, [versionKey, ...walk.entries.map((entry) => entry.key), ...groups]);
}

function refuse(walk: Walk, offset: number, why: string, next: string): void {
  walk.errors.push(configError(describeSource(walk.sourceAt(offset)), why, next));
}
