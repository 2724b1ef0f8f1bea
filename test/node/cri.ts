// Whether a container runtime serves the CRI: the one call that needs no more of gRPC than a frame without a message.
// Leaves everything else that is asked of a runtime to kubelet and ctr.
import * as http2 from "node:http2";
import { createConnection } from "node:net";

/** containerd opens its socket before its CRI plugin is ready, and a kubelet that comes in between ends. */
export function criAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const session = http2.connect("http://localhost", { createConnection: () => createConnection(socketPath) });
    const end = (answers: boolean): void => {
      session.destroy();
      resolve(answers);
    };
    session.on("error", () => end(false));
    const call = session.request({
      ":method": "POST",
      ":path": "/runtime.v1.RuntimeService/Version",
      "content-type": "application/grpc",
      te: "trailers",
    });
    call.on("error", () => end(false));
    call.on("trailers", (trailers) => end(trailers["grpc-status"] === "0"));
    // An error comes without a body: its status is in the first headers.
    call.on("response", (headers) => headers["grpc-status"] !== undefined && end(headers["grpc-status"] === "0"));
    call.resume();
    call.end(Buffer.alloc(5)); // not compressed, length 0
  });
}
