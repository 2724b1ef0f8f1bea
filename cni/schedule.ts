// How long each verb may take, and when it gives up on what: milliseconds since the process started (spec/cni.md 3.3, 3.4, 3.7).
// Leaves to others: keeping it (agent-shell.ts, main.ts).
export interface Schedule {
  /** Until then an agent that cannot be reached is tried again. */
  readonly connectByMs: number;
  /** The agent commits nothing after this. */
  readonly deadlineMs: number;
  /** Until then an answer is waited for: a little longer, so that the agent's own refusal still arrives. */
  readonly replyByMs: number;
  /** The process is gone by then, whatever hangs. */
  readonly endByMs: number;
}

const answerGraceMs = 250;
/** What an ADD keeps at the end to take back what it may have been given. */
const undoReserveMs = 1_000;
const addConnectMs = 8_000;

function addSchedule(timeoutMs: number): Schedule {
  const deadlineMs = timeoutMs - undoReserveMs;
  return {
    connectByMs: Math.min(addConnectMs, deadlineMs),
    deadlineMs,
    replyByMs: deadlineMs + answerGraceMs,
    endByMs: timeoutMs,
  };
}

/** A DEL that reaches nobody for 4 s goes to the spool, which leaves time for the disk within the 5 s it may take. */
const delSchedule: Schedule = { connectByMs: 4_000, deadlineMs: 14_750, replyByMs: 15_000, endByMs: 20_000 };
const checkSchedule: Schedule = { connectByMs: 8_000, deadlineMs: 18_750, replyByMs: 19_000, endByMs: 20_000 };
/** CRI-O allows 30 s for all its networks together. */
const gcSchedule: Schedule = { connectByMs: 8_000, deadlineMs: 23_750, replyByMs: 24_000, endByMs: 25_000 };
/** containerd asks under a lock and without a timeout of its own: one second in all. */
const statusSchedule: Schedule = { connectByMs: 500, deadlineMs: 700, replyByMs: 800, endByMs: 950 };

/** An ADD's own limit counts once the configuration has been read; until then the default does. */
export function scheduleOf(command: string, addTimeoutMs: number): Schedule {
  switch (command) {
    case "DEL":
      return delSchedule;
    case "CHECK":
      return checkSchedule;
    case "GC":
      return gcSchedule;
    case "STATUS":
      return statusSchedule;
    default:
      return addSchedule(addTimeoutMs);
  }
}

/** Taking back an ADD: one try, then the spool. */
export const undoMs = 600;
