// Server and stream on the embedded API server.
import { startEmbedded } from "./embedded.ts";
import { streamTests } from "./stream-suite.ts";

streamTests(startEmbedded);
