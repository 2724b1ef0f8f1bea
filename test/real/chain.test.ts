import { chainTests } from "../cluster/chain-suite.ts";
import { startControlPlane } from "./control-plane.ts";

chainTests(startControlPlane);
