// Waits until something holds that comes to hold by itself: what is written after the answer (handles, the stream's news) takes a moment.

const settleLimitMs = 20_000;

/** The last failure, if it does not come to hold in time. */
export async function settled(holds: () => Promise<void>): Promise<void> {
  const deadline = performance.now() + settleLimitMs;
  for (;;) {
    try {
      return await holds();
    } catch (cause) {
      if (performance.now() > deadline) throw cause;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}
