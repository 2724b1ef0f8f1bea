// Who is told about what: which objects a client's scope takes in, and which clients a change concerns.
// Leaves to session.ts what a client already holds, and to the store which blocks a node has a stake in.
import type { Objects } from "../../shared/calico/resources.ts";
import { impossible, type NodeName } from "../../shared/kinds.ts";
import { type StreamedKind, streamedKinds } from "../../shared/protocol/stream.ts";
import { type Change, type Store, stakesIn } from "../store/store.ts";

export type Scope = { readonly kind: "node"; readonly node: NodeName } | { readonly kind: "all" };

/** One client, as a change finds it. */
export interface Member {
  readonly scope: Scope;
  mark(kind: StreamedKind, name: string): void;
}

export class Audience {
  readonly #store: Store;
  readonly #everybody = new Set<Member>();
  readonly #observers = new Set<Member>();
  readonly #byNode = new Map<NodeName, Set<Member>>();
  #namespacesMatter: boolean;

  constructor(store: Store) {
    this.#store = store;
    this.#namespacesMatter = this.#somePoolAsksForNamespaces();
  }

  join(member: Member): void {
    this.#everybody.add(member);
    if (member.scope.kind === "all") this.#observers.add(member);
    else this.#byNode.set(member.scope.node, (this.#byNode.get(member.scope.node) ?? new Set()).add(member));
  }

  leave(member: Member): void {
    this.#everybody.delete(member);
    this.#observers.delete(member);
    if (member.scope.kind === "all") return;
    const members = this.#byNode.get(member.scope.node);
    members?.delete(member);
    if (members?.size === 0) this.#byNode.delete(member.scope.node);
  }

  /** Marks the changed object dirty for everyone whom it concerns or has concerned. */
  tell(change: Change): void {
    for (const member of this.#concerned(change)) member.mark(change.kind as StreamedKind, change.name);
    if (change.kind === "pool") this.#reconsiderNamespaces();
  }

  #concerned(change: Change): Iterable<Member> {
    switch (change.kind) {
      case "affinity":
      case "handle":
        return []; // no client needs them
      case "pool":
      case "config":
      case "reservation":
      case "cluster":
        return this.#everybody;
      case "namespace":
        return this.#namespacesMatter ? this.#everybody : this.#observers;
      case "node":
        return this.#withObservers(new Set([change.name as NodeName]));
      case "block":
        return this.#withObservers(stakesIn(change.before).union(stakesIn(change.after)));
      default:
        return impossible(change);
    }
  }

  /** The object as this scope is to hold it now; undefined = it is to hold none. */
  wanted<K extends StreamedKind>(scope: Scope, kind: K, name: string): Objects[K] | undefined {
    const object = this.#store.get(kind, name);
    return object !== undefined && this.#takesIn(scope, kind, object) ? object : undefined;
  }

  /** Everything this scope is to hold now, what decides about other things first. */
  *wantedKeys(scope: Scope): Iterable<readonly [StreamedKind, string]> {
    for (const kind of streamedKinds) {
      if (scope.kind === "node" && kind === "node") yield [kind, scope.node];
      else if (scope.kind === "node" && kind === "block") yield* this.#blocksOf(scope.node);
      else if (scope.kind === "node" && kind === "namespace" && !this.#namespacesMatter) continue;
      else for (const name of this.#store.all(kind).keys()) yield [kind, name];
    }
  }

  *#blocksOf(node: NodeName): Iterable<readonly [StreamedKind, string]> {
    for (const cidr of this.#store.blocksWithStake(node)) {
      const block = this.#store.blockAt(cidr);
      if (block !== undefined) yield ["block", block.name];
    }
  }

  #takesIn<K extends StreamedKind>(scope: Scope, kind: K, object: Objects[K]): boolean {
    if (scope.kind === "all") return true;
    switch (kind) {
      case "pool":
      case "config":
      case "reservation":
      case "cluster":
        return true;
      case "node":
        return object.name === scope.node;
      case "namespace":
        return this.#namespacesMatter;
      case "block":
        return this.#store.blocksWithStake(scope.node).has((object as Objects["block"]).cidr);
      default:
        return impossible(kind as never);
    }
  }

  *#withObservers(nodes: ReadonlySet<NodeName>): Iterable<Member> {
    yield* this.#observers;
    for (const node of nodes) yield* this.#byNode.get(node) ?? [];
  }

  /** Agents get the namespaces only while some pool selects by them: on a large cluster they are most of the bytes. */
  #reconsiderNamespaces(): void {
    const matter = this.#somePoolAsksForNamespaces();
    if (matter === this.#namespacesMatter) return;
    this.#namespacesMatter = matter;
    for (const member of this.#everybody) {
      if (member.scope.kind === "all") continue;
      for (const name of this.#store.all("namespace").keys()) member.mark("namespace", name);
    }
  }

  #somePoolAsksForNamespaces(): boolean {
    return this.#store.sorted("pool").some((pool) => pool.namespaceSelector !== "");
  }
}
