import { startEmbedded } from "./embedded.ts";
import { stockTests } from "./stock-suite.ts";

stockTests(startEmbedded);
