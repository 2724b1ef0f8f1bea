// Whom a token belongs to: what its claims and its signature say, when the API server is asked, and what it takes to be an agent.
import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { test } from "node:test";
import { Failure, type FailureCode } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import { createLog } from "../../shared/log.ts";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { followMs, tokenVerifier } from "./identity.ts";
import { ClusterKeys } from "./signing-keys-shell.ts";

const rules = { audience: "cattail", agents: ["cattail-system/cattail-agent"], observers: ["tools/viewer"] };
const agent = "system:serviceaccount:cattail-system:cattail-agent";
const issuer = "https://kubernetes.default.svc";
const start = Date.parse("2030-01-01T00:00:00Z") / 1000;

const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 });
const curve = generateKeyPairSync("ec", { namedCurve: "P-256" });
const foreign = generateKeyPairSync("rsa", { modulusLength: 2048 });
const jwk = (key: KeyObject, kid: string): object => ({ ...key.export({ format: "jwk" }), kid, use: "sig" });

interface Made {
  readonly header?: object;
  readonly claims?: object;
  readonly key?: KeyObject;
}

function token({ header, claims, key = rsa.privateKey }: Made = {}): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const bound = { namespace: "cattail-system", node: { name: "node-a", uid: "uid-a" } };
  const body = { iss: issuer, sub: agent, aud: ["cattail"], exp: start + 3600, "kubernetes.io": bound, ...claims };
  const signed = `${part({ alg: "RS256", kid: "one", ...header })}.${part(body)}`;
  const made = sign("sha256", Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" });
  return `${signed}.${made.toString("base64url")}`;
}

function world() {
  const clock = manualClock("2030-01-01T00:00:00Z");
  const asked: string[] = [];
  const cluster = {
    keys: [jwk(rsa.publicKey, "one")],
    failure: undefined as FailureCode | undefined,
    authenticated: true,
  };
  const answer = (path: string): unknown => {
    asked.push(path);
    if (cluster.failure !== undefined) throw new Failure(cluster.failure, "no answer");
    if (path.endsWith("openid-configuration")) return { issuer };
    if (path.endsWith("jwks")) return { keys: cluster.keys };
    const extra = {
      "authentication.kubernetes.io/node-name": ["node-a"],
      "authentication.kubernetes.io/node-uid": ["uid-a"],
    };
    return {
      status: { authenticated: cluster.authenticated, audiences: ["cattail"], user: { username: agent, extra } },
    };
  };
  const api = {
    get: async (path: string) => answer(path),
    create: async (path: string) => answer(path),
  } as unknown as Api;
  const { logger } = createLog({ level: "warn", format: "json", clock, write: () => {} });
  const keys = new ClusterKeys({ api, clock, logger });
  const verifier = tokenVerifier({ api, clock, random: seededRandom(1), keys, rules });
  const reviews = (): number => asked.filter((path) => path.endsWith("tokenreviews")).length;
  return { clock, asked, cluster, keys, verifier, reviews };
}

const known = {
  kind: "known",
  identity: { user: agent, node: "node-a", nodeUid: "uid-a", expiresAt: (start + 3600) * 1000 },
};

test("given the cluster's keys, then tokens never seen before are known while the API server is away", async () => {
  const { verifier, keys, cluster, reviews } = world();
  await keys.prefetch();
  cluster.failure = "api-unavailable";
  assert.deepEqual(await verifier.verify(token()), known);
  assert.equal(reviews(), 0);
});

test("given a key that has come since, then it is fetched, at most every ten seconds", async () => {
  const { verifier, keys, cluster, clock, asked, reviews } = world();
  await keys.prefetch();
  cluster.keys = [...cluster.keys, jwk(curve.publicKey, "two")];
  clock.advance(10_000);
  const rotated = token({ header: { alg: "ES256", kid: "two" }, key: curve.privateKey });
  assert.deepEqual(await verifier.verify(rotated), known);
  assert.equal(reviews(), 0);
  const before = asked.filter((path) => path.endsWith("jwks")).length;
  for (let i = 0; i < 20; i++) await verifier.verify(token({ header: { kid: `made-up-${i}` } }));
  assert.equal(asked.filter((path) => path.endsWith("jwks")).length, before);
});

test("given ever new tokens of unknown keys, then the API server is asked about 200 at once and no more", async () => {
  const { verifier, reviews } = world();
  const results = await Promise.allSettled(
    Array.from({ length: 300 }, (_, i) => verifier.verify(token({ header: { kid: `made-up-${i}` } }))),
  );
  assert.equal(reviews(), 200);
  assert.equal(results.filter(({ status }) => status === "rejected").length, 100);
});

test("whoever is nobody, somebody else, for somebody else, late, early or on no node is refused with a reason", async () => {
  const at = (claims: object): string => token({ claims });
  const forged = token()
    .split(".")
    .with(1, token({ claims: { "kubernetes.io": { node: { name: "node-b" } } } }).split(".")[1] ?? "");
  const cases: [string, number, RegExp][] = [
    ["garbage", 401, /no ServiceAccount token/],
    [token({ header: { alg: "none" } }), 401, /no ServiceAccount token/],
    [token({ header: { alg: "HS256" } }), 401, /no ServiceAccount token/],
    [token({ key: foreign.privateKey }), 401, /signature is wrong/],
    [token({ header: { alg: "ES256" }, key: curve.privateKey }), 401, /signature is wrong/],
    [forged.join("."), 401, /signature is wrong/],
    [at({ aud: ["another"] }), 401, /not made for the audience "cattail"/],
    [at({ exp: start }), 401, /expired/],
    [at({ nbf: start + 61 }), 401, /not valid yet/],
    [at({ sub: "system:serviceaccount:demo:default" }), 403, /demo:default is not among the accounts of agents/],
    [at({ sub: `${agent}:x` }), 403, /not among/],
    [at({ "kubernetes.io": { namespace: "cattail-system" } }), 403, /names no node: .* 1\.30 or newer/],
  ];
  const { verifier, reviews } = world();
  for (const [text, status, message] of cases) {
    const verdict = await verifier.verify(text);
    assert.ok(verdict.kind === "refused", String(message));
    assert.equal(verdict.status, status);
    assert.match(verdict.message, message);
  }
  assert.equal(reviews(), 0);
});

test("given an observer's account, then it has no node", async () => {
  const verdict = await world().verifier.verify(token({ claims: { sub: "system:serviceaccount:tools:viewer" } }));
  assert.ok(verdict.kind === "known" && verdict.identity.node === undefined);
});

test("given a token that the API server takes no longer, then its stream is ended once and it is not let in again", async () => {
  const { verifier, cluster, clock } = world();
  const mine = token();
  let ended = 0;
  const leave = verifier.follow(mine, () => ended++);
  cluster.authenticated = false;
  clock.advance(followMs);
  await settled();
  assert.equal(ended, 1);
  assert.equal(clock.pending(), 0);
  assert.equal((await verifier.verify(mine)).kind, "refused");
  leave();
});

test("given an API server that is away, then a followed token stays good and is looked at again; left, it has no timer", async () => {
  const { verifier, cluster, clock, reviews } = world();
  let ended = 0;
  const leave = verifier.follow(token(), () => ended++);
  cluster.failure = "api-unavailable";
  clock.advance(followMs);
  await settled();
  clock.advance(60_000);
  await settled();
  assert.equal(reviews(), 2);
  assert.equal(ended, 0);
  leave();
  assert.equal(clock.pending(), 0);
});

function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
