// Whether a client may have what its hello asks for, and whether what it holds is of any use.
// Leaves what follows to session.ts and the closing of sockets to client-shell.ts.
import type { NodeName } from "../../shared/kinds.ts";
import { type Hello, streamProtocol } from "../../shared/protocol/stream.ts";
import type { Scope } from "./audience.ts";
import type { Identity } from "./identity.ts";

/** WebSocket close codes, 4400 to 4499 as HTTP's. */
export const closeCodes = {
  goingAway: 1001,
  protocol: 4400,
  credentials: 4401,
  notAllowed: 4403,
  noHello: 4408,
  superseded: 4409,
} as const;

export type Admission =
  | {
      readonly kind: "admitted";
      readonly scope: Scope;
      /** Why the client has to forget what it holds; undefined: it is told what differs. */
      readonly reset: string | undefined;
    }
  | { readonly kind: "rejected"; readonly code: number; readonly reason: string };

export function admit(hello: Hello, identity: Identity, lineage: string): Admission {
  if (hello.protocol !== streamProtocol) {
    return rejected(closeCodes.protocol, `this server speaks protocol ${streamProtocol}, the client ${hello.protocol}`);
  }
  const scope = scopeOf(hello, identity);
  if (typeof scope === "string") return rejected(closeCodes.notAllowed, scope);
  return { kind: "admitted", scope, reset: resetReason(hello, lineage) };
}

function scopeOf(hello: Hello, identity: Identity): Scope | string {
  if (hello.scope === "all") {
    return identity.node === undefined ? { kind: "all" } : "an agent sees what is its node's (scope node)";
  }
  if (identity.node === undefined) return "an observer has no node (scope all)";
  if (hello.node !== identity.node) return `the token is for node ${identity.node}, the hello for ${hello.node}`;
  return { kind: "node", node: hello.node as NodeName };
}

function resetReason(hello: Hello, lineage: string): string | undefined {
  if (hello.have.length === 0 && hello.lineage === undefined) return undefined;
  if (hello.lineage === lineage) return undefined;
  return hello.lineage === undefined
    ? "it is not known what the client's copies are of"
    : "the client's copies are of other data";
}

function rejected(code: number, reason: string): Admission {
  return { kind: "rejected", code, reason };
}
