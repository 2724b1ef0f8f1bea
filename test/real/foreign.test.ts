import { foreignWriterTests } from "../cluster/foreign-suite.ts";
import { startControlPlane } from "./control-plane.ts";

foreignWriterTests(startControlPlane, 60);
