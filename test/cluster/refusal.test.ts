import { startEmbedded } from "./embedded.ts";
import { refusalTests } from "./refusal-suite.ts";

refusalTests(startEmbedded);
