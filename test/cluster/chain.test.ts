import { chainTests } from "./chain-suite.ts";
import { startEmbedded } from "./embedded.ts";

chainTests(startEmbedded);
