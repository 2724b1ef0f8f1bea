// A server's store and writers over the embedded API server, in one process and on a clock that waits for nobody.
// For tests of server/commit; leaves the stream and the watches out: `sync` is the watch.
import { Affinities } from "../server/commit/affinities.ts";
import { Claims } from "../server/commit/claims.ts";
import { Committer } from "../server/commit/committer.ts";
import { Desk } from "../server/commit/desk.ts";
import { FairLimiter } from "../server/commit/fair-limiter.ts";
import { Handles } from "../server/commit/handles.ts";
import { Store } from "../server/store/store.ts";
import { readers } from "../shared/calico/codec.ts";
import { resourceOf } from "../shared/calico/names.ts";
import { type ApiGroup, type Kind, kinds, type Objects } from "../shared/calico/resources.ts";
import type { ResourceVersion } from "../shared/kinds.ts";
import type { Api } from "../shared/kube/api.ts";
import { createLog, type Logger } from "../shared/log.ts";
import { type MetricHandles, serverMetrics } from "../shared/metrics.ts";
import { type DirectApi, directApi } from "./direct-api.ts";
import { type ManualClock, manualClock, seededRandom } from "./manual-world.ts";

export interface CommitWorld {
  readonly api: DirectApi;
  readonly clock: ManualClock;
  /** Another server of the same cluster; its own door to the API, if that is to be another. */
  replica(through?: Api): Replica;
}

export interface Replica {
  readonly store: Store;
  readonly desk: Desk;
  readonly affinities: Affinities;
  readonly committer: Committer;
  readonly claims: Claims;
  /** Brings the store up to date, as new lists would. */
  sync(): void;
  /** Brings the store up to date, or these kinds of it, as open watches would. */
  watch(...only: readonly Kind[]): void;
}

/** Whoever waits is woken as soon as nothing else is left to do, and the time has passed. */
export function impatientClock(): ManualClock {
  const manual = manualClock();
  return {
    ...manual,
    after: (delayMs, wake) => {
      const cancel = manual.after(delayMs, wake);
      setImmediate(() => manual.advance(delayMs));
      return cancel;
    },
  };
}

export function commitWorld(seed: readonly unknown[] = [], seedOfRandom = 1, group: ApiGroup = "crd"): CommitWorld {
  const clock = impatientClock();
  const random = seededRandom(seedOfRandom);
  const api = directApi(clock, random, group);
  api.server.seed([clusterInformation(group), ...seed]);
  return {
    api,
    clock,
    replica(through = api) {
      const store = new Store(clock);
      const parts = { api: through, group, store, limiter: new FairLimiter(8, clock), clock, random } as const;
      const desk = new Desk({ ...parts, onSetback: () => {} });
      const affinities = new Affinities(desk);
      const replica: Replica = {
        store,
        desk,
        affinities,
        committer: new Committer(desk, affinities, new Handles(desk), silent, uncounted),
        claims: new Claims(desk, affinities, random, silent, uncounted),
        sync: () => {
          for (const kind of kinds) fill(store, api, kind, group);
        },
        watch: (...only) => {
          for (const kind of only.length === 0 ? kinds : only) follow(store, api, kind, group);
        },
      };
      replica.sync();
      return replica;
    },
  };
}

function clusterInformation(group: ApiGroup): unknown {
  const { apiVersion, kind } = resourceOf(group, "cluster");
  return { apiVersion, kind, metadata: { name: "default" }, spec: { datastoreReady: true, clusterGUID: "test" } };
}

export interface MortalApi extends Api {
  /** Resolves when the server behind it has gone. */
  readonly dead: Promise<void>;
}

/** The door of a server that is killed after so many requests: the last one takes effect or not, its answer reaches nobody. */
export function mortal(api: Api, requests: number, isLastCarriedOut: boolean): MortalApi {
  const dead = Promise.withResolvers<void>();
  let left = requests;
  const call = async <T>(request: () => Promise<T>): Promise<T> => {
    left--;
    if (left > 0) return request();
    if (left === 0 && isLastCarriedOut) await request().catch(() => {});
    dead.resolve();
    return new Promise<T>(() => {});
  };
  return {
    dead: dead.promise,
    get: (path) => call(() => api.get(path)),
    create: (path, body) => call(() => api.create(path, body)),
    patch: (path, body) => call(() => api.patch(path, body)),
    remove: (path, preconditions) => call(() => api.remove(path, preconditions)),
  };
}

function fill<K extends Kind>(store: Store, api: DirectApi, kind: K, group: ApiGroup): void {
  store.replace(kind, objectsIn(api, kind, group), versionOf(api));
}

function follow<K extends Kind>(store: Store, api: DirectApi, kind: K, group: ApiGroup): void {
  const objects = objectsIn(api, kind, group);
  const uids = new Set(objects.map(({ uid }) => uid));
  for (const { name, uid } of [...store.all(kind).values()]) {
    if (!uids.has(uid)) store.remove(kind, name, { uid, resourceVersion: versionOf(api) });
  }
  for (const object of objects) store.put(kind, object);
  store.opened(kind);
  store.bookmark(kind, versionOf(api));
}

function objectsIn<K extends Kind>(api: DirectApi, kind: K, group: ApiGroup): Objects[K][] {
  return api.server.objects(resourceOf(group, kind).plural).flatMap((raw) => {
    const reading = readers[kind](raw, group);
    return reading.ok ? [reading.object] : [];
  });
}

function versionOf(api: DirectApi): ResourceVersion {
  return String(api.server.store.version) as ResourceVersion;
}

export const silent: Logger = createLog({
  level: "error",
  format: "json",
  clock: manualClock(),
  write: () => {},
}).logger;

const ignore = { inc: () => {}, set: () => {}, observe: () => {}, clear: () => {} };
const uncounted = Object.fromEntries(
  Object.keys(serverMetrics).map((key) => [key, ignore]),
) as unknown as MetricHandles<typeof serverMetrics>;
