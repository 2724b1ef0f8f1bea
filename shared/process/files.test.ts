import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { loopbackCertificate } from "../../test/kube-api/certificate-shell.ts";
import { manualClock } from "../../test/manual-world.ts";
import { Failure } from "../kinds.ts";
import { createLog } from "../log.ts";
import { fileCheckMs, openAuthorities, openCertificate, openToken } from "./files.ts";

function surroundings(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), "cattail-files-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const clock = manualClock();
  const lines: string[] = [];
  const { logger } = createLog({ level: "info", format: "json", clock, write: (line) => lines.push(line) });
  const file = (name: string, contents: string): string => {
    writeFileSync(join(directory, name), contents);
    return join(directory, name);
  };
  return { directory, clock, lines, file, watching: { clock, logger } };
}

test("a token is read without its newline, and again when its file was replaced", async (t) => {
  const { file, lines, watching } = surroundings(t);
  const path = file("token", "first\n");
  const token = await openToken(path, watching);
  const seen: string[] = [];
  token.onChange((value) => seen.push(value));
  assert.equal(token.current(), "first");
  await token.check();
  assert.deepEqual(seen, []);
  renameSync(file("next", "second"), path);
  await token.check();
  assert.equal(token.current(), "second");
  assert.deepEqual(seen, ["second"]);
  assert.doesNotMatch(lines.join(), /first|second/, "a token is not logged");
  token.close();
});

test("a mounted Secret, which changes by the exchange of a symbolic link, is read again", async (t) => {
  const { directory, watching } = surroundings(t);
  for (const version of ["v1", "v2"]) {
    mkdirSync(join(directory, version));
    writeFileSync(join(directory, version, "token"), version);
  }
  symlinkSync("v1", join(directory, "..data"));
  symlinkSync("..data/token", join(directory, "token"));
  const token = await openToken(join(directory, "token"), watching);
  assert.equal(token.current(), "v1");
  symlinkSync("v2", join(directory, "..next"));
  renameSync(join(directory, "..next"), join(directory, "..data"));
  await token.check();
  assert.equal(token.current(), "v2");
  token.close();
});

test("the file is looked at by itself, until it is closed", async (t) => {
  const { clock, file, watching } = surroundings(t);
  const path = file("token", "first");
  const token = await openToken(path, watching);
  const changed = new Promise<string>((resolve) => token.onChange(resolve));
  renameSync(file("next", "second"), path);
  clock.advance(fileCheckMs);
  assert.equal(await changed, "second");
  await token.check();
  token.close();
  assert.equal(clock.pending(), 0);
});

test("when the file is gone or empty the old contents stay, with a warning, until it is right again", async (t) => {
  const { file, lines, watching } = surroundings(t);
  const path = file("token", "first");
  const token = await openToken(path, watching);
  rmSync(path);
  await token.check();
  assert.equal(token.current(), "first");
  file("token", "");
  await token.check();
  assert.equal(token.current(), "first");
  assert.match(lines[0] ?? "", /"level":"warn","msg":"Kept the old contents of a file that changed".*ENOENT/);
  file("token", "second");
  await token.check();
  assert.equal(token.current(), "second");
  token.close();
});

test("a file that cannot be used at the start is a failure of the configuration", async (t) => {
  const { file, watching, clock } = surroundings(t);
  const isBadConfig = (error: unknown): boolean => error instanceof Failure && error.code === "bad-config";
  await assert.rejects(openToken(file("empty", " \n"), watching), isBadConfig);
  await assert.rejects(openToken("/nonexistent/token", watching), isBadConfig);
  await assert.rejects(openAuthorities(file("ca", "no PEM"), watching), isBadConfig);
  assert.equal(clock.pending(), 0);
});

test("a certificate and its key change together: a pair that does not match is not taken", async (t) => {
  const { file, lines, watching } = surroundings(t);
  const [first, second] = [loopbackCertificate(), loopbackCertificate(new Date("2031-01-01T00:00:00Z"))];
  const paths = [file("tls.crt", first.cert), file("tls.key", first.key)] as const;
  const pair = await openCertificate(...paths, watching);
  file("tls.crt", second.cert);
  await pair.check();
  assert.equal(pair.current().cert, first.cert);
  assert.match(lines.join(), /Kept the old contents/);
  file("tls.key", second.key);
  await pair.check();
  assert.deepEqual([pair.current().cert, pair.current().key], [second.cert, second.key]);
  assert.equal(pair.current().expiry, Date.parse("2031-01-01T00:00:00Z") + 10 * 365 * 86_400_000);
  pair.close();
});

test("of a bundle of authorities the one that expires first is known", async (t) => {
  const { file, watching } = surroundings(t);
  const made = ["2032-01-01", "2029-01-01", "2030-01-01"].map((day) => loopbackCertificate(new Date(day)).cert);
  const authorities = await openAuthorities(file("ca.crt", `# three\n${made.join("")}`), watching);
  assert.equal(authorities.current().expiry, Date.parse("2029-01-01") + 10 * 365 * 86_400_000);
  authorities.close();
});
