// The log of a process: levels, the closed set of keys, the sum of repeated warnings, one line of text per record (ux 6).
// Leaves to others: where the lines go (shared/process) and what is worth saying.
import { Failure, type UnixMs } from "./kinds.ts";
import type { Clock } from "./world.ts";

export const levels = ["error", "warn", "info", "debug", "trace"] as const;
export type Level = (typeof levels)[number];
export const logFormats = ["json", "text"] as const;
export type LogFormat = (typeof logFormats)[number];

/** A key a line may carry besides time, level, msg and repeats. A new one is added here, so that two words never mean one thing. */
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
  /** Writes the sums of the warnings that are still being summed: for the end of the process. */
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

/** A warning is written at once; the same text again within this time is only counted. */
export const repeatWindowMs = 60_000;
/** Texts are constant, so there are as many as places that warn; beyond this bound a warning is written unsummed. */
const maxSummedTexts = 512;
/** Longest text of one value: an error may quote a whole reply. */
const maxValueChars = 2048;

export function createLog(options: LogOptions): Log {
  let level = options.level;
  const summing = new Map<string, Summed>();
  const isOn = (asked: Level): boolean => levels.indexOf(asked) <= levels.indexOf(level);

  function write(at: Level, message: string, keys: LogKeys, repeated = 0): void {
    const record: LogRecord = {
      time: options.clock.wall(),
      level: at,
      message,
      keys: plainKeys(keys, isOn("debug")),
      repeats: repeated,
    };
    options.write(options.format === "json" ? jsonLine(record) : textLine(record));
  }

  function warn(message: string, keys: LogKeys): void {
    const text = `${keys.component ?? ""} ${message}`;
    const summed = summing.get(text);
    if (summed !== undefined) {
      summed.count += 1;
      summed.keys = keys;
      return;
    }
    write("warn", message, keys);
    if (summing.size < maxSummedTexts) openWindow(text, message, keys);
  }

  function openWindow(text: string, message: string, keys: LogKeys): void {
    const cancel = options.clock.after(repeatWindowMs, () => {
      const closed = closeWindow(text);
      if (closed !== undefined && closed.count > 0) openWindow(text, message, closed.keys);
    });
    summing.set(text, { message, count: 0, keys, cancel });
  }

  function closeWindow(text: string): Summed | undefined {
    const summed = summing.get(text);
    summing.delete(text);
    if (summed !== undefined && summed.count > 0) write("warn", summed.message, summed.keys, summed.count);
    return summed;
  }

  function flush(): void {
    for (const text of [...summing.keys()]) closeWindow(text)?.cancel();
  }

  function say(at: Level, message: string, keys: LogKeys): void {
    if (at === "error" || at === "warn") options.count?.(at);
    if (!isOn(at)) return;
    if (at === "warn") warn(message, keys);
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

/** One text being summed: how often it was not written, and the keys of the last time. */
interface Summed {
  readonly message: string;
  count: number;
  keys: LogKeys;
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
  readonly repeats: number;
}

function jsonLine({ time, level, message, keys, repeats }: LogRecord): string {
  const head = { time: new Date(time).toISOString(), level, msg: message };
  return JSON.stringify(repeats === 0 ? { ...head, ...keys } : { ...head, ...keys, repeats });
}

function textLine({ time, level, message, keys, repeats }: LogRecord): string {
  const shown = Object.entries(repeats === 0 ? keys : { ...keys, repeats });
  const pairs = shown.map(
    ([key, value]) => `  ${key}=${plainWord.test(String(value)) ? value : JSON.stringify(value)}`,
  );
  return `${new Date(time).toISOString()} ${level.toUpperCase().padEnd(5)} ${message}${pairs.join("")}`;
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
