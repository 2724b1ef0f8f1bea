import assert from "node:assert/strict";
import { test } from "node:test";
import { catalogue, commandOptions, executables, frameOptions } from "./catalogue.ts";
import { type Entry, entriesOf, type OptionTable } from "./options.ts";
import { flagOf, isServiceVariable, variableOf } from "./spelling.ts";
import { parseValue } from "./value.ts";

const tables: Readonly<Record<string, readonly Entry[]>> = Object.fromEntries(
  Object.entries({ ...catalogue, frameOptions, commandOptions }).map(([name, table]) => [
    name,
    entriesOf(table as OptionTable),
  ]),
);
const all = Object.values(tables).flat();

test("every table has options, and every executable a name", () => {
  for (const [name, entries] of Object.entries(tables)) assert.ok(entries.length > 0, name);
  assert.deepEqual(Object.keys(executables), Object.keys(catalogue));
});

test("every default is a value its option allows, and so is every bound", () => {
  for (const { key, option } of all) {
    if (option.default !== undefined) assert.notEqual(parseValue(option, option.default), undefined, key);
    if (option.kind === "duration" || option.kind === "size") {
      for (const bound of [option.min, option.max]) {
        if (bound !== undefined) assert.notEqual(parseValue(option, bound), undefined, `${key} ${bound}`);
      }
    }
  }
});

test("help is one sentence without a full stop that begins with a capital", () => {
  for (const { key, option } of all) assert.match(option.help, /^[A-Z][^\n]{10,160}[^.]$/, key);
});

test("no two options of an executable share a flag, a variable or a letter", () => {
  for (const executable of ["server", "agent", "cli"] as const) {
    const commands = executable === "cli" ? [] : entriesOf(commandOptions);
    const entries = [...entriesOf(catalogue[executable]), ...entriesOf(frameOptions), ...commands];
    for (const spell of [flagOf, variableOf]) {
      const spelled = entries.map(({ key }) => spell(key));
      assert.equal(new Set(spelled).size, spelled.length, spelled.join(" "));
    }
    const letters = entries.flatMap(({ option }) => option.short ?? []);
    assert.equal(new Set(letters).size, letters.length);
    assert.ok(!letters.includes("v"), "--v is the level of the log");
  }
});

test("a secret comes by file: what is named after one is a path", () => {
  for (const { key, option } of all) {
    if (/token|secret|password|key|cert|ca/i.test(key.split(".").at(-1) ?? "") && /File$/.test(key)) {
      assert.equal(option.kind, "path", key);
    }
    assert.doesNotMatch(key, /(token|secret|password|privateKey)$/i);
  }
});

test("no option's variable is one that a Service puts into the pod", () => {
  for (const { key } of all) assert.ok(!isServiceVariable(variableOf(key)), key);
});

test("what an option needs exists beside it, and what must be set has no default", () => {
  for (const entries of Object.values(tables)) {
    for (const { key, option } of entries) {
      if (option.needs !== undefined)
        assert.ok(
          entries.some((other) => other.key === option.needs),
          key,
        );
      assert.ok(!(option.required && option.default !== undefined), key);
    }
  }
});

test("a key has three spellings", () => {
  assert.equal(flagOf("offlineLimit"), "--offline-limit");
  assert.equal(variableOf("offlineLimit"), "CATTAIL_OFFLINE_LIMIT");
  assert.equal(flagOf("tls.certFile"), "--tls-cert-file");
  assert.equal(variableOf("tls.certFile"), "CATTAIL_TLS_CERT_FILE");
});
