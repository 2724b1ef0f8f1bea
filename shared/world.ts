// Everything outside that a decision may depend on. Production (shared/process/world.ts) and simulation each implement it once.
import type { Instant, UnixMs } from "./kinds.ts";

export interface Clock {
  monotonic(): Instant;
  wall(): UnixMs;
  /** Wall clock in nanoseconds, as Calico stamps new blocks (spec/calico-ipam.md 2.1). */
  wallNanos(): bigint;
  /** Calls `wake` once after `delayMs`; the result cancels it. */
  after(delayMs: number, wake: () => void): () => void;
}

export interface Random {
  /** Whole number, 0 <= n < limit. */
  below(limit: number): number;
  /** `bytes` random bytes as lower-case hex. */
  hex(bytes: number): string;
}
