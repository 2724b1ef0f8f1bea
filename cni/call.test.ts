// The environment's checks: order, names, and what only looks like an interface name.
import assert from "node:assert/strict";
import test from "node:test";
import { type Environment, readCall } from "./call.ts";

const complete = { CNI_CONTAINERID: "c1", CNI_NETNS: "/n", CNI_IFNAME: "eth0", CNI_PATH: "/p" };

const why = (environment: Environment): string => {
  const call = readCall(environment);
  return call.ok ? "" : call.why;
};

test("each verb needs its own variables; DEL neither a namespace nor CNI_PATH", () => {
  const missing = (CNI_COMMAND: string): string[] => why({ CNI_COMMAND }).match(/CNI_[A-Z]+/g) ?? [];
  const all = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"];
  assert.deepEqual([missing("ADD"), missing("CHECK")], [all, all]);
  assert.deepEqual(missing("DEL"), ["CNI_CONTAINERID", "CNI_IFNAME"]);
  assert.deepEqual([missing("GC"), missing("STATUS"), missing("FOO")], [["CNI_PATH"], ["CNI_PATH"], []]);
});

test("a variable that the verb does not need is not judged", () => {
  assert.ok(readCall({ CNI_COMMAND: "GC", CNI_PATH: "/p", CNI_CONTAINERID: "-x", CNI_IFNAME: "a/b" }).ok);
});

test("an interface name has at most 15 bytes, not characters", () => {
  const named = (CNI_IFNAME: string): string => why({ ...complete, CNI_COMMAND: "ADD", CNI_IFNAME });
  assert.equal(named("é".repeat(7)), "");
  for (const name of ["é".repeat(8), ".", "a\tb", "a\u0085b", "a\u3000b", "😀😀😀😀"])
    assert.match(named(name), /CNI_IFNAME/, name);
  assert.equal(named("a\ufeffb"), "", "a byte order mark is no white space to Go");
});

test("the override is TRUE in any case, or 1", () => {
  const mayBeOurs = (CNI_NETNS_OVERRIDE: string): boolean => {
    const call = readCall({ ...complete, CNI_COMMAND: "ADD", CNI_NETNS_OVERRIDE });
    return call.ok && call.netnsMayBeOurs;
  };
  assert.deepEqual(["1", "TRUE", "True", "yes", "0", ""].map(mayBeOurs), [true, true, true, false, false, false]);
});
