// The Kubernetes Events that Cattail raises: what each is about and how grave it is (ux 5). Only for changes somebody can act on.
// Leaves to others: when one is raised, and how few of them reach the API server (server/events).
import type { Report } from "./protocol/stream.ts";

export type EventSubject = Report["kind"] | "server";

interface EventDefinition {
  readonly about: EventSubject;
  readonly type: "Normal" | "Warning";
  /** What was being done, as the API wants to know it. */
  readonly action: string;
}

export const eventReasons = {
  AddressUnavailable: { about: "pod", type: "Warning", action: "Assigning" },
  AddressConflict: { about: "pod", type: "Warning", action: "Holding" },
  AgentOffline: { about: "node", type: "Warning", action: "Listening" },
  AgentBack: { about: "node", type: "Normal", action: "Listening" },
  JournalRebuilt: { about: "node", type: "Warning", action: "Starting" },
  NodeAddressesReleased: { about: "node", type: "Normal", action: "Reaping" },
  PoolNearlyFull: { about: "ippool", type: "Warning", action: "Assigning" },
  PoolExhausted: { about: "ippool", type: "Warning", action: "Assigning" },
  PoolOverlap: { about: "ippool", type: "Warning", action: "Assigning" },
  PoolRecovered: { about: "ippool", type: "Normal", action: "Assigning" },
  BlockInvalid: { about: "ipamblock", type: "Warning", action: "Reading" },
  UpstreamForbidden: { about: "server", type: "Warning", action: "Reading" },
} as const satisfies Record<string, EventDefinition>;
export type EventReason = keyof typeof eventReasons;

export function isEventReason(word: string): word is EventReason {
  return Object.hasOwn(eventReasons, word);
}
