// The Kubernetes API as the server's other parts see it: requests with their outcomes as values or Failures, and nothing about HTTP.
// Implemented by client-shell.ts; the simulation implements it over its own API server.

import { Failure, type FailureCode } from "../kinds.ts";

/** Bodies are parsed losslessly (shared/json): 64-bit integers arrive as bigint. */
export interface Api {
  get(path: string, accept?: string): Promise<unknown>;
  create(path: string, body: unknown): Promise<unknown>;
  /** JSON merge patch with metadata.resourceVersion in it: compare-and-swap. Never retried here. */
  patch(path: string, mergePatch: unknown): Promise<unknown>;
  /** Both are sent as preconditions. */
  remove(path: string, preconditions: { readonly uid: string; readonly resourceVersion?: string }): Promise<void>;
}

/**
 * Every method rejects with a Failure (shared/kinds.ts) whose code says what is known:
 * `api-missing`, `api-exists`, `api-conflict`, `api-invalid`, `api-forbidden`, `api-unauthorized`: not written.
 * `api-throttled`: not written; `detail.retryAfterMs` on the ApiFailure. `api-unavailable`, `timeout`: it may have been written, now or later.
 */
export interface ApiFailureDetail {
  /** 0 = there was no answer. */
  readonly status: number;
  readonly reason: string;
  readonly retryAfterMs?: number;
}

export class ApiFailure extends Failure {
  readonly detail: ApiFailureDetail;
  constructor(code: FailureCode, message: string, detail: ApiFailureDetail, options?: ErrorOptions) {
    super(code, message, options);
    this.detail = detail;
  }
}
