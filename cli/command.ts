// What a command is, and what it may use of the world. A new command is one file that makes a Command, and one line in main.ts.
// Leaves to others: reaching the cluster (sources-shell.ts), the terminal (session-shell.ts).
import type { ApiGroup, Kind, Objects } from "../shared/calico/resources.ts";
import type { Config } from "../shared/config/catalogue.ts";
import type { ConfigOf, OptionTable } from "../shared/config/options.ts";
import type { CommandHelp } from "../shared/config/report.ts";
import { Failure } from "../shared/kinds.ts";
import type { Api } from "../shared/kube/api.ts";
import { suggestion } from "../shared/nearest.ts";
import type { Listing } from "../shared/output.ts";
import type { NodeState } from "../shared/protocol/node-state.ts";
import type { Clock } from "../shared/world.ts";
import type { Pod } from "./pods.ts";

export interface Command extends CommandHelp {
  /** What may stand behind the name: "pod NAME". Empty: nothing. */
  readonly usage: string;
  /** On the command line only: what is asked once is no setting. */
  readonly flags: OptionTable;
  /** Takes the words behind the name and returns the exit code. */
  readonly run: (
    session: Session,
    words: readonly string[],
    flags: Readonly<Record<string, unknown>>,
  ) => Promise<number>;
}

interface Definition<Flags extends OptionTable> extends Omit<Command, "flags" | "run"> {
  readonly flags: Flags;
  readonly run: (session: Session, words: readonly string[], flags: ConfigOf<Flags>) => Promise<number>;
}

export function command<const Flags extends OptionTable>(definition: Definition<Flags>): Command {
  // The flags that are handed over were read by this very table.
  return { ...definition, run: (session, words, flags) => definition.run(session, words, flags as ConfigOf<Flags>) };
}

export interface Session {
  readonly config: Config<"cli">;
  readonly clock: Clock;
  readonly sources: Sources;
  /** The result, onto stdout, in the form that was asked for. Empty items: `nothing` says so and why, for people. */
  show<Item extends object>(listing: Listing<Item>, nothing?: string): void;
  /** A result that is no list, onto stdout as it is. */
  write(text: string): void;
  /** Progress and warnings, onto stderr. */
  say(line: string): void;
  /** Asks a person; false when there is nobody to ask. */
  agrees(question: string): Promise<boolean>;
  /** Resolves after so long. */
  pause(ms: number): Promise<void>;
}

/** Everything is read when it is asked for, and rejects with a Failure. */
export interface Sources {
  api(): Promise<{ readonly api: Api; readonly group: ApiGroup }>;
  /** Every object of a kind: as a server holds it, else from the API server. What cannot be read is in `unread`. */
  objects<K extends Kind>(kind: K): Promise<Found<Objects[K]>>;
  /** The same, and always from the API server. */
  fresh<K extends Kind>(kind: K): Promise<Found<Objects[K]>>;
  pods(): Promise<readonly Pod[]>;
  /** The addresses of each Node's tunnels, as calico-node has written them on it. */
  tunnels(): Promise<ReadonlyMap<string, readonly string[]>>;
  /** A page of a server's admin port; undefined: there is none to ask, and it was said why. */
  server(path: string): Promise<unknown>;
  /** Of the agents on these nodes, or on all; who does not answer is named. */
  agents(nodes?: readonly string[]): Promise<Agents>;
}

export interface Found<T> {
  readonly objects: readonly T[];
  readonly unread: readonly Unread[];
}

export interface Unread {
  readonly name: string;
  readonly problem: string;
}

export interface Agents {
  readonly states: ReadonlyMap<string, NodeState>;
  /** By node, or by URL: why it did not answer. */
  readonly silent: ReadonlyMap<string, string>;
}

/** The command line is wrong: exit 2. */
export function usage(why: string, next: string): Failure {
  return new Failure("bad-config", `${why} (reason BadRequest). ${next}`);
}

export function noWords(name: string, words: readonly string[]): void {
  const [word] = words;
  if (word !== undefined) throw usage(`"${name}" takes no argument "${word}"`, `See cattail ${name} --help`);
}

/** All of them, or those that are named; a name that nothing has is a mistake. */
export function named<T extends { readonly name: string }>(
  what: string,
  all: readonly T[],
  names: readonly string[],
): T[] {
  if (names.length === 0) return [...all];
  return names.map((name) => {
    const found = all.find((one) => one.name === name);
    if (found !== undefined) return found;
    const known = all.map((one) => one.name);
    throw usage(`there is no ${what} "${name}"`, suggestion(name, known).trim() || `There are ${known.length}`);
  });
}

/** `3m12s`, as kubectl shows ages. */
export function ageText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [days, hours, minutes] = [
    Math.floor(seconds / 86_400),
    Math.floor(seconds / 3600) % 24,
    Math.floor(seconds / 60) % 60,
  ];
  if (days > 0) return `${days}d${hours}h`;
  if (hours > 0) return `${hours}h${minutes}m`;
  return minutes > 0 ? `${minutes}m${seconds % 60}s` : `${seconds}s`;
}

/** A number that programs can count with, or its digits where there is none. */
export function countOf(count: bigint): number | string {
  return count <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(count) : String(count);
}
