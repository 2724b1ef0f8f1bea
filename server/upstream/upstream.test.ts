import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { readers } from "../../shared/calico/codec.ts";
import { apiPath, blockName, resourceOf } from "../../shared/calico/names.ts";
import { type ApiGroup, type Kind, kinds, type Meta } from "../../shared/calico/resources.ts";
import { parseLossless, printLossless } from "../../shared/json/lossless.ts";
import type { BlockCidr } from "../../shared/kinds.ts";
import { createApi } from "../../shared/kube/client-shell.ts";
import { connectTo } from "../../shared/kube/connection-shell.ts";
import { discoverGroup } from "../../shared/kube/discovery.ts";
import { Http } from "../../shared/kube/http-shell.ts";
import type { Logger, LogKeys } from "../../shared/log.ts";
import { calicoDefinitions } from "../../test/kube-api/calico-shell.ts";
import type { FaultEffect } from "../../test/kube-api/faults.ts";
import { startKubeApi } from "../../test/kube-api/shell.ts";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { Store } from "../store/store.ts";
import { startUpstream } from "./upstream-shell.ts";

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const undo of cleanUp.splice(0).reverse()) await undo();
});

interface Options {
  readonly group?: ApiGroup;
  readonly tls?: boolean;
  /** A CRD that this cluster does not have. */
  readonly without?: string;
  readonly bookmarkEveryMs?: number;
  /** A pause of a reflector passes as soon as it begins. */
  readonly impatient?: boolean;
}

/** An API server with Calico's kinds, and a store that follows it. */
async function cluster(options: Options = {}) {
  const { group = "crd", tls = false, without = "none", bookmarkEveryMs = 60_000, impatient = true } = options;
  const seed = calicoDefinitions(group).filter((crd) => !JSON.stringify(crd).includes(`"plural":"${without}"`));
  const kube = await startKubeApi({ tls, seed, bookmarkEveryMs });
  cleanUp.push(() => kube.stop());

  const clock = manualClock();
  const store = new Store(clock);
  const told: string[] = [];
  const waiting = new Set<() => void>();
  const look = (): void => {
    for (const wake of waiting) wake();
  };
  store.listen(({ name, before, after }) => {
    told.push(`${before ? (after ? "~" : "-") : "+"}${name}`);
    setImmediate(look);
  });
  const say = (message: string, keys: LogKeys = {}): void => {
    if (impatient && message.endsWith("begun again")) setImmediate(() => clock.advance(Number(keys.seconds) * 1000));
    setImmediate(look);
  };
  const log: Logger = { error: say, warn: say, info: say, debug: say, trace: say, with: () => log, isOn: () => true };
  const count = { inc: () => {}, set: () => {}, clear: () => {} };
  const credentials = { token: kube.adminToken, ...(kube.ca !== undefined && { ca: kube.ca }) };
  const http = new Http({
    connection: connectTo(kube.url, credentials),
    userAgent: "cattail-server/test",
    clock,
    onAnswer: () => void setImmediate(look),
  });
  const upstream = startUpstream({
    http,
    store,
    group,
    clock,
    random: seededRandom(1),
    log,
    metrics: {
      upstreamObjects: count,
      upstreamSynced: count,
      upstreamAge: count,
      upstreamEvents: count,
      upstreamRestarts: count,
    },
  });
  cleanUp.push(() => http.stop());
  cleanUp.push(() => upstream.stop());
  clock.advance(1_000);

  /** Resolves once it holds; looked at whenever the store or the log has news. */
  const until = async (holds: () => boolean): Promise<void> => {
    while (!holds()) {
      await new Promise<void>((resolve) => {
        waiting.add(function wake() {
          waiting.delete(wake);
          resolve();
        });
      });
    }
  };
  const stored = (kind: Kind): Meta[] => {
    const { plural, apiVersion } = resourceOf(group, kind);
    const slash = apiVersion.indexOf("/");
    const objects = kube.objects(plural, slash < 0 ? "" : apiVersion.slice(0, slash));
    return objects.flatMap((raw) => {
      const reading = readers[kind](parseLossless(printLossless(raw)), group);
      return reading.ok ? reading.object : [];
    });
  };
  /** Everything but versions, which no-op changes move on their own. */
  const plain = (objects: Iterable<Meta>) => [...objects].sort(byName).map((one) => ({ ...one, resourceVersion: "" }));
  const agrees = (kind: Kind): boolean => {
    const [theirs, ours] = [plain(stored(kind)), plain(store.sorted(kind))];
    return show(theirs) === show(ours);
  };
  /** Somebody else's write: straight into the API server, whatever happens on our way to it. */
  const write = (method: string, path: string, body: object): void => {
    const { answer } = kube.server.handle({
      method,
      path,
      query: new Map(),
      accept: "application/json",
      contentType: method === "PATCH" ? "application/merge-patch+json" : "application/json",
      userAgent: "other",
      token: kube.adminToken,
      body: printLossless(body),
    });
    assert.ok(answer.kind === "body" && answer.code < 300, JSON.stringify(answer));
  };
  const create = (kind: Kind, name: string, spec: object): void => {
    const { apiVersion, kind: theirs } = resourceOf(group, kind);
    write("POST", apiPath(group, kind), { apiVersion, kind: theirs, metadata: { name }, spec });
  };
  return { kube, clock, store, told, http, upstream, until, agrees, write, create };
}

type Cluster = Awaited<ReturnType<typeof cluster>>;
const byName = (a: Meta, b: Meta) => (a.name < b.name ? -1 : 1);
const show = (value: unknown) =>
  JSON.stringify(value, (_key, part: unknown) =>
    typeof part === "bigint" ? String(part) : part instanceof Map ? [...part] : part,
  );

const blockSpec = (cidr: string, affinity: string) => ({
  cidr,
  affinity,
  allocations: Array(4).fill(null),
  unallocated: [0, 1, 2, 3],
  attributes: [],
  sequenceNumber: 1787405600123456793n,
  sequenceNumberForAllocation: {},
  deleted: false,
  strictAffinity: false,
});
const nthCidr = (n: number) => `10.0.${n >> 6}.${(n & 63) * 4}/30` as BlockCidr;
const nameOf = (n: number) => blockName(nthCidr(n));
const putBlock = (to: Cluster, n: number): void => to.create("block", nameOf(n), blockSpec(nthCidr(n), "host:a"));
const changeBlock = (of: Cluster, n: number, affinity: string): void =>
  of.write("PATCH", apiPath("crd", "block", nameOf(n)), { spec: { affinity } });
const dropBlock = (of: Cluster, n: number): void => of.write("DELETE", apiPath("crd", "block", nameOf(n)), {});

for (const group of ["crd", "v3"] as const) {
  test(`over TLS, every kind of ${group} is followed from an empty cluster on, by streaming lists`, async () => {
    const one = await cluster({ group, tls: true });
    await one.until(() => one.store.synced());
    assert.equal(await discoverGroup(createApi(one.http)), group);
    one.create("pool", "pool", { cidr: "10.0.0.0/16", blockSize: 30, nodeSelector: "all()" });
    putBlock(one, 0);
    await one.until(() => one.store.all("pool").size === 1 && one.store.all("block").size === 1);
    for (const kind of kinds) assert.ok(one.agrees(kind), kind);
    assert.deepEqual([...one.store.all("namespace").keys()].includes("kube-system"), true);
    assert.equal(one.store.blockAt(nthCidr(0))?.sequenceNumber, 1787405600123456793n);
    const asked = one.kube.log.since().entries.filter(({ client }) => client === "cattail-server/test");
    assert.equal(asked.filter(({ verb }) => verb === "list").length, 0);
    assert.equal(asked.filter(({ verb }) => verb === "watch").length, kinds.length);
    await one.until(() => one.upstream.status().every(({ problem }) => problem === undefined));
  });
}

test("an idle cluster is asked for nothing but its watches", async () => {
  const one = await cluster();
  await one.until(() => one.store.synced());
  const mark = one.kube.log.mark();
  one.kube.disconnectAll();
  await one.until(() => one.kube.log.since(mark).entries.length >= kinds.length);
  await one.until(() => one.upstream.status().every(({ problem }) => problem === undefined));
  const verbs = new Set(one.kube.log.since(mark).entries.map(({ verb }) => verb));
  assert.deepEqual([...verbs], ["watch"]);
});

test("what happened during a disconnect beyond the API server's memory is told exactly once each", async () => {
  const one = await cluster();
  await one.until(() => one.store.synced());
  for (let n = 0; n < 15; n++) putBlock(one, n);
  await one.until(() => one.store.all("block").size === 15);
  // Its watch is refused while things change, and what it missed is forgotten.
  const away = one.kube.faults.add({
    match: { verb: "watch", resource: "ipamblocks" },
    effect: { kind: "status", code: 503 },
  });
  one.kube.disconnectAll();
  await one.until(() => away.used > 0);
  one.told.length = 0;
  for (let n = 0; n < 5; n++) dropBlock(one, n);
  for (let n = 5; n < 10; n++) changeBlock(one, n, "host:b");
  for (let n = 15; n < 20; n++) putBlock(one, n);
  one.kube.compact();
  away.remove();
  await one.until(() => one.agrees("block"));
  assert.equal(one.told.length, 15);
  assert.equal(new Set(one.told).size, 15);
});

test("watch case 25: an etcd set back begins a new epoch, and the store becomes what the API server has", async () => {
  const one = await cluster({ bookmarkEveryMs: 20 });
  await one.until(() => one.store.synced());
  putBlock(one, 0);
  const version = one.kube.version();
  putBlock(one, 1);
  await one.until(() => one.store.all("block").size === 2);
  one.kube.restoreTo(version);
  await one.until(() => one.store.epoch > 0 && one.agrees("block"));
  assert.deepEqual([...one.store.all("block").keys()], [blockName(nthCidr(0))]);
});

test("a cluster without IPReservation is complete without it, and says so", async () => {
  const one = await cluster({ without: "ipreservations" });
  await one.until(() => one.store.synced());
  const reservations = () => one.upstream.status().find(({ kind }) => kind === "reservation");
  assert.match(reservations()?.problem ?? "", /404/);
});

test("a kind that we may not read is never taken for empty", async () => {
  const one = await cluster({ impatient: false });
  const forbidden: FaultEffect = { kind: "status", code: 403, reason: "Forbidden", message: "no" };
  one.kube.faults.add({ match: { resource: "ipamblocks" }, effect: forbidden });
  const blocks = () => one.upstream.status().find(({ kind }) => kind === "block");
  await one.until(() => blocks()?.problem?.includes("403 Forbidden") === true);
  assert.equal(blocks()?.synced, false);
  assert.equal(one.store.synced(), false);
});

const effects: readonly FaultEffect[] = [
  { kind: "cut-watch", afterLines: 0 },
  { kind: "cut-watch", afterLines: 3, reset: true },
  { kind: "error-event", code: 410, reason: "Expired" },
  { kind: "error-event", code: 500, reason: "InternalError" },
  { kind: "status", code: 429, retryAfterSeconds: 1 },
  { kind: "status", code: 410, reason: "Expired" },
  { kind: "status", code: 422, reason: "Invalid" },
  { kind: "status", code: 503, text: "starting" },
  { kind: "drop", when: "before" },
  { kind: "drop", when: "after" },
  { kind: "truncate", afterBytes: 300 },
  { kind: "truncate", afterBytes: 300, clean: true },
];
for (const seed of [1, 2, 3]) {
  test(`whatever goes wrong on the way, the view becomes what the API server has (seed ${seed})`, async () => {
    const one = await cluster();
    const random = seededRandom(seed);
    await one.until(() => one.store.synced());
    const match = { verb: ["list", "watch"], resource: "ipamblocks" };
    const exists = new Set<number>();
    for (let round = 0; round < 40; round++) {
      const effect = effects[random.below(effects.length)];
      if (effect !== undefined) one.kube.faults.add({ match, effect, times: 1 + random.below(2) });
      for (let i = 0; i < 5; i++) {
        const n = random.below(30);
        if (exists.has(n)) dropBlock(one, n);
        else putBlock(one, n);
        if (!exists.delete(n)) exists.add(n);
      }
      if (random.below(4) === 0) one.kube.compact();
      if (random.below(2) === 0) one.kube.disconnectAll();
    }
    one.kube.faults.clear();
    await one.until(() => one.agrees("block"));
    assert.equal(one.store.all("block").size, exists.size);
    assert.equal(one.store.epoch, 0);
  });
}
