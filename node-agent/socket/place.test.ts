// The socket's file in the hands of others, on a real file system: whatever becomes of it, the agent is heard again, or says why not.
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, lstatSync, mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { createLog } from "../../shared/log.ts";
import { type ManualClock, manualClock } from "../../test/manual-world.ts";
import { keepPlace, lookEveryMs, type Place } from "./place-shell.ts";

class Bench {
  readonly root: string;
  readonly path: string;
  readonly clock: ManualClock = manualClock();
  readonly #lines: string[] = [];
  readonly #waiting: { readonly text: string; readonly tell: () => void }[] = [];
  readonly #logger;
  #place: Place | undefined;

  constructor(t: TestContext) {
    this.root = mkdtempSync(join(tmpdir(), "cattail-place-"));
    this.path = join(this.root, "run", "cattail", "agent.sock");
    this.#logger = createLog({ level: "debug", format: "json", clock: this.clock, write: (line) => this.#wrote(line) });
    t.after(async () => {
      await this.#place?.leave();
      rmSync(this.root, { recursive: true, force: true });
    });
  }

  get place(): Place {
    assert.ok(this.#place);
    return this.#place;
  }

  async keep(): Promise<void> {
    const create = (): Server => createServer((socket) => socket.end("ours"));
    this.#place = await keepPlace({ path: this.path, clock: this.clock, logger: this.#logger.logger, create });
  }

  /** Resolves when a line with this text is written. */
  logged(text: string): Promise<void> {
    return new Promise((tell) => this.#waiting.push({ text, tell }));
  }

  get back(): Promise<void> {
    return this.logged("Put the socket in its place again");
  }

  async answer(): Promise<string> {
    let received = "";
    for await (const chunk of connect(this.path)) received += chunk;
    return received;
  }

  async strange(): Promise<Server> {
    const server = createServer((socket) => socket.on("error", () => {}).end("theirs")); // some only knock
    server.listen(`${this.path}.theirs`);
    await once(server, "listening");
    renameSync(`${this.path}.theirs`, this.path);
    return server;
  }

  #wrote(line: string): void {
    this.#lines.push(line);
    for (const waiting of [...this.#waiting]) if (line.includes(waiting.text)) waiting.tell();
  }
}

const losses: Readonly<Record<string, (bench: Bench) => void>> = {
  "its file is removed": ({ path }) => rmSync(path),
  "its file is moved away": ({ path }) => renameSync(path, `${path}.old`),
  "its directory is removed": ({ path }) => rmSync(dirname(path), { recursive: true }),
  "its directory is moved away and made anew": ({ path }) => {
    renameSync(dirname(path), `${dirname(path)}.old`);
    mkdirSync(dirname(path));
  },
};

for (const [loss, inflict] of Object.entries(losses)) {
  test(`${loss}: the watch tells, and it is heard again, by root only`, async (t) => {
    const bench = new Bench(t);
    await bench.keep();
    const { back } = bench;
    inflict(bench);
    await back;
    assert.equal(await bench.answer(), "ours");
    assert.equal(bench.place.problem, undefined);
    assert.equal(lstatSync(bench.path).mode & 0o777, 0o600);
  });
}

test("what no watch tells is found by looking, every so often", async (t) => {
  const bench = new Bench(t);
  await bench.keep();
  renameSync(join(bench.root, "run"), join(bench.root, "elsewhere"));
  const { back } = bench;
  bench.clock.advance(lookEveryMs);
  await back;
  assert.equal(await bench.answer(), "ours");
  // The new directory is the one that is watched now.
  const again = bench.back;
  rmSync(bench.path);
  await again;
});

test("a socket that nobody answers gives way", async (t) => {
  const bench = new Bench(t);
  await bench.keep();
  const { back } = bench;
  const dead = await bench.strange();
  dead.close();
  await once(dead, "close");
  bench.clock.advance(lookEveryMs);
  await back;
  assert.equal(await bench.answer(), "ours");
});

test("another agent's living socket is left alone, and said to be the problem, until it is dead", async (t) => {
  const bench = new Bench(t);
  await bench.keep();
  const refused = bench.logged("another agent answers");
  const other = await bench.strange();
  await refused;
  assert.match(bench.place.problem ?? "", /another agent answers on .*agent\.sock; there must be one per node/);
  assert.equal(await bench.answer(), "theirs");
  other.close();
  await once(other, "close");
  const { back } = bench;
  bench.clock.advance(lookEveryMs);
  await back;
  assert.equal(await bench.answer(), "ours");
});

for (const [what, put] of [
  ["a file", (path: string) => writeFileSync(path, "mine")],
  ["a link", (path: string) => symlinkSync("nowhere", path)],
  ["a directory", (path: string) => mkdirSync(path)],
] as const) {
  test(`${what} in its place is somebody's: it stays until it is removed`, async (t) => {
    const bench = new Bench(t);
    await bench.keep();
    const refused = bench.logged("is no socket");
    put(`${bench.path}.new`);
    rmSync(bench.path);
    if (what === "a directory") mkdirSync(bench.path);
    else renameSync(`${bench.path}.new`, bench.path);
    await refused;
    assert.match(bench.place.problem ?? "", /is no socket: remove it/);
    const { back } = bench;
    rmSync(bench.path, { recursive: true });
    await back;
    assert.equal(await bench.answer(), "ours");
    assert.equal(bench.place.problem, undefined);
  });
}

test("leaving removes its own file and nobody else's", async (t) => {
  const bench = new Bench(t);
  await bench.keep();
  await bench.place.leave();
  assert.ok(!existsSync(bench.path));
  await bench.keep();
  const other = await bench.strange();
  t.after(() => other.close());
  await bench.place.leave();
  assert.equal(await bench.answer(), "theirs");
  assert.equal(bench.clock.pending(), 0, "nothing of it goes on");
});
