import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { UnixMs } from "../../shared/kinds.ts";
import {
  backdateMs,
  type Issued,
  isDue,
  type Lifetime,
  newAuthorityLife,
  newCertificateLife,
  planAuthorities,
  settleMs,
} from "./authority.ts";

const start = Date.parse("2030-01-01T00:00:00Z");
const dayMs = 86_400_000;
const at = (days: number): UnixMs => (start + days * dayMs) as UnixMs;

test("given no authority, then one is wanted, and what is made signs at once", () => {
  assert.deepEqual(planAuthorities([], at(0)), { trusted: [], wantsSuccessor: true, signer: undefined });
  const first = newAuthorityLife(at(0));
  assert.deepEqual(planAuthorities([first], at(0)), { trusted: [first], wantsSuccessor: false, signer: first });
});

test("given an authority in its last year, then its successor is trusted at once and signs a day later", () => {
  const [old, next] = [newAuthorityLife(at(0)), newAuthorityLife(at(731))];
  assert.equal(planAuthorities([old], at(729)).wantsSuccessor, false);
  assert.equal(planAuthorities([old], at(731)).wantsSuccessor, true);
  assert.deepEqual(planAuthorities([next, old], at(731)), { trusted: [old, next], wantsSuccessor: false, signer: old });
  assert.equal(planAuthorities([next, old], at(732)).signer, next);
  assert.deepEqual(planAuthorities([next, old], at(1096)).trusted, [next]);
});

test("a certificate is renewed a month before its end, and when another authority signs", () => {
  const [old, next] = [newAuthorityLife(at(0)), newAuthorityLife(at(0))];
  const issued = { ...newCertificateLife(old, at(0)), signer: old };
  assert.equal(isDue(undefined, old, at(0)), true);
  assert.equal(isDue(issued, old, at(59)), false);
  assert.equal(isDue(issued, old, at(60)), true);
  assert.equal(isDue(issued, next, at(1)), true);
});

test("whenever a server looks, at least once a week: it shows a certificate of somebody whom agents have known for a day, or who was first", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 7 * 24 }), { minLength: 50, maxLength: 1500 }), (hours) => {
      let now = start as UnixMs;
      let kept: readonly Lifetime[] = [];
      let issued: Issued<Lifetime> | undefined;
      /** When each was published, and whether anything was trusted then. */
      const published = new Map<Lifetime, { readonly at: number; readonly isFirst: boolean }>();
      for (const passed of hours) {
        now = (now + passed * 3_600_000) as UnixMs;
        // Between two looks the old one is shown.
        assert.ok(issued === undefined || issued.until > now, "an ended certificate was shown");
        let plan = planAuthorities(kept, now);
        if (plan.wantsSuccessor) {
          const made = newAuthorityLife(now);
          published.set(made, { at: now, isFirst: plan.trusted.length === 0 });
          plan = planAuthorities([...plan.trusted, made], now);
        }
        kept = plan.trusted;
        const { signer } = plan;
        assert.ok(signer !== undefined && !plan.wantsSuccessor);
        if (isDue(issued, signer, now)) issued = { ...newCertificateLife(signer, now), signer };
        assert.ok(issued !== undefined && kept.includes(issued.signer), "its authority is no longer trusted");
        assert.ok(issued.until <= issued.signer.until && issued.from + backdateMs <= now);
        const known = published.get(issued.signer);
        assert.ok(known !== undefined && (known.isFirst || now - known.at >= settleMs), "agents may not know it yet");
      }
    }),
    { numRuns: 200 },
  );
});
