// The few functions of Bun's runtime that the executable stands on, by their types; they exist only in the compiled executable.
// Leaves to others: everything. Bun's own, because node:net, node:fs and process.stdout each cost the executable a millisecond or more.

interface Bun {
  readonly stdin: { stream(): ReadableStream };
  readonly stdout: object;
  readonly stderr: object;
  file(path: string): { stat(): Promise<{ readonly dev: number; readonly ino: number }> };
  write(target: object, text: string): Promise<number>;
  connect(options: { readonly unix: string; readonly socket: SocketHandlers }): Promise<Socket>;
}
interface ReadableStream {
  getReader(): { read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array }> };
}
export interface Socket {
  /** How many bytes the kernel took; the rest is to be written after `drain`. */
  write(bytes: Uint8Array): number;
  /** Closes at once: what is under way is lost, which is what giving up means. */
  terminate(): void;
}
export interface SocketHandlers {
  open(socket: Socket): void;
  drain(socket: Socket): void;
  data(socket: Socket, bytes: Uint8Array): void;
  close(): void;
  error(socket: Socket, error: Error): void;
  connectError(socket: Socket, error: Error): void;
}

// The excuse for this cast: the compiler knows Node's globals only.
export const bun = (globalThis as unknown as { readonly Bun: Bun }).Bun;
