// The command line's check on a real API server.
import { checkTests } from "../cluster/check-suite.ts";
import { startControlPlane } from "./control-plane.ts";

checkTests(startControlPlane);
