// Server and stream on a real API server.
import { streamTests } from "../cluster/stream-suite.ts";
import { startControlPlane } from "./control-plane.ts";

streamTests(startControlPlane);
