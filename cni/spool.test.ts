// The spool: order, tidiness, bounds; and on a real disk, that what is reported as stored is there.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import fc from "fast-check";
import * as v from "valibot";
import { type SpooledDel, spooledDel } from "../shared/protocol/socket.ts";
import { attachmentKey, isRecord, maxSpoolRecords, recordNameOf, supersededBy } from "./spool.ts";
import { spool } from "./spool-shell.ts";

const del = (more: Partial<SpooledDel> = {}): SpooledDel => ({
  verb: "DEL",
  protocol: 1,
  request: "7f3a91c2",
  network: "net1",
  cniVersion: "1.0.0",
  containerId: "c1",
  ifname: "eth0",
  podNamespace: "",
  podName: "",
  podUid: "",
  startedAt: 1,
  deadline: 2,
  spooledAt: 1_700_000_000_000,
  ...more,
});

const hash = (letter: string): string => letter.repeat(32);

test("names sort in the order of their times", () => {
  const time = fc.integer({ min: 0, max: 9_999_999_999_999 });
  fc.assert(
    fc.property(time, time, (a, b) => {
      const [first, second] = [a, b].map((spooledAt) => recordNameOf(del({ spooledAt }), hash("a"))) as [
        string,
        string,
      ];
      assert.ok(isRecord(first) && (a < b ? first < second : a > b ? first > second : first === second));
    }),
  );
});

test("a DEL supersedes older records of its attachment only; an undo supersedes none", () => {
  const older = recordNameOf(del({ spooledAt: 1 }), hash("a"));
  const newer = recordNameOf(del({ spooledAt: 9 }), hash("a"));
  const other = recordNameOf(del({ spooledAt: 1 }), hash("b"));
  const names = [older, newer, other, ".writing-7f3a91c2", "notes.txt"];
  const name = recordNameOf(del({ spooledAt: 5 }), hash("a"));
  assert.deepEqual(supersededBy(del(), name, names), [older]);
  assert.deepEqual(supersededBy(del({ undoes: "7f3a91c2" }), name, names), []);
});

test("attachments that look alike when joined are told apart", () => {
  assert.notEqual(
    attachmentKey(del({ network: "a", containerId: "b.c" })),
    attachmentKey(del({ network: "a.b", containerId: "c" })),
  );
});

function temporaryFolder(): Disposable & { path: string } {
  const path = mkdtempSync(join(tmpdir(), "spool-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

test("a record is stored under its name, whole, in a folder that is made for it", async () => {
  using folder = temporaryFolder();
  const path = join(folder.path, "state/spool");
  assert.equal(await spool(path, del()), undefined);
  const [name = "", ...rest] = readdirSync(path);
  assert.deepEqual(rest, []);
  assert.ok(isRecord(name));
  assert.deepEqual(v.parse(spooledDel, JSON.parse(readFileSync(join(path, name), "utf8"))), del());
});

test("a full spool refuses, but still takes a record that replaces one", async () => {
  using folder = temporaryFolder();
  for (let index = 0; index < maxSpoolRecords; index += 1) {
    writeFileSync(join(folder.path, recordNameOf(del({ spooledAt: index }), index.toString(16).padStart(32, "0"))), "");
  }
  assert.match((await spool(folder.path, del()))?.message ?? "", /10000 records/);
  writeFileSync(join(folder.path, "full.txt"), "what is no record does not count");
  const mine = await import("node:crypto").then(({ createHash }) =>
    createHash("sha256").update(attachmentKey(del())).digest("hex").slice(0, 32),
  );
  rmSync(join(folder.path, recordNameOf(del({ spooledAt: 0 }), hash("0"))));
  writeFileSync(join(folder.path, recordNameOf(del({ spooledAt: 0 }), mine)), "");
  assert.equal(await spool(folder.path, del()), undefined);
  assert.equal(readdirSync(folder.path).filter((name) => name.includes(mine)).length, 1);
});

test("a place that cannot be written is reported, and nothing half-written stays", async () => {
  using folder = temporaryFolder();
  writeFileSync(join(folder.path, "file"), "");
  assert.match((await spool(join(folder.path, "file/spool"), del()))?.message ?? "", /cannot be written/);
  writeFileSync(join(folder.path, ".writing-7f3a91c2"), "another process has this name");
  assert.notEqual(await spool(folder.path, del()), undefined);
  assert.equal(readdirSync(folder.path).filter(isRecord).length, 0);
});
