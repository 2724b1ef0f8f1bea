// What one server pays to tell one change to many clients that see everything, and how long that takes; what a client costs that hears
// nothing. Measured from outside: the server's processor time and memory as the kernel counts them, the delays at the clients.
import { type Figure, figure, quantile } from "../figures.ts";
import { cpuUs, residentBytes, sleep } from "../machine.ts";
import type { Crowd } from "./crowd.ts";
import { Stage } from "./stage.ts";

export const measures =
  "one server, every client sees every block; a block of 16 pods is changed at a time, from its write to all clients";

const blocks = 50;
/** As many deliveries a second as leave a server most of its core. */
const deliveriesPerSecond = 20_000;
const [windows, windowSeconds, idleSeconds] = [5, 4, 10];
const goals = { cpuUs: { plain: 12, tls: 15 }, idleKB: { plain: 30, tls: 70 }, p99Ms: 50 } as const;
/** The delay is promised up to so many clients on two cores. */
const promisedClients = 2000;

export async function fanout({ clients }: { readonly clients: number }): Promise<Figure[]> {
  return [...(await over("plain", clients)), ...(await over("tls", clients))];
}

async function over(transport: "plain" | "tls", clients: number): Promise<Figure[]> {
  const stage = await Stage.open({ nodes: blocks, blocks, servers: 1, tls: transport === "tls" });
  let crowd: Crowd | undefined;
  try {
    const pid = stage.servers[0]?.pid ?? 0;
    const perSecond = Math.max(1, Math.round(deliveriesPerSecond / clients));
    // A server that has done its work once has the code and the heap it needs; what is left are the clients.
    const first = await stage.observers(Math.min(clients, 100));
    await first.synced(30_000);
    await stage.write(20, 3);
    first.stop();
    await sleep(3_000);
    const before = residentBytes(pid);
    crowd = await stage.observers(clients);
    await crowd.synced(120_000);
    await sleep(5_000);
    const idleFrom = cpuUs(pid);
    await sleep(idleSeconds * 1000);
    const idle = ((cpuUs(pid) - idleFrom) / (idleSeconds * 1e6)) * 100;
    const perClient = (residentBytes(pid) - before) / clients / 1024;

    await stage.write(perSecond, 2);
    await crowd.collect();
    const [cost, p50, p99]: [number[], number[], number[]] = [[], [], []];
    for (let window = 0; window < windows; window++) {
      const from = cpuUs(pid);
      await stage.write(perSecond, windowSeconds);
      await sleep(300);
      const used = cpuUs(pid) - from;
      const { puts, delays } = await crowd.collect();
      delays.sort();
      cost.push(used / puts);
      p50.push(quantile(delays, 0.5));
      p99.push(quantile(delays, 0.99));
    }
    const name = (what: string): string => `${transport}, ${clients} clients: ${what}`;
    return [
      figure(name("CPU per delivery"), "µs", cost, { goal: goals.cpuUs[transport] }),
      figure(name("memory per idle client"), "KB", [perClient], { goal: goals.idleKB[transport] }),
      figure(name("write to delivery, p50"), "ms", p50),
      figure(name("write to delivery, p99"), "ms", p99, { goal: clients <= promisedClients ? goals.p99Ms : undefined }),
      figure(name("CPU when idle"), "% of a core", [idle]),
    ];
  } finally {
    crowd?.stop();
    await stage.close();
  }
}
