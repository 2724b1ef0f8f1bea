// Where the executable finds the agent: a socket file put in place in one step, and put there again whenever it is gone or replaced.
// Leaves the conversation to server-shell.ts. Never takes the place of an agent that answers, nor of a file that is no socket.
import { type FSWatcher, watch } from "node:fs";
import { chmod, lstat, mkdir, rename, rm } from "node:fs/promises";
import { connect, type Server } from "node:net";
import { dirname } from "node:path";
import { Failure } from "../../shared/kinds.ts";
import { type Logger, messageOf } from "../../shared/log.ts";
import type { Clock } from "../../shared/world.ts";

export interface PlaceOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly create: () => Server;
}

export interface Place {
  /** Why nobody can be reached there now. */
  readonly problem: string | undefined;
  /** Nobody new is let in. */
  leave(): Promise<void>;
}

/** A socket without its file hears nobody, and nothing tells it so; a watch misses what is mounted over it. */
export const lookEveryMs = 2_000;
/** All pods of a node may ask at once; a full backlog refuses them. */
const backlog = 1024;
/** What the kernel's sun_path holds, less its terminating zero, less the mark of a socket not yet in place. */
const maxPathBytes = 106;

/** Rejects if the place cannot be taken now; later it is tried until it can. */
export async function keepPlace(options: PlaceOptions): Promise<Place> {
  if (Buffer.byteLength(options.path) > maxPathBytes) {
    throw new Failure("bad-config", `the path of the socket has more than ${maxPathBytes} bytes: ${options.path}`);
  }
  const keeper = new Keeper(options, await occupy(options));
  keeper.start();
  return keeper;
}

interface Occupied {
  readonly server: Server;
  /** Device and inode. The kernel keeps the inode as long as the socket lives: no other file can have it meanwhile. */
  readonly file: string;
}

class Keeper implements Place {
  readonly #options: PlaceOptions;
  #occupied: Occupied;
  #problem: string | undefined;
  #watcher: FSWatcher | undefined;
  #cancel = (): void => {};
  #looking: Promise<void> | undefined;
  #isStale = false;
  #hasLeft = false;

  constructor(options: PlaceOptions, occupied: Occupied) {
    this.#options = options;
    this.#occupied = occupied;
  }

  get problem(): string | undefined {
    return this.#problem;
  }

  start(): void {
    this.#watch();
    this.#wait();
  }

  async leave(): Promise<void> {
    this.#hasLeft = true;
    this.#cancel();
    await this.#looking;
    this.#watcher?.close();
    const { path } = this.#options;
    if ((await fileAt(path)) === this.#occupied.file) await rm(path, { force: true });
    this.#occupied.server.close();
  }

  #wait(): void {
    this.#cancel = this.#options.clock.after(lookEveryMs, () => {
      this.#look();
      this.#wait();
    });
  }

  #watch(): void {
    const { path, logger } = this.#options;
    this.#watcher?.close();
    try {
      this.#watcher = watch(dirname(path), () => this.#look());
      this.#watcher.on("error", (err) => logger.debug("Could not watch the socket", { path, err }));
    } catch (err) {
      logger.debug("Could not watch the socket", { path, err }); // it is looked for in any case
    }
  }

  #look(): void {
    this.#isStale = true;
    this.#looking ??= this.#lookAgain().finally(() => {
      this.#looking = undefined;
    });
  }

  async #lookAgain(): Promise<void> {
    while (this.#isStale && !this.#hasLeft) {
      this.#isStale = false;
      if ((await fileAt(this.#options.path)) !== this.#occupied.file) await this.#return();
      else this.#problem = undefined;
    }
  }

  async #return(): Promise<void> {
    const { path, logger } = this.#options;
    if (this.#problem === undefined) logger.warn("Lost the socket's file", { path });
    this.#problem ??= `${path} is gone or somebody else's`;
    try {
      const deaf = this.#occupied.server;
      this.#occupied = await occupy(this.#options);
      deaf.close(); // who came in before is answered
      this.#problem = undefined;
      logger.info("Put the socket in its place again", { path });
      this.#watch(); // the directory may be another
    } catch (err) {
      this.#problem = messageOf(err);
      logger.warn("Could not put the socket in its place again", { path, err });
    }
  }
}

async function occupy({ path, create }: PlaceOptions): Promise<Occupied> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await makeRoom(path);
  const server = create();
  // Bound under another name, so that nobody connects before its mode is set, and a stale one gives way in one step.
  const temporary = `${path}~`;
  await rm(temporary, { force: true });
  await listening(server, temporary);
  try {
    await chmod(temporary, 0o600);
    const file = await fileAt(temporary);
    if (file === undefined) throw new Failure("bad-config", `${temporary} was removed at once`);
    await rename(temporary, path);
    return { server, file };
  } catch (error) {
    server.close();
    throw error;
  }
}

function listening(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new Failure("bad-config", `cannot listen on ${path}`, { cause })));
    server.listen({ path, backlog }, () => resolve());
  });
}

async function fileAt(path: string): Promise<string | undefined> {
  const found = await lstat(path, { bigint: true }).catch(() => undefined);
  return found && `${found.dev}:${found.ino}`;
}

/** A socket that nobody answers is left from a crash; a living one is not ours to take, and anything else is somebody's file. */
async function makeRoom(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return;
  if (!found.isSocket())
    throw new Failure("bad-config", `${path} is there and is no socket: remove it or set another path`);
  if (await answers(path))
    throw new Failure("bad-config", `another agent answers on ${path}; there must be one per node`);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => {
      probe.destroy();
      resolve(true);
    });
    probe.once("error", () => resolve(false));
  });
}
