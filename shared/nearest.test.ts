import assert from "node:assert/strict";
import { test } from "node:test";
import { nearest, suggestion } from "./nearest.ts";

test("the nearest word is found through a swap, a missing, a wrong and an extra letter, in any case", () => {
  const words = ["offlineLimit", "flushDelay", "log.level"];
  assert.equal(nearest("offLimit", words), "offlineLimit");
  assert.equal(nearest("flsuhdelay", words), "flushDelay");
  assert.equal(nearest("log.levels", words), "log.level");
});

test("of two at the same distance the first is taken; a swap is nearer than two replacements", () => {
  assert.equal(nearest("ab", ["ac", "ad"]), "ac");
  assert.equal(nearest("abcd", ["abxy", "abdc"]), "abdc");
});

test("what resembles nothing gets no suggestion", () => {
  assert.equal(nearest("xyz", ["config", "version"]), undefined);
  assert.equal(suggestion("xyz", ["config"]), "");
  assert.equal(suggestion("confg", ["config"]), ' Did you mean "config"?');
});
