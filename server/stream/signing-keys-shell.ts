// The keys with which the cluster signs ServiceAccount tokens: fetched from the API server, kept for when it is away, fetched
// anew when a token names a key that is not among them (rotation). Leaves to token.ts what a token must say.
import { createPublicKey, type KeyObject, verify, type webcrypto } from "node:crypto";
import * as v from "valibot";
import type { Instant } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import type { Logger } from "../../shared/log.ts";
import type { Clock } from "../../shared/world.ts";
import type { SigningKeys } from "./identity.ts";
import type { SignatureAlgorithm, SignedToken } from "./token.ts";

export interface SigningKeysParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly logger: Logger;
}

const configurationPath = "/.well-known/openid-configuration";
const keysPath = "/openid/v1/jwks";
/** The API server answers 406 to anything else, also to plain JSON. */
const keysType = "application/jwk-set+json";
/** A key that was taken away is believed for so long; tokens are looked at by the API server as well. */
const refreshMs = 10 * 60_000;
/** Tokens of unknown keys can be made by anybody. */
const leastBetweenMs = 10_000;
/** A cluster in rotation has a few. */
const maxKeys = 100;

const documentShape = v.object({
  issuer: v.string(),
  keys: v.pipe(
    v.array(v.looseObject({ kid: v.optional(v.string()), kty: v.string(), alg: v.optional(v.string()) })),
    v.maxLength(maxKeys),
  ),
});
type KeyDocument = v.InferOutput<typeof documentShape>;

interface Key {
  readonly algorithm: SignatureAlgorithm;
  readonly key: KeyObject;
}

export class ClusterKeys implements SigningKeys {
  readonly #parts: SigningKeysParts;
  #issuer: string | undefined;
  #keys: ReadonlyMap<string, Key> = new Map();
  #askedAt: Instant | undefined;
  #asking: Promise<void> | undefined;

  constructor(parts: SigningKeysParts) {
    this.#parts = parts;
  }

  /** Fetches them before the first token comes: it may come when the API server is away. */
  prefetch(): Promise<void> {
    return this.#refresh(leastBetweenMs);
  }

  async check(token: SignedToken): Promise<"good" | "bad" | "unknown"> {
    if (this.#keyFor(token) === undefined) await this.#refresh(leastBetweenMs);
    else void this.#refresh(refreshMs);
    const key = this.#keyFor(token);
    return key === undefined ? "unknown" : isSignedWith(key, token) ? "good" : "bad";
  }

  /** A cluster may take tokens of an earlier issuer too, of which only the API server knows. */
  #keyFor({ issuer, keyId }: SignedToken): Key | undefined {
    return issuer === this.#issuer ? this.#keys.get(keyId) : undefined;
  }

  #refresh(olderThanMs: number): Promise<void> {
    const now = this.#parts.clock.monotonic();
    if (this.#askedAt !== undefined && now - this.#askedAt < olderThanMs) return this.#asking ?? Promise.resolve();
    this.#askedAt = now;
    this.#asking ??= this.#fetch().finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #fetch(): Promise<void> {
    const { api, logger } = this.#parts;
    try {
      const { issuer } = v.parse(v.object({ issuer: v.string() }), await api.get(configurationPath));
      const { keys } = v.parse(v.object({ keys: v.array(v.unknown()) }), await api.get(keysPath, keysType));
      this.#take(v.parse(documentShape, { issuer, keys }));
    } catch (err) {
      // Those that are known stay good; about others the API server is asked.
      logger.warn("Could not fetch the keys with which the cluster signs tokens", { path: keysPath, err });
    }
  }

  #take({ issuer, keys }: KeyDocument): void {
    const known = new Map<string, Key>();
    for (const jwk of keys) {
      const key = keyOf(jwk);
      if (key !== undefined && jwk.kid !== undefined) known.set(jwk.kid, key);
    }
    this.#issuer = issuer;
    this.#keys = known;
  }
}

/** The algorithm follows from the key, never from the token: nobody can have a public key taken for a secret. */
function keyOf(jwk: KeyDocument["keys"][number]): Key | undefined {
  try {
    const key = createPublicKey({ key: jwk as webcrypto.JsonWebKey, format: "jwk" });
    const algorithm = algorithmOf(key);
    return algorithm === undefined ? undefined : { algorithm, key };
  } catch {
    return undefined; // of a kind that this Node does not know
  }
}

const curves: Readonly<Record<string, SignatureAlgorithm>> = {
  prime256v1: "ES256",
  secp384r1: "ES384",
  secp521r1: "ES512",
};

function algorithmOf(key: KeyObject): SignatureAlgorithm | undefined {
  if (key.asymmetricKeyType === "rsa") return "RS256";
  return curves[key.asymmetricKeyDetails?.namedCurve ?? ""];
}

function isSignedWith({ algorithm, key }: Key, token: SignedToken): boolean {
  if (token.algorithm !== algorithm) return false;
  const digest = `sha${algorithm.slice(2)}`;
  return verify(
    digest,
    Buffer.from(token.signed),
    { key, dsaEncoding: "ieee-p1363" },
    Buffer.from(token.signature, "base64url"),
  );
}
