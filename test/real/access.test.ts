// The access rules and the record of requests, on a real API server.
import { accessTests } from "../cluster/access-suite.ts";
import { startControlPlane } from "./control-plane.ts";

accessTests(startControlPlane);
