// The catalogue of metrics: names, types, closed label sets, buckets, help. Data, and the types of the handles made from it (ux 3).
// Leaves to others: counting and exposition (shared/process/metrics.ts) and what feeds a metric (the component it names).
import { kinds } from "./calico/resources.ts";
import { checkReasons, reasons } from "./reasons.ts";

/** alpha: may change. beta: will be kept, its labels may grow. stable: changes only after two minor releases of parallel export. */
export type Stability = "alpha" | "beta" | "stable";

/** A list: the code makes the word, and the compiler refuses any other. */
export type LabelValues = readonly string[] | OutsideValues | typeof anyText | typeof ofPools;
/** The word comes from outside: whatever is not in the list is counted as `other`. */
export interface OutsideValues {
  readonly outside: readonly string[];
}
/** Only for labels that have one value for the whole life of a process. */
export const anyText = "any text";
/** Names of pools and what is said of them: series come and go with the IPPools, of which a cluster has a few. */
export const ofPools = "of pools";

interface Definition {
  readonly name: string;
  readonly help: string;
  readonly stability: Stability;
  readonly labels?: Readonly<Record<string, LabelValues>>;
}
export type MetricDefinition = Definition &
  (
    | { readonly type: "counter" }
    | { readonly type: "gauge" }
    | { readonly type: "histogram"; readonly buckets: readonly number[] }
  );
export type MetricDefinitions = Readonly<Record<string, MetricDefinition>>;

type LabelText<V> = V extends readonly string[] ? V[number] : string;
type LabelsOf<D> = D extends { readonly labels: infer L } ? { readonly [K in keyof L]: LabelText<L[K]> } : undefined;
/** A metric without labels takes none; one with labels takes all of them. */
type LabelArguments<D> = LabelsOf<D> extends undefined ? [] : [labels: LabelsOf<D>];

export interface Counter<D> {
  inc(...args: [...LabelArguments<D>, by?: number]): void;
}
export interface Gauge<D> {
  set(...args: [...LabelArguments<D>, value: number]): void;
  /** Forgets every series of this gauge: before setting the ones of what exists now. */
  clear(): void;
}
export interface Histogram<D> {
  observe(...args: [...LabelArguments<D>, value: number]): void;
}
/** What a component holds: one handle per definition, under the same key. */
export type MetricHandles<D extends MetricDefinitions> = { readonly [K in keyof D]: Handle<D[K]> };
type Handle<D extends MetricDefinition> = D extends { readonly type: "counter" }
  ? Counter<D>
  : D extends { readonly type: "gauge" }
    ? Gauge<D>
    : Histogram<D>;

/** Where handles come from. Created once per definition and process. */
export interface MetricsRegistry {
  create<D extends MetricDefinitions>(definitions: D): MetricHandles<D>;
  /** Called before each scrape, for gauges that are cheaper to read than to keep. */
  beforeScrape(update: () => void | Promise<void>): void;
}

export const buckets = {
  cni: [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 90],
  api: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
  flow: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60],
  disk: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2],
  batch: [1, 2, 4, 8, 16, 32, 64, 128, 256],
} as const;

const resource = kinds;
const family = ["ipv4", "ipv6"] as const;
const verb = ["ADD", "DEL", "CHECK", "GC", "STATUS"] as const;

/** Of every process, and nothing else about the runtime. */
export const processMetrics = {
  buildInfo: {
    name: "cattail_build_info",
    type: "gauge",
    labels: { component: ["server", "agent"], version: anyText, revision: anyText, runtime: anyText },
    help: "Always 1: which build of which component runs here",
    stability: "stable",
  },
  configReloadSuccess: {
    name: "cattail_config_reload_success",
    type: "gauge",
    help: "1 if the configuration file as it is now was taken over, 0 if it has an error and the old values are kept",
    stability: "beta",
  },
  configDrift: {
    name: "cattail_config_drift",
    type: "gauge",
    help: "1 if the configuration file holds a value that needs a restart to take effect",
    stability: "beta",
  },
  eventLoopDelay: {
    name: "cattail_event_loop_delay_seconds",
    type: "gauge",
    labels: { quantile: ["0.5", "0.99", "1"] },
    help: "How much later than due the event loop ran, in the last full window of 10 s",
    stability: "stable",
  },
  certificateExpiry: {
    name: "cattail_tls_certificate_expiry_timestamp_seconds",
    type: "gauge",
    labels: { use: ["server", "ca", "client"] },
    help: "When the certificate in use ends, in Unix seconds; of a bundle, the earliest",
    stability: "stable",
  },
  logMessages: {
    name: "cattail_log_messages_total",
    type: "counter",
    labels: { level: ["error", "warn"] },
    help: "Errors and warnings said, also those that were summed into one line",
    stability: "stable",
  },
  cpuSeconds: {
    name: "process_cpu_seconds_total",
    type: "counter",
    help: "User and system CPU time spent, in seconds",
    stability: "stable",
  },
  residentBytes: {
    name: "process_resident_memory_bytes",
    type: "gauge",
    help: "Resident memory size, in bytes",
    stability: "stable",
  },
  openFds: {
    name: "process_open_fds",
    type: "gauge",
    help: "Open file descriptors",
    stability: "stable",
  },
  maxFds: {
    name: "process_max_fds",
    type: "gauge",
    help: "Most file descriptors the process may open",
    stability: "stable",
  },
  startTime: {
    name: "process_start_time_seconds",
    type: "gauge",
    help: "When the process started, in Unix seconds",
    stability: "stable",
  },
  heapUsedBytes: {
    name: "nodejs_heap_size_used_bytes",
    type: "gauge",
    help: "Part of the JavaScript heap in use, in bytes",
    stability: "stable",
  },
} as const satisfies MetricDefinitions;

export const agentMetrics = {
  cniRequests: {
    name: "cattail_agent_cni_requests_total",
    type: "counter",
    labels: { verb, result: ["ok", "retry", "error"] },
    help: "Requests of the CNI executable that were answered; retry = the runtime was asked to try again later (code 11)",
    stability: "stable",
  },
  cniErrors: {
    name: "cattail_agent_cni_errors_total",
    type: "counter",
    labels: { verb, reason: reasons },
    help: "Requests that were answered with an error, by reason",
    stability: "stable",
  },
  cniRequestDuration: {
    name: "cattail_agent_cni_request_duration_seconds",
    type: "histogram",
    labels: { verb: ["ADD", "DEL"], path: ["warm", "wait", "replay", "journal"] },
    buckets: buckets.cni,
    help: "From request to answer; warm = from local state, wait = had to wait for the server, replay = answered before, journal = a DEL",
    stability: "stable",
  },
  cniInFlight: {
    name: "cattail_agent_cni_in_flight",
    type: "gauge",
    help: "Requests not answered yet",
    stability: "stable",
  },
  addresses: {
    name: "cattail_agent_addresses",
    type: "gauge",
    labels: { family, state: ["warm", "held", "owned", "leaving", "cooling", "suspect"] },
    help: "Addresses this node answers for, each in exactly one state",
    stability: "beta",
  },
  warmTarget: {
    name: "cattail_agent_warm_target",
    type: "gauge",
    labels: { family },
    help: "How many addresses are to be kept in stock by the demand of now",
    stability: "beta",
  },
  leaseRemaining: {
    name: "cattail_agent_lease_remaining_seconds",
    type: "gauge",
    help: "How long addresses are handed out from stock if no server is heard from now on, in seconds",
    stability: "stable",
  },
  blocks: {
    name: "cattail_agent_blocks",
    type: "gauge",
    labels: { family, kind: ["affine", "borrowed"] },
    help: "Blocks that are this node's own, and others' blocks it has addresses in",
    stability: "beta",
  },
  intentsPending: {
    name: "cattail_agent_intents_pending",
    type: "gauge",
    help: "Changes in the journal that are not acknowledged yet",
    stability: "stable",
  },
  intentOldest: {
    name: "cattail_agent_intent_oldest_seconds",
    type: "gauge",
    help: "Age of the oldest change that is not acknowledged yet, in seconds; 0 if there is none",
    stability: "stable",
  },
  journalBytes: {
    name: "cattail_agent_journal_bytes",
    type: "gauge",
    help: "Size of the journal on disk, in bytes",
    stability: "beta",
  },
  spooledDeletes: {
    name: "cattail_agent_spooled_deletes",
    type: "gauge",
    help: "DELs the CNI executable has put on disk while the agent was away, not taken over yet",
    stability: "beta",
  },
  commitDuration: {
    name: "cattail_agent_commit_duration_seconds",
    type: "histogram",
    buckets: buckets.flow,
    help: "From the record of a change in the journal to its acknowledgement",
    stability: "beta",
  },
  journalWriteDuration: {
    name: "cattail_agent_journal_write_duration_seconds",
    type: "histogram",
    buckets: buckets.disk,
    help: "One durable write of the journal, which may carry many records",
    stability: "stable",
  },
  serverConnected: {
    name: "cattail_agent_server_connected",
    type: "gauge",
    help: "1 while a server's stream is open and complete, otherwise 0",
    stability: "stable",
  },
  serverLastContact: {
    name: "cattail_agent_server_last_contact_timestamp_seconds",
    type: "gauge",
    help: "When a server was last heard, in Unix seconds",
    stability: "stable",
  },
  dataAge: {
    name: "cattail_agent_data_age_seconds",
    type: "gauge",
    labels: { resource },
    help: "How old what is known of a resource may be, counted from the API server, in seconds",
    stability: "beta",
  },
  reconnects: {
    name: "cattail_agent_reconnects_total",
    type: "counter",
    labels: { reason: ["closed", "timeout", "stale", "redirect", "tls", "refused"] },
    help: "Streams that had to be opened again, by what ended the last one",
    stability: "stable",
  },
  conflicts: {
    name: "cattail_agent_conflicts_total",
    type: "counter",
    labels: { kind: ["taken", "released", "block_lost"] },
    help: "Addresses or blocks of this node that another writer took or released",
    stability: "stable",
  },
  installRepairs: {
    name: "cattail_agent_install_repairs_total",
    type: "counter",
    help: "Installed files put back after something else had replaced or removed them",
    stability: "beta",
  },
} as const satisfies MetricDefinitions;

export const serverMetrics = {
  upstreamObjects: {
    name: "cattail_server_upstream_objects",
    type: "gauge",
    labels: { resource },
    help: "Objects of a resource in the cache",
    stability: "stable",
  },
  upstreamSynced: {
    name: "cattail_server_upstream_synced",
    type: "gauge",
    labels: { resource },
    help: "1 if the resource has been listed completely and is being watched",
    stability: "stable",
  },
  upstreamAge: {
    name: "cattail_server_upstream_age_seconds",
    type: "gauge",
    labels: { resource },
    help: "Time since the API server was last heard about a resource, in seconds",
    stability: "stable",
  },
  upstreamEvents: {
    name: "cattail_server_upstream_events_total",
    type: "counter",
    labels: { resource, type: ["added", "modified", "deleted", "bookmark", "error"] },
    help: "Watch events received",
    stability: "stable",
  },
  upstreamRestarts: {
    name: "cattail_server_upstream_restarts_total",
    type: "counter",
    labels: { resource, reason: ["closed", "timeout", "gone", "stale", "forbidden", "error"] },
    help: "Watches that had to be begun again, by what ended the last one; closed is normal",
    stability: "stable",
  },
  apiRequests: {
    name: "cattail_server_api_requests_total",
    type: "counter",
    labels: {
      verb: ["get", "list", "watch", "create", "patch", "delete"],
      resource: { outside: [...kinds, "event", "lease", "pod", "secret", "tokenreview"] },
      // Those that the API server is known to give; "none" = no answer came.
      code: {
        outside: [
          "200",
          "201",
          "202",
          "400",
          "401",
          "403",
          "404",
          "409",
          "410",
          "422",
          "429",
          "500",
          "503",
          "504",
          "none",
        ],
      },
    },
    help: "Requests made to the API server",
    stability: "stable",
  },
  apiRequestDuration: {
    name: "cattail_server_api_request_duration_seconds",
    type: "histogram",
    labels: { verb: ["get", "list", "create", "patch", "delete"] },
    buckets: buckets.api,
    help: "Requests made to the API server, from sending to the whole answer; watches are not in it",
    stability: "stable",
  },
  streams: {
    name: "cattail_server_streams",
    type: "gauge",
    labels: { scope: ["node", "all"], state: ["syncing", "live", "draining"] },
    help: "Open streams; all = observers",
    stability: "stable",
  },
  streamDirtyKeys: {
    name: "cattail_server_stream_dirty_keys",
    type: "gauge",
    help: "Objects of which some client does not have the newest state yet, summed over clients",
    stability: "beta",
  },
  streamBufferedBytes: {
    name: "cattail_server_stream_buffered_bytes",
    type: "gauge",
    help: "Bytes in the streams' sockets that the system has not taken yet, summed over clients",
    stability: "beta",
  },
  streamSlow: {
    name: "cattail_server_stream_slow",
    type: "gauge",
    help: "Clients that are more than 5 s behind",
    stability: "beta",
  },
  streamsClosed: {
    name: "cattail_server_streams_closed_total",
    type: "counter",
    labels: { reason: ["client", "drain", "redirect", "timeout", "protocol", "auth", "stale"] },
    help: "Streams that ended, by who or what ended them",
    stability: "stable",
  },
  streamSentBytes: {
    name: "cattail_server_stream_sent_bytes_total",
    type: "counter",
    labels: { type: ["snapshot", "update", "ack", "heartbeat"] },
    help: "Bytes handed to the streams' sockets",
    stability: "stable",
  },
  handshakesRefused: {
    name: "cattail_server_handshakes_refused_total",
    type: "counter",
    labels: { reason: ["auth", "identity", "rate", "version"] },
    help: "Connections that did not become a stream",
    stability: "stable",
  },
  propagation: {
    name: "cattail_server_propagation_seconds",
    type: "histogram",
    buckets: buckets.flow,
    help: "From an upstream event to the write of it to a stream's socket",
    stability: "stable",
  },
  intents: {
    name: "cattail_server_intents_total",
    type: "counter",
    labels: {
      op: ["claim", "reserve", "retag", "release"],
      result: ["applied", "already", "expectation", "refused", "failed"],
    },
    help: "Changes asked for by agents, by outcome",
    stability: "stable",
  },
  commitBatchSize: {
    name: "cattail_server_commit_batch_size",
    type: "histogram",
    buckets: buckets.batch,
    help: "Changes that went into one write of a block",
    stability: "beta",
  },
  commitDuration: {
    name: "cattail_server_commit_duration_seconds",
    type: "histogram",
    buckets: buckets.flow,
    help: "From an agent's request to its acknowledgement, repetitions after conflicts included",
    stability: "beta",
  },
  commitConflicts: {
    name: "cattail_server_commit_conflicts_total",
    type: "counter",
    labels: { resource },
    help: "Writes the API server refused because the object had changed meanwhile (409)",
    stability: "stable",
  },
  commitThrottled: {
    name: "cattail_server_commit_throttled_total",
    type: "counter",
    labels: { resource },
    help: "Requests the API server put off because it had too many (429)",
    stability: "stable",
  },
  commitLimit: {
    name: "cattail_server_commit_limit",
    type: "gauge",
    help: "Most requests for commits and claims that may be under way at a time",
    stability: "beta",
  },
  commitInFlight: {
    name: "cattail_server_commit_in_flight",
    type: "gauge",
    help: "Writes under way to the API server",
    stability: "stable",
  },
  commitQueued: {
    name: "cattail_server_commit_queued",
    type: "gauge",
    help: "Agents' requests that wait for a write of the same block, or for a place among the writes under way",
    stability: "stable",
  },
  reaped: {
    name: "cattail_server_reaped_total",
    type: "counter",
    labels: { kind: ["warm", "claim", "handle"] },
    help: "Leftovers removed: addresses of vanished nodes, half-made claims of blocks, handles without an address",
    stability: "stable",
  },
  checkFindings: {
    name: "cattail_server_check_findings",
    type: "gauge",
    labels: { reason: checkReasons, severity: ["error", "warning"] },
    help: "What looks wrong in the cluster's IPAM objects, by what a check calls it; a finding of minutes may be a write under way",
    stability: "beta",
  },
  eventsDropped: {
    name: "cattail_server_events_dropped_total",
    type: "counter",
    help: "Kubernetes Events not raised, because there were too many or the API server did not take them",
    stability: "stable",
  },
} as const satisfies MetricDefinitions;

const addressState = ["owned", "warm", "cooling", "tunnel", "foreign", "reserved", "free"] as const;

/** The state of the cluster, which every server replica tells in full: aggregate with `max`. Only `cattail_nodes` differs. */
export const clusterMetrics = {
  poolAddresses: {
    name: "cattail_pool_addresses",
    type: "gauge",
    labels: { pool: ofPools, family, state: addressState },
    help: "Addresses of an IPPool, each in exactly one state, so that they sum to its size",
    stability: "beta",
  },
  poolBlocks: {
    name: "cattail_pool_blocks",
    type: "gauge",
    labels: { pool: ofPools, state: ["affine", "ownerless", "unclaimed"] },
    help: "Blocks of an IPPool: with an owner, without one, not made yet",
    stability: "beta",
  },
  poolInfo: {
    name: "cattail_pool_info",
    type: "gauge",
    labels: { pool: ofPools, cidr: ofPools, block_size: ofPools, enabled: ["true", "false"] },
    help: "Always 1: what an IPPool is",
    stability: "beta",
  },
  poolStranded: {
    name: "cattail_pool_stranded_addresses",
    type: "gauge",
    labels: { pool: ofPools },
    help: "Addresses that are free, but only in blocks that nodes short of addresses may not use",
    stability: "beta",
  },
  poolBorrowed: {
    name: "cattail_pool_borrowed_addresses",
    type: "gauge",
    labels: { pool: ofPools },
    help: "Addresses of pods on another node than the one that owns their block",
    stability: "beta",
  },
  poolLeakSuspects: {
    name: "cattail_pool_leak_suspects",
    type: "gauge",
    labels: { pool: ofPools },
    help: "Addresses of pods on Nodes that do not exist",
    stability: "alpha",
  },
  nodes: {
    name: "cattail_nodes",
    type: "gauge",
    labels: { state: ["connected", "stale", "offline", "calico"] },
    help: "Nodes as this replica sees them: connected to it, connected and behind or silent, served but not connected here, not served",
    stability: "beta",
  },
  handles: {
    name: "cattail_handles",
    type: "gauge",
    labels: { state: ["used", "orphan"] },
    help: "IPAMHandle objects, by whether a block names them",
    stability: "beta",
  },
} as const satisfies MetricDefinitions;
