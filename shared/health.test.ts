import assert from "node:assert/strict";
import { test } from "node:test";
import { createHealth } from "./health.ts";

function healthWith(checks: Readonly<Record<string, string | undefined>>) {
  const health = createHealth();
  for (const [name, problem] of Object.entries(checks)) health.check("ready", name, () => problem);
  return health;
}

test("when all is well the answer is ok, and verbose lists the checks in their order", () => {
  const health = healthWith({ upstream: undefined, stream: undefined });
  assert.deepEqual(health.report("ready"), { ok: true, text: "ok\n" });
  assert.equal(health.report("ready", { verbose: true }).text, "[+]upstream ok\n[+]stream ok\nreadyz check passed\n");
});

test("a failed check is named with its reason, also without verbose", () => {
  const health = healthWith({ upstream: "block is 20 s old", stream: undefined });
  assert.deepEqual(health.report("ready"), {
    ok: false,
    text: "[-]upstream failed: block is 20 s old\n[+]stream ok\nreadyz check failed\n",
  });
});

test("an excluded check does not count; one that does not exist is pointed out", () => {
  const health = healthWith({ upstream: "away", stream: undefined });
  assert.deepEqual(health.report("ready", { exclude: ["upstream", "strem"], verbose: true }), {
    ok: true,
    text: '[+]upstream excluded: ok\n[+]stream ok\nwarn: no check "strem" to exclude\nreadyz check passed\n',
  });
});

test("live and ready are asked separately, and a check takes the place of its namesake", () => {
  const health = healthWith({ upstream: "away" });
  assert.equal(health.report("live").ok, true);
  health.check("ready", "upstream", () => undefined);
  assert.equal(health.report("ready").ok, true);
});
