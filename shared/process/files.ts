// Files that are replaced while we run: tokens, certificates, the configuration. Read again when they change; a bad new one keeps the old.
// Leaves to others: what a change means.
import { X509Certificate } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import { Failure, invariant, type UnixMs } from "../kinds.ts";
import type { Logger } from "../log.ts";
import type { Clock } from "../world.ts";

/** Looked at rather than watched: a mounted Secret changes by the exchange of a symbolic link three levels up. */
export const fileCheckMs = 10_000;

export interface Rotating<T> {
  current(): T;
  onChange(changed: (value: T) => void): void;
  /** Looks now. Also called by itself, every `fileCheckMs`. */
  check(): Promise<void>;
  close(): void;
}

export interface Certificate {
  readonly cert: string;
  readonly key: string;
  readonly expiry: UnixMs;
}
export interface Authorities {
  readonly ca: string;
  /** Of the one that expires first. */
  readonly expiry: UnixMs;
}

export interface Watching {
  readonly clock: Clock;
  readonly logger: Logger;
}

/** The token of a service account, without the newline some tools leave behind it. */
export function openToken(path: string, watching: Watching): Promise<Rotating<string>> {
  return openRotating(
    [path],
    ([text = ""]) => {
      const token = text.trim();
      if (token === "") throw new Failure("bad-config", `${path} is empty`);
      return token;
    },
    watching,
  );
}

/** Certificate and key are read together; a pair that does not match is one that is being replaced. */
export function openCertificate(certFile: string, keyFile: string, watching: Watching): Promise<Rotating<Certificate>> {
  return openRotating(
    [certFile, keyFile],
    ([cert = "", key = ""]) => {
      createSecureContext({ cert, key });
      return { cert, key, expiry: earliestExpiry(cert) };
    },
    watching,
  );
}

export function openAuthorities(caFile: string, watching: Watching): Promise<Rotating<Authorities>> {
  return openRotating([caFile], ([ca = ""]) => ({ ca, expiry: earliestExpiry(ca) }), watching);
}

/** `parse` throws if it will not have the contents: at the start that is a Failure, later the old value stays. */
export async function openRotating<T>(
  paths: readonly string[],
  parse: (contents: readonly string[]) => T,
  { clock, logger }: Watching,
): Promise<Rotating<T>> {
  const listeners: ((value: T) => void)[] = [];
  let seen: Seen<T>;
  try {
    seen = await read(paths, parse);
  } catch (cause) {
    throw new Failure("bad-config", `cannot use ${paths.join(" and ")}`, { cause });
  }
  let isClosed = false;
  let checking: Promise<void> | undefined;
  let cancel = clock.after(fileCheckMs, wake);

  function wake(): void {
    void check().finally(() => {
      if (!isClosed) cancel = clock.after(fileCheckMs, wake);
    });
  }

  function check(): Promise<void> {
    checking ??= look().finally(() => {
      checking = undefined;
    });
    return checking;
  }

  async function look(): Promise<void> {
    try {
      if ((await identity(paths)) === seen.identity) return;
      seen = await read(paths, parse);
    } catch (err) {
      logger.warn("Kept the old contents of a file that changed", { path: paths.join(" "), err });
      return;
    }
    logger.info("Read a file that changed", { path: paths.join(" ") });
    if (!isClosed) for (const changed of listeners) changed(seen.value);
  }

  return {
    current: () => seen.value,
    onChange: (changed) => void listeners.push(changed),
    check,
    close: () => {
      isClosed = true;
      cancel();
    },
  };
}

interface Seen<T> {
  readonly identity: string;
  readonly value: T;
}

async function read<T>(paths: readonly string[], parse: (contents: readonly string[]) => T): Promise<Seen<T>> {
  // Taken before reading: what changes in between is seen as a change at the next look.
  const before = await identity(paths);
  const contents = await Promise.all(paths.map((path) => readFile(path, "utf8")));
  return { identity: before, value: parse(contents) };
}

async function identity(paths: readonly string[]): Promise<string> {
  const states = await Promise.all(paths.map((path) => stat(path, { bigint: true })));
  return states.map(({ ino, mtimeNs, size }) => `${ino} ${mtimeNs} ${size}`).join();
}

function earliestExpiry(pem: string): UnixMs {
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? [];
  if (certificates.length === 0) throw new Failure("bad-config", "there is no PEM certificate in it");
  const expiry = Math.min(...certificates.map((text) => new X509Certificate(text).validToDate.getTime()));
  invariant(Number.isFinite(expiry), "every certificate has an end");
  return expiry as UnixMs;
}
