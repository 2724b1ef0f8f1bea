// Reads single fields of parsed JSON as Go's decoder would: null and absent are the default, a wrong type is a problem.
// Leaves to codec.ts which fields there are. Problems travel as an exception no further than `reading`.

export type Reading<T> = { readonly ok: true; readonly object: T } | { readonly ok: false; readonly problem: string };
export type Fields = Readonly<Record<string, unknown>>;

class Problem extends Error {}

/** The one place where a problem with what was read becomes a value. */
export function reading<T>(read: () => T): Reading<T> {
  try {
    return { ok: true, object: read() };
  } catch (error) {
    if (error instanceof Problem) return { ok: false, problem: error.message };
    throw error;
  }
}

export function unreadable(problem: string): never {
  throw new Problem(problem);
}

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function record(of: Fields, key: string): Fields {
  const value = of[key] ?? {};
  return isFields(value) ? value : unreadable(`${key} is not an object`);
}

export function list(of: Fields, key: string): readonly unknown[] {
  const value = of[key] ?? [];
  return Array.isArray(value) ? value : unreadable(`${key} is not a list`);
}

export function text(of: Fields, key: string): string {
  const value = of[key] ?? "";
  return typeof value === "string" ? value : unreadable(`${key} is not a string`);
}

export function requiredText(of: Fields, key: string): string {
  return text(of, key) || unreadable(`${key} is missing`);
}

export function flag(of: Fields, key: string, byDefault = false): boolean {
  const value = of[key] ?? byDefault;
  return typeof value === "boolean" ? value : unreadable(`${key} is not a boolean`);
}

export function integer(of: Fields, key: string): number {
  const value = of[key] ?? 0;
  return isInteger(value) ? value : unreadable(`${key} is not an integer`);
}

export function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

/** Up to 64 bits, as shared/json/lossless.ts hands them over. */
export function integer64(of: Fields, key: string): bigint {
  const value = of[key] ?? 0;
  if (typeof value === "bigint" && BigInt.asIntN(64, value) === value) return value;
  return isInteger(value) ? BigInt(value) : unreadable(`${key} is not an integer`);
}

export function texts(of: Fields, key: string): Readonly<Record<string, string>> {
  const fields = record(of, key);
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value !== "string") unreadable(`${key}.${name} is not a string`);
  }
  return fields as Readonly<Record<string, string>>;
}

export function textList(of: Fields, key: string): readonly string[] {
  const values = list(of, key);
  return values.every((value) => typeof value === "string") ? values : unreadable(`${key} holds no strings`);
}

/** `fallback` for absent and empty alike. */
export function oneOf<const T extends string>(of: Fields, key: string, words: readonly T[], fallback: T): T {
  const value = text(of, key) || fallback;
  return words.find((word) => word === value) ?? unreadable(`${key} is ${JSON.stringify(value)}`);
}
