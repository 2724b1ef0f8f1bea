// Applies JSON merge patches (RFC 7386), JSON patches (RFC 6902) and strategic merge patches to parsed objects.
// Pure; a patch that cannot be applied is a Refusal. Inputs are never changed.
import { equalJson, isObject, type JsonObject } from "./json.ts";
import { badRequest, Refusal } from "./status.ts";

export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  const merged = new Map(Object.entries(isObject(target) ? target : {}));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, mergePatch(merged.get(key), value));
  }
  return Object.fromEntries(merged);
}

/** The real server refuses more, with 413. */
const jsonPatchLimit = 10_000;

export function jsonPatch(target: unknown, operations: unknown): unknown {
  if (!Array.isArray(operations))
    throw badRequest("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch");
  if (operations.length > jsonPatchLimit) {
    throw new Refusal(
      413,
      "RequestEntityTooLarge",
      `The allowed maximum operations in a JSON patch is ${jsonPatchLimit}, got ${operations.length}`,
    );
  }
  return operations.reduce<unknown>((value, operation) => applyOperation(value, operation), target);
}

function applyOperation(target: unknown, operation: unknown): unknown {
  if (!isObject(operation) || typeof operation.path !== "string") throw rejected();
  const path = pointer(operation.path);
  switch (operation.op) {
    case "add":
      return edit(target, path, "add", operation.value);
    case "replace":
      return edit(target, path, "replace", operation.value);
    case "remove":
      return edit(target, path, "remove", undefined);
    case "test":
      // Absent and null are the same to a test, as in the library that the real server uses.
      if (!equalJson(lookup(target, path) ?? null, operation.value ?? null)) throw rejected();
      return target;
    case "copy":
    case "move": {
      const from = pointer(typeof operation.from === "string" ? operation.from : "");
      const value = lookup(target, from);
      if (value === undefined) throw rejected();
      return edit(operation.op === "move" ? edit(target, from, "remove", undefined) : target, path, "add", value);
    }
    default:
      throw rejected();
  }
}

function rejected(): Refusal {
  return new Refusal(422, "Invalid", "the server rejected our request due to an error in our request", { details: {} });
}

function pointer(text: string): string[] {
  if (text === "") return [];
  if (!text.startsWith("/")) throw rejected();
  return text
    .slice(1)
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function lookup(target: unknown, path: readonly string[]): unknown {
  let value = target;
  for (const part of path) {
    if (Array.isArray(value)) value = value[position(part, value.length - 1)];
    else if (isObject(value) && Object.hasOwn(value, part)) value = value[part];
    else return undefined;
  }
  return value;
}

function edit(target: unknown, path: readonly string[], how: "add" | "replace" | "remove", value: unknown): unknown {
  const [part, ...rest] = path;
  if (part === undefined) return value;
  if (Array.isArray(target)) return editArray(target, part, rest, how, value);
  if (!isObject(target)) throw rejected();
  const exists = Object.hasOwn(target, part);
  if (!exists && (rest.length > 0 || how !== "add")) throw rejected();
  const copy = new Map(Object.entries(target));
  if (rest.length === 0 && how === "remove") copy.delete(part);
  else copy.set(part, rest.length === 0 ? value : edit(target[part], rest, how, value));
  return Object.fromEntries(copy);
}

function editArray(
  target: readonly unknown[],
  part: string,
  rest: readonly string[],
  how: "add" | "replace" | "remove",
  value: unknown,
): unknown[] {
  const copy = [...target];
  if (rest.length > 0) {
    const at = position(part, copy.length - 1);
    copy[at] = edit(copy[at], rest, how, value);
  } else if (how === "add") {
    copy.splice(part === "-" ? copy.length : position(part, copy.length), 0, value);
  } else {
    const at = position(part, copy.length - 1);
    if (how === "remove") copy.splice(at, 1);
    else copy[at] = value;
  }
  return copy;
}

function position(part: string, last: number): number {
  const at = /^(0|[1-9]\d*)$/.test(part) ? Number(part) : -1;
  if (at < 0 || at > last) throw rejected();
  return at;
}

/** Lists of built-in types that a strategic merge patch merges by a key instead of replacing. */
const mergeKeys: Readonly<Record<string, string>> = {
  addresses: "type",
  conditions: "type",
  containers: "name",
  containerStatuses: "name",
  env: "name",
  initContainers: "name",
  ownerReferences: "uid",
  podIPs: "ip",
  ports: "containerPort",
  secrets: "name",
  imagePullSecrets: "name",
  taints: "key",
  volumeMounts: "mountPath",
  volumes: "name",
};
const primitiveMerges: ReadonlySet<string> = new Set(["finalizers", "podCIDRs"]);

/** Built-in types only; `$setElementOrder` and `$retainKeys` do not change the outcome for them and are dropped. */
export function strategicMergePatch(target: unknown, patch: unknown): unknown {
  if (!isObject(patch)) return patch;
  if (patch.$patch === "delete") return {};
  const base = isObject(target) && patch.$patch !== "replace" ? target : {};
  const merged = new Map(Object.entries(base));
  for (const [key, value] of Object.entries(patch)) {
    if (key.startsWith("$deleteFromPrimitiveList/")) {
      const list = key.slice("$deleteFromPrimitiveList/".length);
      const gone = Array.isArray(value) ? value : [];
      merged.set(
        list,
        listOf(merged.get(list)).filter((item) => !gone.includes(item)),
      );
    } else if (key.startsWith("$")) continue;
    else if (value === null) merged.delete(key);
    else if (Array.isArray(value)) merged.set(key, mergeLists(key, merged.get(key), value));
    else merged.set(key, strategicMergePatch(merged.get(key), value));
  }
  return Object.fromEntries(merged);
}

function mergeLists(name: string, target: unknown, patch: readonly unknown[]): unknown[] {
  const list = listOf(target);
  if (primitiveMerges.has(name)) return [...list, ...patch.filter((item) => !list.includes(item))];
  const key = mergeKeys[name];
  if (key === undefined || !patch.every(isObject)) return [...patch];
  if (patch.some((item) => item.$patch === "replace")) return patch.filter((item) => item.$patch !== "replace");
  return patch.reduce<unknown[]>((merged, item) => mergeItem(merged, key, item), [...list]);
}

function mergeItem(list: unknown[], key: string, item: JsonObject): unknown[] {
  const at = list.findIndex((known) => isObject(known) && known[key] === item[key]);
  if (item.$patch === "delete") return list.filter((_, index) => index !== at);
  if (at < 0) return [...list, strategicMergePatch(undefined, item)];
  return list.with(at, strategicMergePatch(list[at], item));
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
