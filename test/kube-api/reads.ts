// GET, LIST and WATCH: which version is read, what of it is selected, and how it is handed out (kube-watch 2-4).
// Reads the store only. Watches deliver to a sink as things happen; the sink's owner looks after slow readers.
import type { Clock } from "../../shared/world.ts";
import { asObject, type JsonObject, parseJson, printJson } from "./json.ts";
import type { ObjectEntry } from "./objects.ts";
import { type ApiRequest, isTrue, type ResourceTarget } from "./request.ts";
import { fieldSelector, labelSelector } from "./selectors.ts";
import { badRequest, type Cause, expired, invalid, notFound, Refusal, versionTooLarge } from "./status.ts";
import type { Collection, Store, StoreEvent } from "./store.ts";
import { collectionOf, keyOf, type ResourceType } from "./types.ts";
import { type View, viewFor } from "./views.ts";

export interface ReadContext {
  readonly store: Store<ObjectEntry>;
  readonly clock: Clock;
  /** How often an idle watch says how far it is; the real server: about a minute. */
  readonly bookmarkEveryMs: number;
}

export interface WatchSink {
  /** One event, without the newline. */
  line(text: string): void;
  end(): void;
}

/** Starts delivering; the result stops it. */
export type StartWatch = (sink: WatchSink) => () => void;

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

type Query = ReadonlyMap<string, string>;
type Matches = (entry: ObjectEntry) => boolean;

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

/** Only a list calls a version that is no number the client's mistake. */
function versionIn(query: Query, verb: "list" | ""): number | undefined {
  const text = query.get("resourceVersion") ?? "";
  if (text === "") return undefined;
  if (/^\d+$/.test(text)) return Number(text);
  const value = JSON.stringify(text);
  const why = `resourceVersion: Invalid value: ${value}: strconv.ParseUint: parsing ${value}: invalid syntax`;
  throw verb === "list" ? badRequest(`invalid resource version: ${why}`) : new Refusal(500, "", why);
}

function wholeNumber(text: string | undefined): number | undefined {
  if (text === undefined || text === "") return undefined;
  if (!/^-?\d+$/.test(text)) throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text)}: invalid syntax`);
  return Number(text);
}

function checkOptions(query: Query, watch: boolean): void {
  const causes: Cause[] = [];
  const forbid = (field: string, why: string): void => {
    causes.push({ reason: "FieldValueForbidden", message: `Forbidden: ${why}`, field });
  };
  const unsupported = (supported: string): void => {
    const message = `Unsupported value: ${JSON.stringify(match)}: supported values: ${supported}`;
    causes.push({ reason: "FieldValueNotSupported", message, field: "resourceVersionMatch" });
  };
  const match = query.get("resourceVersionMatch") ?? "";
  const initial = query.has("sendInitialEvents");
  const version = query.get("resourceVersion") ?? "";
  if (watch && initial) {
    if (match !== "NotOlderThan")
      forbid("resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    if (match !== "NotOlderThan" && match !== "") unsupported('"NotOlderThan"');
  } else if (watch) {
    if (match !== "")
      forbid(
        "resourceVersionMatch",
        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
      );
  } else {
    if (match !== "" && version === "")
      forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided");
    if (match !== "" && query.get("continue"))
      forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
    if (match !== "" && match !== "Exact" && match !== "NotOlderThan") unsupported('"Exact", "NotOlderThan", ""');
    if (match === "Exact" && version === "0")
      forbid("resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"');
    if (initial) forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
  }
  if (causes.length > 0) throw invalid({ group: "meta.k8s.io", kind: "ListOptions" }, causes);
}

export function matcher(
  type: ResourceType,
  target: ResourceTarget,
  query: Query,
): { matches: Matches; selected: boolean } {
  const labels = labelSelector(query.get("labelSelector"));
  const fields = fieldSelector(query.get("fieldSelector"), [
    "metadata.name",
    ...(type.namespaced ? ["metadata.namespace"] : []),
    ...type.fields,
  ]);
  const inside = target.namespace;
  return {
    selected: labels !== undefined || fields.length > 0 || inside !== "",
    matches: (entry) =>
      (inside === "" || entry.namespace === inside) &&
      fields.every((term) => (fieldOf(entry, term.field) === term.value) === term.equal) &&
      (labels === undefined || labels(entry.labels)),
  };
}

function fieldOf(entry: ObjectEntry, field: string): string {
  if (field === "metadata.name") return entry.name;
  if (field === "metadata.namespace") return entry.namespace;
  return entry.fields?.[field] ?? "";
}

export function watchObjects(
  context: ReadContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): StartWatch {
  const { query } = request;
  checkOptions(query, true);
  const watch: Watching = {
    context,
    collection: context.store.collection(collectionOf(type)),
    view: viewFor(type, request.accept, context.clock),
    matches: matcher(type, target, query).matches,
    bookmarks: isTrue(query.get("allowWatchBookmarks") ?? "false"),
    initialEvents: query.has("sendInitialEvents") ? isTrue(query.get("sendInitialEvents")) : undefined,
    from: versionIn(query, ""),
    timeoutMs: (wholeNumber(query.get("timeoutSeconds")) ?? 0) * 1000,
  };
  return (sink) => runWatch(watch, sink);
}

interface Watching {
  readonly context: ReadContext;
  readonly collection: Collection<ObjectEntry>;
  readonly view: View;
  readonly matches: Matches;
  readonly bookmarks: boolean;
  readonly initialEvents: boolean | undefined;
  readonly from: number | undefined;
  readonly timeoutMs: number;
}

/** The real server picks at random from 30 to 60 minutes. */
const defaultTimeoutMs = 2_700_000;
/** A last bookmark comes this long before the deadline. */
const lastBookmarkMs = 2000;

function runWatch(watch: Watching, sink: WatchSink): () => void {
  const { context, collection } = watch;
  const stops: (() => void)[] = [];
  const stop = (): void => {
    for (const cancel of stops.splice(0)) cancel();
  };
  const end = (): void => {
    stop();
    sink.end();
  };
  if (!replay(watch, sink)) {
    sink.end();
    return stop;
  }
  let seen = watch.from ?? 0;
  stops.push(
    collection.watch({
      event: (event) => {
        if (event.entry.version <= seen) return;
        seen = event.entry.version;
        tell(watch, event, sink);
      },
      end,
    }),
  );
  const timeoutMs = watch.timeoutMs > 0 ? watch.timeoutMs : defaultTimeoutMs;
  stops.push(context.clock.after(timeoutMs, end));
  if (watch.bookmarks) {
    const bookmark = (): void =>
      sink.line(eventText("BOOKMARK", watch.view.bookmark(bookmarkMetadata(context.store.version))));
    if (timeoutMs > lastBookmarkMs) stops.push(context.clock.after(timeoutMs - lastBookmarkMs, bookmark));
    stops.push(every(context.clock, context.bookmarkEveryMs, bookmark));
  }
  return stop;
}

/** What happened before the watch began. False: it cannot be told from this version on, and the sink was told so. */
function replay(watch: Watching, sink: WatchSink): boolean {
  const { context, collection, view } = watch;
  const wantsState = watch.initialEvents ?? !watch.from;
  if (watch.initialEvents === true && watch.from !== undefined && watch.from > context.store.version) {
    sink.line(eventText("ERROR", versionTooLarge(watch.from, context.store.version).body));
    return false;
  }
  if (wantsState) {
    for (const entry of collection.list()) if (watch.matches(entry)) sink.line(eventText("ADDED", view.one(entry)));
    if (watch.initialEvents === true && watch.bookmarks) {
      const metadata = {
        ...bookmarkMetadata(context.store.version),
        annotations: { "k8s.io/initial-events-end": "true" },
      };
      sink.line(eventText("BOOKMARK", view.bookmark(metadata)));
    }
    return true;
  }
  if (!watch.from) return true;
  const events = collection.since(watch.from);
  if ("expired" in events) {
    sink.line(eventText("ERROR", expired(`too old resource version: ${watch.from} (${events.oldest})`).body));
    return false;
  }
  for (const event of events) tell(watch, event, sink);
  return true;
}

/** An object that begins or ceases to match a selector comes and goes as far as this watch can see. */
function tell(watch: Watching, event: StoreEvent<ObjectEntry>, sink: WatchSink): void {
  const was = event.before !== undefined && watch.matches(event.before);
  const is = event.type !== "DELETED" && watch.matches(event.entry);
  if (!was && !is) return;
  if (is) sink.line(eventText(was ? "MODIFIED" : "ADDED", watch.view.one(event.entry)));
  else sink.line(eventText("DELETED", watch.view.one(event.type === "DELETED" ? event.entry : lastMatching(event))));
}

/** The last state that matched, under the version of the change that ended it. */
function lastMatching(event: StoreEvent<ObjectEntry>): ObjectEntry {
  const before = event.before ?? event.entry;
  const object = asObject(parseJson(before.text));
  const metadata = { ...asObject(object.metadata), resourceVersion: String(event.entry.version) };
  const metadataText = printJson(metadata);
  return {
    ...before,
    version: event.entry.version,
    text: before.text.slice(0, before.metadataAt) + metadataText + before.text.slice(before.metadataEnd),
    metadataEnd: before.metadataAt + metadataText.length,
  };
}

function eventText(type: string, object: string): string {
  return `{"type":"${type}","object":${object}}`;
}

function bookmarkMetadata(version: number): JsonObject {
  return { resourceVersion: String(version) };
}

function every(clock: Clock, periodMs: number, wake: () => void): () => void {
  let cancel = clock.after(periodMs, tick);
  function tick(): void {
    cancel = clock.after(periodMs, tick);
    wake();
  }
  return () => cancel();
}
