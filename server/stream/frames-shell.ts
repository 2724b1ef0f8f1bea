// WebSocket frames as bytes. What goes to many clients is printed and framed once, and the same bytes are written to every socket.
// Leaves the rest of the WebSocket protocol to `ws`; servers send unmasked, whole, binary frames without compression.
import { LRUCache } from "lru-cache";
import type { Objects } from "../../shared/calico/resources.ts";
import { printLossless } from "../../shared/json/lossless.ts";
import { type ServerMessage, type StreamedKind, toWire } from "../../shared/protocol/stream.ts";

/** Frames that are kept for the clients yet to come; an evicted one is made again. */
const maxKeptBytes = 64 << 20;

export class ObjectFrames {
  readonly #frames = new LRUCache<string, Buffer>({ maxSize: maxKeptBytes, sizeCalculation: (frame) => frame.length });

  put(kind: StreamedKind, object: Objects[StreamedKind]): Buffer {
    const key = `${kind}/${object.name} ${object.uid} ${object.resourceVersion}`;
    const known = this.#frames.get(key);
    if (known !== undefined) return known;
    const frame = frameOf({ type: "put", kind, object: toWire(kind, object) });
    this.#frames.set(key, frame);
    return frame;
  }
}

export function frameOf(message: ServerMessage): Buffer {
  return framed(Buffer.from(printLossless(message)));
}

const finalBinary = 0x82;

function framed(payload: Buffer): Buffer {
  const { length } = payload;
  if (length < 126) return Buffer.concat([Buffer.from([finalBinary, length]), payload]);
  if (length < 65_536) {
    const header = Buffer.from([finalBinary, 126, 0, 0]);
    header.writeUInt16BE(length, 2);
    return Buffer.concat([header, payload]);
  }
  const header = Buffer.alloc(10);
  header[0] = finalBinary;
  header[1] = 127;
  header.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([header, payload]);
}
