// A background process must not outlive its test: a forgotten API server slows down whatever runs next on the machine.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "./api.ts";

for (const signal of ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"] as const) {
  test(`given a test process with a daemon, when it is ended by ${signal}, then the daemon ends too`, async () => {
    const program = `
      import { startDaemon, temporaryFolder } from ${JSON.stringify(join(import.meta.dirname, "daemon.ts"))};
      import { readFileSync, watch } from "node:fs";
      const folder = await temporaryFolder("cattail-daemon-test");
      const log = folder + "/log";
      watch(folder, () => console.log(folder + " " + readFileSync(log, "utf8")));
      startDaemon("sh", ["-c", "echo $$; exec sleep 600"], log);`;
    const parent = spawn(process.execPath, ["--input-type=module", "-e", program], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let output = "";
    while (!/ \d+\n/.test(output)) output += String((await once(parent.stdout, "data"))[0]);
    const [folder = "", daemon = ""] = output.trim().split("\n").at(-1)?.split(" ") ?? [];
    assert.ok(existsSync(`/proc/${daemon}`) && existsSync(folder));

    parent.kill(signal);
    await once(parent, "close");
    await until("the daemon has ended", async () => !existsSync(`/proc/${daemon}`));
    // No process can tidy up after its own SIGKILL.
    assert.equal(existsSync(folder), signal === "SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
}
