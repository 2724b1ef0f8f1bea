// Who a client is: its ServiceAccount token, verified with the cluster's signing keys, and the node it is bound to. So agents can move
// while the API server is away. The API server's own word (TokenReview) follows in the background: a revoked token loses its stream.
// Leaves to hub-shell.ts what is refused how, and to hello.ts what an identity may ask for.
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { LRUCache } from "lru-cache";
import { Failure, type Instant, type NodeName, type Uid, type UnixMs } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import type { Clock, Random } from "../../shared/world.ts";
import { Bucket } from "./bucket.ts";
import { review } from "./review.ts";
import { expired, readToken, refused, type SignedToken, weigh } from "./token.ts";

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
  /** Has the API server look at the token now and then; `revoked` is called once if it does not know it any more. The result ends it. */
  follow(token: string, revoked: () => void): () => void;
}

/** The cluster's public keys, and whose tokens they sign. */
export interface SigningKeys {
  /** unknown: no key of this name or of this issuer, even after looking anew. */
  check(token: SignedToken): Promise<"good" | "bad" | "unknown">;
}

export interface VerifierParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly random: Random;
  readonly keys: SigningKeys;
  readonly rules: IdentityRules;
}

/** How long the API server's word stands without being asked for again. */
const acceptedMs = 5 * 60_000;
const refusedMs = 10_000;
/**
 * A followed token is looked at within so much, and again after as much: 5,000 agents are 8 reviews a second for the whole cluster.
 * It ends by itself, too, with its pod's Node (hub-shell.ts) and after an hour at the latest, as kubelets ask for it.
 */
export const followMs = 10 * 60_000;
const retryFollowMs = 60_000;
const maxFollowsUnderWay = 4;
/** Agents of the largest cluster, with their token before the present one. */
const maxVerdicts = 16_384;
/** Somebody may send ever new tokens of unknown keys: the API server is not to be asked about more than so many. */
const reviewsPerSecond = 20;
const reviewBurst = 200;

interface Entry {
  readonly verdict: Verdict;
  readonly reviewedAt: Instant;
}

export function tokenVerifier({ api, clock, random, keys, rules }: VerifierParts): Verifier {
  const verdicts = new LRUCache<string, Entry>({ max: maxVerdicts });
  const underWay = new Map<string, Promise<Verdict>>();
  const reviews = new Bucket(reviewsPerSecond, reviewBurst, clock.monotonic());
  const waiting: (() => void)[] = [];
  let following = 0;

  /** The API server's word. While it is away the last one on a token stands: its outage locks nobody out. */
  function asked(key: string, ask: () => Promise<Verdict>): Promise<Verdict> {
    const known = verdicts.get(key);
    if (known !== undefined && clock.monotonic() - known.reviewedAt < standsFor(known.verdict)) {
      return Promise.resolve(known.verdict);
    }
    const asking =
      underWay.get(key) ??
      ask()
        .then((verdict) => {
          verdicts.set(key, { verdict, reviewedAt: clock.monotonic() });
          return verdict;
        })
        .catch((error: unknown) => {
          if (known !== undefined && error instanceof Failure && isAway(error)) return known.verdict;
          throw error;
        })
        .finally(() => underWay.delete(key));
    underWay.set(key, asking);
    return asking;
  }

  async function reviewSparingly(token: string): Promise<Verdict> {
    if (reviews.take(clock.monotonic()) > 0) {
      throw new Failure("api-throttled", "too many tokens of unknown keys are asked about already");
    }
    return review(api, token, rules);
  }

  async function judge(token: string, key: string): Promise<Verdict> {
    const read = readToken(token);
    if (read === undefined) return refused(401, "this is no ServiceAccount token that an API server has signed");
    const weighed = weigh(read, rules, clock.wall());
    // What refuses by its own words needs nobody's proof.
    if (weighed.kind === "refused") return weighed;
    const known = verdicts.get(key);
    // Whom the API server has refused is let in again by nobody else.
    if (known?.verdict.kind === "refused") return asked(key, () => reviewSparingly(token));
    const signature = await keys.check(read);
    if (signature === "bad") return refused(401, "the token's signature is wrong");
    if (signature === "unknown") return asked(key, () => reviewSparingly(token));
    return weighed;
  }

  async function turn(): Promise<void> {
    // Whoever ends hands its place over, so that nobody takes it in between.
    if (following >= maxFollowsUnderWay) await new Promise<void>((resolve) => waiting.push(resolve));
    else following++;
  }

  return {
    async verify(token) {
      return stillValid(await judge(token, keyOf(token)), clock.wall());
    },

    follow(token, revoked) {
      const key = keyOf(token);
      let isOver = false;
      let cancel = clock.after(random.below(followMs), () => void look());
      async function look(): Promise<void> {
        await turn();
        let nextMs = followMs;
        try {
          if (isOver) return;
          const verdict = await review(api, token, rules);
          verdicts.set(key, { verdict, reviewedAt: clock.monotonic() });
          if (isOver || verdict.kind === "known") return;
          isOver = true;
          revoked();
        } catch (error) {
          // What nobody can tell now is asked again; the stream goes on meanwhile.
          if (!(error instanceof Failure)) throw error;
          nextMs = retryFollowMs;
        } finally {
          const next = waiting.shift();
          if (next === undefined) following--;
          else next();
          if (!isOver) cancel = clock.after(nextMs / 2 + random.below(nextMs / 2), () => void look());
        }
      }
      return () => {
        isOver = true;
        cancel();
      };
    },
  };
}

/** The cache is no store of tokens. */
function keyOf(token: string): string {
  return bytesToHex(sha256(utf8ToBytes(token)));
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
  return expired;
}
