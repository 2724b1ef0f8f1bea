// JSON that keeps every number: what a plain parser would round comes through unchanged (spec trap 1).
// Leaves to others what the numbers mean (shared/calico/codec.ts). Text of numbers is kept, white space and order of keys are not.

/** A number that no JavaScript number prints the same way; printed as it was read. */
export interface RawNumber {
  readonly rawJSON: string;
}

/** The part of JSON that TypeScript's library does not declare yet (JSON.parse source text access, ES2026). */
interface ModernJson {
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { readonly source?: string }) => unknown,
  ): unknown;
  rawJSON(text: string): RawNumber;
  isRawJSON(value: unknown): value is RawNumber;
}
const json = JSON as unknown as ModernJson;

/** No 64-bit integer is longer; a longer one stays text, as making a bigint of it could take any time. */
const integer64 = /^-?[1-9][0-9]{0,19}$/;

/**
 * Numbers that JavaScript prints as they are written become numbers, other integers of up to 20 characters bigint, the rest RawNumber.
 * Of a key that occurs twice the last value counts. Throws a SyntaxError where JSON.parse does.
 */
export function parseLossless(text: string): unknown {
  return json.parse(text, (_key, value, { source }) =>
    typeof value === "number" && source !== undefined ? exact(value, source) : value,
  );
}

/** On one line, unless it is to be indented by so many spaces. */
export function printLossless(value: unknown, indent?: number): string {
  const exactly = (_key: string, part: unknown) => (typeof part === "bigint" ? json.rawJSON(String(part)) : part);
  return JSON.stringify(value, exactly, indent);
}

export function isRawNumber(value: unknown): value is RawNumber {
  return json.isRawJSON(value);
}

function exact(value: number, source: string): number | bigint | RawNumber {
  if (String(value) === source && (Number.isSafeInteger(value) || !Number.isInteger(value))) return value;
  return integer64.test(source) ? BigInt(source) : json.rawJSON(source);
}
