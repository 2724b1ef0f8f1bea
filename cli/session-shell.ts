// The terminal: results onto stdout, everything else onto stderr, colour only where a person looks.
// Leaves to others: what is said.
import { createInterface } from "node:readline/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { styleText } from "node:util";
import type { Config } from "../shared/config/catalogue.ts";
import { render, type Tone } from "../shared/output.ts";
import { print } from "../shared/process/terminal.ts";
import { systemClock } from "../shared/process/world.ts";
import type { Session } from "./command.ts";
import { openSources } from "./sources-shell.ts";

const colours = { bad: "red", doubtful: "yellow" } as const satisfies Record<Tone, string>;

export async function withSession<T>(
  config: Config<"cli">,
  userAgent: string,
  use: (session: Session) => Promise<T>,
): Promise<T> {
  const say = (line: string): void => print(process.stderr, [line]);
  const sources = openSources(config, userAgent, say);
  // styleText looks at NO_COLOR, FORCE_COLOR and whether the stream is a terminal.
  const paint = (tone: Tone, line: string): string => styleText(colours[tone], line, { stream: process.stdout });
  try {
    return await use({
      config,
      clock: systemClock,
      sources,
      say,
      show: (listing, nothing) => {
        process.stdout.write(render(listing, config, paint));
        const isForPeople = config.output === "table" || config.output === "wide";
        if (nothing !== undefined && listing.items.length === 0 && isForPeople) say(nothing);
      },
      write: (text) => void process.stdout.write(text),
      agrees,
      pause: (ms) => sleep(ms),
    });
  } finally {
    sources.close();
  }
}

async function agrees(question: string): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return false;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
