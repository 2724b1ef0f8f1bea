// The named checks behind /livez and /readyz, and the text of their answers (ux 7).
// Leaves to others: HTTP (shared/process/http.ts) and what is checked. A check reads what is known; it never asks the network.

/** Undefined = fine; otherwise why not, in a few words. */
export type Check = () => string | undefined;
/** live: restarting this process would help. ready: it can do its job now. */
export type Probe = "live" | "ready";

export interface Health {
  /** Adds a check, or puts it in the place of the one of this name. */
  check(probe: Probe, name: string, check: Check): void;
  report(probe: Probe, options?: { readonly verbose?: boolean; readonly exclude?: readonly string[] }): HealthReport;
}

export interface HealthReport {
  readonly ok: boolean;
  /** As the API server writes it: `[+]name ok`, `[-]name failed: reason`. */
  readonly text: string;
}

export function createHealth(): Health {
  const checks: Record<Probe, Map<string, Check>> = { live: new Map(), ready: new Map() };
  return {
    check: (probe, name, check) => void checks[probe].set(name, check),
    report: (probe, { verbose = false, exclude = [] } = {}) => {
      const results = [...checks[probe]].map(([name, check]) => ({
        name,
        excluded: exclude.includes(name),
        problem: exclude.includes(name) ? undefined : check(),
      }));
      const ok = results.every(({ problem }) => problem === undefined);
      const unknown = exclude.filter((name) => !checks[probe].has(name));
      const lines = [
        ...results.map(({ name, excluded, problem }) => {
          if (excluded) return `[+]${name} excluded: ok`;
          return problem === undefined ? `[+]${name} ok` : `[-]${name} failed: ${problem}`;
        }),
        ...unknown.map((name) => `warn: no check "${name}" to exclude`),
        `${probe}z check ${ok ? "passed" : "failed"}`,
      ];
      // A failed probe always says why: it is read in an event of the kubelet, which asks without ?verbose.
      return { ok, text: ok && !verbose ? "ok\n" : `${lines.join("\n")}\n` };
    },
  };
}
