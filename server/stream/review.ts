// The API server's own word on a token (TokenReview).
// Leaves to identity.ts when it is asked, and to token.ts what a token must say.
import * as v from "valibot";
import { Failure } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import type { Identity, IdentityRules, Verdict } from "./identity.ts";
import { accountRole, agentOf, namesNoNode, readToken, refused } from "./token.ts";

const reviewPath = "/apis/authentication.k8s.io/v1/tokenreviews";
const claimKey = (what: string): string => `authentication.kubernetes.io/${what}`;

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

/** Rejects with a Failure when the API server does not answer, or not in a way that can be read. */
export async function review(api: Api, token: string, rules: IdentityRules): Promise<Verdict> {
  const answer = await api.create(reviewPath, {
    apiVersion: "authentication.k8s.io/v1",
    kind: "TokenReview",
    spec: { token, audiences: [rules.audience] },
  });
  const parsed = v.safeParse(reviewed, answer);
  if (!parsed.success) throw new Failure("bad-message", "the API server's TokenReview cannot be read");
  const { authenticated, audiences, error, user } = parsed.output.status;
  if (!authenticated || !audiences.includes(rules.audience)) {
    const why = error === undefined ? "" : ` (${error})`;
    return refused(401, `the API server does not know this token for the audience "${rules.audience}"${why}`);
  }
  const username = user.username ?? "";
  const role = accountRole(username, rules);
  if (role.kind === "refused") return role;
  const exp = readToken(token)?.claims.exp;
  const expiresAt = exp === undefined ? undefined : ((exp * 1000) as Identity["expiresAt"]);
  if (role.kind === "observer") return { kind: "known", identity: { user: username, node: undefined, expiresAt } };
  const told = (what: string): string | undefined => user.extra?.[claimKey(what)]?.[0];
  const node = told("node-name");
  if (node === undefined) return namesNoNode;
  return { kind: "known", identity: agentOf(username, node, told("node-uid"), expiresAt) };
}
