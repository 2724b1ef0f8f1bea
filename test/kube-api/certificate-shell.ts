// A certificate for loopback, made on the spot. Self-signed; good for a test server and for nothing else.
import { type KeyPair, newSelfSigned } from "../../server/certificates/x509-shell.ts";
import type { UnixMs } from "../../shared/kinds.ts";

export type Certificate = KeyPair;

/** For ten years from `now`. */
export function loopbackCertificate(now = new Date(), names = ["localhost", "127.0.0.1", "::1"]): Certificate {
  const from = now.getTime() as UnixMs;
  const until = (from + 10 * 365 * 86_400_000) as UnixMs;
  return newSelfSigned("cattail embedded API server", names, { from, until });
}
