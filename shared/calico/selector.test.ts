import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { compileSelector, type Labels } from "./selector.ts";

function matches(text: string, labels: Labels): boolean {
  const selector = compileSelector(text);
  assert(selector.ok, selector.ok ? "" : `${text}: ${selector.error}`);
  return selector.matches(labels);
}

const labels = { zone: "x", rack: "r1-s-9", in: "a", "kubernetes.io/os": "linux", empty: "" };

for (const [text, expected] of [
  ["", true],
  [" \t", true],
  ["all()", true],
  ["all( )", true],
  ["global()", true],
  ["!all()", false],
  ["!! all()", true],
  ["has(zone)", true],
  ["has( zone )", true],
  ["has(other)", false],
  ["has(toString)", false],
  ["zone == 'x'", true],
  ['zone=="x"', true],
  ["zone == 'X'", false],
  ["zone != 'x'", false],
  ["kubernetes.io/os == 'linux'", true],
  ["empty == ''", true],
  ["rack contains '-s-'", true],
  ["rack contains ''", true],
  ["rack starts with 'r1'", true],
  ["rack startswith'r2'", false],
  ["rack starts \t with 'r1'", true],
  ["rack ends with '9'", true],
  ["zone in {'x', \"y\"}", true],
  ["zone in {'y',}", false],
  ["zone in {}", false],
  ["zone not in {}", true],
  ["zone notin {'x'}", false],
  ["in in {'a'}", true],
  ["contains == 'x'", false],
  ["has != 'x'", true],
  // Labels that are absent.
  ["other == ''", false],
  ["other != 'x'", true],
  ["other in {'x'}", false],
  ["other not in {'x'}", true],
  ["other contains ''", false],
  ["other starts with ''", false],
  ["other ends with ''", false],
  ["constructor != 'x'", true],
  // `!` binds one operation, then `&&`, then `||`.
  ["!zone == 'y'", true],
  ["!zone == 'x' || all()", true],
  ["!(zone == 'x' || all())", false],
  ["all() || all() && !all()", true],
  ["(all() || all()) && !all()", false],
  ["zone == 'it\"s'", false],
] as const) {
  test(`${JSON.stringify(text)} is ${expected}`, () => assert.equal(matches(text, labels), expected));
}

for (const [text, error] of [
  ["zone = 'a'", "expected =="],
  ["a == 'b' & has(c)", "expected &&"],
  ["a == 'b' | has(c)", "expected ||"],
  ["a == 'b", "unterminated string"],
  ["a foo 'b'", 'expected operator after label "a"'],
  ["a inx {'b'}", 'expected operator after label "a"'],
  ["a has(b)", 'expected operator after label "a"'],
  ["has(x", "no closing ')' after has("],
  ["has(x y)", "no closing ')' after has("],
  ["all(x)", "no closing ')' after all("],
  ["global(", "no closing ')' after global("],
  ["has()", "expected identifier"],
  ["#", "expected identifier"],
  ["\n", "expected identifier"],
  ["all() all()", "unexpected content at end of selector all"],
  ["!", "unexpected end of string looking for op"],
  ["all() &&", "unexpected end of string looking for op"],
  ["(all()", "expected )"],
  ["a in 'b'", "expected set literal"],
  ["a in {'b' 'c'}", "expected }"],
  ["a in {,}", "expected }"],
  ["a == b", "expected string"],
  ["a && all()", "expected == or != not: &&"],
  ["|| all()", "unexpected token: ||"],
  ["'x' == a", "unexpected token: x"],
  [`${"l".repeat(513)} == 'a'`, `label too long: ${"l".repeat(513)}`],
  ["(".repeat(201), "selector nested too deeply"],
] as const) {
  test(`${JSON.stringify(text.slice(0, 30))}: ${error.slice(0, 60)}`, () => {
    assert.deepEqual(compileSelector(text), { ok: false, error });
  });
}

test("the deepest nesting that is read does not exhaust the stack", () => {
  assert.equal(matches(`${"(".repeat(200)}all()${")".repeat(200)}`, {}), true);
});

type Term = { readonly text: string; readonly value: boolean };
const value = fc.constantFrom<string>("x", "y", "xy", "");
const leaf: fc.Arbitrary<Term> = fc.oneof(
  fc.constantFrom<Term>(
    { text: "all()", value: true },
    { text: "has(zone)", value: true },
    { text: "has(no)", value: false },
  ),
  value.map((text) => ({ text: `zone == "${text}"`, value: labels.zone === text })),
  fc.array(value).map((set) => ({
    text: `zone not in {${set.map((text) => `'${text}'`).join(", ")}}`,
    value: !set.includes(labels.zone),
  })),
);
const { term } = fc.letrec<{ term: Term }>((tie) => ({
  term: fc.oneof(
    { maxDepth: 4 },
    leaf,
    tie("term").map(({ text, value }) => ({ text: `!(${text})`, value: !value })),
    fc.array(tie("term"), { minLength: 1, maxLength: 3 }).map((terms) => ({
      text: terms.map(({ text }) => `(${text})`).join("&&"),
      value: terms.every(({ value }) => value),
    })),
    fc.array(tie("term"), { minLength: 1, maxLength: 3 }).map((terms) => ({
      text: terms.map(({ text }) => `( ${text} )`).join(" || "),
      value: terms.some(({ value }) => value),
    })),
  ),
}));

test("property: a selector means what its parts mean", () => {
  fc.assert(fc.property(term, ({ text, value }) => assert.equal(matches(text, labels), value)));
});

test("property: no text makes the compiler throw", () => {
  const word = fc.constantFrom(
    "a",
    "==",
    "!=",
    "!",
    "&&",
    "||",
    "(",
    ")",
    "{",
    "}",
    ",",
    "'x'",
    " in ",
    " not in ",
    "has(",
    "all(",
    "=",
    "'",
    "\n",
    "#",
  );
  fc.assert(fc.property(fc.array(word), (words) => assert.equal(typeof compileSelector(words.join("")).ok, "boolean")));
});
