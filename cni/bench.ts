// How long the executable takes from fork to exit beside an empty C program, in one run: `node cni/bench.ts [rounds]`.
// The promise: at most three times the C program plus nine milliseconds. Needs a C compiler; an agent is played by this process's child.
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { executable, fakeAgent, grant } from "./fake-agent-shell.ts";

const defaultRounds = 200;
const allowed = { factor: 3, plusMs: 9 };

const call = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c0ffee01",
  CNI_NETNS: "/run/netns/t1",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
  CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=p1;K8S_POD_UID=u1",
};

/** Runs its programs in turn, so that a disturbance hits both, and prints each one's times in microseconds. */
const stopwatch = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
extern char **environ;
static double once(const char *program, const char *input) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, input, O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  char *const arguments[] = {(char *)program, NULL};
  struct timespec before, after;
  pid_t child;
  int status;
  clock_gettime(CLOCK_MONOTONIC, &before);
  if (posix_spawn(&child, program, &files, NULL, arguments, environ)) exit(2);
  waitpid(child, &status, 0);
  clock_gettime(CLOCK_MONOTONIC, &after);
  if (status) exit(3);
  return (after.tv_sec - before.tv_sec) * 1e6 + (after.tv_nsec - before.tv_nsec) / 1e3;
}
int main(int count, char **argument) {
  for (int round = atoi(argument[1]); round > 0; round--) {
    for (int program = 3; program < count; program++) printf("%.1f ", once(argument[program], argument[2]));
    printf("\\n");
  }
}
`;

if (process.argv[2] === "agent") await playAgent();
else await measure(Number(process.argv[2] ?? defaultRounds));

/** In a process of its own: the measuring one is blocked while it measures. */
async function playAgent(): Promise<void> {
  const agent = await fakeAgent(() => grant);
  process.send?.(agent.own);
  await once(process, "disconnect");
  await agent[Symbol.asyncDispose]();
}

async function measure(rounds: number): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "bench-"));
  const agent = fork(import.meta.filename, ["agent"]);
  try {
    const [own] = await once(agent, "message");
    const input = join(folder, "netconf.json");
    writeFileSync(input, JSON.stringify({ cniVersion: "1.0.0", name: "net1", type: "calico", ipam: { cattail: own } }));
    const empty = compiled(folder, "empty", "int main(void) { return 0; }");
    const arguments_ = [String(rounds), input, empty, executable];
    const output = execFileSync(compiled(folder, "stopwatch", stopwatch), arguments_, { env: call, encoding: "utf8" });
    const times = output
      .trim()
      .split("\n")
      .map((line) =>
        line
          .trim()
          .split(" ")
          .map((text) => Number(text) / 1000),
      );
    report(
      rounds,
      times.map(([time = 0]) => time),
      times.map(([, time = 0]) => time),
    );
  } finally {
    agent.disconnect();
    rmSync(folder, { recursive: true, force: true });
  }
}

function compiled(folder: string, name: string, source: string): string {
  const path = join(folder, name);
  writeFileSync(`${path}.c`, source);
  execFileSync("cc", ["-O2", "-o", path, `${path}.c`]);
  return path;
}

function report(rounds: number, empty: readonly number[], ours: readonly number[]): void {
  const [c, cattail] = [median(empty), median(ours)];
  const limit = allowed.factor * c + allowed.plusMs;
  console.log(`${rounds} rounds, median from fork to exit`);
  console.log(`  empty C program  ${c.toFixed(2)} ms`);
  console.log(
    `  cattail-ipam ADD ${cattail.toFixed(2)} ms, ${(cattail / c).toFixed(1)} times; size ${Math.round(statSync(executable).size / 1e6)} MB`,
  );
  console.log(`  allowed          ${limit.toFixed(2)} ms: ${cattail <= limit ? "kept" : "BROKEN"}`);
  if (cattail > limit) process.exitCode = 1;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}
