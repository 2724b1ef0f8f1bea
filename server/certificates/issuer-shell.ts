// Issues this server's own certificate, renews it, and sees to it that agents trust its authority: the authorities lie in a Secret that
// the servers share, their certificates without the keys in a ConfigMap that agents mount. Both are made by whoever installs Cattail.
// Leaves what is due when to authority.ts.
import { createPrivateKey, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import * as v from "valibot";
import { Failure, type UnixMs } from "../../shared/kinds.ts";
import type { Api } from "../../shared/kube/api.ts";
import { type Logger, messageOf } from "../../shared/log.ts";
import type { Certificate } from "../../shared/process/files.ts";
import type { Clock, Random } from "../../shared/world.ts";
import {
  type Issued,
  isDue,
  type Lifetime,
  newAuthorityLife,
  newCertificateLife,
  planAuthorities,
} from "./authority.ts";
import { newAuthority, newServerCertificate } from "./x509-shell.ts";

/** Name of both the Secret and the ConfigMap. */
export const authorityName = "cattail-authority";

/** Another server's successor is noticed within this. */
export const roundMs = 10 * 60_000;
export const retryMs = 5_000;
/** Several servers that start at the same time write one after another; each has read what the one before it wrote. */
const maxAttempts = 10;

export interface IssuerParts {
  readonly api: Api;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly namespace: string;
  /** What agents expect to reach. */
  readonly name: string;
  /** For the metrics. */
  readonly expires: (use: "server" | "ca", at: UnixMs) => void;
}

interface Authority extends Lifetime {
  readonly cert: string;
  readonly key: string;
}

/** A `Rotating` that begins without a certificate. */
export class Issuer {
  readonly #parts: IssuerParts;
  readonly #listeners: ((certificate: Certificate | undefined) => void)[] = [];
  #issued: (Issued<string> & Certificate) | undefined;
  #problem: string | undefined = "no certificate has been issued yet";
  #cancel = (): void => {};
  #round: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(parts: IssuerParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#round = this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel();
    await this.#round;
  }

  current(): Certificate | undefined {
    return this.#issued;
  }

  onChange(changed: (certificate: Certificate | undefined) => void): void {
    this.#listeners.push(changed);
  }

  /** Why there is no certificate to show; undefined: there is one. */
  get problem(): string | undefined {
    return this.#issued === undefined ? this.#problem : undefined;
  }

  async #run(): Promise<void> {
    const { clock, random, logger } = this.#parts;
    let waitMs = roundMs;
    try {
      await this.#once();
    } catch (err) {
      if (!(err instanceof Failure)) throw err;
      this.#problem = messageOf(err);
      logger.warn("Could not look after the stream's certificate", { err });
      waitMs = retryMs;
    }
    if (this.#stopped) return;
    this.#cancel = clock.after(waitMs + random.below(waitMs / 10), () => this.start());
  }

  async #once(): Promise<void> {
    const { clock } = this.#parts;
    const trusted = await this.#authorities();
    await this.#publish(trusted);
    const { signer } = planAuthorities(trusted, clock.wall());
    if (signer === undefined || !isDue(this.#issued, signer.cert, clock.wall())) return;
    this.#issue(signer);
  }

  /** As they are kept, a successor included if one was due. */
  async #authorities(): Promise<readonly Authority[]> {
    const { clock, random, logger } = this.#parts;
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const secret = await this.#read("secrets");
      const plan = planAuthorities(authoritiesIn(secret.data), clock.wall());
      if (!plan.wantsSuccessor) return plan.trusted;
      const life = newAuthorityLife(clock.wall());
      const made = { ...newAuthority(`cattail-authority ${random.hex(4)}`, life), ...life };
      const all = [...plan.trusted, made];
      const encoded = (part: "cert" | "key"): string =>
        Buffer.from(all.map((authority) => authority[part]).join("")).toString("base64");
      if (await this.#write("secrets", secret, { [certKey]: encoded("cert"), [keyKey]: encoded("key") })) {
        logger.info("Made an authority for the servers' certificates", { seconds: lifeSeconds(life) });
        return all;
      }
    }
    throw new Failure("api-conflict", `others keep changing the Secret ${authorityName}`);
  }

  async #publish(trusted: readonly Authority[]): Promise<void> {
    const { logger, expires } = this.#parts;
    const bundle = trusted.map(({ cert }) => cert).join("");
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const config = await this.#read("configmaps");
      expires("ca", Math.min(...trusted.map(({ until }) => until)) as UnixMs);
      if (config.data?.[certKey] === bundle) return;
      if (await this.#write("configmaps", config, { [certKey]: bundle })) {
        logger.info("Published the authorities that agents are to trust", { count: trusted.length });
        return;
      }
    }
    throw new Failure("api-conflict", `others keep changing the ConfigMap ${authorityName}`);
  }

  #issue(signer: Authority): void {
    const { clock, logger, name, expires } = this.#parts;
    const life = newCertificateLife(signer, clock.wall());
    const pair = newServerCertificate([name], life, signer);
    this.#issued = { ...pair, ...life, expiry: life.until, signer: signer.cert };
    expires("server", life.until);
    logger.info("Issued the stream's certificate", { seconds: lifeSeconds(life) });
    for (const changed of this.#listeners) changed(this.#issued);
  }

  async #read(resource: Resource): Promise<Kept> {
    try {
      return v.parse(kept, await this.#parts.api.get(this.#path(resource)));
    } catch (cause) {
      if (!(cause instanceof Failure) || cause.code !== "api-missing") throw cause;
      const what = resource === "secrets" ? "Secret" : "ConfigMap";
      const next = "Apply the chart again, which makes it, or set tls.certFile";
      throw new Failure("api-missing", `there is no ${what} ${authorityName}. ${next}`, { cause });
    }
  }

  /** False: somebody else has written since. */
  async #write(resource: Resource, read: Kept, data: Readonly<Record<string, string>>): Promise<boolean> {
    const { resourceVersion } = read.metadata;
    try {
      await this.#parts.api.patch(this.#path(resource), { metadata: { resourceVersion }, data });
      return true;
    } catch (error) {
      if (error instanceof Failure && error.code === "api-conflict") return false;
      throw error;
    }
  }

  #path(resource: Resource): string {
    return `/api/v1/namespaces/${this.#parts.namespace}/${resource}/${authorityName}`;
  }
}

type Resource = "secrets" | "configmaps";
const certKey = "ca.crt";
const keyKey = "ca.key";

const kept = v.object({
  metadata: v.object({ resourceVersion: v.string() }),
  data: v.optional(v.record(v.string(), v.string())),
});
type Kept = v.InferOutput<typeof kept>;

/** Certificates and keys lie one behind another in the same order. */
function authoritiesIn(data: Kept["data"]): Authority[] {
  const [certs, keys] = [certKey, keyKey].map((key) =>
    blocksOf(Buffer.from(data?.[key] ?? "", "base64").toString("utf8")),
  );
  try {
    if (certs === undefined || keys === undefined || certs.length !== keys.length)
      throw new Error(`${certKey} and ${keyKey} are not of the same length`);
    return certs.map((cert, index) => authorityOf(cert, keys[index] ?? ""));
  } catch (cause) {
    // Not made anew over it: agents may trust what somebody has put there.
    const next = `Remove ${certKey} and ${keyKey} from it, and new ones are made`;
    throw new Failure("bad-config", `the Secret ${authorityName} cannot be used: ${messageOf(cause)}. ${next}`, {
      cause,
    });
  }
}

function blocksOf(pem: string): string[] {
  return pem.match(/-----BEGIN ([A-Z ]+)-----[\s\S]+?-----END \1-----\n?/g) ?? [];
}

function authorityOf(cert: string, key: string): Authority {
  const parsed = new X509Certificate(cert);
  createSecureContext({ cert, key });
  if (!parsed.ca || createPrivateKey(key).asymmetricKeyDetails?.namedCurve !== "prime256v1")
    throw new Error("it is not of an authority with a key on P-256");
  const [from, until] = [parsed.validFromDate.getTime() as UnixMs, parsed.validToDate.getTime() as UnixMs];
  return { cert, key, from, until };
}

function lifeSeconds({ from, until }: Lifetime): number {
  return Math.round((until - from) / 1000);
}
