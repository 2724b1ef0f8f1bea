// The one catalogue of options: every key of every executable, with its default and what it means (ux 2).
// Only what code reads is in it; --help, `config`, the checks and the types of the configurations all come from here.
import { levels } from "../log.ts";
import type { ConfigOf, OptionTable } from "./options.ts";

/** For `commit.maxInFlight: 0`. */
export const defaultMaxInFlight = 32;

const listenHelp = "all addresses if not set";

const log = {
  level: {
    kind: "enum",
    values: levels,
    default: "info",
    reloadable: true,
    help: "Least important messages that are logged; --v=N sets it as in the programs of Kubernetes",
  },
  format: {
    kind: "enum",
    values: ["auto", "json", "text"],
    default: "auto",
    help: "Form of the log lines; auto is text on a terminal and json otherwise",
  },
} as const;

const server = {
  kubeconfig: {
    kind: "path",
    help: "Kubeconfig of the API server; the service account of the pod is used if not set",
  },
  apiGroup: {
    kind: "enum",
    values: ["auto", "crd", "v3"],
    default: "auto",
    help: "Where Calico's resources are: crd is crd.projectcalico.org, v3 is projectcalico.org served directly, auto asks the API server",
  },
  ports: {
    stream: {
      kind: "port",
      zeroIsOff: false,
      default: "4480",
      help: "TCP port of the WebSocket stream to the node agents",
    },
    http: {
      kind: "port",
      zeroIsOff: true,
      default: "4481",
      help: "TCP port of /metrics, /livez, /readyz, /healthz and /version; 0 switches it off",
    },
    admin: {
      kind: "port",
      zeroIsOff: true,
      default: "4483",
      help: "TCP port of the status page /, /api/v1/status, /api/v1/objects, /debug/config and /debug/log-level, on loopback only; 0 switches it off",
    },
  },
  listen: {
    stream: { kind: "string", help: `IP address the stream listens on, ${listenHelp}` },
    http: { kind: "string", help: `IP address the HTTP port listens on, ${listenHelp}` },
  },
  tls: {
    certFile: {
      kind: "path",
      needs: "tls.keyFile",
      help: "PEM file of the stream's certificate and its chain; re-read when it changes",
    },
    keyFile: { kind: "path", needs: "tls.certFile", help: "PEM file of the private key of tls.certFile" },
    issueFor: {
      kind: "string",
      help: "Name for which the server issues its own certificate; its authority lies in the Secret and ConfigMap cattail-authority",
    },
  },
  auth: {
    audience: {
      kind: "string",
      default: "cattail-server",
      help: "Audience that the tokens of clients must be made for",
    },
    agents: {
      kind: "list",
      item: { kind: "string" },
      default: "cattail-system/cattail-agent",
      help: "Service accounts, as namespace/name, whose tokens are those of agents; each speaks for the node it is bound to",
    },
    observers: {
      kind: "list",
      item: { kind: "string" },
      help: "Service accounts, as namespace/name, that may see everything and write nothing",
    },
  },
  upstream: {
    staleAfter: {
      kind: "duration",
      default: "15s",
      min: "1s",
      max: "1h",
      reloadable: true,
      help: "Silence of the API server after which the data is stale and the server not ready",
    },
  },
  commit: {
    maxInFlight: {
      kind: "integer",
      min: 0,
      max: 10_000,
      default: "0",
      reloadable: true,
      help: `Most requests for agents under way to the API server at a time; 0 is ${defaultMaxInFlight}`,
    },
  },
  namespace: {
    kind: "string",
    default: "cattail-system",
    help: "Namespace of the server's own objects, such as the Lease by which one server is chosen to clean up",
  },
  offlineLimit: {
    kind: "duration",
    default: "45m",
    // Must be well above the time that two servers may see the same Node differently (server/reaper/limits.ts).
    min: "5m",
    max: "24h",
    reloadable: true,
    help: "How long an agent that hears of no server hands out addresses; a vanished node's are freed after reaper.after",
  },
  reaper: {
    after: {
      kind: "duration",
      min: "10m",
      max: "48h",
      reloadable: true,
      help: "How long a Node must be missing before its warm addresses are freed; twice offlineLimit, and never less, if not set",
    },
  },
  events: {
    enabled: {
      kind: "boolean",
      default: "true",
      help: "Raises Kubernetes Events about what somebody can act on",
    },
  },
  log,
} as const satisfies OptionTable;

const agent = {
  nodeName: { kind: "string", required: true, help: "Name of this Kubernetes node" },
  server: {
    kind: "list",
    item: { kind: "url", schemes: ["wss", "ws"] },
    required: true,
    help: "URLs of the servers' stream, such as wss://10.0.0.1:4480; one of them is used at a time",
  },
  tokenFile: {
    kind: "path",
    help: "File with the service account token that is shown to the server; re-read when it changes",
  },
  tls: {
    caFile: {
      kind: "path",
      help: "PEM file of the authorities that may sign the server's certificate; re-read when it changes",
    },
    serverName: {
      kind: "string",
      help: "Name that the server's certificate must be for; the host of its URL if not set",
    },
  },
  stateDir: { kind: "path", default: "/var/lib/cattail", help: "Directory of the journal; must survive a reboot" },
  socket: {
    kind: "path",
    default: "/run/cattail/agent.sock",
    help: "Unix socket on which the CNI executable is answered",
  },
  cni: {
    cacheDirs: {
      kind: "list",
      item: { kind: "path" },
      default: "/var/lib/cni",
      help: "Directories in which this node's container runtimes keep CNI results: by these a lost journal's addresses are judged",
    },
  },
  commit: {
    kind: "enum",
    values: ["async", "sync"],
    default: "async",
    help: "When a pod is answered: async is once the journal on this node's disk has it, sync is once the API server has it",
  },
  warm: {
    floor: {
      kind: "integer",
      min: 0,
      max: 1024,
      default: "4",
      reloadable: true,
      help: "Addresses kept in stock at rest, per combination of pools in use and address family; with commit async only",
    },
    ceiling: {
      kind: "integer",
      min: 0,
      max: 1024,
      default: "64",
      reloadable: true,
      atLeast: "warm.floor",
      help: "Most addresses kept in stock when pods come fast, not less than warm.floor",
    },
  },
  flushDelay: {
    kind: "duration",
    default: "10s",
    min: "0s",
    max: "5m",
    reloadable: true,
    help: "How long a write that nobody waits for may wait for others to go with it; with commit async only",
  },
  handles: {
    kind: "enum",
    values: ["lazy", "eager", "off"],
    default: "lazy",
    help: "When IPAMHandles are written: lazy is when a pod is handleDelay old, eager is with the block, off is never",
  },
  handleDelay: {
    kind: "duration",
    default: "60s",
    min: "0s",
    max: "24h",
    help: "How old a pod is when its IPAMHandle is written; with handles lazy only",
  },
  rebootGrace: {
    kind: "duration",
    default: "15m",
    min: "1s",
    max: "24h",
    help: "How long after a reboot the container runtime has to delete its old containers before their addresses are released",
  },
  offlineLimit: {
    kind: "duration",
    min: "1m",
    max: "24h",
    reloadable: true,
    help: "How long addresses are handed out from stock without hearing of a server; the servers' own limit holds if it is shorter",
  },
  install: {
    enabled: {
      kind: "boolean",
      default: "false",
      help: "Puts the CNI executable into the host's directory, and back when Calico's installer has overwritten it",
    },
    binDir: {
      kind: "path",
      default: "/opt/cni/bin",
      help: "Directory in which the host's container runtime looks for CNI executables",
    },
    name: {
      kind: "enum",
      values: ["calico-ipam", "cattail-ipam"],
      default: "calico-ipam",
      help: "Name of the CNI executable: calico-ipam under Calico's main plugin, cattail-ipam under any other",
    },
    patchConflist: {
      kind: "path",
      help: "Network configuration whose IPAM section is changed to name the executable; none is touched if not set",
    },
  },
  ports: {
    http: {
      kind: "port",
      zeroIsOff: true,
      default: "4482",
      help: "TCP port of /metrics, /livez, /readyz, /healthz and /version; 0 switches it off",
    },
    admin: {
      kind: "port",
      zeroIsOff: true,
      default: "4484",
      help: "TCP port of /api/v1/node, /api/v1/objects, /debug/config and /debug/log-level, on loopback only; 0 switches it off",
    },
  },
  listen: {
    http: { kind: "string", help: `IP address the HTTP port listens on, ${listenHelp}` },
  },
  log,
} as const satisfies OptionTable;

/** How a command shows its result. */
export const commandOptions = {
  output: {
    kind: "enum",
    values: ["table", "wide", "json", "yaml", "name"],
    default: "table",
    short: "o",
    help: "Form of the result of a command",
  },
  noHeaders: { kind: "boolean", default: "false", help: "Leaves out the headings of a table" },
} as const satisfies OptionTable;

/** Of all commands of `cattail`; what is one command's own is a flag only (cli/). */
const cli = {
  ...commandOptions,
  kubeconfig: { kind: "path", help: "Kubeconfig of the cluster; looked for as kubectl does if not set" },
  context: { kind: "string", help: "Context of the kubeconfig; its current one if not set" },
  namespace: {
    kind: "string",
    default: "default",
    short: "n",
    help: "Namespace of a pod that is named without one",
  },
  systemNamespace: { kind: "string", default: "cattail-system", help: "Namespace in which Cattail runs" },
  apiGroup: {
    kind: "enum",
    values: ["auto", "crd", "v3"],
    default: "auto",
    help: "Where Calico's resources are; auto asks the API server",
  },
  server: {
    kind: "url",
    schemes: ["http", "https"],
    help: "URL of a server's admin port, such as http://127.0.0.1:4483; the API server is asked instead if not set",
  },
  agent: {
    kind: "list",
    item: { kind: "url", schemes: ["http", "https"] },
    help: "URLs of agents' admin ports, such as http://127.0.0.1:4484, whose journals are to be looked at",
  },
  direct: {
    kind: "boolean",
    default: "false",
    help: "Asks the API server alone: no server and no agent, whose journals then count for nothing",
  },
} as const satisfies OptionTable;

/** What every executable takes as a flag besides its options. --config may also be CATTAIL_CONFIG. */
export const frameOptions = {
  config: { kind: "path", help: "YAML file with options, apiVersion cattail.io/v1; flags and environment win over it" },
  help: { kind: "boolean", default: "false", short: "h", help: "Prints this text" },
  version: { kind: "boolean", default: "false", help: "Prints the version" },
} as const satisfies OptionTable;

/** The first line of a configuration file says how it is to be read. */
export const fileVersion = "cattail.io/v1";
/** Set by the image's build, not by a person: no option, and no mistake either. */
export const revisionVariable = "CATTAIL_REVISION";

export const catalogue = { server, agent, cli } as const;
export type Executable = keyof typeof catalogue;
export type Daemon = Exclude<Executable, "cli">;

export type ServerConfig = ConfigOf<typeof server>;
export type AgentConfig = ConfigOf<typeof agent>;
export type CommandConfig = ConfigOf<typeof commandOptions>;
export type Config<E extends Executable> = ConfigOf<(typeof catalogue)[E]>;

export const executables = {
  server: {
    name: "cattail-server",
    summary: "the cache of Calico's IPAM data, and the one that writes it for the nodes",
  },
  agent: { name: "cattail-agent", summary: "gives this node's pods their addresses" },
  cli: { name: "cattail", summary: "looks after Cattail; also kubectl cattail" },
} as const satisfies Record<Executable, { readonly name: string; readonly summary: string }>;
