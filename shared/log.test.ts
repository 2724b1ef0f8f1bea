import assert from "node:assert/strict";
import { test } from "node:test";
import { manualClock } from "../test/manual-world.ts";
import { Failure } from "./kinds.ts";
import { createLog, type Level, type Log, type LogFormat, messageOf, repeatWindowMs } from "./log.ts";

function startLog(options: { level?: Level; format?: LogFormat } = {}) {
  const clock = manualClock();
  const lines: string[] = [];
  const counted: string[] = [];
  const log: Log = createLog({
    level: options.level ?? "info",
    format: options.format ?? "json",
    clock,
    write: (line) => lines.push(line),
    count: (level) => counted.push(level),
  });
  return { log, logger: log.logger, clock, lines, counted, records: () => lines.map((line) => JSON.parse(line)) };
}

test("a line is time, level and message, then the keys", () => {
  const { logger, lines } = startLog();
  logger
    .with({ component: "stream" })
    .info("Opened a stream", { node: "n-1", seq: 9007199254740993n, pool: undefined });
  assert.deepEqual(lines, [
    '{"time":"2030-01-01T14:00:00.000Z","level":"info","msg":"Opened a stream","component":"stream","node":"n-1","seq":"9007199254740993"}',
  ]);
});

test("as text, a value that is more than one word is quoted, and a line stays one line", () => {
  const { logger, lines } = startLog({ format: "text" });
  logger.warn("Lost a watch", { resource: "block", err: "closed\nby peer", seconds: 1.5 });
  assert.deepEqual(lines, [
    '2030-01-01T14:00:00.000Z WARN  Lost a watch  resource=block  err="closed\\nby peer"  seconds=1.5',
  ]);
});

test("only what is as important as the level is written, and the level can change", () => {
  const { log, logger, records } = startLog({ level: "warn" });
  logger.info("Not written");
  assert.equal(logger.isOn("info"), false);
  log.setLevel("trace");
  assert.equal(logger.isOn("trace"), true);
  logger.trace("Written");
  assert.deepEqual(
    records().map(({ level, msg }) => [level, msg]),
    [["trace", "Written"]],
  );
});

test("a warning is written at once, then summed once a minute as long as it repeats", () => {
  const { logger, clock, records } = startLog();
  const warn = (attempt: number): void => logger.warn("Could not reach the API server", { attempt });
  warn(1);
  warn(2);
  warn(3);
  assert.equal(records().length, 1);
  clock.advance(repeatWindowMs);
  assert.deepEqual(records()[1], {
    time: "2030-01-01T14:01:00.000Z",
    level: "warn",
    msg: "Could not reach the API server",
    attempt: 3,
    repeats: 2,
    since: "2030-01-01T14:00:00.000Z",
    until: "2030-01-01T14:00:00.000Z",
  });
  clock.advance(10_000);
  warn(4);
  assert.equal(records().length, 2, "the minute after a sum still sums");
  clock.advance(repeatWindowMs - 10_000);
  assert.equal(records()[2].repeats, 1);
  clock.advance(repeatWindowMs);
  assert.equal(records().length, 3, "nothing to sum is nothing to say");
  assert.equal(clock.pending(), 0);
  warn(5);
  assert.deepEqual([records().length, records()[3].repeats], [4, undefined]);
});

for (const level of ["warn", "error"] as const) {
  test(`at level ${level}, different texts, components and levels are not summed together`, () => {
    const { logger, records } = startLog();
    logger[level]("One");
    logger[level]("Two");
    logger.with({ component: "a" })[level]("One");
    logger[level === "warn" ? "error" : "warn"]("One");
    assert.equal(records().length, 4);
    logger[level]("Two");
    assert.equal(records().length, 4);
  });

  test(`at level ${level}, a sum says when the first and the last of it was, not when it is written`, () => {
    const { logger, clock, records } = startLog();
    const say = (): void => logger[level]("Could not reach the API server");
    say();
    clock.advance(5_000);
    say();
    clock.advance(10_000);
    say();
    clock.advance(45_000);
    const [, sum] = records();
    const times = ["2030-01-01T14:01:00.000Z", "2030-01-01T14:00:05.000Z", "2030-01-01T14:00:15.000Z"];
    assert.deepEqual([sum.level, sum.repeats, sum.time, sum.since, sum.until], [level, 2, ...times]);
  });
}

for (const key of [
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
] as const) {
  test(`lines about different objects (${key}) are facts of their own; about the same one they are summed`, () => {
    const { logger, clock, records } = startLog();
    for (const object of ["a", "b", "c", "b"]) logger.warn("Lost it", { [key]: object, reason: "x" });
    clock.advance(repeatWindowMs);
    assert.deepEqual(
      records().map((record) => [record[key], record.repeats]),
      [
        ["a", undefined],
        ["b", undefined],
        ["c", undefined],
        ["b", 1],
      ],
    );
  });
}

test("objects beyond a bound are summed into one line, so that a storm is no flood and leaves nothing behind", () => {
  const { log, logger, clock, lines } = startLog();
  for (let address = 0; address < 10_000; address++) logger.warn("Lost an address", { address: `10.0.0.${address}` });
  assert.ok(lines.length > 50 && lines.length < 100, String(lines.length));
  assert.ok(clock.pending() < 100);
  log.flush();
  const last = JSON.parse(lines.at(-1) ?? "");
  assert.equal(last.address, "10.0.0.9999");
  assert.equal(lines.length - 1 + last.repeats, 10_000);
  assert.equal(clock.pending(), 0);
});

test("flush says what is still being summed and leaves no timer", () => {
  const { log, logger, clock, records } = startLog();
  logger.warn("Twice");
  logger.warn("Twice");
  logger.warn("Once");
  log.flush();
  assert.deepEqual(
    records().map(({ msg, repeats }) => [msg, repeats]),
    [
      ["Twice", undefined],
      ["Once", undefined],
      ["Twice", 1],
    ],
  );
  assert.equal(clock.pending(), 0);
});

test("errors and warnings are counted, also when they are summed or below the level", () => {
  const { logger, counted } = startLog({ level: "error" });
  logger.warn("Summed");
  logger.warn("Summed");
  logger.error("Said");
  logger.info("Not counted");
  assert.deepEqual(counted, ["warn", "warn", "error"]);
});

test("an error is written as its messages and its code; its stack at level debug only", () => {
  const { log, logger, records } = startLog();
  const err = new Failure("journal-write", "cannot append", { cause: new Error("ENOSPC: no space left on device") });
  logger.error("Could not write", { err });
  log.setLevel("debug");
  logger.error("Could not write again", { err, code: 11 });
  const [first, second] = records();
  assert.equal(first.err, "cannot append: ENOSPC: no space left on device");
  assert.equal(first.code, "journal-write");
  assert.equal(first.stack, undefined);
  assert.equal(second.code, 11);
  assert.match(second.stack, /log\.test\.ts/);
});

test("the message of whatever was thrown can be had, also of an error that is its own cause", () => {
  const circular = new Error("round");
  circular.cause = circular;
  assert.equal(messageOf(circular), Array(8).fill("round").join(": "));
  assert.equal(messageOf("text"), "text");
  assert.equal(messageOf(new TypeError()), "TypeError");
  assert.equal(
    messageOf(new AggregateError([new Error("refused ::1"), new Error("refused 127.0.0.1")])),
    "refused ::1, refused 127.0.0.1",
  );
});

test("tokens, keys and passwords are not written, whichever key or error carries them", () => {
  const token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJub2RlIn0.c2lnbmF0dXJl";
  const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIPLANTED\n-----END EC PRIVATE KEY-----";
  for (const format of ["json", "text"] as const) {
    const { logger, lines } = startLog({ format });
    logger.error("Failed", {
      err: new Error(`401 for ${token}`, { cause: new Error(`header "Authorization: Bearer s3cretPLANTED"`) }),
    });
    logger.error("Failed at a key", { err: new Error(`bad key ${key}`) });
    logger.error("Failed at a URL", { url: "https://me:PLANTED@10.0.0.1/x", path: `${"x".repeat(2040)} ${token}` });
    logger.error("Failed at half a key", { err: `cut ${key.slice(0, 45)}` });
    const all = lines.join("\n");
    assert.doesNotMatch(all, /PLANTED|eyJzdWIi|c2lnbmF0|MHcCAQ/);
    assert.equal(all.match(/\[redacted\]/g)?.length, 5);
    assert.match(all, /https:\/\/me:\[redacted\]@10\.0\.0\.1/);
  }
});

test("a value has an end", () => {
  const { logger, lines } = startLog();
  logger.error("Failed", { err: "x".repeat(1_000_000) });
  assert.ok((lines[0]?.length ?? 0) < 2200);
});
