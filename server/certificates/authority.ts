// Which authority signs the servers' certificates, when it gets a successor, and when a certificate is renewed.
// Decides only; leaves making, keeping and publishing to issuer-shell.ts.
import type { UnixMs } from "../../shared/kinds.ts";

const dayMs = 86_400_000;
export const authorityLifeMs = 3 * 365 * dayMs;
/** Long enough that a cluster whose servers were off for months still has both side by side when they are back. */
export const successorBeforeMs = 365 * dayMs;
/** Until then every agent has read the new authority: a mounted ConfigMap follows within minutes, but a kubelet may be away. */
export const settleMs = dayMs;
export const certificateLifeMs = 90 * dayMs;
export const renewBeforeMs = 30 * dayMs;
/** For agents whose clock is slow. */
export const backdateMs = 5 * 60_000;

export interface Lifetime {
  readonly from: UnixMs;
  readonly until: UnixMs;
}

export interface Plan<A extends Lifetime> {
  /** What agents are to trust: all that have not ended, first made first. */
  readonly trusted: readonly A[];
  /** A new one is to be made and published before anything is signed. */
  readonly wantsSuccessor: boolean;
  /** Undefined: there is none yet. */
  readonly signer: A | undefined;
}

/** `kept` in any order. */
export function planAuthorities<A extends Lifetime>(kept: readonly A[], now: UnixMs): Plan<A> {
  const trusted = kept.filter(({ until }) => until > now).sort((a, b) => a.from - b.from);
  const settled = trusted.filter(({ from }) => from + backdateMs + settleMs <= now);
  return {
    trusted,
    wantsSuccessor: !trusted.some(({ until }) => until - now > successorBeforeMs),
    // Of those that nobody has had time to read, the first: most agents know it.
    signer: settled.at(-1) ?? trusted[0],
  };
}

export function newAuthorityLife(now: UnixMs): Lifetime {
  return { from: (now - backdateMs) as UnixMs, until: (now + authorityLifeMs) as UnixMs };
}

/** Never beyond its signer's own end. */
export function newCertificateLife(signer: Lifetime, now: UnixMs): Lifetime {
  return { from: (now - backdateMs) as UnixMs, until: Math.min(now + certificateLifeMs, signer.until) as UnixMs };
}

export interface Issued<A> extends Lifetime {
  readonly signer: A;
}

export function isDue<A>(issued: Issued<A> | undefined, signer: A, now: UnixMs): boolean {
  return issued === undefined || issued.signer !== signer || issued.until - now <= renewBeforeMs;
}
