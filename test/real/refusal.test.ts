import { refusalTests } from "../cluster/refusal-suite.ts";
import { startControlPlane } from "./control-plane.ts";

refusalTests(startControlPlane);
