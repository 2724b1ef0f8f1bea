// GET and LIST: which version is read, and in which pages it is handed out (kube-watch 2).
// Reads the store only; watches.ts tells what comes after.
import type { Clock } from "../../shared/world.ts";
import type { JsonObject } from "./json.ts";
import { checkOptions, type Matches, matcher, type Query, versionIn, wholeNumber } from "./list-options.ts";
import type { ObjectEntry } from "./objects.ts";
import type { ApiRequest, ResourceTarget } from "./request.ts";
import { badRequest, expired, notFound, versionTooLarge } from "./status.ts";
import type { Collection, Store } from "./store.ts";
import { collectionOf, keyOf, type ResourceType } from "./types.ts";
import { viewFor } from "./views.ts";

export interface ReadContext {
  readonly store: Store<ObjectEntry>;
  readonly clock: Clock;
  /** How often an idle watch says how far it is; the real server: about a minute. */
  readonly bookmarkEveryMs: number;
}

export function getObject(
  context: ReadContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): string {
  const asked = versionIn(request.query, "") ?? 0;
  if (asked > context.store.version) throw versionTooLarge(asked, context.store.version);
  const entry = context.store.collection(collectionOf(type)).get(keyOf(type, target.namespace, target.name));
  if (entry === undefined) throw notFound({ name: target.name, group: type.group, kind: type.plural });
  return viewFor(type, request.accept, context.clock).one(entry);
}

/** The body in pieces: a list may be longer than V8's longest string. */
export function listObjects(
  context: ReadContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): string[] {
  const { query } = request;
  checkOptions(query, false);
  const { matches, selected } = matcher(type, target, query);
  const view = viewFor(type, request.accept, context.clock);
  const collection = context.store.collection(collectionOf(type));
  const from = startOf(context, query);
  const all = entriesAt(context, collection, from);
  const limit = wholeNumber(query.get("limit")) ?? 0;
  const page = takePage(all, from.key, matches, from.anyVersion ? 0 : limit);
  const metadata: JsonObject = { resourceVersion: String(from.version) };
  if (page.next !== undefined) {
    if (from.version === context.store.version) collection.pin(from.version);
    metadata.continue = continueToken(from.version, page.next);
    if (!selected) metadata.remainingItemCount = all.length - page.end;
  }
  return [view.listHead(metadata), ...page.items.map((entry, at) => `${at === 0 ? "" : ","}${view.item(entry)}`), "]}"];
}

interface Start {
  readonly version: number;
  /** List keys after this one. */
  readonly key: string;
  readonly exact: boolean;
  readonly continued: boolean;
  /** resourceVersion=0: whatever is there, in one piece. */
  readonly anyVersion: boolean;
}

function startOf(context: ReadContext, query: Query): Start {
  const current = context.store.version;
  const plain = { version: current, key: "", exact: false, continued: false, anyVersion: false };
  const token = query.get("continue");
  const asked = versionIn(query, "list");
  if (token) {
    if (asked !== undefined && asked !== 0)
      throw badRequest("specifying resource version is not allowed when using continue");
    const { version, key } = readContinueToken(token);
    // -1 stands in the token of a 410: go on at the newest version, inconsistently.
    return version === -1 ? { ...plain, key } : { ...plain, version, key, exact: true, continued: true };
  }
  if (asked === undefined) return plain;
  if (asked === 0) return { ...plain, anyVersion: true };
  if (asked > current) throw versionTooLarge(asked, current);
  const match = query.get("resourceVersionMatch");
  // With a limit and no match, an old version is meant exactly (compatibility rule of the real server).
  const exact = match === "Exact" || (!match && (wholeNumber(query.get("limit")) ?? 0) > 0);
  return exact ? { ...plain, version: asked, exact: true } : plain;
}

function entriesAt(context: ReadContext, collection: Collection<ObjectEntry>, from: Start): readonly ObjectEntry[] {
  if (!from.exact) return collection.list();
  const found = collection.listAt(from.version);
  if (!("expired" in found)) return found;
  if (!from.continued) throw expired("The resourceVersion for the provided list is too old.");
  throw expired(expiredContinue, {
    continue: continueToken(-1, from.key),
    resourceVersion: String(context.store.version),
  });
}

const expiredContinue =
  "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

interface Page {
  readonly items: readonly ObjectEntry[];
  /** Index after the last one looked at. */
  readonly end: number;
  readonly next: string | undefined;
}

function takePage(all: readonly ObjectEntry[], after: string, matches: Matches, limit: number): Page {
  const items: ObjectEntry[] = [];
  let at = after === "" ? 0 : firstAfter(all, after);
  for (; at < all.length; at += 1) {
    const entry = all[at];
    if (entry === undefined || !matches(entry)) continue;
    if (limit > 0 && items.length === limit) break;
    items.push(entry);
  }
  return { items, end: at, next: at < all.length ? items.at(-1)?.key : undefined };
}

function firstAfter(all: readonly ObjectEntry[], key: string): number {
  let low = 0;
  let high = all.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((all[middle]?.key ?? "") <= key) low = middle + 1;
    else high = middle;
  }
  return low;
}

function continueToken(version: number, key: string): string {
  // The real one is base64; nobody may look inside, and hexadecimal needs no help from Node.
  return [...`${version}:${key}`].map((letter) => letter.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}

function readContinueToken(token: string): { version: number; key: string } {
  const text = token.replace(/../g, (pair) => String.fromCharCode(Number.parseInt(pair, 16)));
  const found = /^(-?\d+):(.+)$/.exec(text);
  if (found === null) throw badRequest("invalid continue token: continue key is not valid");
  return { version: Number(found[1]), key: found[2] ?? "" };
}
