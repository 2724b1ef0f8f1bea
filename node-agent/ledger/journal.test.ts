import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { Failure } from "../../shared/kinds.ts";
import { createLog } from "../../shared/log.ts";
import type { Clock } from "../../shared/world.ts";
import { manualClock } from "../../test/manual-world.ts";
import { lockPatienceMs, type OpenJournal, openJournal } from "./journal-shell.ts";
import type { JournalRow } from "./record.ts";
import type { RecordNumber } from "./state.ts";

const meta = { node: "n1", machineId: "m1", bootId: "b1" };

/** Rows that hold something, by the name of a container. */
function row(containerId: string): JournalRow {
  const parts = { network: "net", containerId, ifname: "eth0", handle: `net.${containerId}` };
  const times = { startedAt: 1, addedAt: 1, deadline: 2, pod: "", asked: "", phase: "owned" };
  return { table: "attachment", key: `net/${containerId}/eth0`, value: JSON.stringify({ ...parts, ...times }) };
}

class Disk {
  readonly directory: string;
  readonly #time = manualClock();
  /** What passes while somebody waits for the lock. */
  pause: () => Promise<void> = async () => {};
  readonly clock: Clock = {
    ...this.#time,
    after: (delayMs, wake) => {
      void this.pause().then(() => {
        this.#time.advance(delayMs);
        wake();
      });
      return () => {};
    },
  };
  readonly lines: string[] = [];
  /** When it was told that another agent holds the lock. */
  readonly waited: number[] = [];
  #wakeWritten: (() => void)[] = [];
  #open: OpenJournal[] = [];
  reports: (number | string)[] = [];

  constructor(t: TestContext) {
    this.directory = mkdtempSync(join(tmpdir(), "cattail-journal-"));
    t.after(async () => {
      await Promise.all(this.#open.map((journal) => journal.close()));
      rmSync(this.directory, { recursive: true });
    });
  }

  get path(): string {
    return join(this.directory, "journal.db");
  }

  async open(own = meta): Promise<OpenJournal> {
    const { logger } = createLog({
      level: "info",
      format: "json",
      clock: this.clock,
      write: (line) => this.lines.push(line),
    });
    const report = (what: number | string): void => {
      this.reports.push(what);
      for (const wake of this.#wakeWritten.splice(0)) wake();
    };
    const journal = await openJournal({
      directory: this.directory,
      meta: own,
      clock: this.clock,
      logger,
      written: (upTo) => report(upTo),
      failed: (upTo, failure) => report(`${upTo} ${failure.code}`),
      busy: () => this.waited.push(this.clock.monotonic()),
    });
    this.#open.push(journal);
    return journal;
  }

  async close(journal: OpenJournal): Promise<void> {
    this.#open = this.#open.filter((one) => one !== journal);
    await journal.close();
  }

  /** Resolves when a record up to this one has been reported. */
  async reported(upTo: number): Promise<void> {
    while (!this.reports.some((report) => Number.parseInt(String(report), 10) >= upTo)) {
      await new Promise<void>((wake) => this.#wakeWritten.push(wake));
    }
  }

  async write(journal: OpenJournal, ...rows: JournalRow[]): Promise<void> {
    journal.append(1 as RecordNumber, rows);
    await this.reported(1);
    await this.close(journal);
  }
}

test("what was reported as written is there after a restart; what was dropped is not", async (t) => {
  const disk = new Disk(t);
  const journal = await disk.open();
  journal.append(1 as RecordNumber, [row("a"), row("b")]);
  journal.append(2 as RecordNumber, [{ ...row("a"), value: null }, row("c")]);
  await disk.reported(2);
  await disk.close(journal);
  const again = await disk.open();
  assert.deepEqual(again.records.attachments.map(({ containerId }) => containerId).sort(), ["b", "c"]);
  assert.equal(again.meta.node, "n1");
  assert.equal(again.meta.lostPast, undefined);
});

test("records that come while the disk is busy share its next write, and are reported in order", async (t) => {
  const disk = new Disk(t);
  const journal = await disk.open();
  for (let number = 1; number <= 200; number++) journal.append(number as RecordNumber, [row(`c${number}`)]);
  await disk.reported(200);
  assert.deepEqual(
    disk.reports,
    [...disk.reports].sort((a, b) => Number(a) - Number(b)),
  );
  assert.ok(disk.reports.length < 100, `${disk.reports.length} writes for 200 records`);
});

test("a second agent waits, and takes over when the first one goes", async (t) => {
  const disk = new Disk(t);
  const first = await disk.open();
  let gone: Promise<void> | undefined;
  disk.pause = async () => {
    gone ??= disk.close(first);
    await gone;
  };
  await disk.open();
  assert.match(disk.lines[0] ?? "", /Waited for another agent/);
});

test("a second agent that waits in vain is refused with a message that says why", async (t) => {
  const disk = new Disk(t);
  await disk.open();
  await assert.rejects(disk.open(), (error) => {
    assert.ok(error instanceof Failure && error.code === "journal-read");
    assert.match(error.message, /another agent holds the journal in .*; there must be one per node/);
    return true;
  });
  assert.ok(disk.clock.monotonic() >= lockPatienceMs);
  assert.equal(disk.waited.length, 1);
  assert.ok((disk.waited[0] ?? 0) < lockPatienceMs, "it is told at once");
});

test("a write that fails is reported as such, and the next one that works goes on", async (t) => {
  const disk = new Disk(t);
  const journal = await disk.open();
  const other = new DatabaseSync(disk.path);
  other.exec("BEGIN IMMEDIATE");
  journal.append(1 as RecordNumber, [row("a")]);
  await disk.reported(1);
  assert.deepEqual(disk.reports, ["1 journal-write"]);
  other.close();
  journal.append(2 as RecordNumber, [row("b")]);
  await disk.reported(2);
  await disk.close(journal);
  assert.deepEqual(
    (await disk.open()).records.attachments.map(({ containerId }) => containerId),
    ["b"],
  );
});

/** An agent in a process of its own that has written this row and was killed. */
async function killed(disk: Disk, written: JournalRow): Promise<void> {
  const shell = pathToFileURL(join(import.meta.dirname, "journal-shell.ts")).href;
  const world = pathToFileURL(join(import.meta.dirname, "../../shared/process/world.ts")).href;
  const script = join(disk.directory, "agent.mjs");
  writeFileSync(
    script,
    `import { openJournal } from ${JSON.stringify(shell)};
import { systemClock } from ${JSON.stringify(world)};
const journal = await openJournal({ directory: ${JSON.stringify(disk.directory)}, meta: ${JSON.stringify(meta)}, clock: systemClock,
  logger: { warn() {} }, busy() {}, written: () => process.stdout.write("written"), failed: () => {} });
journal.append(1, [${JSON.stringify(written)}]);`,
  );
  const child = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout, "data");
  child.kill("SIGKILL");
  await once(child, "exit");
}

test("the lock of a killed agent is gone with it, and what it was told to be written is there", async (t) => {
  const disk = new Disk(t);
  await killed(disk, row("a"));
  const journal = await disk.open();
  assert.deepEqual(
    journal.records.attachments.map(({ containerId }) => containerId),
    ["a"],
  );
});

test("a journal of another node or machine is set aside, never taken for ours nor for empty", async (t) => {
  for (const foreign of [{ node: "n2" }, { machineId: "m2" }]) {
    const disk = new Disk(t);
    await disk.write(await disk.open(), row("a"));
    const journal = await disk.open({ ...meta, ...foreign });
    assert.match(journal.meta.lostPast ?? "", /another node's.*set aside as .*journal\.db\.aside-/);
    assert.deepEqual(journal.records.attachments, []);
    await disk.close(journal);
    const later = await disk.open({ ...meta, ...foreign });
    assert.ok(later.meta.lostPast !== undefined, "a restart must not make the loss forgotten");
  }
});

test("another boot, and a machine without an id, are no reason to set a journal aside", async (t) => {
  const disk = new Disk(t);
  await disk.write(await disk.open(), row("a"));
  const journal = await disk.open({ node: "n1", machineId: "", bootId: "b2" });
  assert.equal(journal.records.attachments.length, 1);
  assert.equal(journal.meta.bootId, "b1");
});

test("a damaged journal is set aside with its bytes, whatever the damage", async (t) => {
  const damages: Record<string, (path: string) => void> = {
    empty: (path) => truncateSync(path, 0),
    "cut short": (path) => truncateSync(path, 5_000),
    "no database": (path) => writeFileSync(path, "this is no database ".repeat(500)),
    "a directory": (path) => {
      rmSync(path);
      mkdirSync(path);
    },
    "a row of nonsense": (path) => {
      const database = new DatabaseSync(path);
      database.exec("UPDATE record SET value = '{\"half'");
      database.close();
    },
  };
  for (const [name, damage] of Object.entries(damages)) {
    const disk = new Disk(t);
    const rows = Array.from({ length: 50 }, (_, index) => row(`c${index}`));
    await disk.write(await disk.open(), ...rows);
    for (const suffix of ["-wal", "-shm"]) rmSync(disk.path + suffix, { force: true });
    damage(disk.path);
    const journal = await disk.open();
    assert.ok(journal.meta.lostPast !== undefined, name);
    assert.equal(journal.records.attachments.length, 0, name);
    assert.ok(
      readdirSync(disk.directory).some((file) => file.startsWith("journal.db.aside-")),
      name,
    );
  }
});

const losses: Readonly<Record<string, readonly [said: RegExp, lose: (path: string) => void]>> = {
  "its write-ahead log is gone": [/newest part of the journal is gone/, (path) => rmSync(`${path}-wal`)],
  "its write-ahead log is empty": [
    /newest part of the journal is unreadable/,
    (path) => truncateSync(`${path}-wal`, 0),
  ],
  "its write-ahead log is garbage": [
    /newest part of the journal is unreadable/,
    (path) => writeFileSync(`${path}-wal`, "garbage ".repeat(1_000)),
  ],
  "it is gone but for its write-ahead log": [
    /the journal is gone, and a part of it is still there/,
    (path) => {
      for (const suffix of ["", "-shm", "-in-use"]) rmSync(path + suffix);
    },
  ],
  "it alone is gone": [/the journal is gone, and a part/, (path) => rmSync(path)],
};

for (const [loss, [said, lose]] of Object.entries(losses)) {
  test(`a killed agent's journal of which ${loss} is taken neither for a whole nor for a new one, until all of it is removed`, async (t) => {
    const disk = new Disk(t);
    await killed(disk, row("a"));
    lose(disk.path);
    const journal = await disk.open();
    assert.match(journal.meta.lostPast ?? "", said);
    assert.deepEqual(journal.records.attachments, []);
    await disk.close(journal);
    const later = await disk.open();
    assert.match(later.meta.lostPast ?? "", said, "a restart must not make the loss forgotten");
    await disk.close(later);
    // What the advice says.
    for (const name of readdirSync(disk.directory))
      if (name.startsWith("journal.db")) rmSync(join(disk.directory, name));
    assert.match((await disk.open()).meta.lostPast ?? "", /no journal where an agent had been/);
  });
}

test("a journal that is gone altogether makes room for a new one, which says so if there had been an agent, until it is told otherwise", async (t) => {
  const disk = new Disk(t);
  const first = await disk.open();
  assert.deepEqual([first.meta.isNew, first.meta.lostPast], ["true", undefined]);
  await disk.write(first, row("a"));
  rmSync(disk.path);
  rmSync(`${disk.path}-count`);
  const journal = await disk.open();
  assert.equal(journal.meta.isNew, "true");
  assert.match(journal.meta.lostPast ?? "", /no journal where an agent had been/);
  journal.putMeta({ isNew: "", lostPast: "" });
  await disk.close(journal);
  const { meta } = await disk.open();
  assert.deepEqual([meta.isNew, meta.lostPast], ["", ""]);
});

test("a journal that was closed properly needs nothing beside it", async (t) => {
  const disk = new Disk(t);
  await disk.write(await disk.open(), row("a"));
  assert.deepEqual(
    readdirSync(disk.directory)
      .filter((name) => name.startsWith("journal.db"))
      .sort(),
    ["journal.db", "journal.db-count"],
  );
  rmSync(`${disk.path}-count`);
  assert.equal((await disk.open()).meta.lostPast, undefined);
});

test("a journal that was closed properly and is gone then is known to have been there", async (t) => {
  const disk = new Disk(t);
  await disk.write(await disk.open(), row("a"));
  rmSync(disk.path);
  assert.match((await disk.open()).meta.lostPast ?? "", /the journal is gone, and a part/);
});

test("an older copy of the journal is not taken for the journal", async (t) => {
  const disk = new Disk(t);
  await disk.write(await disk.open(), row("a"));
  const copy = readFileSync(disk.path);
  await killed(disk, row("b"));
  for (const suffix of ["-wal", "-shm", "-in-use"]) rmSync(disk.path + suffix, { force: true });
  writeFileSync(disk.path, copy);
  const journal = await disk.open();
  assert.match(journal.meta.lostPast ?? "", /an old one: it has had 2 transactions, of which it knows 1;/);
  assert.deepEqual(journal.records.attachments, []);
});

for (const [what, content] of Object.entries({ empty: "", nonsense: "?".repeat(40), less: "0000000000000000" })) {
  test(`given a count beside the journal that says ${what}, as a power loss may leave it, then the journal is whole`, async (t) => {
    const disk = new Disk(t);
    await disk.write(await disk.open(), row("a"));
    writeFileSync(`${disk.path}-count`, content);
    const journal = await disk.open();
    assert.equal(journal.meta.lostPast, undefined);
    assert.equal(journal.records.attachments.length, 1);
  });
}

test("of the journals that were set aside the newest three are kept, each with all of its files", async (t) => {
  const disk = new Disk(t);
  const old = ["2001-01-01T000000.000Z", "2002-01-01T000000.000Z", "2003-01-01T000000.000Z", "2004-01-01T000000.000Z"];
  for (const time of old) {
    for (const suffix of ["", "-wal", "-count"]) writeFileSync(`${disk.path}.aside-${time}${suffix}`, "old");
  }
  await disk.write(await disk.open(), row("a"));
  truncateSync(disk.path, 0);
  await disk.open();
  const kept = readdirSync(disk.directory).filter((name) => name.includes(".aside-"));
  assert.equal(kept.filter((name) => /^journal\.db\.aside-200[34].*Z(-wal|-count)?$/.test(name)).length, 6);
  assert.equal(kept.filter((name) => /aside-200[12]/.test(name)).length, 0);
  assert.equal(kept.filter((name) => /aside-20[2-9]\d.*Z(-count)?$/.test(name)).length, 2);
});

test("an agent killed again and again, also at its end, loses nothing and is not thought to have", async (t) => {
  const disk = new Disk(t);
  for (const name of ["a", "b", "c"]) await killed(disk, row(name));
  // As a crash between the last two steps of closing leaves it.
  rmSync(`${disk.path}-in-use`);
  const journal = await disk.open();
  assert.equal(journal.meta.lostPast, undefined);
  assert.equal(journal.records.attachments.length, 3);
});

test("a journal of a newer agent is left as it is, and this one does not start", async (t) => {
  const disk = new Disk(t);
  await disk.write(await disk.open(), row("a"));
  const database = new DatabaseSync(disk.path);
  database.exec("PRAGMA user_version = 99");
  database.close();
  const before = readFileSync(disk.path);
  await assert.rejects(disk.open(), /written by a newer agent \(schema 99/);
  assert.deepEqual(readFileSync(disk.path), before);
});

test("a crash while a journal is made leaves none, and the next start makes one", async (t) => {
  const disk = new Disk(t);
  writeFileSync(`${disk.path}.new`, "half");
  const journal = await disk.open();
  assert.equal(journal.meta.lostPast, undefined);
});

test("the journal is nobody else's to read", async (t) => {
  const disk = new Disk(t);
  await disk.write(await disk.open(), row("a"));
  assert.equal(statSync(disk.path).mode & 0o777, 0o600);
});
