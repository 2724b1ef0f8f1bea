// Counts what the catalogue of metrics names, with prom-client, and writes it in the two text formats (ux 3).
// Leaves to others: which metrics there are (shared/metrics.ts) and HTTP (http.ts).
import { Counter, Gauge, Histogram, type Metric, type OpenMetricsContentType, Registry } from "prom-client";
import type { LabelValues, MetricDefinition, MetricDefinitions, MetricHandles, MetricsRegistry } from "../metrics.ts";

export interface Metrics extends MetricsRegistry {
  /** `accept` is the header of the request: OpenMetrics if it is preferred, otherwise the Prometheus text format. */
  render(accept: string): Promise<Exposition>;
}

export interface Exposition {
  readonly contentType: string;
  readonly body: string;
}

export function createMetrics(): Metrics {
  const plain = new Registry();
  const openMetrics = new Registry<OpenMetricsContentType>();
  openMetrics.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
  const updates: (() => void | Promise<void>)[] = [];
  return {
    create: <D extends MetricDefinitions>(definitions: D) => {
      const handles = Object.entries(definitions).map(([key, definition]) => {
        const metric = metricOf(definition, plain);
        if (metric instanceof Counter) for (const labels of firstSeries(definition)) metric.inc(labels, 0);
        openMetrics.registerMetric(openMetricsView(metric, definition.name));
        return [key, handleOf(metric, definition)];
      });
      // handleOf follows the definition's type, as the mapped type does.
      return Object.fromEntries(handles) as MetricHandles<D>;
    },
    beforeScrape: (update) => void updates.push(update),
    render: async (accept) => {
      await Promise.all(updates.map((update) => update()));
      const registry = prefersOpenMetrics(accept) ? openMetrics : plain;
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}

type AnyMetric = Counter | Gauge | Histogram;

function metricOf(definition: MetricDefinition, registry: Registry): AnyMetric {
  const configuration = {
    name: definition.name,
    help: `${definition.help} (${definition.stability})`,
    labelNames: Object.keys(definition.labels ?? {}),
    registers: [registry],
  };
  if (definition.type === "counter") return new Counter(configuration);
  if (definition.type === "gauge") return new Gauge(configuration);
  return new Histogram({ ...configuration, buckets: [...definition.buckets] });
}

/** Series of a counter that are there before anything happened, unless they are many. */
const mostFirstSeries = 64;

/** A counter that appears with 1 has not risen in the eyes of Prometheus: the first conflict would raise no alert. */
function firstSeries({ labels = {} }: MetricDefinition): Record<string, string>[] {
  let series: Record<string, string>[] = [{}];
  for (const [name, values] of Object.entries(labels)) {
    if (typeof values !== "object" || "outside" in values) return [];
    series = series.flatMap((known) => values.map((value) => ({ ...known, [name]: value })));
  }
  return series.length > mostFirstSeries ? [] : series;
}

/** prom-client renames a counter for good when it writes it as OpenMetrics, so that registry gets a view with a name of its own. */
function openMetricsView(metric: AnyMetric, name: string): Metric {
  if (!(metric instanceof Counter)) return metric;
  const family = name.replace(/_total$/, "");
  const view = { name: family, type: "counter", get: async () => ({ ...(await metric.get()), name: family }) };
  return view as unknown as Metric; // all that a registry asks of a metric
}

function handleOf(metric: AnyMetric, definition: MetricDefinition): object {
  const fold = foldOutside(definition.labels ?? {});
  const isLabelled = definition.labels !== undefined;
  /** Handles of metrics without labels take the number first. */
  const split = (args: unknown[]): [Record<string, string>, number | undefined] =>
    isLabelled
      ? [fold(args[0] as Record<string, string>), args[1] as number | undefined]
      : [{}, args[0] as number | undefined];
  const withValue = (use: (labels: Record<string, string>, value: number) => void, missing: number) => {
    return (...args: unknown[]): void => {
      const [labels, value = missing] = split(args);
      use(labels, value);
    };
  };
  if (metric instanceof Counter) return { inc: withValue((labels, by) => metric.inc(labels, by), 1) };
  if (metric instanceof Gauge) {
    return { set: withValue((labels, value) => metric.set(labels, value), 0), clear: () => metric.reset() };
  }
  return { observe: withValue((labels, value) => metric.observe(labels, value), 0) };
}

/** What an outside label's list does not have becomes `other`: whoever talks to us cannot make series. */
function foldOutside(labels: Readonly<Record<string, LabelValues>>) {
  const outside = Object.entries(labels).flatMap(([name, values]) =>
    typeof values === "object" && "outside" in values ? [[name, new Set(values.outside)] as const] : [],
  );
  return (given: Record<string, string>): Record<string, string> => {
    const folded = { ...given };
    for (const [name, values] of outside) if (!values.has(folded[name] ?? "")) folded[name] = "other";
    return folded;
  };
}

function prefersOpenMetrics(accept: string): boolean {
  return weight(accept, "application/openmetrics-text") > weight(accept, "text/plain");
}

/** The q of a media type in an Accept header; 0 if it is not there. */
function weight(accept: string, type: string): number {
  const range = accept.split(",").find((part) => part.trim().toLowerCase().startsWith(type));
  return range === undefined ? 0 : Number(/;\s*q=([\d.]+)/i.exec(range)?.[1] ?? 1);
}
