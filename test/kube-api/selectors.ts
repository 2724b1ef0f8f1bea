// Label and field selectors of list and watch requests.
// Parses the query text once into a predicate; an unreadable selector is a Refusal.
import { badRequest } from "./status.ts";

export type Labels = Readonly<Record<string, string>>;

export function labelSelector(text: string | undefined): ((labels: Labels | undefined) => boolean) | undefined {
  if (text === undefined || text.trim() === "") return undefined;
  const terms = splitOutsideBraces(text).map(labelTerm);
  return (labels) => terms.every((term) => term(labels ?? {}));
}

function splitOutsideBraces(text: string): string[] {
  return text.split(/,(?![^(]*\))/).map((part) => part.trim());
}

const key = "((?:[A-Za-z0-9][-A-Za-z0-9_.]*/)?[A-Za-z0-9][-A-Za-z0-9_.]*)";
const setTerm = new RegExp(`^${key}\\s+(in|notin)\\s*\\(([^()]*)\\)$`);
const equalTerm = new RegExp(`^${key}\\s*(=|==|!=)\\s*([-A-Za-z0-9_.]*)$`);
const existsTerm = new RegExp(`^(!?)\\s*${key}$`);

function labelTerm(text: string): (labels: Labels) => boolean {
  const set = setTerm.exec(text);
  if (set) {
    const [, name = "", how, list = ""] = set;
    const values = new Set(list.split(",").map((value) => value.trim()));
    return how === "in" ? has(name, (value) => values.has(value)) : not(has(name, (value) => values.has(value)));
  }
  const equal = equalTerm.exec(text);
  if (equal) {
    const [, name = "", how, wanted = ""] = equal;
    return how === "!=" ? not(has(name, (value) => value === wanted)) : has(name, (value) => value === wanted);
  }
  const exists = existsTerm.exec(text);
  if (exists) return exists[1] === "!" ? not(has(exists[2] ?? "", () => true)) : has(exists[2] ?? "", () => true);
  throw badRequest(`unable to parse requirement: found '${text}', expected: in, notin, =, ==, !=, gt, lt`);
}

function has(name: string, holds: (value: string) => boolean): (labels: Labels) => boolean {
  return (labels) => {
    const value = Object.hasOwn(labels, name) ? labels[name] : undefined;
    return value !== undefined && holds(value);
  };
}

function not(term: (labels: Labels) => boolean): (labels: Labels) => boolean {
  return (labels) => !term(labels);
}

export interface FieldTerm {
  readonly field: string;
  readonly equal: boolean;
  readonly value: string;
}

/** `supported` are the fields this resource can be selected by; another one is a 400, as in the real server. */
export function fieldSelector(text: string | undefined, supported: readonly string[]): readonly FieldTerm[] {
  if (text === undefined || text === "") return [];
  return text.split(",").map((part) => {
    const found = /^([^=!]+)(=|==|!=)(.*)$/.exec(part);
    if (found === null) throw badRequest(`invalid selector: '${text}'; can't understand '${part}'`);
    const [, field = "", how, value = ""] = found;
    if (!supported.includes(field)) {
      throw badRequest(`field label not supported: ${field}`);
    }
    return { field, equal: how !== "!=", value };
  });
}
