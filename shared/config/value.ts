// Text to value for each kind of option, and what is allowed, in words. Leaves to others: where the text came from.
import { impossible, invariant } from "../kinds.ts";
import type { Option, PlainOption } from "./options.ts";

export type Value = string | number | boolean | readonly Value[];
/** As it was written: lists may be written as a YAML list, or with commas. */
export type Text = string | readonly string[];

/** Longest text of one value; a list has as many items as fit. */
const maxTextChars = 65_536;

/** Undefined: not allowed, and `allowed(option)` says what is. */
export function parseValue(option: Option, text: Text): Value | undefined {
  if (option.kind === "list") return parseList(option.item, typeof text === "string" ? text.split(",") : text);
  return typeof text === "string" ? parsePlain(option, text) : undefined;
}

/** What may be written, for --help and errors: "a duration such as 45m, from 1s to 1h". */
export function allowed(option: Option | PlainOption): string {
  switch (option.kind) {
    case "string":
      return "text";
    case "path":
      return "a path";
    case "url":
      return `a URL that begins with ${orList(option.schemes.map((scheme) => `${scheme}://`))}`;
    case "enum":
      return orList(option.values);
    case "duration":
      return `a duration such as 45m or 1h30m${range(option.min, option.max)}`;
    case "size":
      return `a size in bytes such as 64Mi${range(option.min, option.max)}`;
    case "integer":
      return `a whole number${range(String(option.min), String(option.max))}`;
    case "port":
      return option.zeroIsOff ? "a port number, or 0 to switch it off" : "a port number";
    case "boolean":
      return "true or false";
    case "list":
      return `a list, each item ${allowed(option.item)}`;
    default:
      return impossible(option);
  }
}

function parseList(item: PlainOption, texts: readonly string[]): Value | undefined {
  const values = texts.map((text) => text.trim()).flatMap((text) => (text === "" ? [] : [parsePlain(item, text)]));
  const parsed = values.filter((value) => value !== undefined);
  return parsed.length > 0 && parsed.length === values.length ? parsed : undefined;
}

function parsePlain(option: PlainOption, text: string): Value | undefined {
  if (text.length > maxTextChars || text.includes("\0")) return undefined;
  switch (option.kind) {
    case "string":
    case "path":
      return text;
    case "url":
      return isUrl(text, option.schemes) ? text : undefined;
    case "enum":
      return option.values.includes(text) ? text : undefined;
    case "duration":
      return within(durationMs(text), bound(option.min, durationMs), bound(option.max, durationMs));
    case "size":
      return within(sizeBytes(text), bound(option.min, sizeBytes), bound(option.max, sizeBytes));
    case "integer":
      return within(wholeNumber(text), option.min, option.max);
    case "port":
      return within(wholeNumber(text), option.zeroIsOff ? 0 : 1, 65_535);
    case "boolean":
      return text === "true" ? true : text === "false" ? false : undefined;
    default:
      return impossible(option);
  }
}

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** Go's form without the fractions that no option needs to have exact: `45m`, `1h30m`, `1.5s`; whole milliseconds. */
function durationMs(text: string): number | undefined {
  if (text === "0") return 0;
  if (!/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(text)) return undefined;
  let total = 0;
  for (const [, amount, , unit] of text.matchAll(/(\d+(\.\d+)?)(ms|s|m|h)/g))
    total += Number(amount) * (unitMs[unit ?? ""] ?? 0);
  return safeInteger(Math.round(total));
}

const unitBytes: Readonly<Record<string, number>> = { "": 1, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };

function sizeBytes(text: string): number | undefined {
  const [, amount, unit] = /^(\d+)(Ki|Mi|Gi|Ti)?$/.exec(text) ?? [];
  return amount === undefined ? undefined : safeInteger(Number(amount) * (unitBytes[unit ?? ""] ?? 1));
}

function wholeNumber(text: string): number | undefined {
  return /^\d+$/.test(text) ? safeInteger(Number(text)) : undefined;
}

function safeInteger(value: number): number | undefined {
  return Number.isSafeInteger(value) ? value : undefined;
}

function within(value: number | undefined, min: number | undefined, max: number | undefined): number | undefined {
  if (value === undefined || value < (min ?? 0) || value > (max ?? Number.MAX_SAFE_INTEGER)) return undefined;
  return value;
}

/** A bound of the catalogue is right, or the catalogue is wrong. */
function bound(text: string | undefined, parse: (text: string) => number | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = parse(text);
  invariant(value !== undefined, `a bound "${text}" in the catalogue can be read`);
  return value;
}

/** No user information: a password in an option would be shown by `config`. */
function isUrl(text: string, schemes: readonly string[]): boolean {
  const [, scheme, host, port] =
    /^([a-z]+):\/\/(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(\d{1,5}))?(?:\/[^\s@]*)?$/.exec(text) ?? [];
  if (scheme === undefined || host === undefined || !schemes.includes(scheme)) return false;
  return port === undefined || (Number(port) >= 1 && Number(port) <= 65_535);
}

function range(min: string | undefined, max: string | undefined): string {
  if (min !== undefined && max !== undefined) return `, from ${min} to ${max}`;
  if (min !== undefined) return `, at least ${min}`;
  return max === undefined ? "" : `, at most ${max}`;
}

function orList(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}
