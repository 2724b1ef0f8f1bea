import assert from "node:assert/strict";
import { test } from "node:test";
import type { Option, PlainOption } from "./options.ts";
import { allowed, parseValue } from "./value.ts";

function parse(option: PlainOption, text: string): unknown {
  return parseValue({ ...option, help: "" }, text);
}

function refusesAll(option: PlainOption, texts: readonly string[]): void {
  for (const text of texts) assert.equal(parse(option, text), undefined, `"${text}"`);
}

test("a duration is numbers with units, in milliseconds", () => {
  const option = { kind: "duration" } as const;
  assert.deepEqual(
    ["45m", "1h30m", "500ms", "1.5s", "0", "0s"].map((text) => parse(option, text)),
    [2_700_000, 5_400_000, 500, 1500, 0, 0],
  );
  refusesAll(option, ["", "15", "-1s", "1d", "s", "1 s", "1s ", "1e3s", ".5s", "9".repeat(20), `${"9".repeat(20)}h`]);
});

test("a size is a whole number, with a binary unit or of bytes", () => {
  const option = { kind: "size" } as const;
  assert.deepEqual(
    ["64Mi", "1Ki", "2Gi", "1Ti", "12"].map((text) => parse(option, text)),
    [67_108_864, 1024, 2_147_483_648, 1_099_511_627_776, 12],
  );
  refusesAll(option, ["", "64M", "1.5Mi", "-1", "Mi", "1mi", "99999999Ti"]);
});

test("bounds hold, and are part of what an error says is allowed", () => {
  const duration = { kind: "duration", min: "1s", max: "1h" } as const;
  assert.equal(parse(duration, "1s"), 1000);
  assert.equal(parse(duration, "60m"), 3_600_000);
  refusesAll(duration, ["999ms", "61m"]);
  assert.equal(allowed(duration), "a duration such as 45m or 1h30m, from 1s to 1h");
  const size = { kind: "size", min: "1Ki" } as const;
  refusesAll(size, ["1023"]);
  assert.equal(allowed(size), "a size in bytes such as 64Mi, at least 1Ki");
  refusesAll({ kind: "integer", min: 2, max: 4 }, ["1", "5", "3.0", "0x3", "+3", " 3"]);
});

test("port 0 is allowed only where it switches off", () => {
  assert.equal(parse({ kind: "port", zeroIsOff: true }, "0"), 0);
  refusesAll({ kind: "port", zeroIsOff: false }, ["0"]);
  refusesAll({ kind: "port", zeroIsOff: true }, ["65536", "-1", "http"]);
});

test("a boolean is true or false and no other word for it", () => {
  assert.equal(parse({ kind: "boolean" }, "true"), true);
  assert.equal(parse({ kind: "boolean" }, "false"), false);
  refusesAll({ kind: "boolean" }, ["yes", "1", "True", ""]);
});

test("a URL has one of the schemes, a host, perhaps port and path, and no user", () => {
  const option = { kind: "url", schemes: ["wss", "ws"] } as const;
  for (const url of ["wss://a", "ws://10.0.0.1:4480", "wss://[fd00::1]:4480/x", "wss://cattail-server.ns.svc/"]) {
    assert.equal(parse(option, url), url);
  }
  refusesAll(option, [
    "https://a",
    "wss://",
    "wss://a b",
    "wss://u:p@a",
    "wss://a:0",
    "wss://a:99999",
    "wss:/a",
    "wss://a/?q@b",
  ]);
});

test("a list needs one item at least, and every item right", () => {
  const option: Option = { kind: "list", item: { kind: "integer", min: 0, max: 9 }, help: "" };
  assert.deepEqual(parseValue(option, "1, 2,,3"), [1, 2, 3]);
  assert.deepEqual(parseValue(option, ["1", "2"]), [1, 2]);
  for (const text of ["", ",", "1,x", []]) assert.equal(parseValue(option, text), undefined);
  assert.equal(parseValue({ kind: "string", help: "" }, ["a"]), undefined, "a list where one value is wanted");
});

test("text has an end and no NUL", () => {
  refusesAll({ kind: "string" }, ["a\0b", "a".repeat(65_537)]);
  assert.equal(parse({ kind: "path" }, "/var/lib/x y"), "/var/lib/x y");
});
