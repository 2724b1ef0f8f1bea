// What values.schema.json says: the chart's values, with the options of server and agent taken from the catalogue.
// `node test/chart/values-schema.ts` writes the file; a test holds it up to date. Leaves the defaults to values.yaml.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { catalogue, type Daemon } from "../../shared/config/catalogue.ts";
import { type Entry, entriesOf, type Option, type PlainOption } from "../../shared/config/options.ts";
import { impossible } from "../../shared/kinds.ts";

export const chartFolder = join(import.meta.dirname, "../../charts/cattail");

type Schema = { readonly [key: string]: unknown };

/** Keys of an option's file that the chart writes itself, by what they begin with. */
const chartsOwn: Readonly<Record<Daemon, readonly string[]>> = {
  server: ["kubeconfig", "ports", "tls", "auth.audience", "auth.agents", "namespace", "events"],
  agent: ["nodeName", "server", "tokenFile", "tls", "stateDir", "socket", "install", "ports", "listen"],
};

/** The options that an operator may set in `server.config` and `agent.config`. */
export function configurable(daemon: Daemon): readonly Entry[] {
  const own = chartsOwn[daemon];
  return entriesOf(catalogue[daemon]).filter(({ key }) => !own.some((own) => key === own || key.startsWith(`${own}.`)));
}

export function valuesSchema(): Schema {
  return { $schema: "http://json-schema.org/draft-07/schema#", title: "Values of the chart cattail", ...values };
}

function strict(properties: Readonly<Record<string, unknown>>): Schema {
  return { type: "object", additionalProperties: false, properties };
}

function oneOf(...allowed: readonly string[]): Schema {
  return { enum: allowed };
}

const object: Schema = { type: "object" };
const list: Schema = { type: "array" };
const text: Schema = { type: "string" };
const yesOrNo: Schema = { type: "boolean" };
const strings: Schema = { type: "object", additionalProperties: text };
const duration: Schema = { type: "string", pattern: "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$" };
const size: Schema = { type: "string", pattern: "^[0-9]+(Ki|Mi|Gi|Ti)?$" };
const path: Schema = { type: "string", pattern: "^(/.*)?$" };
const url: Schema = { type: "string", pattern: "^wss?://[^\\s@]+$" };
const amount: Schema = { type: ["integer", "string"], pattern: "^[0-9]+%?$", minimum: 0 };

function wholeNumber(minimum: number, maximum?: number): Schema {
  return { type: "integer", minimum, ...(maximum !== undefined && { maximum }) };
}

const port = wholeNumber(1, 65_535);
const portOrOff = wholeNumber(0, 65_535);

const probe = strict({
  initialDelaySeconds: wholeNumber(0),
  periodSeconds: wholeNumber(1),
  timeoutSeconds: wholeNumber(1),
  failureThreshold: wholeNumber(1),
  successThreshold: wholeNumber(1),
});

/** What server and agent have in common. */
const pods = {
  priorityClassName: text,
  resources: object,
  nodeSelector: strings,
  affinity: object,
  tolerations: list,
  podSecurityContext: object,
  securityContext: object,
  probes: strict({ startup: probe, readiness: probe, liveness: probe }),
  terminationGracePeriodSeconds: wholeNumber(1),
  extraArgs: { type: "array", items: text },
  extraEnv: list,
  extraVolumes: list,
  extraVolumeMounts: list,
  extraContainers: list,
  podAnnotations: strings,
  podLabels: strings,
};

const monitor = strict({
  enabled: yesOrNo,
  interval: duration,
  labels: strings,
  relabelings: list,
  metricRelabelings: list,
});

const values = strict({
  global: { type: "object", properties: { imageRegistry: text, imagePullSecrets: list } },
  enabled: yesOrNo, // of a chart that has this one as a dependency
  commonLabels: strings,
  commonAnnotations: strings,
  extraObjects: { type: "array", items: { type: ["object", "string"] } },
  image: strict({
    registry: text,
    repository: { type: "string", minLength: 1 },
    tag: text,
    digest: { type: "string", pattern: "^(sha256:[0-9a-f]{64})?$" },
    pullPolicy: oneOf("Always", "IfNotPresent", "Never"),
  }),
  rbac: strict({ create: yesOrNo }),
  resourceQuota: strict({ enabled: yesOrNo, pods: wholeNumber(1) }),
  server: strict({
    ...pods,
    replicas: wholeNumber(1),
    autoscaling: strict({
      enabled: yesOrNo,
      minReplicas: wholeNumber(1),
      maxReplicas: wholeNumber(1),
      targetCPU: wholeNumber(1, 100),
    }),
    config: configSchema("server"),
    hostNetwork: yesOrNo,
    ports: strict({ stream: port, http: portOrOff, admin: portOrOff }),
    service: strict({
      ipFamilies: { type: "array", minItems: 1, maxItems: 2, uniqueItems: true, items: oneOf("IPv4", "IPv6") },
      annotations: strings,
    }),
    pdb: strict({
      enabled: yesOrNo,
      maxUnavailable: amount,
      unhealthyPodEvictionPolicy: oneOf("AlwaysAllow", "IfHealthyBudget"),
    }),
    topologySpread: oneOf("soft", "hard", "off"),
    topologySpreadConstraints: list,
    strategy: strict({ maxSurge: amount, maxUnavailable: amount }),
    networkPolicy: strict({ enabled: yesOrNo }),
  }),
  agent: strict({
    ...pods,
    config: configSchema("agent"),
    servers: { type: "array", items: url },
    ports: strict({ http: portOrOff, admin: portOrOff }),
    metricsBind: oneOf("node", "all"),
    updateStrategy: strict({ maxUnavailable: amount }),
    install: strict({
      enabled: yesOrNo,
      name: oneOf(...catalogue.agent.install.name.values),
      binDir: { type: "string", pattern: "^/." },
      patchConflist: path,
    }),
  }),
  tls: strict({
    mode: oneOf("auto", "certManager", "secret"),
    serverName: { type: "string", minLength: 1 },
    secretName: text,
    caConfigMap: text,
    certManager: strict({ issuerRef: object, duration, renewBefore: duration }),
  }),
  events: strict({ enabled: yesOrNo }),
  metrics: strict({
    serviceMonitor: monitor,
    podMonitor: monitor,
    grafanaDashboards: strict({ enabled: yesOrNo, labels: strings, annotations: strings }),
  }),
});

/** Nested as in the file. */
function configSchema(daemon: Daemon): Schema {
  const root = group();
  for (const { path, option } of configurable(daemon)) {
    let at = root;
    for (const name of path.slice(0, -1)) {
      at.groups[name] ??= group();
      at = at.groups[name];
    }
    at.options[path.at(-1) ?? ""] = { description: option.help, ...optionSchema(option) };
  }
  return schemaOf(root);
}

interface Group {
  readonly options: Record<string, Schema>;
  readonly groups: Record<string, Group>;
}

function group(): Group {
  return { options: {}, groups: {} };
}

function schemaOf({ options, groups }: Group): Schema {
  const nested = Object.entries(groups).map(([name, inner]) => [name, schemaOf(inner)]);
  return strict({ ...options, ...Object.fromEntries(nested) });
}

function optionSchema(option: Option | PlainOption): Schema {
  switch (option.kind) {
    case "string":
      return text;
    case "path":
      return path;
    case "url":
      return url;
    case "enum":
      return oneOf(...option.values);
    case "duration":
      return duration;
    case "size":
      return size;
    case "integer":
      return wholeNumber(option.min, option.max);
    case "port":
      return option.zeroIsOff ? portOrOff : port;
    case "boolean":
      return yesOrNo;
    case "list":
      return { type: "array", items: optionSchema(option.item) };
    default:
      return impossible(option);
  }
}

if (import.meta.main) {
  writeFileSync(join(chartFolder, "values.schema.json"), `${JSON.stringify(valuesSchema(), null, 2)}\n`);
}
