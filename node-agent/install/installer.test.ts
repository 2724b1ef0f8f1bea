import assert from "node:assert/strict";
import {
  chmodSync,
  linkSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { executableMark } from "../../shared/executable-mark.ts";
import { createLog, type Logger } from "../../shared/log.ts";
import { systemClock } from "../../shared/process/world.ts";
import type { Clock } from "../../shared/world.ts";
import { manualClock } from "../../test/manual-world.ts";
import { type Files, realFiles } from "./exchange-shell.ts";
import { type Installer, lookEveryMs, restoreOriginal, settleMs, startInstaller } from "./installer-shell.ts";
import type { InstallOptions } from "./items-shell.ts";

const ours = `new release, ${executableMark}, and more`;
const oursBefore = `old release, ${executableMark}`;
const name = "calico-ipam";
const backup = `${name}.before-cattail`;

/** A host's directory with neighbours, and our executable somewhere else. */
class Host {
  readonly folder: string;
  readonly bin: string;
  readonly options: InstallOptions;
  readonly clock = manualClock();
  readonly lines: Record<string, unknown>[] = [];
  repairs = 0;
  #said = Promise.withResolvers<void>();

  constructor(t: TestContext, conflist?: string) {
    this.folder = mkdtempSync(join(tmpdir(), "install-"));
    t.after(() => rmSync(this.folder, { recursive: true }));
    this.bin = mkdtempSync(join(this.folder, "bin-"));
    writeFileSync(join(this.bin, "calico"), "a neighbour");
    const executable = join(this.folder, "cattail-ipam");
    writeFileSync(executable, ours);
    const path = conflist === undefined ? undefined : join(this.bin, "10-calico.conflist");
    if (path !== undefined && conflist !== undefined) writeFileSync(path, conflist, { mode: 0o640 });
    this.options = { executable, target: join(this.bin, name), conflist: path, places: {} };
  }

  get logger(): Logger {
    const write = (line: string): void => {
      this.lines.push(JSON.parse(line));
      this.#said.resolve();
      this.#said = Promise.withResolvers();
    };
    return createLog({ level: "info", format: "json", clock: manualClock(), write }).logger;
  }

  start(files: Files = realFiles, clock: Clock = this.clock, ready = Promise.resolve()): Installer {
    const repaired = (): void => {
      this.repairs += 1;
    };
    return startInstaller(this.options, { ready, clock, logger: this.logger, repaired, files });
  }

  /** One look, as at the start of an agent. */
  async install(files?: Files): Promise<void> {
    const installer = this.start(files);
    await this.looked();
    await installer.stop();
  }

  async said(msg: string, times = 1): Promise<void> {
    while (this.lines.filter((line) => line.msg === msg).length < times) await this.#said.promise;
  }

  /** Until it waits for the next one. */
  async looked(): Promise<void> {
    while (this.clock.pending() === 0) await new Promise((resolve) => setImmediate(resolve));
  }

  async nextLook(): Promise<void> {
    await this.looked();
    this.clock.advance(lookEveryMs);
  }

  put(file: string, content: string): void {
    const fresh = join(this.folder, "fresh");
    writeFileSync(fresh, content, { mode: 0o755 });
    renameSync(fresh, join(this.bin, file));
  }

  /** Everything in the directory. */
  contents(): Record<string, string> {
    const names = readdirSync(this.bin).sort();
    return Object.fromEntries(names.map((file) => [file, readFileSync(join(this.bin, file), "utf8")]));
  }
}

test("given no executable, when the agent starts, then ours is there, can be executed, and nothing else is", async (t) => {
  const host = new Host(t);
  await host.install();
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: ours });
  assert.equal(statSync(host.options.target).mode & 0o7777, 0o755);
  assert.equal(host.repairs, 0);
});

test("given an agent that is not ready, then nothing is touched, and nothing is after it has stopped", async (t) => {
  const host = new Host(t);
  host.put(name, "calico's");
  const { promise: ready, resolve } = Promise.withResolvers<void>();
  const installer = host.start(realFiles, host.clock, ready);
  await installer.stop();
  resolve();
  await ready;
  await installer.stop();
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: "calico's" });
});

test("given Calico's executable, then it is kept whole beside ours, its mode included, and comes back", async (t) => {
  const host = new Host(t);
  host.put(name, "calico's");
  chmodSync(host.options.target, 0o4755);
  await host.install();
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: ours, [backup]: "calico's" });
  await restoreOriginal(host.options, host.logger);
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: "calico's" });
  assert.equal(statSync(host.options.target).mode & 0o7777, 0o4755);
});

test("given ours, in whatever state, when another release starts, then it is replaced and the backup stays Calico's", async (t) => {
  const acrossReads = `${"x".repeat((1 << 20) - 20)}${oursBefore}`;
  const states: Readonly<Record<string, string>> = {
    older: oursBefore,
    "older and large": acrossReads,
    "cut off": ours.slice(0, 8),
    empty: "",
  };
  for (const [state, content] of Object.entries(states)) {
    const host = new Host(t);
    host.put(backup, "calico's");
    host.put(name, content);
    await host.install();
    assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: ours, [backup]: "calico's" }, state);
    assert.equal(host.repairs, 0);
  }
});

test("given ours without the right to be executed, then it gets it back", async (t) => {
  const host = new Host(t);
  await host.install();
  chmodSync(host.options.target, 0o644);
  await host.install();
  assert.equal(statSync(host.options.target).mode & 0o7777, 0o755);
  assert.deepEqual(Object.keys(host.contents()), ["calico", name]);
});

/** Whoever waits for a settled change waits no longer; the regular look never comes. `quiet` resolves when only that is waited for. */
function watchfulClock(): { readonly clock: Clock; readonly quiet: Promise<void> } {
  const { promise: quiet, resolve } = Promise.withResolvers<void>();
  const after: Clock["after"] = (delayMs, wake) => {
    if (delayMs === settleMs) return systemClock.after(0, wake);
    resolve();
    return () => {};
  };
  return { clock: { ...systemClock, after }, quiet };
}

test("given ours, when Calico's installer overwrites it, then ours is back after the watch's word, and the newer original is the backup", async (t) => {
  const host = new Host(t);
  host.put(name, "calico's");
  const { clock, quiet } = watchfulClock();
  const installer = host.start(realFiles, clock);
  t.after(() => installer.stop());
  await quiet;
  host.put(name, "calico's next");
  await host.said("Put a file on the host back");
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: ours, [backup]: "calico's next" });
  assert.equal(host.repairs, 1);
});

test("given ours, when it vanishes and no watch says so, then the next look puts it back", async (t) => {
  const host = new Host(t);
  const installer = host.start();
  t.after(() => installer.stop());
  await host.said("Installed a file on the host");
  rmSync(host.options.target);
  await host.nextLook();
  await host.said("Put a file on the host back");
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: ours });
  assert.equal(host.repairs, 1);
});

test("given an agent that was away, when Calico has overwritten ours meanwhile, then it is a repair", async (t) => {
  const host = new Host(t);
  host.put(name, "calico's");
  await host.install();
  host.put(name, "calico's next");
  await host.install();
  assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: ours, [backup]: "calico's next" });
  assert.equal(host.repairs, 1);
});

test("given an original that is being written in place, when ours takes its name, then the backup is whole once the writer is done", async (t) => {
  const host = new Host(t);
  host.put(name, "calico's fir");
  const writer = join(host.folder, "writer");
  linkSync(host.options.target, writer);
  await host.install();
  writeFileSync(writer, "calico's first half and second half", { flag: "r+" });
  assert.equal(host.contents()[backup], "calico's first half and second half");
  assert.equal(host.contents()[name], ours);
});

test("given a link in its place, even one that leads nowhere, then the link is the original and what it leads to is not touched", async (t) => {
  for (const leadsTo of ["calico", "nowhere"]) {
    const host = new Host(t);
    symlinkSync(leadsTo, host.options.target);
    await host.install();
    assert.equal(readFileSync(host.options.target, "utf8"), ours);
    assert.equal(readFileSync(join(host.bin, "calico"), "utf8"), "a neighbour");
    await restoreOriginal(host.options, host.logger);
    assert.ok(readdirSync(host.bin).includes(name));
    assert.equal(statSync(host.options.target, { throwIfNoEntry: false }) !== undefined, leadsTo === "calico");
  }
});

test("given an uninstall, then what was there comes back, what was not is removed, and what is newer stays", async (t) => {
  const never = new Host(t);
  await never.install();
  await restoreOriginal(never.options, never.logger);
  assert.deepEqual(never.contents(), { calico: "a neighbour" });

  const newer = new Host(t);
  newer.put(name, "calico's");
  await newer.install();
  newer.put(name, "calico's next");
  await restoreOriginal(newer.options, newer.logger);
  assert.deepEqual(newer.contents(), { calico: "a neighbour", [name]: "calico's next" });

  const untouched = new Host(t);
  untouched.put(name, "calico's");
  await restoreOriginal(untouched.options, untouched.logger);
  assert.deepEqual(untouched.contents(), { calico: "a neighbour", [name]: "calico's" });
});

/** Ends with the n-th call, as a killed process does: nothing after it happens, tidying up included. A copy or a text may be cut off. */
function endingAt(last: number): { readonly files: Files; readonly calls: () => number } {
  let calls = 0;
  const files = new Proxy(realFiles, {
    get:
      (real, key: keyof Files) =>
      async (...args: [never, never]) => {
        calls += 1;
        if (calls < last) return real[key](...args);
        if (calls === last && (key === "copy" || key === "write")) writeFileSync(args[key === "copy" ? 1 : 0], "half");
        throw new Error("ended");
      },
  });
  return { files, calls: () => calls };
}

test("given an end at any step, then there is the old one or ours, whole, and the next start brings all in order", async (t) => {
  let last = 0;
  for (let isDone = false; !isDone; ) {
    last += 1;
    const conflist = '{"name":"n","plugins":[{"type":"calico","ipam":{"type":"host-local"}}]}';
    const host = new Host(t, conflist);
    host.put(name, "calico's");
    const ending = endingAt(last);
    await host.install(ending.files);
    const { [name]: now, [backup]: kept = "calico's", "10-calico.conflist": network = "" } = host.contents();
    assert.ok(now === "calico's" || now === ours, `${last}: ${now}`);
    assert.ok(network === conflist || (JSON.parse(network).plugins[0].ipam.type === name && now === ours), network);
    assert.equal(kept, "calico's");
    isDone = ending.calls() < last;
    await host.install();
    assert.deepEqual(Object.keys(host.contents()), [
      "10-calico.conflist",
      "10-calico.conflist.before-cattail",
      "calico",
      name,
      backup,
    ]);
    assert.equal(host.contents()[name], ours);
    assert.equal(host.contents()[backup], "calico's");

    // The way back, ended at the same step.
    await restoreOriginal(host.options, host.logger, endingAt(last).files).catch(() => {});
    await restoreOriginal(host.options, host.logger);
    assert.deepEqual(host.contents(), { "10-calico.conflist": conflist, calico: "a neighbour", [name]: "calico's" });
  }
  assert.ok(last > 15, `${last} steps`);
});

function refusing(call: keyof Files, code: string): Files {
  const refuse = () => Promise.reject(Object.assign(new Error(`${code}: in the system's words`), { code }));
  return { ...realFiles, [call]: refuse };
}

test("given a host that refuses, then the log says why and what to do, nothing has changed, and a later look succeeds", async (t) => {
  const cases = [
    ["copy", "ENOSPC", "DiskFull", /full/],
    ["finish", "EDQUOT", "DiskFull", /full/],
    ["copy", "EROFS", "Forbidden", /writable/],
    ["link", "EPERM", "Forbidden", /writable/],
    ["rename", "EACCES", "Forbidden", /writable/],
  ] as const;
  for (const [call, code, reason, text] of cases) {
    const host = new Host(t);
    host.put(name, "calico's");
    await host.install(refusing(call, code));
    assert.deepEqual(host.contents(), { calico: "a neighbour", [name]: "calico's" }, code);
    const [line, ...others] = host.lines;
    assert.deepEqual(others, []);
    assert.equal(line?.level, "warn");
    assert.equal(line?.reason, reason);
    assert.match(JSON.stringify(line), text);
    await host.install();
    assert.equal(host.contents()[name], ours);
  }
});

test("given no directory, then the log says so, and ours is there soon after it is made", async (t) => {
  const host = new Host(t);
  rmSync(host.bin, { recursive: true });
  const installer = host.start();
  t.after(() => installer.stop());
  await host.said("Could not install a file on the host");
  assert.equal(host.lines[0]?.reason, "BadConfig");
  assert.match(JSON.stringify(host.lines[0]), /does not exist/);
  renameSync(mkdtempSync(join(host.folder, "made-")), host.bin);
  await host.nextLook();
  await host.said("Installed a file on the host");
  assert.deepEqual(host.contents(), { [name]: ours });
});

const spaced = '{ "name": "n",\n\t"plugins": [ {"type": "calico", "ipam": {"type": "host-local", "ranges": []}} ] }';

test("given a configuration to patch, then it keeps its mode, a backup lies beside it, and it comes back byte for byte", async (t) => {
  const host = new Host(t, spaced);
  const path = host.options.conflist ?? "";
  await host.install();
  assert.equal(JSON.parse(readFileSync(path, "utf8")).plugins[0].ipam.type, name);
  assert.equal(statSync(path).mode & 0o777, 0o640);
  assert.equal(host.contents()["10-calico.conflist.before-cattail"], spaced);
  const { ino } = statSync(path);
  await host.install();
  assert.equal(statSync(path).ino, ino, "written again without need");
  await restoreOriginal(host.options, host.logger);
  assert.deepEqual(host.contents(), { calico: "a neighbour", "10-calico.conflist": spaced });
  const given = host.lines.filter(({ msg }) => msg === "Gave a file on the host back").map(({ path }) => path);
  assert.deepEqual(given, [path, host.options.target], "the configuration goes before what it names");
});

test("given a patched configuration that its operator has changed since, then only our part is taken out of it", async (t) => {
  const host = new Host(t, spaced);
  const path = host.options.conflist ?? "";
  await host.install();
  const changed = JSON.parse(readFileSync(path, "utf8"));
  writeFileSync(path, JSON.stringify({ ...changed, added: true }));
  await restoreOriginal(host.options, host.logger);
  assert.deepEqual(JSON.parse(readFileSync(path, "utf8")), { ...JSON.parse(spaced), added: true });
  assert.deepEqual(Object.keys(host.contents()), ["10-calico.conflist", "calico"]);
});

test("given a configuration that Calico's installer writes anew, then it is patched again and the newer one is the backup", async (t) => {
  const host = new Host(t, spaced);
  await host.install();
  const newer = spaced.replace("ranges", "subnet");
  host.put("10-calico.conflist", newer);
  await host.install();
  assert.equal(host.contents()["10-calico.conflist.before-cattail"], newer);
  assert.equal(JSON.parse(host.contents()["10-calico.conflist"] ?? "").plugins[0].ipam.type, name);
  assert.equal(host.repairs, 1);
});

test("given a configuration that its operator wrote for us, then an uninstall leaves it", async (t) => {
  const own = '{"name":"n","plugins":[{"type":"calico","ipam":{"type":"calico-ipam"}}]}';
  const host = new Host(t, own);
  await host.install();
  await restoreOriginal(host.options, host.logger);
  assert.deepEqual(host.contents(), { calico: "a neighbour", "10-calico.conflist": own });
});

test("given a configuration that is gone, then none is made, neither now nor at the end", async (t) => {
  const host = new Host(t, spaced);
  await host.install();
  rmSync(host.options.conflist ?? "");
  await host.install();
  await restoreOriginal(host.options, host.logger);
  assert.deepEqual(host.contents(), { calico: "a neighbour" });
});

test("the executable that is built bears the mark by which it is known", () => {
  const built = readFileSync(join(import.meta.dirname, "../../dist/cattail-ipam"));
  assert.ok(built.includes(executableMark));
});
