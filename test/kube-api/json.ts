// JSON values of any kind as the API server handles them, with exact numbers (shared/json) at the price of a plain parse where it can be had.
// Also the small questions one asks of a value whose shape nobody has checked.
import { isRawNumber, parseLossless, printLossless } from "../../shared/json/lossless.ts";

export type JsonObject = { [key: string]: unknown };

/** Throws SyntaxError. Integers that a double cannot hold arrive as bigint. */
export function parseJson(text: string): unknown {
  return longNumber.test(text) ? parseLossless(text) : JSON.parse(text);
}

/** Where there is no such run of digits, doubles lose nothing, and nearly no object has one. */
const longNumber = /\d{16}/;

export function printJson(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    // There is a bigint in it. Asking first would cost more than the rare second try.
    return printLossless(value);
  }
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !isRawNumber(value);
}

export function asObject(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

export function asText(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Equal as JSON: the order of keys does not matter, `1` and `1n` are the same number. */
export function equalJson(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (isNumber(one) && isNumber(other)) return !(one < other || one > other);
  if (isRawNumber(one) || isRawNumber(other)) return printLossless(one) === printLossless(other);
  if (Array.isArray(one)) {
    return Array.isArray(other) && one.length === other.length && one.every((item, at) => equalJson(item, other[at]));
  }
  if (!isObject(one) || !isObject(other)) return false;
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && equalJson(one[key], other[key]))
  );
}

function isNumber(value: unknown): value is number | bigint {
  return typeof value === "number" || typeof value === "bigint";
}
