// Api over HTTP: lossless JSON bodies, outcomes as api.ts words them. Leaves sockets to http-shell.ts and every retry to the caller.
import { parseLossless, printLossless } from "../json/lossless.ts";
import { Failure } from "../kinds.ts";
import type { Api } from "./api.ts";
import { type Call, type Http, isJson } from "./http-shell.ts";
import { failureOf, refusalOfAnswer } from "./status.ts";

/** The API server gives up on a write after 34 s, but the write itself may still land later (kube-watch 9). */
const writeDeadlineMs = 15_000;
const readDeadlineMs = 10_000;
/** etcd holds objects of about 1.5 MiB. */
const maxObjectBytes = 16 << 20;

export function createApi(http: Pick<Http, "unary">): Api {
  const send = async (call: Omit<Call, "maxBytes">): Promise<unknown> => {
    const answer = await http.unary({ ...call, maxBytes: maxObjectBytes });
    const what = `${call.method} ${call.path}`;
    if (answer.status < 200 || answer.status > 299) {
      throw failureOf(refusalOfAnswer(answer.status, answer.retryAfter, answer.text), what);
    }
    return parsed(answer.contentType, answer.text, what);
  };
  const write = (method: string, path: string, body: unknown, contentType = "application/json"): Promise<unknown> =>
    send({ method, path, contentType, body: printLossless(body), deadlineMs: writeDeadlineMs });
  return {
    get: (path, accept) =>
      send({ method: "GET", path, deadlineMs: readDeadlineMs, ...(accept !== undefined && { accept }) }),
    create: (path, body) => write("POST", path, body),
    patch: (path, mergePatch) => write("PATCH", path, mergePatch, "application/merge-patch+json"),
    remove: async (path, preconditions) => {
      await write("DELETE", path, { apiVersion: "v1", kind: "DeleteOptions", preconditions });
    },
  };
}

/** An answer that cannot be read says as little about the write as none at all. */
function parsed(contentType: string, text: string, what: string): unknown {
  if (!isJson(contentType)) {
    throw new Failure("api-unavailable", `${what}: the answer is ${contentType || "of no type"}`);
  }
  try {
    return parseLossless(text);
  } catch (cause) {
    throw new Failure("api-unavailable", `${what}: the answer is no JSON`, { cause });
  }
}
