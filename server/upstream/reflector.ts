// Keeps the store's copy of one kind true to the API server: lists, watches, and what follows from each way in which either can fail
// (kube-watch 2-7, 14). Decides only; reflector-shell.ts sends the requests, keeps the one timer and carries out the effects.
import { compareVersions } from "../../shared/calico/resource-version.ts";
import type { Kind, Meta } from "../../shared/calico/resources.ts";
import { type Instant, impossible, type ResourceVersion } from "../../shared/kinds.ts";
import { describe, type Refusal } from "../../shared/kube/status.ts";
import type { Random } from "../../shared/world.ts";
import { type Item, itemMeta, type Junk, type Page, type StreamEvent } from "./wire.ts";

/** Whether the servers of one API group-version know the streaming list: found out once for all kinds of the group (kube-watch 3). */
export interface Streaming {
  support: "unknown" | "yes" | "no";
  /** A "no" is asked again from here on: servers are upgraded, and control planes are mixed. */
  askAgainAt: Instant;
}

/** Where a list may be taken from: as new as the request, or at least as new as what we have (cheaper for the API server). */
type Consistency = "now" | "at-least";
type Next = { readonly kind: "watch" } | { readonly kind: "list"; readonly from: Consistency };

export type Request =
  | { readonly kind: "watch"; readonly version: ResourceVersion; readonly timeoutSeconds: number }
  | { readonly kind: "stream"; readonly atLeast: ResourceVersion | undefined; readonly timeoutSeconds: number }
  | {
      readonly kind: "page";
      readonly atLeast: ResourceVersion | undefined;
      readonly next: string;
      readonly limit: number;
    };

/** What a streaming list has told so far. A deletion is kept too: an older state of the object may follow it. */
type Shadow<K extends Kind> = Map<string, { readonly meta: Meta; readonly item: Item<K> | undefined }>;

type Phase<K extends Kind> =
  | { readonly kind: "waiting"; readonly unreachable: boolean }
  | { readonly kind: "queued" }
  | { readonly kind: "streaming"; readonly sentAt: Instant; readonly heardAt: Instant; readonly shadow: Shadow<K> }
  | {
      readonly kind: "paging";
      readonly items: readonly Item<K>[];
      readonly version: ResourceVersion | undefined;
    }
  | {
      readonly kind: "watching";
      readonly sentAt: Instant;
      readonly heardAt: Instant;
      readonly opened: boolean;
      readonly moved: boolean;
    };

export interface Reflector<K extends Kind = Kind> {
  readonly kind: K;
  readonly streaming: Streaming;
  phase: Phase<K>;
  next: Next;
  /** Number of the latest request; what comes from an earlier one no longer counts. */
  request: number;
  /** Everything up to here is in the store. */
  version: ResourceVersion | undefined;
  /** Why the view is not being kept up, in words; undefined while it is. */
  problem: string | undefined;
  timer: { readonly setAt: Instant; readonly delayMs: number };
  failures: number;
  failedAt: Instant;
  /** In a row, without anything from the stream in between. */
  lags: number;
  internalErrors: number;
  junkLines: number;
  /** The last list in pages lost its place; the next one is asked for in one piece. */
  unpaged: boolean;
  /** The last streaming list held something that could not be taken in; the next list is paged. */
  unstreamed: boolean;
  toldWhole: boolean;
}

export type RestartReason = "closed" | "timeout" | "gone" | "stale" | "forbidden" | "error";

export type ReflectorEvent<K extends Kind = Kind> =
  | { readonly kind: "start"; readonly delayMs: number }
  | { readonly kind: "turn" }
  | { readonly kind: "woken" }
  /** Somebody else has just reached the API server. */
  | { readonly kind: "reachable" }
  | { readonly kind: "opened"; readonly request: number }
  | { readonly kind: "heard"; readonly request: number }
  | { readonly kind: "stream"; readonly request: number; readonly event: StreamEvent<K> }
  | { readonly kind: "page"; readonly request: number; readonly page: Page<K> | Junk }
  | { readonly kind: "refused"; readonly request: number; readonly refusal: Refusal }
  /** eof: as HTTP ends a body. broken: anything else. silent: the system gave the other end up for lost. */
  | {
      readonly kind: "ended";
      readonly request: number;
      readonly how: "eof" | "broken" | "silent";
      readonly message: string;
    };

export type Effect<K extends Kind = Kind> =
  | { readonly kind: "send"; readonly request: number; readonly what: Request }
  | { readonly kind: "abandon" }
  /** Replaces the timer. */
  | { readonly kind: "wake"; readonly delayMs: number }
  /** Few lists at a time, of all reflectors: answered by `turn`. */
  | { readonly kind: "ask-turn" }
  | { readonly kind: "end-turn" }
  | { readonly kind: "put"; readonly item: Item<K> }
  | { readonly kind: "remove"; readonly meta: Meta }
  | { readonly kind: "replace"; readonly items: readonly Item<K>[]; readonly version: ResourceVersion }
  | { readonly kind: "advance"; readonly version: ResourceVersion }
  | { readonly kind: "opened" }
  | { readonly kind: "closed"; readonly heardAt: Instant }
  | { readonly kind: "restarted"; readonly reason: RestartReason; readonly why: string; readonly delayMs: number }
  | { readonly kind: "sent-whole" };

export interface Moment {
  readonly now: Instant;
  readonly random: Random;
}

export const limits = {
  /** client-go's reflector. */
  firstPauseMs: 800,
  longestPauseMs: 30_000,
  healthyMs: 120_000,
  /** A watch that ends younger than this and told nothing was refused in a polite way. */
  youngMs: 1_000,
  headersMs: 30_000,
  /** Bookmarks come about once a minute: two are missing. */
  silenceMs: 150_000,
  /** A streaming list has ended by its bookmark, or goes on telling, or it is an old server that ignored the request for one. */
  streamStartMs: 30_000,
  streamSilenceMs: 10_000,
  streamLongestMs: 300_000,
  streamAgainMs: 3_600_000,
  shortestWatchSeconds: 300,
  longestWatchSeconds: 600,
  /** A server that lags behind another one is waited for (kube-watch 5). */
  lagPauseMs: 1_000,
  lags: 10,
  internalErrors: 5,
  junkLines: 2,
  relistSpreadMs: 2_000,
  /** Rights and kinds come back by people's hands. */
  forbiddenPauseMs: 30_000,
  missingPauseMs: 5_000,
  pageItems: 500,
  /** A timer this late was held up with the whole process, and says nothing about the other end. */
  suspendedMs: 5_000,
} as const;

export function newReflector<K extends Kind>(kind: K, streaming: Streaming, now: Instant): Reflector<K> {
  return {
    kind,
    streaming,
    phase: { kind: "waiting", unreachable: false },
    next: { kind: "list", from: "now" },
    request: 0,
    version: undefined,
    problem: "not listed yet",
    timer: { setAt: now, delayMs: 0 },
    failures: 0,
    failedAt: now,
    lags: 0,
    internalErrors: 0,
    junkLines: 0,
    unpaged: false,
    unstreamed: false,
    toldWhole: false,
  };
}

export function step<K extends Kind>(reflector: Reflector<K>, event: ReflectorEvent<K>, moment: Moment): Effect<K>[] {
  if ("request" in event && !awaits(reflector, event.request)) return [];
  switch (event.kind) {
    case "start":
      return [wake(reflector, event.delayMs, moment)];
    case "turn":
      return sendList(reflector, moment);
    case "woken":
      return woken(reflector, moment);
    case "reachable":
      return reachable(reflector, moment);
    case "opened":
      return opened(reflector, moment);
    case "heard":
      return heard(reflector, moment);
    case "stream":
      return onStream(reflector, event.event, moment);
    case "page":
      return event.page.kind === "junk" ? onJunk(reflector, event.page, moment) : onPage(reflector, event.page, moment);
    case "refused":
      return onRefusal(reflector, event.refusal, moment);
    case "ended":
      return onEnd(reflector, event.how, event.message, moment);
    default:
      return impossible(event);
  }
}

function awaits({ request, phase }: Reflector, number: number): boolean {
  return number === request && phase.kind !== "waiting" && phase.kind !== "queued";
}

function proceed<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  if (reflector.next.kind === "watch" && reflector.version !== undefined)
    return sendWatch(reflector, reflector.version, moment);
  reflector.phase = { kind: "queued" };
  return [{ kind: "ask-turn" }];
}

function sendWatch<K extends Kind>(reflector: Reflector<K>, version: ResourceVersion, moment: Moment): Effect<K>[] {
  reflector.next = { kind: "watch" };
  reflector.phase = { kind: "watching", sentAt: moment.now, heardAt: moment.now, opened: false, moved: false };
  return send(reflector, { kind: "watch", version, timeoutSeconds: watchSeconds(moment) }, moment);
}

function sendList<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  const { streaming, unstreamed } = reflector;
  if (unstreamed || (streaming.support === "no" && moment.now < streaming.askAgainAt))
    return sendPage(reflector, "", moment);
  reflector.phase = { kind: "streaming", sentAt: moment.now, heardAt: moment.now, shadow: new Map() };
  return send(reflector, { kind: "stream", atLeast: atLeast(reflector), timeoutSeconds: watchSeconds(moment) }, moment);
}

function sendPage<K extends Kind>(reflector: Reflector<K>, next: string, moment: Moment): Effect<K>[] {
  const soFar = reflector.phase.kind === "paging" ? reflector.phase : { items: [], version: undefined };
  reflector.phase = { kind: "paging", items: soFar.items, version: soFar.version };
  const limit = reflector.unpaged ? 0 : limits.pageItems;
  return send(reflector, { kind: "page", atLeast: next === "" ? atLeast(reflector) : undefined, next, limit }, moment);
}

function send<K extends Kind>(reflector: Reflector<K>, what: Request, moment: Moment): Effect<K>[] {
  reflector.request++;
  const sent: Effect<K> = { kind: "send", request: reflector.request, what };
  return what.kind === "page" ? [sent] : [sent, wake(reflector, deadline(reflector.phase) - moment.now, moment)];
}

function atLeast({ next, version }: Reflector): ResourceVersion | undefined {
  return next.kind === "list" && next.from === "at-least" ? version : undefined;
}

/** Spread, so that watches do not end together; short, so that credentials and endpoints are picked up (kube-watch 4). */
function watchSeconds({ random }: Moment): number {
  return limits.shortestWatchSeconds + random.below(limits.longestWatchSeconds - limits.shortestWatchSeconds + 1);
}

function opened<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  const { phase } = reflector;
  if (phase.kind !== "watching") return heard(reflector, moment);
  reflector.phase = { ...phase, opened: true, heardAt: moment.now };
  reflector.problem = undefined;
  return [{ kind: "opened" }];
}

function heard<K extends Kind>(reflector: Reflector<K>, { now }: Moment): Effect<K>[] {
  const { phase } = reflector;
  if (phase.kind === "watching" || phase.kind === "streaming") reflector.phase = { ...phase, heardAt: now };
  return [];
}

function onStream<K extends Kind>(reflector: Reflector<K>, event: StreamEvent<K>, moment: Moment): Effect<K>[] {
  if (event.kind === "error") return onRefusal(reflector, event.refusal, moment);
  if (event.kind === "junk") return onJunk(reflector, event, moment);
  const whole = event.kind === "put" && event.whole ? sentWhole(reflector) : [];
  const { phase } = reflector;
  if (phase.kind === "streaming") return [...whole, ...shadowed(reflector, phase.shadow, event, moment)];
  switch (event.kind) {
    case "put":
      return [...whole, { kind: "put", item: event.item }, ...advance(reflector, itemMeta(event.item).resourceVersion)];
    case "removed":
      return [{ kind: "remove", meta: event.meta }, ...advance(reflector, event.meta.resourceVersion)];
    case "bookmark":
      return onBookmark(reflector, event.version, moment);
    default:
      return impossible(event);
  }
}

/**
 * A watch from a version that is still to come is not refused: it waits in silence. After etcd was set back, this is the sign of it;
 * a server that only lags behind is found innocent by the list.
 */
function onBookmark<K extends Kind>(reflector: Reflector<K>, version: ResourceVersion, moment: Moment): Effect<K>[] {
  if (reflector.version === undefined || compareVersions(version, reflector.version) !== -1) {
    return advance(reflector, version);
  }
  const why = `the API server is at version ${version}, behind ${reflector.version}`;
  return relist(reflector, "now", { reason: "stale", why, delayMs: pause(reflector, moment) }, moment);
}

/** Only after what carried this version has been applied. A replayed event has an older one, and does not set us back. */
function advance<K extends Kind>(reflector: Reflector<K>, version: ResourceVersion): Effect<K>[] {
  const { phase } = reflector;
  reflector.lags = 0;
  reflector.internalErrors = 0;
  reflector.junkLines = 0;
  if (reflector.version !== undefined && compareVersions(version, reflector.version) === -1) return [];
  if (phase.kind === "watching" && version !== reflector.version) reflector.phase = { ...phase, moved: true };
  reflector.version = version;
  return [{ kind: "advance", version }];
}

function shadowed<K extends Kind>(
  reflector: Reflector<K>,
  shadow: Shadow<K>,
  event: Exclude<StreamEvent<K>, { kind: "error" | "junk" }>,
  moment: Moment,
): Effect<K>[] {
  if (event.kind === "bookmark") return event.initialEnd ? streamListed(reflector, shadow, event.version, moment) : [];
  const item = event.kind === "put" ? event.item : undefined;
  const meta = event.kind === "put" ? itemMeta(event.item) : event.meta;
  const known = shadow.get(meta.name)?.meta.resourceVersion;
  if (known === undefined || compareVersions(meta.resourceVersion, known) !== -1) shadow.set(meta.name, { meta, item });
  return [];
}

function streamListed<K extends Kind>(
  reflector: Reflector<K>,
  shadow: Shadow<K>,
  version: ResourceVersion,
  { now }: Moment,
): Effect<K>[] {
  const items = [...shadow.values()].flatMap(({ item }) => item ?? []);
  reflector.streaming.support = "yes";
  // The same stream goes on as a watch.
  reflector.phase = { kind: "watching", sentAt: now, heardAt: now, opened: true, moved: true };
  return [...listed(reflector, items, version), { kind: "opened" }];
}

function onPage<K extends Kind>(reflector: Reflector<K>, page: Page<K>, moment: Moment): Effect<K>[] {
  const { phase } = reflector;
  if (phase.kind !== "paging") return [];
  const items = [...phase.items, ...page.items];
  // All pages are of one version, that of the first.
  const version = phase.version ?? page.version;
  const whole = page.whole ? sentWhole(reflector) : [];
  if (page.next !== "") {
    reflector.phase = { ...phase, items, version };
    return [...whole, ...sendPage(reflector, page.next, moment)];
  }
  return [...whole, ...listed(reflector, items, version), ...sendWatch(reflector, version, moment)];
}

function listed<K extends Kind>(
  reflector: Reflector<K>,
  items: readonly Item<K>[],
  version: ResourceVersion,
): Effect<K>[] {
  reflector.version = version;
  reflector.next = { kind: "watch" };
  reflector.problem = undefined;
  reflector.lags = 0;
  reflector.internalErrors = 0;
  reflector.junkLines = 0;
  reflector.unpaged = false;
  reflector.unstreamed = false;
  return [{ kind: "replace", items, version }, { kind: "end-turn" }];
}

function sentWhole<K extends Kind>(reflector: Reflector<K>): Effect<K>[] {
  if (reflector.toldWhole) return [];
  reflector.toldWhole = true;
  return [{ kind: "sent-whole" }];
}

/** Why what was under way ends, and how long to wait before `next`. */
interface Setback {
  readonly reason: RestartReason;
  readonly why: string;
  readonly delayMs: number;
  /** When the other end was last known to be there; default now. */
  readonly heardAt?: Instant;
  /** There was no answer at all: worth another try as soon as somebody gets one. */
  readonly unreachable?: boolean;
}

/** One table for errors as HTTP status and as events in a stream (kube-watch 5). */
function onRefusal<K extends Kind>(reflector: Reflector<K>, refusal: Refusal, moment: Moment): Effect<K>[] {
  const { status, reason, retryAfterMs = 0 } = refusal;
  const why = describe(refusal);
  if (reflector.phase.kind === "streaming" && (status === 422 || status === 400)) return noStreaming(reflector, moment);
  if (status === 410 || reason === "Expired" || reason === "Gone") return gone(reflector, why, moment);
  if (isAhead(refusal)) return lagging(reflector, refusal, why, moment);
  switch (status) {
    case 401:
      return retry(reflector, { reason: "forbidden", why, delayMs: pause(reflector, moment) }, moment);
    case 403:
      return retry(reflector, { reason: "forbidden", why, delayMs: doubtful(limits.forbiddenPauseMs, moment) }, moment);
    case 404:
      return missing(reflector, why, moment);
    case 400:
      return relist(reflector, "now", { reason: "error", why, delayMs: pause(reflector, moment) }, moment);
    case 0:
    case 500:
      return internalError(reflector, why, moment);
    default:
      return retry(reflector, { reason: "error", why, delayMs: pauseAtLeast(reflector, retryAfterMs, moment) }, moment);
  }
}

/** We ask for a version that this server has not seen yet. */
function isAhead({ status, message, causes }: Refusal): boolean {
  const named = causes.some((cause) => cause.reason === "ResourceVersionTooLarge");
  return named || (status === 504 && message.includes("Too large resource version"));
}

function noStreaming<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  reflector.streaming.support = "no";
  reflector.streaming.askAgainAt = later(moment.now, limits.streamAgainMs);
  return [{ kind: "abandon" }, ...sendPage(reflector, "", moment)];
}

/** From a watch: our version is too old to go on from. From a list: what we asked for is not to be had, so ask for what there is now. */
function gone<K extends Kind>(reflector: Reflector<K>, why: string, moment: Moment): Effect<K>[] {
  const { phase } = reflector;
  if (phase.kind === "watching") {
    const delayMs = moment.random.below(limits.relistSpreadMs);
    return relist(reflector, "at-least", { reason: "gone", why, delayMs }, moment);
  }
  // Never by the token that the answer offers: it would go on in another version (kube-watch 2).
  if (phase.kind === "paging" && phase.version !== undefined) reflector.unpaged = true;
  return relist(reflector, "now", { reason: "gone", why, delayMs: pause(reflector, moment) }, moment);
}

function lagging<K extends Kind>(reflector: Reflector<K>, refusal: Refusal, why: string, moment: Moment): Effect<K>[] {
  reflector.lags++;
  if (reflector.phase.kind === "watching" && reflector.lags <= limits.lags) {
    const delayMs = doubtful(Math.max(refusal.retryAfterMs ?? 0, limits.lagPauseMs), moment);
    return retry(reflector, { reason: "stale", why, delayMs }, moment);
  }
  return relist(reflector, "now", { reason: "stale", why, delayMs: pause(reflector, moment) }, moment);
}

function internalError<K extends Kind>(reflector: Reflector<K>, why: string, moment: Moment): Effect<K>[] {
  reflector.internalErrors++;
  const setback: Setback = { reason: "error", why, delayMs: pause(reflector, moment) };
  const again = reflector.phase.kind !== "watching" || reflector.internalErrors <= limits.internalErrors;
  return again ? retry(reflector, setback, moment) : relist(reflector, "at-least", setback, moment);
}

/** The kind is not served. What we had of it stays: only people decide that Calico's data is gone (kube-watch 13). */
function missing<K extends Kind>(reflector: Reflector<K>, why: string, moment: Moment): Effect<K>[] {
  const delayMs = doubtful(limits.missingPauseMs, moment);
  const effects = relist(reflector, "now", { reason: "error", why, delayMs }, moment);
  // Clusters from before IPReservation have none, and Calico takes that for an empty list (spec 1.2).
  const nothing: Effect<K> = { kind: "replace", items: [], version: "0" as ResourceVersion };
  return reflector.kind === "reservation" && reflector.version === undefined ? [nothing, ...effects] : effects;
}

function onJunk<K extends Kind>(reflector: Reflector<K>, junk: Junk, moment: Moment): Effect<K>[] {
  reflector.junkLines++;
  const setback: Setback = {
    reason: "error",
    why: `the API server sent ${junk.what}`,
    delayMs: pause(reflector, moment),
  };
  if (reflector.phase.kind === "streaming") reflector.unstreamed = true;
  const fromHere = reflector.phase.kind !== "watching" || !(junk.relist || reflector.junkLines >= limits.junkLines);
  return fromHere ? retry(reflector, setback, moment) : relist(reflector, "at-least", setback, moment);
}

function onEnd<K extends Kind>(
  reflector: Reflector<K>,
  how: "eof" | "broken" | "silent",
  why: string,
  moment: Moment,
): Effect<K>[] {
  const { phase } = reflector;
  const wasOpen = phase.kind === "watching" && phase.opened;
  if (wasOpen && how === "eof") {
    const livedMs = moment.now - phase.sentAt;
    const earlyMs = phase.moved ? limits.youngMs - livedMs : pause(reflector, moment);
    return retry(reflector, { reason: "closed", why, delayMs: livedMs < limits.youngMs ? earlyMs : 0 }, moment);
  }
  const delayMs = pause(reflector, moment);
  const unreachable = how !== "eof" && !wasOpen;
  if (how === "silent")
    return retry(reflector, { reason: "timeout", why, delayMs, unreachable, ...lastHeard(phase) }, moment);
  return retry(reflector, { reason: "error", why, delayMs, unreachable }, moment);
}

function woken<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  const { phase, timer } = reflector;
  if (phase.kind === "waiting") return proceed(reflector, moment);
  // A page has its deadline from whoever sends it: it always ends.
  if (phase.kind === "queued" || phase.kind === "paging") return [];
  const lateMs = moment.now - timer.setAt - timer.delayMs;
  if (lateMs > Math.max(timer.delayMs, limits.suspendedMs)) {
    reflector.phase = { ...phase, sentAt: moment.now, heardAt: moment.now };
  }
  const leftMs = deadline(reflector.phase) - moment.now;
  return leftMs > 0 ? [wake(reflector, leftMs, moment)] : overdue(reflector, moment);
}

function overdue<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  const { phase } = reflector;
  if (phase.kind === "streaming") return noStreaming(reflector, moment);
  const wasOpen = phase.kind === "watching" && phase.opened;
  const why = wasOpen ? "the watch fell silent" : "the API server did not answer in time";
  const delayMs = pause(reflector, moment);
  return retry(reflector, { reason: "timeout", why, delayMs, unreachable: !wasOpen, ...lastHeard(phase) }, moment);
}

function reachable<K extends Kind>(reflector: Reflector<K>, moment: Moment): Effect<K>[] {
  const { phase, timer } = reflector;
  const leftMs = timer.setAt + timer.delayMs - moment.now;
  if (phase.kind !== "waiting" || !phase.unreachable || leftMs <= limits.youngMs) return [];
  return [wake(reflector, moment.random.below(limits.youngMs), moment)];
}

function relist<K extends Kind>(
  reflector: Reflector<K>,
  from: Consistency,
  setback: Setback,
  moment: Moment,
): Effect<K>[] {
  reflector.next = { kind: "list", from };
  return retry(reflector, setback, moment);
}

/** Ends what is under way and goes on with `next` after the pause. */
function retry<K extends Kind>(reflector: Reflector<K>, setback: Setback, moment: Moment): Effect<K>[] {
  const { phase } = reflector;
  const { reason, why, delayMs, heardAt = moment.now, unreachable = false } = setback;
  const effects: Effect<K>[] = [{ kind: "abandon" }];
  if (phase.kind === "watching" && phase.opened) effects.push({ kind: "closed", heardAt });
  if (phase.kind === "streaming" || phase.kind === "paging") effects.push({ kind: "end-turn" });
  effects.push({ kind: "restarted", reason, why, delayMs });
  reflector.phase = { kind: "waiting", unreachable };
  if (delayMs === 0) return [...effects, ...proceed(reflector, moment)];
  reflector.problem = why;
  return [...effects, wake(reflector, delayMs, moment)];
}

function wake(reflector: Reflector, delayMs: number, { now }: Moment): { kind: "wake"; delayMs: number } {
  reflector.timer = { setAt: now, delayMs };
  return { kind: "wake", delayMs };
}

function deadline(phase: Phase<Kind>): Instant {
  switch (phase.kind) {
    case "watching":
      return phase.opened ? later(phase.heardAt, limits.silenceMs) : later(phase.sentAt, limits.headersMs);
    case "streaming": {
      const due = Math.max(phase.sentAt + limits.streamStartMs, phase.heardAt + limits.streamSilenceMs);
      return Math.min(due, phase.sentAt + limits.streamLongestMs) as Instant;
    }
    default:
      return Number.POSITIVE_INFINITY as Instant;
  }
}

function lastHeard(phase: Phase<Kind>): { readonly heardAt?: Instant } {
  return phase.kind === "watching" ? { heardAt: phase.heardAt } : {};
}

/** Grows from failure to failure, from half of the full length on, so that two tries never follow each other closely. */
function pause(reflector: Reflector, { now, random }: Moment): number {
  if (now - reflector.failedAt > limits.healthyMs) reflector.failures = 0;
  const fullMs = Math.min(limits.longestPauseMs, limits.firstPauseMs * 2 ** Math.min(reflector.failures, 10));
  reflector.failures++;
  reflector.failedAt = now;
  return fullMs / 2 + random.below(fullMs / 2);
}

/** Never earlier than we were asked to come back. */
function pauseAtLeast(reflector: Reflector, askedMs: number, moment: Moment): number {
  const ownMs = pause(reflector, moment);
  return askedMs > ownMs ? askedMs + moment.random.below(limits.youngMs) : ownMs;
}

/** For what will not change by being asked again: this long, up to twice this long. */
function doubtful(ms: number, { random }: Moment): number {
  return ms + random.below(ms);
}

function later(instant: Instant, ms: number): Instant {
  return (instant + ms) as Instant;
}
