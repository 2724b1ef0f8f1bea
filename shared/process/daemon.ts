// The life of a daemon: command line, start, signals, drain, exit codes (ux 9).
// Leaves to others: what the daemon does between start and stop.

import type { Daemon } from "../config/catalogue.ts";
import { wishOf } from "../config/invocation.ts";
import { type Loaded, loadConfig } from "../config/load.ts";
import { exitCode } from "../exit-code.ts";
import { Failure } from "../kinds.ts";
import { messageOf } from "../log.ts";
import { type Frame, type OpenFrame, openFrame } from "./frame.ts";
import { print, processInputs } from "./terminal.ts";
import { versionOf } from "./version.ts";

/** Less than the 30 s after which a kubelet kills. */
export const drainLimitMs = 25_000;

/** A started daemon. */
export interface Running {
  /** Takes no more work, finishes what is under way, closes everything; bounds itself to less than `drainLimitMs`. */
  stop(): Promise<void>;
}
/**
 * Returns as soon as the parts run: what they still wait for is a check of readiness. Throws a Failure if the world does not let
 * it start: `bad-config` ends the process with 2, any other with 3.
 */
export type Start<E extends Daemon> = (frame: Frame<E>) => Promise<Running>;

export async function runDaemon<E extends Daemon>(executable: E, start: Start<E>): Promise<void> {
  const loaded = loadConfig(executable, processInputs());
  const wish = wishOf(executable, loaded, versionOf(executable));
  switch (wish.kind) {
    case "say":
      print(process.stderr, wish.warnings);
      process.stdout.write(wish.text);
      return;
    case "refuse":
      print(process.stderr, wish.errors);
      process.exitCode = exitCode.usage;
      return;
    case "run":
      return run(executable, wish.loaded, start);
  }
}

async function run<E extends Daemon>(
  executable: E,
  loaded: Extract<Loaded<E>, { kind: "loaded" }>,
  start: Start<E>,
): Promise<void> {
  // A log that nobody reads any more must not end a daemon.
  process.stdout.on("error", () => {});
  const frame = await openFrame(executable, loaded, {
    inputs: processInputs(),
    write: (line) => process.stdout.write(`${line}\n`),
    isTerminal: process.stdout.isTTY === true,
  }).catch((error: unknown) => {
    print(process.stderr, [`${executable}: ${messageOf(error)} (reason BadConfig)`]);
    process.exit(exitOf(error));
  });
  const { logger, health } = frame;
  endOnBugs(frame);
  const stopAsked = signalled(frame);

  let isStarted = false;
  health.check("live", "ping", () => undefined);
  health.check("ready", "startup", () => (isStarted ? undefined : "not started yet"));
  logger.info("Read the configuration", { version: frame.version.version, path: loaded.invocation.file });
  const running = await Promise.race([start(frame), stopAsked]).catch((error: unknown) => {
    if (!(error instanceof Failure)) withStack(frame);
    logger.error("Could not start", { err: error });
    return end(frame, exitOf(error));
  });
  if (running !== undefined) logger.info("Started");
  isStarted = true;
  await stopAsked;
  health.check("ready", "shutdown", () => "draining");
  // Undefined: the signal came while the parts were starting, and they have taken up nothing that must be finished.
  if (running !== undefined) await drain(frame, running);
  logger.info("Stopped");
  return end(frame, exitCode.ok);
}

/** The part of a frame that ending needs. */
type Ending = Pick<OpenFrame<Daemon>, "logger" | "log" | "clock" | "close">;

/** Resolves at the first SIGTERM or SIGINT; the second ends the process as the signal would. */
function signalled({ logger, log }: Ending): Promise<undefined> {
  return new Promise((resolve) => {
    let isFirst = true;
    const numbers = { SIGTERM: 15, SIGINT: 2 } as const;
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.on(signal, () => {
        logger.info(isFirst ? "Began to drain" : "Ended before the drain was over", { signal });
        if (!isFirst) {
          log.flush();
          process.exit(128 + numbers[signal]);
        }
        isFirst = false;
        resolve(undefined);
      });
    }
  });
}

async function drain(frame: Ending, running: Running): Promise<void> {
  const cancel = frame.clock.after(drainLimitMs, () => {
    frame.logger.error("Could not drain in time", { seconds: drainLimitMs / 1000 });
    void end(frame, exitCode.bug);
  });
  await running.stop();
  cancel();
}

/** Whatever nobody has caught is our mistake: one line that says so, and a new start from the journal. */
function endOnBugs(frame: Ending): void {
  const die = (err: unknown): void => {
    withStack(frame);
    frame.logger.error("Ended because of a bug", { reason: "Internal", err });
    frame.log.flush();
    process.exit(exitCode.bug);
  };
  process.on("uncaughtException", die);
  process.on("unhandledRejection", die);
  // Node prints its warnings as text between our lines; as records they can be read by machines.
  process.removeAllListeners("warning");
  process.on("warning", (err) => {
    if (err.name === "ExperimentalWarning") frame.logger.debug("Used an experimental feature of Node", { err });
    else frame.logger.warn("Was warned by Node", { err });
  });
}

/** A bug's line has the stack, whatever the level: this process cannot be asked a second time. */
function withStack({ log }: Ending): void {
  log.setLevel("debug");
}

function exitOf(error: unknown): number {
  if (!(error instanceof Failure)) return exitCode.bug;
  return error.code === "bad-config" ? exitCode.usage : exitCode.unreachable;
}

async function end(frame: Ending, code: number): Promise<never> {
  await frame.close();
  process.exit(code);
}
