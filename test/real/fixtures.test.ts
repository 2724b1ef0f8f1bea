// The basic scenarios, on a real API server.
import { basicScenarioTests } from "../fixtures/basics-suite.ts";
import { startControlPlane } from "./control-plane.ts";

basicScenarioTests(startControlPlane);
