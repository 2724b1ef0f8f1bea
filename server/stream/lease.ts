// Whether this server may renew the lease of an agent, on which it hands out warm addresses: only while it knows that its Node exists.
// Leaves to server/reaper for how long, and to client-shell.ts what the agent is told.
import type { NodeName, Uid } from "../../shared/kinds.ts";
import type { Store } from "../store/store.ts";
import type { Identity } from "./identity.ts";

export interface LeaseParts {
  readonly store: Store;
  /** How long an agent may go on now; undefined: no lease may be renewed. */
  readonly grantMs: () => number | undefined;
  /** Brings the store's copy of the Node up to date; rejects when nobody can tell. */
  readonly refresh: (node: NodeName) => Promise<void>;
}

export type Standing = "present" | "gone";

/** A view that may have been behind for longer renews nobody. (A watch is taken for sound during 75 s of silence; limits.ts counts on both.) */
const viewLimitMs = 15_000;

/** The lease of one connected agent. */
export class Tenancy {
  readonly node: NodeName;
  readonly #parts: LeaseParts;
  readonly #tokensUid: Uid | undefined;
  /** This agent has handed out nothing for a while: only what is seen after it has said so counts. */
  #mustBeProven: boolean;
  #wasPresent = false;
  /** What a read has shown that was begun after the agent had come: the Node's uid, or that there is none. */
  #confirmed: { readonly uid: Uid | undefined } | undefined;
  #checking: Promise<void> | undefined;

  constructor(parts: LeaseParts, node: NodeName, identity: Pick<Identity, "nodeUid">, leaseExpired: boolean) {
    this.#parts = parts;
    this.node = node;
    this.#tokensUid = identity.nodeUid;
    this.#mustBeProven = leaseExpired;
  }

  /** Undefined: this server cannot tell. */
  standing(): Standing | undefined {
    // One that cannot be read is there all the same, and may be another.
    if (!this.#isFresh() || this.#parts.store.unread("node").has(this.node)) return undefined;
    const uid = this.#parts.store.get("node", this.node)?.uid;
    if (uid !== undefined && this.#isOurs(uid)) {
      this.#wasPresent = true;
      return "present";
    }
    // The watch may be behind an agent that has just come, but not behind what it has shown itself.
    const isCertain =
      (this.#wasPresent && uid === undefined) || (this.#confirmed !== undefined && this.#confirmed.uid === uid);
    return isCertain ? "gone" : undefined;
  }

  /** How long the agent may go on, counted from its ping; undefined: it is not for this server to say. */
  renewal(): number | undefined {
    return this.standing() === "present" && !this.#mustBeProven ? this.#parts.grantMs() : undefined;
  }

  /** Something is to be read before this server can say more. */
  get isUndecided(): boolean {
    if (!this.#isFresh()) return false;
    const standing = this.standing();
    return standing === undefined || (standing === "present" && this.#mustBeProven);
  }

  /** Reads the Node; one read at a time, which all who ask meanwhile share. Rejects with a Failure when nobody can tell. */
  check(): Promise<void> {
    this.#checking ??= this.#check().finally(() => {
      this.#checking = undefined;
    });
    return this.#checking;
  }

  async #check(): Promise<void> {
    const { store, refresh } = this.#parts;
    await refresh(this.node);
    const uid = store.get("node", this.node)?.uid;
    this.#confirmed = { uid };
    if (uid !== undefined && this.#isOurs(uid)) this.#mustBeProven = false;
  }

  #isOurs(uid: Uid): boolean {
    return this.#tokensUid === undefined || this.#tokensUid === uid;
  }

  #isFresh(): boolean {
    const { synced, ageMs } = this.#parts.store.freshness("node");
    return synced && ageMs <= viewLimitMs;
  }
}

/** Why the token is not of the Node that there is; undefined: it is, or there is none, or nobody can tell. Rejects when it should be asked and cannot. */
export async function strangerReason(parts: LeaseParts, { node, nodeUid }: Identity): Promise<string | undefined> {
  const isAnother = (): boolean => {
    const uid = node === undefined ? undefined : parts.store.get("node", node)?.uid;
    return nodeUid !== undefined && uid !== undefined && uid !== nodeUid;
  };
  if (node === undefined || !isAnother()) return undefined;
  await parts.refresh(node);
  if (!isAnother()) return undefined;
  return `the token is of an earlier Node named ${node}: the kubelet's next token, or that of a new pod, will be of this one`;
}
