// The thread that owns the journal's files: the lock, the database, one fsync for all that came while the last one ran.
// Leaves to journal-shell.ts what is asked of it; says nothing to anybody else.
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parentPort, receiveMessageOnPort } from "node:worker_threads";
import { invariant } from "../../shared/kinds.ts";
import { messageOf } from "../../shared/log.ts";
import type { Meta } from "./journal.ts";
import type { JournalAnswer, JournalOrder } from "./journal-shell.ts";
import { decodeRows, type JournalRow } from "./record.ts";

const port = parentPort;
invariant(port !== null, "the journal runs in a thread of its own");

let lock: DatabaseSync | undefined;
let database: DatabaseSync | undefined;
let directory = "";
/** An agent had been here before this one. */
let wasHere: boolean | undefined;
/** How many transactions the journal has had; `countFile` says so too, so that an older copy of it is known for one. */
let count = 0;
let countFile: number | undefined;

port.on("message", (first: JournalOrder) => {
  const orders = [first];
  // What came while the last fsync ran shares the next one.
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port))
    orders.push(next.message);
  carryOut(orders);
});

function carryOut(orders: readonly JournalOrder[]): void {
  const appended = orders.filter((order) => order.kind === "append");
  if (appended.length > 0) write(appended);
  for (const order of orders) {
    if (order.kind === "open") answer(open(order.directory, order.meta, order.schema));
    // What is kept so is only ever missed: a lease ends earlier, a mark is taken for a stranger's.
    if (order.kind === "meta") tolerate(() => putMeta(order.meta));
    if (order.kind === "close") close();
  }
}

function answer(message: JournalAnswer): void {
  port?.postMessage(message);
}

function write(orders: readonly Extract<JournalOrder, { kind: "append" }>[]): void {
  const upTo = orders.at(-1)?.number;
  if (upTo === undefined || database === undefined) return;
  const began = performance.now();
  try {
    database.exec("BEGIN IMMEDIATE");
    const put = database.prepare("INSERT OR REPLACE INTO record (kind, key, value) VALUES (?, ?, ?)");
    const drop = database.prepare("DELETE FROM record WHERE kind = ? AND key = ?");
    for (const { table, key, value } of orders.flatMap(({ rows }) => rows)) {
      if (value === null) drop.run(table, key);
      else put.run(table, key, value);
    }
    count += 1;
    database.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)").run(countKey, String(count));
    database.exec("COMMIT");
    noteCount();
    answer({ kind: "written", upTo, tookMs: performance.now() - began });
  } catch (error) {
    if (database.isTransaction) tolerate(() => database?.exec("ROLLBACK"));
    answer({ kind: "failed", upTo, why: messageOf(error) });
  }
}

function tolerate(act: () => void): void {
  try {
    act();
  } catch {
    // It follows from a failure that has been told, or is told by the next record.
  }
}

/** The names of the files in the state directory. */
const lockName = "agent.lock";
const journalName = "journal.db";
/** What belongs to a journal, itself included. `-in-use` is there while a part of it is certainly in `-wal`; `-count` is there always. */
const suffixes = ["", "-wal", "-shm", "-in-use", "-count"] as const;
/** Sets of these that were set aside and are kept, for people: the newest. */
const maxAside = 3;
const countKey = "transactions";
const countDigits = 16;

function open(stateDirectory: string, meta: Meta, schema: number): JournalAnswer {
  try {
    directory = stateDirectory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const lockPath = join(directory, lockName);
    wasHere ??= existsSync(lockPath);
    if (!takeLock(lockPath)) return { kind: "busy" };
    const path = join(directory, journalName);
    const lost = lossOf(path);
    const isNew = lost === undefined && !existsSync(path);
    if (isNew) create(path, meta, schema, wasHere ? vanished : undefined);
    const found = lost ?? read(path, meta, schema);
    if (typeof found === "object") return opened(path, found);
    const movedTo = setAside(path);
    create(path, meta, schema, `${found}; what there is was set aside as ${movedTo}`);
    const fresh = read(path, meta, schema);
    invariant(typeof fresh === "object", `a new journal is unreadable: ${String(fresh)}`);
    return opened(path, fresh);
  } catch (error) {
    return { kind: "refused", why: messageOf(error) };
  }
}

const vanished = "there was no journal where an agent had been before";

function opened(path: string, found: Found): JournalAnswer {
  // Opening wrote into it, so from here to its proper end there is a write-ahead log, or something has gone wrong.
  if (hasWriteAheadLog(path)) tolerate(() => markInUse(path));
  count = Number(found.meta[countKey] ?? 0);
  tolerate(() => {
    countFile = openSync(`${path}-count`, existsSync(`${path}-count`) ? "r+" : "wx+", 0o600);
    noteCount();
  });
  return { kind: "opened", ...found };
}

/** SQLite takes a journal without its write-ahead log for a whole one, and we would take none for a new one. */
function lossOf(path: string): string | undefined {
  const isInUse = existsSync(`${path}-in-use`);
  if (!existsSync(path)) {
    const isPartThere = suffixes.some((suffix) => existsSync(path + suffix));
    return isPartThere ? "the journal is gone, and a part of it is still there" : undefined;
  }
  if (!isInUse || hasWriteAheadLog(path)) return undefined;
  return `the newest part of the journal is ${existsSync(`${path}-wal`) ? "unreadable" : "gone"} (${journalName}-wal)`;
}

/** Whether it begins as SQLite's do (its file format, 4.1); the last bit tells how its checksums are written. */
function hasWriteAheadLog(path: string): boolean {
  if (!existsSync(`${path}-wal`)) return false;
  const file = openSync(`${path}-wal`, "r");
  try {
    const head = Buffer.alloc(4);
    return readSync(file, head, 0, 4, 0) === 4 && (head.readUInt32BE() & ~1) === 0x377f0682;
  } finally {
    closeSync(file);
  }
}

/** After each transaction, and not synced: after a power loss it may say less than the journal, never more. */
function noteCount(): void {
  const file = countFile;
  if (file !== undefined) tolerate(() => writeSync(file, String(count).padStart(countDigits, "0"), 0));
}

/** What it says must have been in the journal once; 0: it says nothing. */
function countedAt(path: string): number {
  if (!existsSync(`${path}-count`)) return 0;
  const text = readFileSync(`${path}-count`, "latin1").slice(0, countDigits);
  return /^\d+$/.test(text) ? Number(text) : 0;
}

function markInUse(path: string): void {
  closeSync(openSync(`${path}-in-use`, "a", 0o600));
  syncDirectory(path);
}

/** SQLite's lock is the one lock of Node that a dead process does not keep. */
function takeLock(path: string): boolean {
  if (lock !== undefined) return true;
  closeSync(openSync(path, "a", 0o600));
  const opened = new DatabaseSync(path);
  try {
    opened.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (error) {
    opened.close();
    if (codeOf(error) === sqliteBusy) return false;
    throw error;
  }
  lock = opened;
  return true;
}

const sqliteBusy = 5;
const sqliteCorrupt = 11;
const sqliteNotADatabase = 26;

function codeOf(error: unknown): number | undefined {
  return error instanceof Error && "errcode" in error && typeof error.errcode === "number"
    ? error.errcode & 255
    : undefined;
}

/** Under another name until it is whole: a crash leaves no half journal that could be taken for an empty one. */
function create(path: string, meta: Meta, schema: number, lostPast: string | undefined): void {
  const temporary = `${path}.new`;
  rmSync(temporary, { force: true });
  closeSync(openSync(temporary, "wx", 0o600));
  const made = new DatabaseSync(temporary);
  made.exec(`
    PRAGMA synchronous = FULL;
    BEGIN;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE record (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
    PRAGMA user_version = ${schema};
  `);
  const entries = { ...meta, isNew: "true", ...(lostPast !== undefined && { lostPast }) };
  const put = made.prepare("INSERT INTO meta (key, value) VALUES (?, ?)");
  for (const [key, value] of Object.entries(entries)) put.run(key, value);
  made.exec("COMMIT");
  made.close();
  renameSync(temporary, path);
  syncDirectory(path);
}

function syncDirectory(path: string): void {
  const directory = openSync(join(path, ".."), "r");
  fsyncSync(directory);
  closeSync(directory);
}

interface Found {
  readonly meta: Meta;
  readonly rows: readonly JournalRow[];
}

/** A text: why this is no journal of ours. Throws when it cannot be told, as when the disk fails. */
function read(path: string, meta: Meta, schema: number): Found | string {
  if (!statSync(path).isFile()) return "the journal is no file";
  const opened = new DatabaseSync(path);
  try {
    opened.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    const version = Number(opened.prepare("PRAGMA user_version").get()?.user_version);
    if (version > schema)
      throw new Error(`the journal was written by a newer agent (schema ${version}, this one knows ${schema})`);
    const wrong = problemOf(opened, version, meta) ?? problemOfAge(opened, path);
    if (wrong !== undefined) {
      opened.close();
      return wrong;
    }
    const rows = opened.prepare("SELECT kind AS 'table', key, value FROM record").all() as unknown as JournalRow[];
    const unreadable = problemOfRows(rows);
    if (unreadable !== undefined) {
      opened.close();
      return unreadable;
    }
    const stored = metaOf(opened);
    opened.exec(`PRAGMA user_version = ${schema}`); // from now on an older agent must not read it
    database = opened;
    putMeta(meta);
    return { meta: stored, rows };
  } catch (error) {
    opened.close();
    const code = codeOf(error);
    if (code === sqliteCorrupt || code === sqliteNotADatabase) return `the journal is unreadable: ${messageOf(error)}`;
    throw error;
  }
}

function problemOf(opened: DatabaseSync, version: number, meta: Meta): string | undefined {
  if (version === 0) return "the journal is empty, as a torn write leaves it";
  const check = String(opened.prepare("PRAGMA quick_check(1)").get()?.quick_check);
  if (check !== "ok") return `the journal is damaged: ${check}`;
  const stored = metaOf(opened);
  for (const key of ["node", "machineId"] as const) {
    const [was, is] = [stored[key] ?? "", meta[key] ?? ""];
    if (was !== "" && is !== "" && was !== is)
      return `the journal is another node's: its ${key} is ${was}, this node's is ${is}`;
  }
  return undefined;
}

/** Older than it has been: somebody put back a copy, or the disk has lost what it had promised. */
function problemOfAge(opened: DatabaseSync, path: string): string | undefined {
  const [has, had] = [Number(metaOf(opened)[countKey] ?? 0), countedAt(path)];
  return has < had ? `the journal is an old one: it has had ${had} transactions, of which it knows ${has}` : undefined;
}

function problemOfRows(rows: readonly JournalRow[]): string | undefined {
  try {
    decodeRows(rows);
    return undefined;
  } catch (error) {
    return `the journal holds a row that cannot be read: ${messageOf(error)}`;
  }
}

function metaOf(opened: DatabaseSync): Meta {
  const rows = opened.prepare("SELECT key, value FROM meta").all();
  return Object.fromEntries(rows.map(({ key, value }) => [String(key), String(value)]));
}

function putMeta(meta: Meta): void {
  const put = database?.prepare("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)");
  for (const [key, value] of Object.entries(meta)) put?.run(key, value);
}

function setAside(path: string): string {
  const movedTo = `${path}.aside-${new Date().toISOString().replaceAll(":", "")}`;
  for (const suffix of suffixes) {
    if (existsSync(path + suffix)) renameSync(path + suffix, movedTo + suffix);
  }
  removeOldest(path);
  syncDirectory(path);
  return movedTo;
}

function removeOldest(path: string): void {
  const stem = `${journalName}.aside-`;
  const names = readdirSync(directory).filter((name) => name.startsWith(stem));
  const setOf = (name: string): string => name.slice(0, stem.length + asideStampLength);
  const sets = [...new Set(names.map(setOf))].sort(); // by time
  const old = new Set(sets.slice(0, -maxAside));
  for (const name of names) {
    if (old.has(setOf(name))) tolerate(() => rmSync(join(path, "..", name), { recursive: true, force: true }));
  }
}

/** Of a time as `toISOString` prints it, without colons, which some file systems do not take. */
const asideStampLength = "2030-01-01T000000.000Z".length;

function close(): void {
  // Before the write-ahead log goes, so that a crash between the two is not taken for a loss.
  if (database !== undefined) {
    const path = join(directory, journalName);
    tolerate(() => {
      rmSync(`${path}-in-use`, { force: true });
      syncDirectory(path);
    });
  }
  database?.close();
  if (countFile !== undefined) closeSync(countFile);
  lock?.close();
  port?.close();
}
