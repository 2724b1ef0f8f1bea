// The pages of the admin port, which listens on loopback only: what this process runs with, and how much it says.
// Leaves to others: pages about a component's own state, which the component adds.
import type { IncomingMessage } from "node:http";
import { allowed, parseValue } from "../config/value.ts";
import { type Level, type Log, type Logger, levels } from "../log.ts";
import type { Clock } from "../world.ts";
import { type Answer, json, type Page, type PageAnswer, text } from "./http.ts";

/** A page of any site can make a browser send a POST here, but not with a header of its own. */
const csrfHeader = "x-cattail-csrf";

/** Loopback keeps other machines out; this keeps out the pages in a browser on this one. */
export function guardAdmin(request: IncomingMessage): PageAnswer | undefined {
  const host = (request.headers.host ?? "").replace(/:\d+$/, "");
  if (host !== "localhost" && host !== "127.0.0.1" && host !== "[::1]") {
    return text(403, "this port answers to localhost, 127.0.0.1 and [::1]\n");
  }
  if (request.method === "POST" && request.headers[csrfHeader] === undefined) {
    return text(403, `a POST needs the header ${csrfHeader}\n`);
  }
  return undefined;
}

const revertAfter = { kind: "duration", min: "1s", max: "24h", help: "When the level goes back" } as const;
const revertAfterDefault = "10m";

export interface LogLevelParts {
  readonly log: Log;
  readonly logger: Logger;
  /** What the level goes back to. */
  readonly configured: () => Level;
  readonly clock: Clock;
}

/** GET says the level; POST ?level=debug&for=10m sets it, and it goes back by itself. */
export function logLevelPage({ log, logger, configured, clock }: LogLevelParts): { page: Page; close: () => void } {
  let cancel = (): void => {};
  const say = (): PageAnswer => json(200, { level: log.level(), configured: configured() });
  const post: Answer = ({ query }) => {
    const level = levels.find((known) => known === query.get("level"));
    const delayMs = parseValue(revertAfter, query.get("for") ?? revertAfterDefault);
    if (level === undefined || typeof delayMs !== "number") {
      return text(400, `write ?level=${levels.join("|")} and, if you like, &for=${allowed(revertAfter)}\n`);
    }
    cancel();
    cancel = clock.after(delayMs, () => log.setLevel(configured()));
    log.setLevel(level);
    logger.info("Changed the log level for a while", { value: level, seconds: delayMs / 1000 });
    return say();
  };
  return { page: { get: say, post }, close: () => cancel() };
}
