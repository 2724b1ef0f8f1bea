// Reads kube-apiserver's audit log as the list of requests that a test asks about.
// Which requests are logged is the policy's business (control-plane.ts).
import { type FSWatcher, watch } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { StringDecoder } from "node:string_decoder";
import type { SeenRequest } from "../cluster/api.ts";

/** What we read of audit.k8s.io/v1 Event; written by the API server itself, so its shape is taken as given. */
interface AuditEvent {
  readonly auditID: string;
  readonly stage: "RequestReceived" | "ResponseStarted" | "ResponseComplete" | "Panic";
  readonly requestURI: string;
  readonly verb: string;
  readonly user: { readonly username?: string };
  readonly userAgent?: string;
  readonly objectRef?: {
    readonly apiGroup?: string;
    readonly resource?: string;
    readonly subresource?: string;
    readonly namespace?: string;
    readonly name?: string;
  };
  readonly responseStatus?: { readonly code?: number };
}

interface Entry {
  readonly uri: string;
  /** Undefined until it was answered or, for a watch, has begun. */
  seen: SeenRequest | undefined;
}

/** One file, written by one run of the API server. */
export class AuditLog {
  readonly #path: string;
  readonly #file: FileHandle;
  readonly #decoder = new StringDecoder("utf8");
  /** In the order in which the requests came in. */
  readonly #entries: Entry[] = [];
  readonly #unanswered = new Map<string, Entry>();
  #partialLine = "";

  private constructor(path: string, file: FileHandle) {
    this.#path = path;
    this.#file = file;
  }

  static async open(path: string): Promise<AuditLog> {
    return new AuditLog(path, await open(path, "a+"));
  }

  /**
   * Every request that came in before the one for `lastUri`. The server writes an event in the goroutine that answers, yet a large answer may
   * be read by its client a moment before the event is written; so this waits until each of them has its outcome.
   */
  async until(lastUri: string): Promise<readonly SeenRequest[]> {
    let upTo = -1;
    await this.#follow(() => {
      upTo = this.#entries.findLastIndex((entry) => entry.uri === lastUri);
      return upTo >= 0 && this.#entries.slice(0, upTo).every((entry) => entry.seen !== undefined);
    });
    return this.#entries.slice(0, upTo).flatMap((entry) => entry.seen ?? []);
  }

  /** The server has ended: all there is. */
  async close(): Promise<readonly SeenRequest[]> {
    await this.#read();
    await this.#file.close();
    return this.#entries.flatMap((entry) => entry.seen ?? []);
  }

  async #follow(enough: () => boolean): Promise<void> {
    let changed = Promise.withResolvers<void>();
    const watcher: FSWatcher = watch(this.#path, () => changed.resolve());
    try {
      for (;;) {
        changed = Promise.withResolvers(); // before reading, so that a line written meanwhile is not missed
        await this.#read();
        if (enough()) return;
        await changed.promise;
      }
    } finally {
      watcher.close();
    }
  }

  async #read(): Promise<void> {
    const buffer = Buffer.allocUnsafe(1 << 20);
    for (;;) {
      const { bytesRead } = await this.#file.read(buffer);
      if (bytesRead === 0) return;
      const lines = (this.#partialLine + this.#decoder.write(buffer.subarray(0, bytesRead))).split("\n");
      this.#partialLine = lines.pop() ?? "";
      for (const line of lines) this.#take(JSON.parse(line) as AuditEvent);
    }
  }

  #take(event: AuditEvent): void {
    if (event.stage === "RequestReceived") {
      const entry: Entry = { uri: event.requestURI, seen: undefined };
      this.#entries.push(entry);
      this.#unanswered.set(event.auditID, entry);
      return;
    }
    // A watch has ResponseStarted when it begins and ResponseComplete when it ends; the first of them counts.
    const entry = this.#unanswered.get(event.auditID);
    this.#unanswered.delete(event.auditID);
    if (entry !== undefined) entry.seen = seenRequest(event);
  }
}

function seenRequest({ verb, requestURI, user, userAgent, objectRef, responseStatus }: AuditEvent): SeenRequest {
  const { apiGroup = "", resource, subresource, namespace = "", name = "" } = objectRef ?? {};
  const path = requestURI.split("?")[0] ?? "";
  return {
    verb,
    resource: [resource ?? path, ...(subresource === undefined ? [] : [subresource])].join("/"),
    group: apiGroup,
    namespace,
    // The embedded server's log does not look into bodies, where the name of a new object stands.
    name: verb === "create" && subresource === undefined ? "" : name,
    client: userAgent ?? "",
    user: user.username ?? "",
    code: responseStatus?.code ?? 0,
  };
}
