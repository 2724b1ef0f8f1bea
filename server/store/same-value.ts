// Deep equality of projected objects: plain values, arrays, maps and records.
// Leaves to the caller which fields take part.

export function sameValue(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, i) => sameValue(item, b[i]));
  if (Array.isArray(b)) return false;
  if (a instanceof Map) return b instanceof Map && a.size === b.size && sameEntries(a, b);
  if (b instanceof Map) return false;
  return sameFields(a, b);
}

function sameEntries(a: Map<unknown, unknown>, b: Map<unknown, unknown>): boolean {
  for (const [key, value] of a) if (!b.has(key) || !sameValue(value, b.get(key))) return false;
  return true;
}

function sameFields(a: object, b: object): boolean {
  const keys = Object.keys(a);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && sameValue(Reflect.get(a, key), Reflect.get(b, key)));
}
