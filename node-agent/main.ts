#!/usr/bin/env node
// cattail-agent: gives this node's pods their addresses.
import { runDaemon } from "../shared/process/daemon.ts";
import { startAgent } from "./agent-shell.ts";

await runDaemon("agent", startAgent);
