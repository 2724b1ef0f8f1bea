// That no lease runs longer than the reaper waits, whichever server's configuration changes first.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Instant } from "../../shared/kinds.ts";
import { Limits } from "./limits.ts";

const minute = 60_000;
const at = (minutes: number): Instant => (minutes * minute) as Instant;

test("given no word of the leader, or an old one, then nothing is granted", () => {
  const limits = new Limits(45 * minute, undefined);
  assert.equal(limits.grant(at(0)), undefined);
  limits.told({ grantMs: 45 * minute, owedMs: 45 * minute }, at(0));
  assert.equal(limits.grant(at(5)), 45 * minute);
  assert.equal(limits.grant(at(5.1)), undefined);
});

test("given another server that has not heard of a raised limit, then agents are granted the lower one", () => {
  const limits = new Limits(45 * minute, undefined);
  limits.told({ grantMs: 45 * minute, owedMs: 45 * minute }, at(0));
  limits.configure(90 * minute, undefined);
  assert.equal(limits.grant(at(1)), 45 * minute);
  assert.equal(limits.reapAfter(at(1)), 180 * minute);
});

test("given a leader whose limit was raised, then its reaper waits before anybody is told", () => {
  const limits = new Limits(45 * minute, undefined);
  limits.said(limits.terms(at(0)), at(0));
  limits.configure(90 * minute, undefined);
  assert.equal(limits.reapAfter(at(1)), 180 * minute);
  assert.equal(limits.grant(at(1)), 45 * minute);
  limits.said(limits.terms(at(1)), at(1));
  assert.equal(limits.grant(at(1)), 90 * minute);
});

test("given a leader whose limit was lowered, then agents are granted less at once and the reaper waits for the old leases", () => {
  const limits = new Limits(90 * minute, undefined);
  limits.said(limits.terms(at(0)), at(0));
  limits.configure(45 * minute, undefined);
  limits.said(limits.terms(at(1)), at(1));
  assert.equal(limits.grant(at(1)), 45 * minute);
  assert.equal(limits.reapAfter(at(184)), 180 * minute);
  assert.equal(limits.reapAfter(at(186)), 90 * minute);
});

test("given a new leader, then it knows from the old one's word what is still owed", () => {
  const old = new Limits(90 * minute, undefined);
  old.said(old.terms(at(0)), at(0));
  old.configure(45 * minute, undefined);
  const limits = new Limits(45 * minute, undefined);
  limits.told(old.terms(at(1)), at(1));
  assert.equal(limits.reapAfter(at(185)), 180 * minute);
  assert.equal(limits.reapAfter(at(187)), 90 * minute);
});

test("reaper.after may be longer than twice the limit, and never counts when it is shorter", () => {
  assert.equal(new Limits(45 * minute, 200 * minute).reapAfter(at(0)), 200 * minute);
  assert.equal(new Limits(45 * minute, 10 * minute).reapAfter(at(0)), 90 * minute);
});

test("whatever two servers' limits and leadership do, nothing is reaped under a lease that runs", () => {
  const step = fc.record({
    minutes: fc.integer({ min: 0, max: 60 }),
    isCut: fc.boolean(),
    server: fc.constantFrom(0, 1),
    act: fc.oneof(fc.constantFrom("grant", "lead"), fc.integer({ min: 5, max: 120 })),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const servers = [new Limits(45 * minute, undefined), new Limits(45 * minute, undefined)] as const;
      const grants: { readonly from: number; readonly limitMs: number }[] = [];
      let now = at(0);
      let leader: 0 | 1 = 0;
      const other = (): Limits => servers[leader === 0 ? 1 : 0];
      const lead = (isCut: boolean): void => {
        const terms = servers[leader].terms(now);
        servers[leader].said(terms, now);
        if (!isCut) other().told(terms, now);
      };
      for (const { minutes, isCut, server, act } of steps) {
        for (let passed = 0; passed < minutes; passed++) {
          now = (now + minute) as Instant;
          lead(isCut);
        }
        if (typeof act === "number") servers[server].configure(act * minute, undefined);
        if (act === "lead" && leader !== server) {
          other().told(servers[leader].terms(now), now); // it reads before it writes
          leader = server;
        }
        for (const limits of servers) {
          const limitMs = limits.grant(now);
          if (limitMs !== undefined) grants.push({ from: now, limitMs });
        }
        for (const { from, limitMs } of grants) {
          // Of a Node seen missing right after that.
          const isReaped = now - from >= servers[leader].reapAfter(now);
          assert.ok(!isReaped || from + limitMs < now, `reaped at ${now} under ${limitMs} granted at ${from}`);
        }
      }
    }),
  );
});
