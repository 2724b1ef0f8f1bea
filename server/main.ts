#!/usr/bin/env node
// cattail-server: the cache of Calico's IPAM data, and the one that writes it for the nodes.
import { runDaemon } from "../shared/process/daemon.ts";
import { startServer } from "./server-shell.ts";

await runDaemon("server", startServer);
