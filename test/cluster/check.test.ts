import { checkTests } from "./check-suite.ts";
import { startEmbedded } from "./embedded.ts";

checkTests(startEmbedded);
