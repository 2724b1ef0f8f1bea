// Whom a token belongs to: what is asked of the API server, how long its word stands, and what it takes to be an agent.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Failure, type FailureCode } from "../../shared/kinds.ts";
import { manualClock } from "../../test/manual-world.ts";
import type { Api } from "../upstream/api.ts";
import { tokenVerifier } from "./identity.ts";

const rules = { audience: "cattail-server", agents: ["cattail-system/cattail-agent"], observers: ["tools/viewer"] };
const agent = "system:serviceaccount:cattail-system:cattail-agent";

interface Told {
  readonly authenticated?: boolean;
  readonly username?: string;
  readonly node?: string | null;
  readonly nodeUid?: string;
  readonly audiences?: readonly string[];
}

function world(told: Told = {}) {
  const clock = manualClock("2030-01-01T00:00:00Z");
  const asked: unknown[] = [];
  const answers: { now: Told; failure: FailureCode | undefined } = { now: told, failure: undefined };
  const api = {
    create: async (path: string, body: unknown) => {
      asked.push([path, body]);
      if (answers.failure !== undefined) throw new Failure(answers.failure, "no answer");
      const { authenticated = true, username = agent, node = "node-a", audiences = ["cattail-server"] } = answers.now;
      const { nodeUid } = answers.now;
      const extra = {
        ...(node !== null && { "authentication.kubernetes.io/node-name": [node] }),
        ...(nodeUid !== undefined && { "authentication.kubernetes.io/node-uid": [nodeUid] }),
      };
      return { kind: "TokenReview", status: { authenticated, audiences, user: { username, extra } } };
    },
  } as unknown as Api;
  return { clock, asked, answers, verifier: tokenVerifier(api, clock, rules) };
}

/** As the API server signs it; the signature is its business. */
function token(expiresInSeconds = 3600, word = "x"): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg: "RS256" })}.${part({ exp: Date.parse("2030-01-01T00:00:00Z") / 1000 + expiresInSeconds })}.${word}`;
}

test("given a token of the agent's account bound to a node, then it is that node's agent until the token ends", async () => {
  const { verifier, asked } = world();
  const mine = token();
  assert.deepEqual(await verifier.verify(mine), {
    kind: "known",
    identity: { user: agent, node: "node-a", expiresAt: Date.parse("2030-01-01T01:00:00Z") },
  });
  const spec = { token: mine, audiences: ["cattail-server"] };
  const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec };
  assert.deepEqual(asked, [["/apis/authentication.k8s.io/v1/tokenreviews", review]]);
});

test("given a token that tells which Node of this name it is of, then the identity does too", async () => {
  const verdict = await world({ nodeUid: "uid-1" }).verifier.verify(token());
  assert.ok(verdict.kind === "known");
  assert.equal(verdict.identity.nodeUid, "uid-1");
});

test("given an observer's account, then it has no node", async () => {
  const { verifier } = world({ username: "system:serviceaccount:tools:viewer", node: null });
  const verdict = await verifier.verify(token());
  assert.ok(verdict.kind === "known" && verdict.identity.node === undefined);
});

test("whoever is nobody, somebody else, for somebody else or on no node is refused with a reason", async () => {
  const cases: [Told, number, RegExp][] = [
    [{ authenticated: false }, 401, /does not know this token for the audience "cattail-server"/],
    [{ audiences: ["another"] }, 401, /does not know this token/],
    [{ username: "system:serviceaccount:demo:default" }, 403, /demo:default is not among the accounts of agents/],
    [{ username: "system:serviceaccount:cattail-system:cattail-agent:x" }, 403, /not among/],
    [{ username: "kubernetes-admin" }, 403, /kubernetes-admin is not among/],
    [{ node: null }, 403, /names no node: it must be a pod's own, .* 1\.30 or newer/],
  ];
  for (const [told, status, message] of cases) {
    const verdict = await world(told).verifier.verify(token());
    assert.ok(verdict.kind === "refused", JSON.stringify(told));
    assert.equal(verdict.status, status);
    assert.match(verdict.message, message);
  }
});

test("a verdict stands for five minutes, a refusal for ten seconds, and many who ask at once ask once", async () => {
  const { verifier, asked, clock, answers } = world();
  const mine = token();
  await Promise.all([verifier.verify(mine), verifier.verify(mine), verifier.verify(mine)]);
  clock.advance(299_000);
  await verifier.verify(mine);
  assert.equal(asked.length, 1);
  clock.advance(2_000);
  answers.now = { authenticated: false };
  assert.equal((await verifier.verify(mine)).kind, "refused");
  answers.now = {};
  clock.advance(9_000);
  assert.equal((await verifier.verify(mine)).kind, "refused");
  clock.advance(2_000);
  assert.equal((await verifier.verify(mine)).kind, "known");
  assert.equal(asked.length, 3);
});

test("given an API server that is away, then its last word on a token stands until the token ends, and there is none on others", async () => {
  const { verifier, clock, answers } = world();
  const mine = token(3600);
  await verifier.verify(mine);
  answers.failure = "api-unavailable";
  clock.advance(3_000_000);
  assert.equal((await verifier.verify(mine)).kind, "known");
  await assert.rejects(verifier.verify(token(3600, "other")), Failure);
  clock.advance(700_000);
  const verdict = await verifier.verify(mine);
  assert.ok(verdict.kind === "refused" && verdict.status === 401 && /expired/.test(verdict.message));
});

test("given an API server that refuses to review, then the last word does not stand", async () => {
  const { verifier, clock, answers } = world();
  const mine = token();
  await verifier.verify(mine);
  answers.failure = "api-forbidden";
  clock.advance(301_000);
  await assert.rejects(verifier.verify(mine), Failure);
});
