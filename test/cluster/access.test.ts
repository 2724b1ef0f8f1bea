// The access rules and the record of requests, on the embedded API server.
import { accessTests } from "./access-suite.ts";
import { startEmbedded } from "./embedded.ts";

accessTests(startEmbedded);
