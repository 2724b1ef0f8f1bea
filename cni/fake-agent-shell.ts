// For tests: a node agent that says what it is told to say, and a runtime that executes the compiled executable.
// Leaves to others: what is expected of either.
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import {
  type AgentReply,
  type AgentRequest,
  agentRequest,
  type SpooledDel,
  type Success,
  spooledDel,
} from "../shared/protocol/socket.ts";

export const executable = join(import.meta.dirname, "../dist/cattail-ipam");

/** A reply, or bytes that are none; the socket for whoever wants to hold it. */
export type Answer = (request: AgentRequest, socket: Socket) => AgentReply | string | undefined;

export interface FakeAgent extends AsyncDisposable {
  readonly folder: string;
  readonly socketPath: string;
  readonly spoolPath: string;
  /** Checked against the contract when they arrive. */
  readonly requests: AgentRequest[];
  answer: Answer;
  /** The private object that leads the executable here. */
  readonly own: { readonly socket: string; readonly spool: string };
  spooled(): SpooledDel[];
  stop(): Promise<void>;
  start(): Promise<void>;
}

export const grant: Success = {
  ok: true,
  ips: [{ address: "10.7.0.5/32" }, { address: "fd00:7::5/128" }],
  routes: [{ dst: "10.7.0.5/32" }, { dst: "fd00:7::5/128" }],
};

/** Grants one address of each family wanted to an ADD and says yes to everything else. */
export function obliging(request: AgentRequest): AgentReply {
  if (request.verb !== "ADD") return { ok: true };
  const wanted = (text: string): boolean => (text.includes(":") ? request.families.ipv6 : request.families.ipv4);
  const { ips = [], routes = [] } = grant;
  return { ok: true, ips: ips.filter((ip) => wanted(ip.address)), routes: routes.filter((route) => wanted(route.dst)) };
}

export async function fakeAgent(answer: Answer = () => grant): Promise<FakeAgent> {
  const folder = mkdtempSync(join(tmpdir(), "cni-"));
  const socketPath = join(folder, "agent.sock");
  const spoolPath = join(folder, "spool");
  const requests: AgentRequest[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("close", () => sockets.delete(socket)).on("error", () => {}));
    let received = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      received += text;
      if (!received.endsWith("\n")) return;
      const request = v.parse(agentRequest, JSON.parse(received));
      requests.push(request);
      const reply = agent.answer(request, socket);
      if (reply !== undefined) socket.end(typeof reply === "string" ? reply : `${JSON.stringify(reply)}\n`);
    });
  });
  const agent: FakeAgent = {
    folder,
    socketPath,
    spoolPath,
    requests,
    answer,
    own: { socket: socketPath, spool: spoolPath },
    spooled: () =>
      names(spoolPath).map((name) => v.parse(spooledDel, JSON.parse(readFileSync(join(spoolPath, name), "utf8")))),
    start: () => new Promise((resolve) => server.listen(socketPath, resolve)),
    stop: () => {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
    [Symbol.asyncDispose]: async () => {
      if (server.listening) await agent.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  await agent.start();
  return agent;
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

export interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly tookMs: number;
}

export interface Execution {
  readonly env?: NodeJS.ProcessEnv;
  /** Text, or "open" for a caller that neither writes nor closes. */
  readonly stdin?: string;
  readonly path?: string;
  readonly args?: readonly string[];
  readonly cwd?: string;
  /** Closes the reading end of stdout as soon as the process runs. */
  readonly deaf?: boolean;
}

export function execute({ env = {}, stdin = "", path = executable, args = [], cwd, deaf }: Execution): Promise<Ran> {
  const startedAt = performance.now();
  const child = spawn(path, args, { env, stdio: "pipe", ...(cwd === undefined ? {} : { cwd }) });
  const output = { stdout: "", stderr: "" };
  if (deaf) child.stdout.destroy();
  else child.stdout.setEncoding("utf8").on("data", (text) => (output.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (output.stderr += text));
  // An executable that does not read its stdin makes the writer's pipe break.
  child.stdin.on("error", () => {});
  if (stdin !== "open") child.stdin.end(stdin);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => resolve({ status, ...output, tookMs: performance.now() - startedAt }));
  });
}

/** The same file under Calico's name. */
export function dropIn(agent: FakeAgent): string {
  const path = join(agent.folder, "calico-ipam");
  symlinkSync(executable, path);
  return path;
}
