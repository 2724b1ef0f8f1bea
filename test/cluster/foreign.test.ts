import { startEmbedded } from "./embedded.ts";
import { foreignWriterTests } from "./foreign-suite.ts";

foreignWriterTests(startEmbedded, 4);
