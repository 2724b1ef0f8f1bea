// The spellings of time in Calico's and Kubernetes' objects.
import type { UnixMs } from "../kinds.ts";

/** RFC 3339, whole seconds, `Z`: `affinityClaimTime`, `releasedAt` (spec 1.7, trap 7). */
export function secondsText(now: UnixMs): string {
  return `${new Date(now).toISOString().slice(0, "2026-08-22T13:33:20".length)}Z`;
}

const nanosPerSecond = 1_000_000_000n;

/** As Go prints a UTC time: up to nine digits of fraction without trailing zeros. Display only (spec 4.9). */
export function goTimeText(nanos: bigint): string {
  const whole = new Date(Number(nanos / nanosPerSecond) * 1000).toISOString();
  const fraction = String(nanos % nanosPerSecond)
    .padStart(9, "0")
    .replace(/0+$/, "");
  return `${whole.slice(0, 10)} ${whole.slice(11, 19)}${fraction && `.${fraction}`} +0000 UTC`;
}

/** Kubernetes' MicroTime, of Leases and Events. */
export function microTime(now: UnixMs): string {
  return new Date(now).toISOString().replace("Z", "000Z");
}
