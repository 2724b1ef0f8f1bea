// The keys with which the cluster signs ServiceAccount tokens: fetched from the API server, kept on disk for when it is away, fetched
// anew when a token names a key that is not among them (rotation). Leaves to token.ts what a token must say.
import { createPublicKey, type JsonWebKey, type KeyObject, verify } from "node:crypto";
import { readFile, rename, writeFile } from "node:fs/promises";
import * as v from "valibot";
import type { Instant } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import type { Clock } from "../../shared/world.ts";
import type { Api } from "../upstream/api.ts";
import type { SigningKeys } from "./identity.ts";
import type { SignatureAlgorithm, SignedToken } from "./token.ts";

export interface SigningKeysParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Where the copy is kept; undefined: nowhere. */
  readonly file: string | undefined;
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
  #text = "";
  #askedAt: Instant | undefined;
  #asking: Promise<void> | undefined;

  constructor(parts: SigningKeysParts) {
    this.#parts = parts;
  }

  /** Takes over the copy on disk, if there is one. */
  async load(): Promise<void> {
    const { file, logger } = this.#parts;
    if (file === undefined) return;
    try {
      this.#take(v.parse(documentShape, JSON.parse(await readFile(file, "utf8"))));
    } catch (err) {
      const isAbsent = err instanceof Error && "code" in err && err.code === "ENOENT";
      if (!isAbsent) logger.warn("Could not read the copy of the cluster's signing keys", { path: file, err });
    }
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
      const document = v.parse(documentShape, { issuer, keys });
      this.#take(document);
      await this.#keep(document);
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

  async #keep(document: KeyDocument): Promise<void> {
    const { file, logger } = this.#parts;
    const text = JSON.stringify(document);
    if (file === undefined || text === this.#text) return;
    try {
      await writeFile(`${file}.new`, text, { mode: 0o600 });
      await rename(`${file}.new`, file);
      this.#text = text;
    } catch (err) {
      logger.warn("Could not write the copy of the cluster's signing keys", { path: file, err });
    }
  }
}

/** The algorithm follows from the key, never from the token: nobody can have a public key taken for a secret. */
function keyOf(jwk: KeyDocument["keys"][number]): Key | undefined {
  try {
    const key = createPublicKey({ key: jwk as JsonWebKey, format: "jwk" });
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
