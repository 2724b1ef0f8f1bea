// Order of Kubernetes resource versions (KEP-5504): digits, longer is newer, equal lengths compare as text.
// Only for versions of one resource of one cluster; anything malformed is equal to itself and otherwise unordered.
import type { ResourceVersion } from "../kinds.ts";

/** 128 bits have at most 39 decimal digits. */
const wellFormed = /^(0|[1-9][0-9]{0,38})$/;

export function compareVersions(a: ResourceVersion, b: ResourceVersion): -1 | 0 | 1 | undefined {
  if (a === b) return 0;
  if (!wellFormed.test(a) || !wellFormed.test(b)) return undefined;
  if (a.length !== b.length) return a.length < b.length ? -1 : 1;
  return a < b ? -1 : 1;
}
