// WATCH: what has happened since a version, then what happens, with bookmarks and a deadline (kube-watch 3 and 4).
// Delivers to a sink at once; the sink's owner looks after slow readers.
import type { Clock } from "../../shared/world.ts";
import { asObject, type JsonObject, parseJson, printJson } from "./json.ts";
import { checkOptions, type Matches, matcher, versionIn, wholeNumber } from "./list-options.ts";
import type { ObjectEntry } from "./objects.ts";
import type { ReadContext } from "./reads.ts";
import { type ApiRequest, isTrue, type ResourceTarget } from "./request.ts";
import { expired, versionTooLarge } from "./status.ts";
import type { Collection, StoreEvent } from "./store.ts";
import { collectionOf, type ResourceType } from "./types.ts";
import { type View, viewFor } from "./views.ts";

export interface WatchSink {
  /** One event, without the newline. */
  line(text: string): void;
  end(): void;
}

/** Starts delivering; the result stops it. */
export type StartWatch = (sink: WatchSink) => () => void;

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
