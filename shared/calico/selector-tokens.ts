// The words of Calico's selector language (spec 2.4). Leaves to selector.ts how they go together.

/** What is wrong with a selector, in Calico's words. */
export class SelectorError extends Error {}

export function fail(why: string): never {
  throw new SelectorError(why);
}

const symbols = ["&&", "||", "==", "!=", "!", "(", ")", "{", "}", ","] as const;
const wordOperators = ["contains", "starts with", "ends with", "in", "not in"] as const;
type Symbol = (typeof symbols)[number];
type WordOperator = (typeof wordOperators)[number];
export type Operator = "==" | "!=" | WordOperator;
export type Token =
  | { readonly kind: Symbol | WordOperator | "all" | "global" | "end" }
  | { readonly kind: "has" | "label" | "string"; readonly value: string };

/** Not a line break. */
const blank = /[ \t]*/y;
const longestLabel = 512;
const label = /[A-Za-z0-9_./-]+/y;
/** Only directly after a label, and not as the beginning of a longer word. */
const wordOperator = /(?:contains|starts[ \t]*with|ends[ \t]*with|in|not[ \t]*in)(?![A-Za-z0-9_./-])/y;
const opening = /(?:has|all|global)\(/y;

/** Throws SelectorError. */
export function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  for (take(blank); at < text.length; take(blank)) {
    const before = tokens.at(-1);
    tokens.push(symbol() ?? quoted() ?? (before?.kind === "label" ? operatorAfter(before.value) : operand()));
  }
  return [...tokens, { kind: "end" }];

  function take(pattern: RegExp): string {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0] ?? "";
    at += found.length;
    return found;
  }

  function symbol(): Token | undefined {
    const kind = symbols.find((candidate) => text.startsWith(candidate, at));
    const half = text[at];
    if (kind === undefined)
      return half === "=" || half === "&" || half === "|" ? fail(`expected ${half}${half}`) : undefined;
    at += kind.length;
    return { kind };
  }

  function quoted(): Token | undefined {
    const quote = text[at];
    if (quote !== '"' && quote !== "'") return undefined;
    const end = text.indexOf(quote, at + 1);
    if (end < 0) fail("unterminated string");
    const value = text.slice(at + 1, end);
    at = end + 1;
    return { kind: "string", value };
  }

  function operatorAfter(name: string): Token {
    const found = take(wordOperator).replaceAll(/[ \t]/g, "");
    const kind = wordOperators.find((word) => word.replace(" ", "") === found);
    return kind === undefined ? fail(`expected operator after label "${name}"`) : { kind };
  }

  function operand(): Token {
    const opened = take(opening);
    if (opened === "") return { kind: "label", value: identifier() };
    take(blank);
    const value = opened === "has(" ? identifier() : "";
    take(blank);
    if (text[at] !== ")") fail(`no closing ')' after ${opened}`);
    at++;
    if (opened === "has(") return { kind: "has", value };
    return { kind: opened === "all(" ? "all" : "global" };
  }

  function identifier(): string {
    const name = take(label);
    if (name === "") fail("expected identifier");
    if (name.length > longestLabel) fail(`label too long: ${name}`);
    return name;
  }
}

export function printed(token: Token): string {
  return "value" in token ? token.value : token.kind;
}
