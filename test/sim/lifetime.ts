// Ten minutes of one cluster from one seed: pods come and go, things fail, then everything is given time to come to rest.
import { Cluster } from "./cluster.ts";
import { World } from "./world.ts";

export interface Lifetime {
  readonly seed: number;
  readonly violations: readonly string[];
  readonly history: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
}

const operations = 500;
const startedMs = 30_000;
const lifetimeMs = 600_000;
/** With faults ended, everything converges within this. */
const restMs = 180_000;
const faultsOfLifetime = 16;

export async function live(seed: number): Promise<Lifetime> {
  const world = new World(seed);
  const cluster = new Cluster(world);
  await world.runUntil(startedMs);
  for (let n = 0; n < operations; n++) world.after(world.random.below(lifetimeMs - startedMs), () => operate(cluster));
  for (let n = 0; n < faultsOfLifetime; n++)
    world.after(world.random.below(lifetimeMs - startedMs), () => fail(cluster));
  await world.runUntil(lifetimeMs);
  repair(cluster);
  await world.runUntil(lifetimeMs + restMs);
  cluster.checkRest();
  return { seed, violations: world.violations, history: world.history, counts: world.counts };
}

function operate(cluster: Cluster): void {
  const { world, nodes } = cluster;
  const node = nodes[world.random.below(nodes.length)];
  const roll = world.random.below(1000);
  if (roll < 40) cluster.strangerTakes();
  else if (roll < 80) cluster.stranger.giveBack();
  else if (roll < 540) node?.add();
  else node?.delOne();
}

function fail(cluster: Cluster): void {
  const { world, nodes, servers, network, faults, api } = cluster;
  const [node, server] = [nodes[world.random.below(nodes.length)], servers[world.random.below(servers.length)]];
  if (node === undefined || server === undefined) return;
  const lastsMs = world.between(100, 40_000);
  const kind = world.random.below(8);
  world.note(`fault ${kind}`, `${node.name} ${server.name} ${lastsMs}`);
  switch (kind) {
    case 0:
      node.diesWriting = () => {
        node.crash();
        world.after(lastsMs, () => node.start());
      };
      break;
    case 1:
      server.crash();
      world.after(lastsMs, () => server.start());
      break;
    case 2:
      network.cut(node.name, server.name);
      if (world.happens(500)) network.cut(server.name, node.name);
      world.after(lastsMs, () => network.heal());
      break;
    case 3:
      node.isDiskFull = true;
      world.after(lastsMs, () => {
        node.isDiskFull = false;
      });
      break;
    case 4:
      faults.isDown = true;
      world.after(lastsMs, () => {
        faults.isDown = false;
      });
      break;
    case 5:
      Object.assign(faults, { lostAnswers: 300, throttled: 100, failed: 100 });
      world.after(lastsMs, () => Object.assign(faults, { lostAnswers: 0, throttled: 0, failed: 0 }));
      break;
    case 6:
      faults.watchDelayMs = 2_000;
      world.after(lastsMs, () => {
        faults.watchDelayMs = 0;
      });
      break;
    default:
      api.store.compact();
  }
}

function repair({ nodes, servers, network, faults }: Cluster): void {
  Object.assign(faults, { isDown: false, throttled: 0, failed: 0, lostAnswers: 0, watchDelayMs: 0 });
  network.heal();
  for (const server of servers) server.start();
  for (const node of nodes) {
    node.isDiskFull = false;
    node.diesWriting = undefined;
    node.start();
  }
}
