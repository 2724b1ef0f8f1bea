// One client's socket: its messages in, its session's frames out as fast as it reads them, its end.
// Leaves what is said to session.ts, who it is to hello.ts, and the clients together to hub-shell.ts.
import type { Duplex } from "node:stream";
import * as v from "valibot";
import type { RawData, WebSocket } from "ws";
import { isFields } from "../../shared/calico/fields.ts";
import { canonicalCidr } from "../../shared/ip/cidr.ts";
import type { BlockCidr, HandleId, Instant, PoolName } from "../../shared/kinds.ts";
import { impossible } from "../../shared/kinds.ts";
import type { Logger } from "../../shared/log.ts";
import {
  blockToWire,
  type Claim,
  type ClaimBlock,
  type ClientMessage,
  type Commit,
  clientMessage,
  type Index,
  type Problem,
  type ServerMessage,
} from "../../shared/protocol/stream.ts";
import { shortened } from "../../shared/reasons.ts";
import type { Clock } from "../../shared/world.ts";
import type { ClaimAnswer, Claims } from "../commit/claims.ts";
import type { CommitAnswer, Committer } from "../commit/committer.ts";
import { failureIn } from "../commit/desk.ts";
import type { Indexer } from "../commit/indexer.ts";
import { problem } from "../commit/problems.ts";
import type { Recorder } from "../events/recorder.ts";
import type { Store } from "../store/store.ts";
import type { ObjectReader } from "../upstream/object-reader.ts";
import type { Audience } from "./audience.ts";
import { frameOf, type ObjectFrames } from "./frames-shell.ts";
import { admit, closeCodes } from "./hello.ts";
import type { Identity } from "./identity.ts";
import { type LeaseParts, Tenancy } from "./lease.ts";
import { Session } from "./session.ts";

/** Beyond this much in the socket nothing is added: what changes meanwhile is sent once, as it is then. */
const softLimitBytes = 256 << 10;
/** A client that asks for answers and does not read them is not slow but broken. */
const hardLimitBytes = 32 << 20;
/** Commits and claims of one client that are not answered yet. An agent has one per block. */
const maxOutstanding = 256;
/** Objects that a client knows in a newer version than this server, looked at between two signs of life. */
const maxLooks = 64;
/** The WebSocket protocol allows 123 bytes; ours are ASCII. */
const maxCloseReasonChars = 123;

/** What the hub gives every client. */
export interface ClientParts {
  readonly store: Store;
  readonly reader: Pick<ObjectReader, "refresh">;
  readonly audience: Audience;
  readonly frames: ObjectFrames;
  readonly committer: Committer;
  readonly claims: Claims;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly lineage: () => string;
  readonly welcome: () => Extract<ServerMessage, { type: "welcome" }>;
  readonly indexer: Pick<Indexer, "index">;
  readonly lease: LeaseParts;
  readonly events: Pick<Recorder, "report">;
  readonly beat: (echo?: number, tenancy?: Tenancy) => ServerMessage;
  readonly sent: (type: SentType, bytes: number) => void;
  /** Something is to be flushed: soon, together with the others. */
  readonly due: (client: Client) => void;
  readonly admitted: (client: Client) => void;
  readonly closed: (client: Client, why: CloseReason) => void;
}

export type SentType = "snapshot" | "update" | "ack" | "heartbeat";
export type CloseReason = "client" | "drain" | "redirect" | "timeout" | "protocol" | "auth" | "stale";

export class Client {
  readonly identity: Identity;
  readonly since: Instant;
  heardAt: Instant;
  /** Since when it lacks something; undefined: it has everything. */
  behindSince: Instant | undefined;
  version = "";
  readonly #parts: ClientParts;
  readonly #ws: WebSocket;
  readonly #socket: Duplex;
  #session: Session | undefined;
  #tenancy: Tenancy | undefined;
  #outstanding = 0;
  /** The last ping that was answered, while this server still looks whether it may renew the lease. */
  #undecidedEcho: number | undefined;
  #isLooking = false;
  /** At once after the hello: until it is known, other nodes may claim what this one lost. Later with each sign of life. */
  #hasLooked = false;
  /** The last ping that came while the socket was full. */
  #owedEcho: number | undefined;
  #closing: CloseReason | undefined;
  #lastWord: { readonly code: number; readonly reason: string } | undefined;

  constructor(parts: ClientParts, ws: WebSocket, socket: Duplex, identity: Identity) {
    this.#parts = parts;
    this.#ws = ws;
    this.#socket = socket;
    this.identity = identity;
    this.since = parts.clock.monotonic();
    this.heardAt = this.since;
    ws.on("message", (data) => this.#receive(data));
    ws.on("pong", () => this.#heard());
    ws.on("ping", () => this.#heard());
    // Every error is followed by a close; without a listener it would end the process.
    ws.on("error", () => {
      this.#closing ??= "protocol";
    });
    ws.on("close", () => this.#closed());
    socket.on("drain", () => this.#drained());
  }

  get isAdmitted(): boolean {
    return this.#session !== undefined;
  }

  get isLive(): boolean {
    return this.#session?.synced ?? false;
  }

  get isClosing(): boolean {
    return this.#closing !== undefined;
  }

  get behind(): number {
    return this.#session?.behind ?? 0;
  }

  get bufferedBytes(): number {
    return this.#socket.writableLength;
  }

  get outstanding(): number {
    return this.#outstanding;
  }

  /** Sends what is due while there is room; the socket's `drain` calls again. True = something was sent. */
  flush(): boolean {
    const session = this.#session;
    let sent = false;
    if (session === undefined || this.isClosing) return sent;
    while (this.#socket.writableLength < softLimitBytes) {
      const type = session.synced ? "update" : "snapshot";
      const next = session.next();
      if (next === undefined) {
        this.behindSince = undefined;
        if (!this.#hasLooked) void this.#lookAhead(session);
        return sent;
      }
      this.#write(type, next.type === "put" ? this.#parts.frames.put(next.kind, next.object) : frameOf(next));
      sent = true;
    }
    return sent;
  }

  /** A sign of life, unless the socket is full: then the bytes in it are one. */
  beat(frame: Buffer): void {
    if (this.#session !== undefined) void this.#lookAhead(this.#session);
    this.#session?.reconsider();
    if (this.behind > 0) this.#parts.due(this);
    if (this.isClosing || this.#socket.writableLength >= softLimitBytes) return;
    if (this.isAdmitted) this.#write("heartbeat", frame);
    this.#ws.ping();
  }

  /** Its Node has come or gone: it learns that at once. */
  tellStanding(): void {
    if (this.isAdmitted && this.#tenancy !== undefined)
      this.#send("heartbeat", this.#parts.beat(undefined, this.#tenancy));
  }

  /** Tells it when to come back, answers what it has asked already, and closes. */
  bye(why: CloseReason, code: number, reason: string, retryAfterMs: number): void {
    if (this.isClosing) return;
    this.#send("update", { type: "bye", reason, retryAfterMs });
    this.#closing = why;
    this.#lastWord = { code, reason };
    this.#closeWhenAnswered();
  }

  /** Without a word: nobody is there, or nobody listens. */
  terminate(why: CloseReason): void {
    this.#closing ??= why;
    this.#ws.terminate();
  }

  #closed(): void {
    this.#closing ??= "client";
    if (this.#session !== undefined) this.#parts.audience.leave(this.#session);
    this.#parts.closed(this, this.#closing);
  }

  #close(why: CloseReason, code: number, reason: string): void {
    this.#closing ??= why;
    this.#lastWord = undefined;
    this.#ws.close(code, shortened(reason, maxCloseReasonChars).replace("…", "."));
  }

  #closeWhenAnswered(): void {
    if (this.#lastWord === undefined || this.#outstanding > 0) return;
    this.#close(this.#closing ?? "client", this.#lastWord.code, this.#lastWord.reason);
  }

  #drained(): void {
    if (this.#owedEcho !== undefined) this.#echo(this.#owedEcho);
    this.flush();
  }

  /** One answer is enough for the pings of a client that does not read. */
  #echo(sent: number): void {
    const isFull = this.#socket.writableLength >= softLimitBytes;
    this.#owedEcho = isFull ? sent : undefined;
    if (isFull) return;
    this.#send("heartbeat", this.#parts.beat(sent, this.#tenancy));
    if (this.#tenancy?.isUndecided) void this.#decide(this.#tenancy, sent);
  }

  /** Looks whether the Node is there, and answers the last ping once more, now that it is known what it is worth. */
  async #decide(tenancy: Tenancy, sent: number): Promise<void> {
    const isUnderWay = this.#undecidedEcho !== undefined;
    this.#undecidedEcho = sent;
    if (isUnderWay) return;
    try {
      await tenancy.check();
      this.#send("heartbeat", this.#parts.beat(this.#undecidedEcho, tenancy));
    } catch (error) {
      // The next ping asks again.
      this.#parts.logger.warn("Could not look whether a Node exists", { node: tenancy.node, err: failureIn(error) });
    }
    this.#undecidedEcho = undefined;
  }

  /** Lets the API server say whether this server is merely behind its client, or the data was set back. */
  async #lookAhead(session: Session): Promise<void> {
    this.#hasLooked = true;
    if (this.#isLooking) return;
    this.#isLooking = true;
    const { node } = this.identity;
    try {
      for (const [kind, name] of session.ahead().slice(0, maxLooks)) {
        const sight = await this.#parts.reader.refresh(node ?? "", kind, name);
        if (this.isClosing) break;
        if (session.learn(kind, name, sight)) {
          this.#startAfresh(session);
          break;
        }
      }
    } catch (error) {
      // The next sign of life looks again.
      this.#parts.logger.warn("Could not look whether the data was set back", { node, err: failureIn(error) });
    }
    this.#isLooking = false;
  }

  #startAfresh(session: Session): void {
    const { node } = this.identity;
    this.#parts.logger.warn("Lets a client start afresh, as the API server is behind it: its data was set back", {
      node,
    });
    // Who is live takes a reset only with a new hello.
    if (session.synced) return this.bye("stale", closeCodes.goingAway, "the data was set back", 0);
    this.#send("snapshot", { type: "reset", reason: "the data was set back" });
    session.startAfresh();
  }

  #heard(): void {
    this.heardAt = this.#parts.clock.monotonic();
  }

  #receive(data: RawData): void {
    this.#heard();
    if (this.isClosing) return;
    const parsed = parse(String(data));
    if (parsed.kind === "unknown") return;
    if (parsed.kind === "bad" && parsed.answer !== undefined && this.isAdmitted) {
      return this.#send("ack", parsed.answer);
    }
    if (parsed.kind === "bad") return this.#close("protocol", closeCodes.protocol, parsed.why);
    const { message } = parsed;
    const isHello = message.type === "hello";
    if (isHello === this.isAdmitted) {
      return this.#close("protocol", closeCodes.protocol, isHello ? "a second hello" : `${message.type} before hello`);
    }
    this.#handle(message);
  }

  #handle(message: ClientMessage): void {
    switch (message.type) {
      case "hello":
        this.#hello(message);
        break;
      case "ping":
        this.#echo(message.sent);
        break;
      case "commit":
        void this.#commit(message);
        break;
      case "claim":
        void this.#claim(message);
        break;
      case "claim-block":
        void this.#claim(message);
        break;
      case "index":
        void this.#index(message);
        break;
      case "report":
        if (this.identity.node !== undefined) this.#parts.events.report(this.identity.node, message);
        break;
      default:
        impossible(message);
    }
  }

  #hello(hello: Extract<ClientMessage, { type: "hello" }>): void {
    const { store, audience, lineage, welcome } = this.#parts;
    const admission = admit(hello, this.identity, lineage());
    if (admission.kind === "rejected") {
      this.#parts.logger.warn("Turned a client away", { node: hello.node, reason: "Forbidden", err: admission.reason });
      return this.#close("auth", admission.code, admission.reason);
    }
    this.version = hello.version;
    this.#send("snapshot", welcome());
    if (admission.reset !== undefined) this.#send("snapshot", { type: "reset", reason: admission.reset });
    const { scope } = admission;
    if (scope.kind === "node") {
      this.#tenancy = new Tenancy(this.#parts.lease, scope.node, this.identity, hello.leaseExpired ?? false);
    }
    const have = admission.reset === undefined ? hello.have : [];
    this.#session = new Session(scope, audience, store, have, () => this.#fallBehind());
    audience.join(this.#session);
    this.#parts.admitted(this);
    this.#fallBehind();
  }

  #fallBehind(): void {
    this.behindSince ??= this.#parts.clock.monotonic();
    this.#parts.due(this);
  }

  async #commit(commit: Commit): Promise<void> {
    const refusal = this.#refusal() ?? (isBlock(commit.block) ? undefined : notACidr(commit.block));
    const node = this.identity.node;
    if (refusal !== undefined || node === undefined) {
      return this.#send("ack", { type: "ack", id: commit.id, problem: refusal ?? observersOnlyLook });
    }
    this.#outstanding++;
    const block = commit.block as BlockCidr;
    const answer = await this.#parts.committer.commit({
      node,
      block,
      intents: commit.intents,
      handles: commit.handles,
    });
    this.#outstanding--;
    this.#acknowledge(commit.id, answer);
    this.#closeWhenAnswered();
  }

  #acknowledge(id: number, answer: CommitAnswer): void {
    if (answer.kind === "problem") return this.#send("ack", { type: "ack", id, problem: answer.problem });
    const results = [...answer.results];
    const told = answer.block === null ? null : this.#session?.answered(answer.block);
    const block = told === null ? null : told?.isNews ? blockToWire(told.block) : undefined;
    this.#send("ack", { type: "ack", id, results, ...(block !== undefined && { block }) });
    this.#parts.due(this);
  }

  async #claim(message: Claim | ClaimBlock): Promise<void> {
    const { id } = message;
    const refusal =
      this.#refusal() ??
      (message.type === "claim-block" && !isBlock(message.block) ? notACidr(message.block) : undefined);
    const node = this.identity.node;
    if (refusal !== undefined || node === undefined) {
      return this.#send("ack", { type: "claimed", id, problem: refusal ?? observersOnlyLook });
    }
    this.#outstanding++;
    const { claims } = this.#parts;
    const answer = await (message.type === "claim"
      ? claims.claim({
          node,
          pools: message.pools as PoolName[],
          full: new Set(message.full as BlockCidr[]),
          borrow: message.borrow ?? false,
        })
      : claims.claimBlock({ node, pool: message.pool as PoolName, block: message.block as BlockCidr }));
    this.#outstanding--;
    this.#claimed(id, answer);
    this.#closeWhenAnswered();
  }

  #claimed(id: number, answer: ClaimAnswer): void {
    if (answer.kind === "problem") return this.#send("ack", { type: "claimed", id, problem: answer.problem });
    const told = this.#session?.answered(answer.block).block ?? answer.block;
    const borrowed = answer.isBorrowed && { borrowed: true };
    this.#send("ack", { type: "claimed", id, block: blockToWire(told), ...borrowed });
    this.#parts.due(this);
  }

  async #index({ id, handles }: Index): Promise<void> {
    const refusal = this.#refusal();
    const node = this.identity.node;
    if (refusal !== undefined || node === undefined) {
      return this.#send("ack", { type: "indexed", id, problem: refusal ?? observersOnlyLook });
    }
    this.#outstanding++;
    const problem = await this.#parts.indexer.index(node, handles as HandleId[]);
    this.#outstanding--;
    this.#send("ack", { type: "indexed", id, ...(problem !== undefined && { problem }) });
    this.#closeWhenAnswered();
  }

  #refusal(): Problem | undefined {
    if (this.#outstanding < maxOutstanding) return undefined;
    return problem("CommitTimeout", `${maxOutstanding} requests of this client are under way`, 1_000);
  }

  #send(type: SentType, message: ServerMessage): void {
    if (!this.isClosing || this.#lastWord !== undefined) this.#write(type, frameOf(message));
  }

  /** Past `ws`, which would frame it anew for each socket. Safe since nothing is compressed and `ws` sends no data of its own. */
  #write(type: SentType, frame: Buffer): void {
    if (!this.#socket.writable) return;
    this.#socket.write(frame);
    this.#parts.sent(type, frame.length);
    if (this.#socket.writableLength > hardLimitBytes) this.terminate("protocol");
  }
}

const observersOnlyLook = problem("Forbidden", "an observer has no node to write for");

function notACidr(block: string): Problem {
  return problem("BadRequest", `"${block}" is not the CIDR of a block`);
}

function isBlock(text: string): boolean {
  return canonicalCidr(text) === text;
}

const knownTypes: ReadonlySet<unknown> = new Set(clientMessage.options.map(({ entries }) => entries.type.literal));

type Parsed =
  | { readonly kind: "message"; readonly message: ClientMessage }
  /** Of a type that a newer client knows. */
  | { readonly kind: "unknown" }
  /** `answer`: one odd request must not cut a whole node off. */
  | { readonly kind: "bad"; readonly why: string; readonly answer?: ServerMessage };

function parse(text: string): Parsed {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    return { kind: "bad", why: "a message is no JSON" };
  }
  if (!isFields(raw) || typeof raw.type !== "string") return { kind: "bad", why: "a message has no type" };
  if (!knownTypes.has(raw.type)) return { kind: "unknown" };
  const parsed = v.safeParse(clientMessage, raw, { abortEarly: true });
  if (parsed.success) return { kind: "message", message: parsed.output };
  const [issue] = parsed.issues;
  const why = `bad ${raw.type} message: ${v.getDotPath(issue) ?? ""} ${issue.message}`;
  const refused = { id: Number(raw.id), problem: problem("BadRequest", why) };
  if (raw.type === "commit") return { kind: "bad", why, answer: { type: "ack", ...refused } };
  if (raw.type === "index") return { kind: "bad", why, answer: { type: "indexed", ...refused } };
  // Nobody waits for it, and it is not worth a node's stream.
  if (raw.type === "report") return { kind: "unknown" };
  if (raw.type === "claim") return { kind: "bad", why, answer: { type: "claimed", ...refused } };
  return { kind: "bad", why };
}
