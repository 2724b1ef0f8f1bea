// Calico's selector language (spec 2.4): from text to a test of labels, with Calico's own words for what is wrong.
// Leaves to pools.ts which labels are tested.
import { LRUCache } from "lru-cache";
import { fail, type Operator, printed, SelectorError, type Token, tokenize } from "./selector-tokens.ts";

export type Labels = Readonly<Record<string, string>>;
export type Matcher = (labels: Labels) => boolean;
export type Selector =
  | { readonly ok: true; readonly matches: Matcher }
  | { readonly ok: false; readonly error: string };

/** More than clusters have different selectors. */
const rememberedSelectors = 1024;
const remembered = new LRUCache<string, Selector>({ max: rememberedSelectors });

/** An empty selector matches everything. */
export function compileSelector(text: string): Selector {
  const known = remembered.get(text);
  if (known !== undefined) return known;
  const selector = compile(text);
  remembered.set(text, selector);
  return selector;
}

/** Nesting is recursion here, in reading and in matching. */
const deepestNesting = 200;

function compile(text: string): Selector {
  try {
    return { ok: true, matches: new Parser(tokenize(text)).selector() };
  } catch (error) {
    if (error instanceof SelectorError) return { ok: false, error: error.message };
    throw error;
  }
}

/** Recursive descent: `!` binds one operation, then `&&`, then `||`. */
class Parser {
  readonly #tokens: readonly Token[];
  #at = 0;
  #depth = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  selector(): Matcher {
    if (this.#peek().kind === "end") return () => true;
    const matches = this.#or();
    if (this.#peek().kind !== "end") {
      const rest = this.#tokens.slice(this.#at, -1);
      fail(`unexpected content at end of selector ${rest.map(printed).join(" ")}`);
    }
    return matches;
  }

  #or(): Matcher {
    const terms = [this.#and()];
    while (this.#accept("||")) terms.push(this.#and());
    return (labels) => terms.some((matches) => matches(labels));
  }

  #and(): Matcher {
    const terms = [this.#operation()];
    while (this.#accept("&&")) terms.push(this.#operation());
    return (labels) => terms.every((matches) => matches(labels));
  }

  #operation(): Matcher {
    let negated = false;
    while (this.#accept("!")) negated = !negated;
    const matches = this.#simple();
    return negated ? (labels) => !matches(labels) : matches;
  }

  #simple(): Matcher {
    const token = this.#peek();
    this.#at++;
    switch (token.kind) {
      case "has":
        return (labels) => Object.hasOwn(labels, token.value);
      case "all":
      case "global":
        return () => true;
      case "label":
        return this.#comparison(token.value);
      case "(": {
        if (++this.#depth > deepestNesting) fail("selector nested too deeply");
        const matches = this.#or();
        this.#depth--;
        if (!this.#accept(")")) fail("expected )");
        return matches;
      }
      case "end":
        return fail("unexpected end of string looking for op");
      default:
        return fail(`unexpected token: ${printed(token)}`);
    }
  }

  #comparison(name: string): Matcher {
    const operator = this.#peek();
    this.#at++;
    switch (operator.kind) {
      case "==":
      case "!=":
      case "contains":
      case "starts with":
      case "ends with":
        return comparing(name, operator.kind, [this.#string()]);
      case "in":
      case "not in":
        return comparing(name, operator.kind, this.#set());
      default:
        return fail(`expected == or != not: ${printed(operator)}`);
    }
  }

  #string(): string {
    const token = this.#peek();
    if (token.kind !== "string") return fail("expected string");
    this.#at++;
    return token.value;
  }

  #set(): string[] {
    if (!this.#accept("{")) fail("expected set literal");
    const values: string[] = [];
    while (this.#peek().kind === "string") {
      values.push(this.#string());
      if (!this.#accept(",")) break;
    }
    if (!this.#accept("}")) fail("expected }");
    return values;
  }

  #peek(): Token {
    return this.#tokens[this.#at] ?? { kind: "end" };
  }

  #accept(kind: Token["kind"]): boolean {
    if (this.#peek().kind !== kind) return false;
    this.#at++;
    return true;
  }
}

/** A label that is absent differs from everything and is in no set. */
function comparing(name: string, operator: Operator, operands: readonly string[]): Matcher {
  const test = comparisonOf(operator, operands);
  const whenAbsent = operator === "!=" || operator === "not in";
  return (labels) => {
    const value = Object.hasOwn(labels, name) ? labels[name] : undefined;
    return value === undefined ? whenAbsent : test(value);
  };
}

function comparisonOf(operator: Operator, operands: readonly string[]): (value: string) => boolean {
  const known = new Set(operands);
  const operand = operands[0] ?? "";
  switch (operator) {
    case "==":
    case "in":
      return (value) => known.has(value);
    case "!=":
    case "not in":
      return (value) => !known.has(value);
    case "contains":
      return (value) => value.includes(operand);
    case "starts with":
      return (value) => value.startsWith(operand);
    case "ends with":
      return (value) => value.endsWith(operand);
  }
}
