// The real API server against the same expectations as the embedded one: where they part, the embedded one is wrong.
import { after } from "node:test";
import { conformance } from "../kube-api/conformance.ts";
import { type ControlPlane, startControlPlane } from "./control-plane.ts";

let plane: ControlPlane | undefined;
conformance("real API server", async () => {
  plane = await startControlPlane();
  return { url: plane.url, token: plane.admin.token, ca: plane.ca };
});
after(() => plane?.stop());
