// What becomes an Event and what does not: one per object and reason in ten minutes, repetitions as a series, few in all (ux 5).
// Decides only; recorder.ts writes. What is not raised is counted: nobody waits for an Event.
import { LRUCache } from "lru-cache";
import { resourceOf } from "../../shared/calico/names.ts";
import type { ApiGroup } from "../../shared/calico/resources.ts";
import { microTime } from "../../shared/calico/timestamps.ts";
import { type EventReason, type EventSubject, eventReasons } from "../../shared/events.ts";
import { type Instant, impossible, type UnixMs } from "../../shared/kinds.ts";
import { shortened } from "../../shared/reasons.ts";
import type { Random } from "../../shared/world.ts";

export interface Occurrence {
  readonly reason: EventReason;
  /** Empty: it lies in none. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string | undefined;
  readonly note: string;
  /** Who says so: none of them may use up what there is for all. */
  readonly source: string;
}

export interface EventWrite {
  readonly kind: "create" | "patch";
  readonly path: string;
  readonly body: unknown;
  /** For `failed`. */
  readonly key: string;
}

export interface Now {
  readonly at: Instant;
  readonly wall: UnixMs;
}

export interface BookParts {
  readonly group: ApiGroup;
  readonly random: Random;
  /** The server, as Events call it. */
  readonly replica: string;
  /** Somebody's report did not become an Event. */
  readonly onDropped: () => void;
}

const quietMs = 10 * 60_000;
/** The API server forgets an Event that was not written for an hour; so do we. */
const forgottenMs = 60 * 60_000;
const perMinute = 30;
const perMinuteAndSource = 10;
/** Beyond: what was raised longest ago may be raised again too early. */
const maxEntries = 4096;
const maxSources = 1024;
/** Bounds of the API. */
const maxNoteChars = 1024;
const maxInstanceChars = 128;
const maxNameChars = 253;

interface Entry {
  readonly path: string;
  count: number;
  lastAt: Instant;
  lastWall: UnixMs;
  writtenAt: Instant;
  writtenCount: number;
}

export class EventBook {
  readonly #parts: BookParts;
  /** By object and reason, the one raised longest ago first. */
  readonly #entries = new Map<string, Entry>();
  readonly #all = new Bucket(perMinute);
  readonly #sources = new LRUCache<string, Bucket>({ max: maxSources });

  constructor(parts: BookParts) {
    this.#parts = parts;
  }

  /** What to write about it now, if anything. */
  note(occurrence: Occurrence, now: Now): EventWrite | undefined {
    const { reason, namespace, name } = occurrence;
    const key = `${reason} ${namespace}/${name}`;
    const entry = this.#entries.get(key);
    if (entry === undefined || now.at - entry.lastAt > forgottenMs) return this.#create(key, occurrence, now);
    entry.count++;
    entry.lastAt = now.at;
    entry.lastWall = now.wall;
    return this.#series(key, entry, now.at);
  }

  /** Repetitions that have not been told for long enough. */
  due(now: Instant): EventWrite[] {
    const writes: EventWrite[] = [];
    for (const [key, entry] of this.#entries) {
      if (now - entry.lastAt > forgottenMs) this.#entries.delete(key);
      else {
        const write = this.#series(key, entry, now);
        if (write !== undefined) writes.push(write);
      }
    }
    return writes;
  }

  /** It was not written: the next time it is raised anew. */
  failed({ key }: EventWrite): void {
    this.#entries.delete(key);
    this.#parts.onDropped();
  }

  #create(key: string, occurrence: Occurrence, now: Now): EventWrite | undefined {
    const source = this.#sources.get(occurrence.source) ?? new Bucket(perMinuteAndSource);
    this.#sources.set(occurrence.source, source);
    if (!source.has(now.at) || !this.#all.take(now.at)) {
      this.#parts.onDropped();
      return undefined;
    }
    source.take(now.at);
    const { namespace, name } = occurrence;
    const events = `/apis/events.k8s.io/v1/namespaces/${namespace || "default"}/events`;
    const suffix = `.${this.#parts.random.hex(8)}`;
    const eventName = `${name.slice(0, maxNameChars - suffix.length)}${suffix}`;
    this.#entries.delete(key);
    this.#entries.set(key, {
      path: `${events}/${eventName}`,
      count: 1,
      lastAt: now.at,
      lastWall: now.wall,
      writtenAt: now.at,
      writtenCount: 1,
    });
    this.#bound();
    return { kind: "create", key, path: events, body: this.#body(eventName, occurrence, now.wall) };
  }

  #series(key: string, entry: Entry, now: Instant): EventWrite | undefined {
    const isDue = entry.count > entry.writtenCount && now - entry.writtenAt >= quietMs;
    if (!isDue || !this.#all.take(now)) return undefined;
    entry.writtenAt = now;
    entry.writtenCount = entry.count;
    const series = { count: entry.count, lastObservedTime: microTime(entry.lastWall) };
    return { kind: "patch", key, path: entry.path, body: { series } };
  }

  #bound(): void {
    if (this.#entries.size <= maxEntries) return;
    for (const key of this.#entries.keys()) {
      this.#entries.delete(key);
      return;
    }
  }

  #body(name: string, { reason, namespace, name: about, uid, note }: Occurrence, wall: UnixMs): unknown {
    const { about: subject, type, action } = eventReasons[reason];
    return {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { name, namespace: namespace || "default" },
      eventTime: microTime(wall),
      reportingController: "cattail.io/server",
      reportingInstance: shortened(this.#parts.replica, maxInstanceChars),
      action,
      reason,
      type,
      regarding: {
        ...kindOf(subject, this.#parts.group),
        ...(namespace !== "" && { namespace }),
        name: about,
        // kubectl looks for the Events of a Node under its name as well, as those of the kubelet are.
        ...(uid !== undefined ? { uid } : subject === "node" ? { uid: about } : {}),
      },
      note: shortened(note, maxNoteChars),
    };
  }
}

function kindOf(subject: EventSubject, group: ApiGroup): { readonly apiVersion: string; readonly kind: string } {
  switch (subject) {
    case "pod":
      return { apiVersion: "v1", kind: "Pod" };
    case "node":
      return { apiVersion: "v1", kind: "Node" };
    case "server":
      return { apiVersion: "apps/v1", kind: "Deployment" };
    case "ippool":
    case "ipamblock": {
      const { apiVersion, kind } = resourceOf(group, subject === "ippool" ? "pool" : "block");
      return { apiVersion, kind };
    }
    default:
      return impossible(subject);
  }
}

/** So many at once, and so many a minute. */
class Bucket {
  readonly #perMinute: number;
  #level: number;
  #at: number | undefined;

  constructor(perMinute: number) {
    this.#perMinute = perMinute;
    this.#level = perMinute;
  }

  has(now: Instant): boolean {
    const passedMs = now - (this.#at ?? now);
    this.#level = Math.min(this.#perMinute, this.#level + (passedMs / 60_000) * this.#perMinute);
    this.#at = now;
    return this.#level >= 1;
  }

  take(now: Instant): boolean {
    if (!this.has(now)) return false;
    this.#level--;
    return true;
  }
}
