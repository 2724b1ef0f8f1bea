// What a ServiceAccount token says of itself: its claims, checked against what an agent's token must say. Nothing is proven by it alone.
// Leaves the signature to signing-keys-shell.ts, and to review.ts what the API server says of it.
import * as v from "valibot";
import type { NodeName, Uid, UnixMs } from "../../shared/kinds.ts";
import type { Identity, IdentityRules, Verdict } from "./identity.ts";

/** What the API server signs with. `none` and the symmetric ones are not among them: with those anybody could sign. */
export const signatureAlgorithms = ["RS256", "ES256", "ES384", "ES512"] as const;
export type SignatureAlgorithm = (typeof signatureAlgorithms)[number];

export interface SignedToken {
  readonly algorithm: SignatureAlgorithm;
  readonly keyId: string;
  readonly issuer: string;
  /** What the signature is of: header and claims as they came. */
  readonly signed: string;
  readonly signature: string;
  readonly claims: Claims;
}

const bound = v.object({ name: v.pipe(v.string(), v.minLength(1), v.maxLength(253)), uid: v.optional(v.string()) });
const claimsShape = v.object({
  iss: v.string(),
  sub: v.string(),
  aud: v.union([
    v.array(v.string()),
    v.pipe(
      v.string(),
      v.transform((audience) => [audience]),
    ),
  ]),
  exp: v.number(),
  nbf: v.optional(v.number()),
  "kubernetes.io": v.object({ node: v.optional(bound) }),
});
type Claims = v.InferOutput<typeof claimsShape>;
const headerShape = v.object({ alg: v.picklist(signatureAlgorithms), kid: v.pipe(v.string(), v.minLength(1)) });

/** Clocks of two machines differ by seconds; a token that is valid a little later is as good as one that is valid now. */
const clockSkewSeconds = 60;

/** A token as `alg.claims.signature`; undefined: it is none that a cluster's API server has signed. */
export function readToken(text: string): SignedToken | undefined {
  const [head = "", body = "", signature = "", ...more] = text.split(".");
  if (signature === "" || more.length > 0) return undefined;
  const header = v.safeParse(headerShape, decoded(head));
  const claims = v.safeParse(claimsShape, decoded(body));
  if (!header.success || !claims.success) return undefined;
  return {
    algorithm: header.output.alg,
    keyId: header.output.kid,
    issuer: claims.output.iss,
    signed: `${head}.${body}`,
    signature,
    claims: claims.output,
  };
}

function decoded(part: string): unknown {
  try {
    const bytes = Uint8Array.fromBase64(part, { alphabet: "base64url" });
    return JSON.parse(String.fromCharCode(...bytes));
  } catch {
    return undefined;
  }
}

/** What the claims make of its bearer, given that the signature is good. A refusal needs no proof. */
export function weigh({ claims }: SignedToken, rules: IdentityRules, now: UnixMs): Verdict {
  if (!claims.aud.includes(rules.audience)) {
    return refused(
      401,
      `the token is not made for the audience "${rules.audience}": that of the projected volume must be the same`,
    );
  }
  if (claims.exp * 1000 <= now) return expired;
  if (claims.nbf !== undefined && (claims.nbf - clockSkewSeconds) * 1000 > now) {
    return refused(401, "the token is not valid yet: compare the clocks of this server and of the API server");
  }
  const { node } = claims["kubernetes.io"];
  const expiresAt = (claims.exp * 1000) as UnixMs;
  const whose = accountRole(claims.sub, rules);
  if (whose.kind === "refused") return whose;
  if (whose.kind === "observer") return { kind: "known", identity: { user: claims.sub, node: undefined, expiresAt } };
  if (node === undefined) return namesNoNode;
  return { kind: "known", identity: agentOf(claims.sub, node.name, node.uid, expiresAt) };
}

export function agentOf(
  user: string,
  node: string,
  nodeUid: string | undefined,
  expiresAt: UnixMs | undefined,
): Identity {
  const uid = nodeUid === undefined ? {} : { nodeUid: nodeUid as Uid };
  return { user, node: node as NodeName, ...uid, expiresAt };
}

type Role = { readonly kind: "observer" | "agent" } | Extract<Verdict, { kind: "refused" }>;

/** Any pod can get a token of its own account: only those of the rules may speak for a node, or see everything. */
export function accountRole(user: string, rules: IdentityRules): Role {
  const account = accountOf(user);
  if (rules.observers.includes(account)) return { kind: "observer" };
  if (rules.agents.includes(account)) return { kind: "agent" };
  return refused(403, `${user} is not among the accounts of agents, ${rules.agents.join(", ")} (option auth.agents)`);
}

/** "namespace/name" of a ServiceAccount's user name. */
function accountOf(user: string): string {
  const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(user) ?? [];
  return namespace === undefined || name === undefined ? "" : `${namespace}/${name}`;
}

export function refused(status: 401 | 403, message: string): Extract<Verdict, { kind: "refused" }> {
  return { kind: "refused", status, message };
}

export const expired = refused(401, "the token has expired: mount it as a projected volume, which the kubelet renews");
export const namesNoNode = refused(
  403,
  "the token names no node: it must be a pod's own, from a projected volume, and the API server 1.30 or newer (ServiceAccountTokenPodNodeInfo)",
);
