// A process full of thin clients, told over IPC what to do. It counts what its clients receive and how long after its writing.
// Leaves to crowd.ts how many such processes there are.
import { nowUs } from "../machine.ts";
import type { CrowdOrder, CrowdReport } from "./crowd.ts";
import { ThinClient } from "./thin-client.ts";

const clients: ThinClient[] = [];
let delays: number[] = [];
let puts = 0;
/** When each client that lost its server had it again, in ms after the loss. */
let returns: number[] = [];
let everSynced = 0;

process.on("message", (order: CrowdOrder) => {
  switch (order.kind) {
    case "connect":
      for (const who of order.clients) clients.push(newClient(order, who));
      return;
    case "collect":
      report();
      return;
    case "stall":
      for (const client of clients.slice(0, order.clients)) client.stall();
      return;
    case "read":
      for (const client of clients) client.read();
      return;
  }
});
process.on("disconnect", () => process.exit());

function newClient(order: Extract<CrowdOrder, { kind: "connect" }>, who: { node: string | undefined; token: string }) {
  let lostAt: number | undefined;
  let isNew = true;
  return new ThinClient({
    ...order.server,
    ...who,
    remembers: order.remembers,
    put: (payload) => {
      puts++;
      const at = payload.lastIndexOf(stampKey);
      if (at < 0) return;
      const from = at + stampKey.length;
      const sent = Number(payload.toString("latin1", from, payload.indexOf('"', from)));
      if (sent > 0) delays.push((nowUs() - sent) / 1000);
    },
    synced: () => {
      if (isNew) everSynced++;
      isNew = false;
      if (lostAt !== undefined) returns.push((nowUs() - lostAt) / 1000);
      lostAt = undefined;
    },
    lost: () => {
      lostAt ??= nowUs();
    },
  });
}

const stampKey = '"bench-stamp":"';

/** And begins anew. */
function report(): void {
  const receivedBytes = clients.map((client) => client.receivedBytes);
  const answer: CrowdReport = {
    puts,
    delays: Float64Array.from(delays),
    returns: Float64Array.from(returns),
    everSynced,
    synced: clients.filter((client) => client.isSynced).length,
    receivedBytes: receivedBytes.reduce((sum, bytes) => sum + bytes, 0),
  };
  for (const client of clients) client.receivedBytes = 0;
  delays = [];
  returns = [];
  puts = 0;
  process.send?.(answer);
}
