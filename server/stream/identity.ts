// Who a client is: its ServiceAccount token, as the API server judges it (TokenReview), and the node it is bound to.
// Leaves to hub-shell.ts what is refused how, and to hello.ts what an identity may ask for.
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { LRUCache } from "lru-cache";
import * as v from "valibot";
import { Failure, type NodeName, type Uid, type UnixMs } from "../../shared/kinds.ts";
import type { Clock } from "../../shared/world.ts";
import type { Api } from "../upstream/api.ts";

export interface Identity {
  /** "system:serviceaccount:cattail-system:cattail-agent" */
  readonly user: string;
  /** The node whose agent it is; undefined: it is an observer. */
  readonly node: NodeName | undefined;
  /** Of the Node for which the token was made; undefined: the API server is too old to say. */
  readonly nodeUid?: Uid | undefined;
  /** The stream ends with the token. */
  readonly expiresAt: UnixMs | undefined;
}

/** `message` tells whoever reads the client's log what to do. */
export type Verdict =
  | { readonly kind: "known"; readonly identity: Identity }
  | { readonly kind: "refused"; readonly status: 401 | 403; readonly message: string };

export interface IdentityRules {
  readonly audience: string;
  /** ServiceAccounts as "namespace/name". Any pod can get a token of its own account: only these may speak for their node. */
  readonly agents: readonly string[];
  readonly observers: readonly string[];
}

export interface Verifier {
  /** Rejects when nobody can tell, since the API server does not answer. */
  verify(token: string): Promise<Verdict>;
}

/** How long a verdict stands without being asked for again. A token that was revoked is found out so much later. */
const acceptedMs = 5 * 60_000;
const refusedMs = 10_000;
/** Agents of the largest cluster, with their token before the present one. */
const maxVerdicts = 16_384;

interface Entry {
  readonly verdict: Verdict;
  readonly reviewedAt: number;
}

const reviewPath = "/apis/authentication.k8s.io/v1/tokenreviews";
const nodeNameKey = "authentication.kubernetes.io/node-name";
const nodeUidKey = "authentication.kubernetes.io/node-uid";

const reviewed = v.object({
  status: v.object({
    authenticated: v.optional(v.boolean(), false),
    audiences: v.optional(v.array(v.string()), []),
    error: v.optional(v.string()),
    user: v.optional(
      v.object({
        username: v.optional(v.string(), ""),
        extra: v.optional(v.record(v.string(), v.array(v.string())), {}),
      }),
      {},
    ),
  }),
});

export function tokenVerifier(api: Api, clock: Clock, rules: IdentityRules): Verifier {
  const verdicts = new LRUCache<string, Entry>({ max: maxVerdicts });
  const underWay = new Map<string, Promise<Verdict>>();

  async function review(key: string, token: string): Promise<Verdict> {
    const known = verdicts.get(key);
    try {
      const body = {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenReview",
        spec: { token, audiences: [rules.audience] },
      };
      const verdict = judge(await api.create(reviewPath, body), token, rules);
      verdicts.set(key, { verdict, reviewedAt: clock.monotonic() });
      return verdict;
    } catch (error) {
      // The last word on an unexpired token stands while the API server is away: its outage locks nobody out.
      if (known?.verdict.kind === "known" && error instanceof Failure && isAway(error)) return known.verdict;
      throw error;
    }
  }

  return {
    async verify(token) {
      // The cache is no store of tokens.
      const key = bytesToHex(sha256(utf8ToBytes(token)));
      const known = verdicts.get(key);
      if (known !== undefined && clock.monotonic() - known.reviewedAt < standsFor(known.verdict)) {
        return stillValid(known.verdict, clock.wall());
      }
      const asked = underWay.get(key) ?? review(key, token).finally(() => underWay.delete(key));
      underWay.set(key, asked);
      return stillValid(await asked, clock.wall());
    },
  };
}

function standsFor(verdict: Verdict): number {
  return verdict.kind === "known" ? acceptedMs : refusedMs;
}

function isAway(error: Failure): boolean {
  return error.code === "api-unavailable" || error.code === "timeout" || error.code === "api-throttled";
}

function stillValid(verdict: Verdict, now: UnixMs): Verdict {
  if (verdict.kind === "refused" || verdict.identity.expiresAt === undefined || verdict.identity.expiresAt > now) {
    return verdict;
  }
  return refused(401, "the token has expired: mount it as a projected volume, which the kubelet renews");
}

function judge(answer: unknown, token: string, rules: IdentityRules): Verdict {
  const parsed = v.safeParse(reviewed, answer);
  if (!parsed.success) throw new Failure("bad-message", "the API server's TokenReview cannot be read");
  const { authenticated, audiences, error, user } = parsed.output.status;
  if (!authenticated || !audiences.includes(rules.audience)) {
    const why = error === undefined ? "" : ` (${error})`;
    return refused(401, `the API server does not know this token for the audience "${rules.audience}"${why}`);
  }
  const account = accountOf(user.username ?? "");
  const identity = { user: user.username ?? "", expiresAt: expiryOf(token) };
  if (rules.observers.includes(account)) return { kind: "known", identity: { ...identity, node: undefined } };
  if (!rules.agents.includes(account)) {
    return refused(
      403,
      `${user.username} is not among the accounts of agents, ${rules.agents.join(", ")} (option auth.agents)`,
    );
  }
  const [node] = user.extra?.[nodeNameKey] ?? [];
  if (node === undefined) {
    return refused(
      403,
      "the token names no node: it must be a pod's own, from a projected volume, and the API server 1.30 or newer (ServiceAccountTokenPodNodeInfo)",
    );
  }
  const [nodeUid] = (user.extra?.[nodeUidKey] ?? []) as Uid[];
  return {
    kind: "known",
    identity: { ...identity, node: node as NodeName, ...(nodeUid !== undefined && { nodeUid }) },
  };
}

function refused(status: 401 | 403, message: string): Verdict {
  return { kind: "refused", status, message };
}

/** "namespace/name" of a ServiceAccount's user name. */
function accountOf(username: string): string {
  const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(username) ?? [];
  return namespace === undefined || name === undefined ? "" : `${namespace}/${name}`;
}

/** Read from the token itself, which the API server has found good. Undefined: it is no JWT or has no end. */
function expiryOf(token: string): UnixMs | undefined {
  try {
    const payload = Uint8Array.fromBase64(token.split(".")[1] ?? "", { alphabet: "base64url" });
    const claims: unknown = JSON.parse(String.fromCharCode(...payload));
    const { exp } = v.parse(v.object({ exp: v.number() }), claims);
    return (exp * 1000) as UnixMs;
  } catch {
    return undefined;
  }
}
