// The log of a process: levels, the closed set of keys, the sum of repeated warnings and errors, one line of text per record (ux 6).
// Leaves to others: where the lines go (shared/process) and what is worth saying.
import { Failure, type UnixMs } from "./kinds.ts";
import type { Clock } from "./world.ts";

export const levels = ["error", "warn", "info", "debug", "trace"] as const;
export type Level = (typeof levels)[number];
export const logFormats = ["json", "text"] as const;
export type LogFormat = (typeof logFormats)[number];

/** A key a line may carry besides time, level, msg, and repeats, since and until of a sum. A new one is added here, so that two words never mean one thing. */
export type LogKey =
  | "component"
  | "node"
  /** "namespace/name" */
  | "pod"
  | "uid"
  /** First 12 characters of the container id, "/", interface. */
  | "attachment"
  | "verb"
  | "pool"
  | "block"
  | "address"
  | "family"
  | "handle"
  | "seq"
  | "intent"
  | "request"
  | "reason"
  | "code"
  | "seconds"
  | "attempt"
  | "replica"
  | "resource"
  | "rv"
  | "count"
  /** Where a listener listens: "0.0.0.0:4481". */
  | "listen"
  /** A key of the configuration catalogue. */
  | "option"
  | "value"
  | "path"
  | "peer"
  | "signal"
  | "url"
  | "version";
type LogValue = string | number | bigint | boolean | undefined;
/** `err` takes whatever was thrown: its messages are written, its stack at level debug only. */
export type LogKeys = { readonly [K in LogKey]?: LogValue } & { readonly err?: unknown };

/** The message is constant text: sentence case, past tense, no full stop. Whatever varies goes into keys. */
export type Say = (message: string, keys?: LogKeys) => void;
export interface Logger extends Readonly<Record<Level, Say>> {
  /** The same log, with keys that every line of one part of the process carries. */
  with(keys: LogKeys): Logger;
  /** Saves the making of costly keys: `if (log.isOn("trace")) …`. */
  isOn(level: Level): boolean;
}

export interface Log {
  readonly logger: Logger;
  level(): Level;
  setLevel(level: Level): void;
  /** Writes what is still being summed: for the end of the process. */
  flush(): void;
}

export interface LogOptions {
  readonly level: Level;
  readonly format: LogFormat;
  readonly clock: Clock;
  /** Takes one line, without its newline. */
  readonly write: (line: string) => void;
  /** Called for every error and warning, also for those that are summed (`cattail_log_messages_total`). */
  readonly count?: (level: "error" | "warn") => void;
}

/** A warning or error is written at once; the same about the same object again within this time is only counted. */
export const repeatWindowMs = 60_000;
/** Texts are constant, so there are as many as places that warn. About so many objects at a time each; beyond, further ones are summed. */
const maxObjectsPerText = 64;
/** Beyond this bound what is said is written unsummed. */
const maxSums = 4096;
/** Lines that differ in one of these are about different objects: each is a fact of its own. */
const objectKeys = [
  "node",
  "pod",
  "uid",
  "attachment",
  "pool",
  "block",
  "address",
  "handle",
  "resource",
  "path",
  "option",
] as const satisfies readonly LogKey[];
/** Longest text of one value: an error may quote a whole reply. */
const maxValueChars = 2048;

export function createLog(options: LogOptions): Log {
  let level = options.level;
  /** By text, then by object. */
  const summing = new Map<string, Map<string, Summed>>();
  let sums = 0;
  const isOn = (asked: Level): boolean => levels.indexOf(asked) <= levels.indexOf(level);

  function write(at: Level, message: string, keys: LogKeys, repeats?: Repeats): void {
    const record: LogRecord = { time: options.clock.wall(), level: at, message, keys: plainKeys(keys, isOn("debug")) };
    const line = repeats === undefined ? record : { ...record, repeats };
    options.write(options.format === "json" ? jsonLine(line) : textLine(line));
  }

  /** Written at once, or counted if it was said lately. */
  function sumUp(at: SummedLevel, message: string, keys: LogKeys): void {
    const text = `${at} ${keys.component ?? ""} ${message}`;
    const ofText = summing.get(text) ?? new Map<string, Summed>();
    const object = JSON.stringify(objectKeys.map((key) => String(keys[key] ?? "")));
    const summed = ofText.get(object) ?? ofText.get(furtherObjects);
    if (summed !== undefined) {
      const now = options.clock.wall();
      summed.repeats = { count: (summed.repeats?.count ?? 0) + 1, since: summed.repeats?.since ?? now, until: now };
      summed.keys = keys;
      return;
    }
    write(at, message, keys);
    if (sums >= maxSums) return;
    summing.set(text, ofText);
    openWindow(ofText, ofText.size < maxObjectsPerText ? object : furtherObjects, at, message, keys);
  }

  function openWindow(
    ofText: Map<string, Summed>,
    object: string,
    at: SummedLevel,
    message: string,
    keys: LogKeys,
  ): void {
    const cancel = options.clock.after(repeatWindowMs, () => {
      const { keys: last, repeats } = summed;
      closeWindow(ofText, object, summed);
      if (repeats !== undefined) openWindow(ofText, object, at, message, last);
    });
    const summed: Summed = { level: at, message, keys, cancel };
    ofText.set(object, summed);
    sums += 1;
  }

  function closeWindow(
    ofText: Map<string, Summed>,
    object: string,
    { level: at, message, keys, repeats }: Summed,
  ): void {
    ofText.delete(object);
    sums -= 1;
    if (repeats !== undefined) write(at, message, keys, repeats);
  }

  function flush(): void {
    for (const ofText of summing.values()) {
      for (const [object, summed] of [...ofText]) {
        summed.cancel();
        closeWindow(ofText, object, summed);
      }
    }
  }

  function say(at: Level, message: string, keys: LogKeys): void {
    if (at === "error" || at === "warn") options.count?.(at);
    if (!isOn(at)) return;
    if (at === "error" || at === "warn") sumUp(at, message, keys);
    else write(at, message, keys);
  }

  function loggerWith(fixed: LogKeys): Logger {
    const sayAt =
      (at: Level): Say =>
      (message, keys) =>
        say(at, message, keys === undefined ? fixed : { ...fixed, ...keys });
    return {
      error: sayAt("error"),
      warn: sayAt("warn"),
      info: sayAt("info"),
      debug: sayAt("debug"),
      trace: sayAt("trace"),
      with: (keys) => loggerWith({ ...fixed, ...keys }),
      isOn,
    };
  }

  return {
    logger: loggerWith({}),
    level: () => level,
    setLevel: (next) => {
      level = next;
    },
    flush,
  };
}

type SummedLevel = "error" | "warn";
/** In place of an object: all that are more than are told apart. */
const furtherObjects = "";

/** What was not written, and when that was. */
interface Repeats {
  readonly count: number;
  readonly since: UnixMs;
  readonly until: UnixMs;
}

/** What is being summed, with the keys of the last time. */
interface Summed {
  readonly level: SummedLevel;
  readonly message: string;
  keys: LogKeys;
  repeats?: Repeats;
  readonly cancel: () => void;
}

/** `--v=N` as the programs of Kubernetes have it: 0 and 1 warn, 2 and 3 info, 4 debug, 5 and more trace. */
export function levelOfVerbosity(verbosity: number): Level {
  if (verbosity <= 1) return "warn";
  if (verbosity <= 3) return "info";
  return verbosity === 4 ? "debug" : "trace";
}

interface LogRecord {
  readonly time: UnixMs;
  readonly level: Level;
  readonly message: string;
  readonly keys: Readonly<Record<string, string | number | boolean>>;
  readonly repeats?: Repeats;
}

function jsonLine({ time, level, message, keys, repeats }: LogRecord): string {
  const head = { time: new Date(time).toISOString(), level, msg: message };
  return JSON.stringify({ ...head, ...keys, ...sumOf(repeats) });
}

function textLine({ time, level, message, keys, repeats }: LogRecord): string {
  const shown = Object.entries({ ...keys, ...sumOf(repeats) });
  const pairs = shown.map(
    ([key, value]) => `  ${key}=${plainWord.test(String(value)) ? value : JSON.stringify(value)}`,
  );
  return `${new Date(time).toISOString()} ${level.toUpperCase().padEnd(5)} ${message}${pairs.join("")}`;
}

/** A sum is written when its minute is over; when it happened is said by `since` and `until`. */
function sumOf(repeats: Repeats | undefined): { repeats?: number; since?: string; until?: string } {
  if (repeats === undefined) return {};
  const [since, until] = [new Date(repeats.since).toISOString(), new Date(repeats.until).toISOString()];
  return { repeats: repeats.count, since, until };
}

const plainWord = /^[\w.:/@,+%*-]+$/;

function plainKeys(keys: LogKeys, withStack: boolean): Record<string, string | number | boolean> {
  const plain: Record<string, string | number | boolean> = {};
  for (const [key, value] of Object.entries(keys)) {
    if (value === undefined) continue;
    if (key === "err") Object.assign(plain, plainError(value, keys.code === undefined, withStack));
    else if (typeof value === "number" || typeof value === "boolean") plain[key] = value;
    else plain[key] = safeText(String(value));
  }
  return plain;
}

function plainError(error: unknown, withCode: boolean, withStack: boolean): Record<string, string> {
  return {
    err: safeText(messageOf(error)),
    ...(withCode && error instanceof Failure && { code: error.code }),
    ...(withStack && error instanceof Error && error.stack !== undefined && { stack: safeText(error.stack) }),
  };
}

/** The messages of an error and of what caused it, outermost first. */
export function messageOf(error: unknown): string {
  const messages: string[] = [];
  for (
    let at = error;
    at !== undefined && messages.length < maxCauses;
    at = at instanceof Error ? at.cause : undefined
  ) {
    messages.push(ownMessage(at));
  }
  return messages.join(": ");
}

/** An error may be its own cause. */
const maxCauses = 8;

function ownMessage(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.message !== "") return error.message;
  // A connection tried over several addresses fails with an error that has no message of its own.
  if (error instanceof AggregateError) return error.errors.slice(0, maxCauses).map(ownMessage).join(", ");
  return error.name;
}

/** No token, key or password in a line, whoever put it into an error's text; no line without end. */
function safeText(text: string): string {
  // Searched further than written, so that a secret cut in half is still recognised.
  const safe = secrets.reduce((kept, secret) => kept.replace(secret, "[redacted]"), text.slice(0, 8 * maxValueChars));
  return safe.length <= maxValueChars ? safe : `${safe.slice(0, maxValueChars)}…`;
}

const secrets = [
  /\beyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?/g, // a JSON Web Token, with or without its signature
  /(?<=\bbearer\s{1,8})[\w.~+/=-]+/gi,
  /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|$)/g,
  /(?<=:\/\/[^\s/:@]{0,256}:)[^\s/@]+(?=@)/g, // the password of a URL
];
