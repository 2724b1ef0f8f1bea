import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";

/** A daemon of one file: `body` is the body of its start function, with `frame`, `Failure` and a timer `held` in reach. */
class Daemon {
  readonly child: ChildProcessWithoutNullStreams;
  readonly lines: string[] = [];
  readonly #closed: Promise<unknown>;
  #errors = "";
  #waiting: { text: string; resolve: () => void }[] = [];

  constructor(
    t: TestContext,
    body: string,
    { argv = [], env = {} }: { argv?: string[]; env?: Record<string, string> } = {},
  ) {
    const directory = mkdtempSync(join(tmpdir(), "cattail-daemon-"));
    t.after(() => rmSync(directory, { recursive: true }));
    const here = (file: string): string => JSON.stringify(pathToFileURL(join(import.meta.dirname, file)).href);
    const script = join(directory, "daemon.mjs");
    writeFileSync(
      script,
      `import { runDaemon } from ${here("daemon.ts")};
import { Failure } from ${here("../kinds.ts")};
await runDaemon("server", async (frame) => {
  const held = setInterval(() => {}, 60_000);
  ${body}
});`,
    );
    this.child = spawn(process.execPath, [script, ...argv], {
      env: { CATTAIL_PORTS_HTTP: "0", CATTAIL_PORTS_ADMIN: "0", ...env },
    });
    t.after(() => this.child.kill("SIGKILL"));
    this.#closed = once(this.child, "close");
    this.child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#errors += text;
    });
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      this.lines.push(line);
      this.#waiting = this.#waiting.filter(({ text, resolve }) => !line.includes(text) || resolve());
    });
  }

  /** Resolves when a line with this text has come. */
  async saw(text: string): Promise<void> {
    if (this.lines.some((line) => line.includes(text))) return;
    const seen = new Promise<void>((resolve) => this.#waiting.push({ text, resolve }));
    const ended = this.#closed.then(() =>
      assert.fail(`ended without "${text}": ${this.lines.join("\n")}${this.#errors}`),
    );
    await Promise.race([seen, ended]);
  }

  async ended(): Promise<{ code: number | null; errors: string }> {
    await this.#closed;
    return { code: this.child.exitCode, errors: this.#errors };
  }

  messages(): string[] {
    return this.lines.map((line) => JSON.parse(line).msg);
  }
}

const endless = "return { stop: async () => clearInterval(held) };";

test("SIGTERM drains and ends with 0; meanwhile it is not ready", async (t) => {
  const daemon = new Daemon(
    t,
    `     return { stop: async () => {
       frame.logger.info("Drained", { value: frame.health.report("ready").text });
       clearInterval(held);
     } };`,
  );
  await daemon.saw("Started");
  daemon.child.kill("SIGTERM");
  assert.deepEqual(await daemon.ended(), { code: 0, errors: "" });
  assert.deepEqual(daemon.messages(), ["Read the configuration", "Started", "Began to drain", "Drained", "Stopped"]);
  assert.match(daemon.lines[3] ?? "", /\[\+\]startup ok\\n\[-\]shutdown failed: draining/);
});

test("the second signal ends at once, as the signal would", async (t) => {
  const daemon = new Daemon(t, "return { stop: () => new Promise(() => {}) };");
  await daemon.saw("Started");
  daemon.child.kill("SIGINT");
  await daemon.saw("Began to drain");
  daemon.child.kill("SIGTERM");
  assert.equal((await daemon.ended()).code, 143);
});

test("a signal while it starts ends it with 0", async (t) => {
  const daemon = new Daemon(t, "frame.logger.info('Starts'); return new Promise(() => {});");
  await daemon.saw("Starts");
  daemon.child.kill("SIGTERM");
  assert.equal((await daemon.ended()).code, 0);
});

test("a failure at the start ends with 2 if it is the configuration's, with 3 if it is the cluster's, with 70 if it is ours", async (t) => {
  const cases = [
    ["throw new Failure('bad-config', 'no such file');", 2],
    ["throw new Failure('server-unreachable', 'nobody answers');", 3],
    ["throw new TypeError('x is not a function');", 70],
  ] as const;
  for (const [body, code] of cases) {
    const daemon = new Daemon(t, body);
    assert.equal((await daemon.ended()).code, code, body);
    assert.match(daemon.lines.at(-1) ?? "", /"level":"error","msg":"Could not start","component":"server","err":"/);
  }
});

test("what nobody catches ends with 70 and one line with its stack", async (t) => {
  for (const bug of ["setImmediate(() => { throw new Error('boom'); });", "Promise.reject(new Error('boom'));"]) {
    const daemon = new Daemon(t, `${bug} ${endless}`);
    assert.deepEqual(await daemon.ended(), { code: 70, errors: "" }, bug);
    const bugs = daemon.lines.filter((line) => line.includes("boom"));
    assert.equal(bugs.length, 1);
    assert.match(
      bugs[0] ?? "",
      /"msg":"Ended because of a bug",.*"err":"boom","stack":"Error: boom\\n {4}at .*daemon\.mjs/,
    );
  }
});

test("a wrong configuration ends with 2 and all its errors on stderr; a question is answered on stdout", async (t) => {
  const wrong = new Daemon(t, endless, { argv: ["--log-levl=debug", "--commit-max-in-flight=x"] });
  const { code, errors } = await wrong.ended();
  assert.equal(code, 2);
  assert.deepEqual(
    errors.split("\n").map((line) => /^config (.*?):/.exec(line)?.[1]),
    ["flag --log-levl", "flag --commit-max-in-flight", undefined],
  );
  assert.deepEqual(wrong.lines, []);
  const asked = new Daemon(t, "throw new Error('must not start');", { argv: ["config", "-o", "name"] });
  assert.deepEqual(await asked.ended(), { code: 0, errors: "" });
  assert.equal(asked.lines[0], "kubeconfig");
});

test("the pages are served, and a port that is taken ends with 2", async (t) => {
  const taken = createServer().listen(0, "127.0.0.1");
  t.after(() => taken.close());
  await once(taken, "listening");
  const address = taken.address();
  assert.ok(address !== null && typeof address === "object");
  const refused = new Daemon(t, endless, { argv: [`--ports-http=${address.port}`, "--listen-http=127.0.0.1"] });
  const { code, errors } = await refused.ended();
  assert.equal(code, 2);
  assert.match(errors, new RegExp(`cannot listen on 127\\.0\\.0\\.1 port ${address.port}: .*EADDRINUSE`));
  taken.close();
  await once(taken, "close");
  const daemon = new Daemon(t, endless, { argv: [`--ports-admin=${address.port}`, "--commit-max-in-flight=7"] });
  await daemon.saw("Started");
  const rows = (await (await fetch(`http://127.0.0.1:${address.port}/debug/config`)).json()) as {
    key: string;
    value: string;
  }[];
  assert.equal(rows.find(({ key }) => key === "commit.maxInFlight")?.value, "7");
  daemon.child.kill("SIGTERM");
  assert.equal((await daemon.ended()).code, 0);
});

test("a variable that is no option is a warning in the log", async (t) => {
  const daemon = new Daemon(t, endless, { env: { CATTAIL_LOG_LEVL: "debug" } });
  await daemon.saw("Started");
  assert.match(daemon.lines[0] ?? "", /"level":"warn".*CATTAIL_LOG_LEVL: unknown, ignored\. Did you mean/);
  daemon.child.kill("SIGTERM");
  await daemon.ended();
});
