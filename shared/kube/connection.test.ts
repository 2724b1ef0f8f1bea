import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { manualClock } from "../../test/manual-world.ts";
import { Failure } from "../kinds.ts";
import { connectByKubeconfig, connectInCluster } from "./connection-shell.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "cattail-connection-"));
});
afterEach(() => rm(folder, { recursive: true }));

const write = (file: string, text: string) => writeFile(join(folder, file), text);
const env = { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "6443" };

test("in a pod the server comes from the environment, also by an IPv6 literal", () => {
  assert.equal(connectInCluster(env, manualClock(), folder).server.href, "https://[fd00::1]:6443/");
  assert.throws(() => connectInCluster({}, manualClock(), folder), /not in a pod/);
});

test("watch case 28: a rotated token is taken up within a minute, or at once when the old one is refused", async () => {
  const clock = manualClock();
  const connection = connectInCluster(env, clock, folder);
  await write("token", "first\n");
  await write("ca.crt", "CA");
  assert.equal((await connection.credentials()).authorization, "Bearer first");
  await write("token", "second");
  assert.equal((await connection.credentials()).authorization, "Bearer first");
  clock.advance(51_000);
  assert.equal((await connection.credentials()).authorization, "Bearer second");
  assert.equal(await connection.refresh(), false);
  await write("token", "third");
  assert.equal(await connection.refresh(), true);
  assert.equal((await connection.credentials()).authorization, "Bearer third");
});

test("a token file that is empty or away for a moment changes nothing; one that was never there is said", async () => {
  const clock = manualClock();
  const connection = connectInCluster(env, clock, folder);
  await assert.rejects(connection.credentials(), /cannot read the token/);
  await write("token", "first");
  await connection.credentials();
  await write("token", "");
  assert.equal(await connection.refresh(), false);
  await rm(join(folder, "token"));
  clock.advance(51_000);
  assert.equal((await connection.credentials()).authorization, "Bearer first");
});

test("sockets are shared for as long as the CA is the same", async () => {
  const connection = connectInCluster(env, manualClock(), folder);
  await write("token", "first");
  await write("ca.crt", "one");
  const { tls } = await connection.credentials();
  await write("token", "second");
  await connection.refresh();
  assert.equal((await connection.credentials()).tls, tls);
  await write("ca.crt", "two");
  assert.equal(await connection.refresh(), true);
  assert.deepEqual((await connection.credentials()).tls, { ca: "two" });
});

const kubeconfig = (token: string, cluster = "") => `
apiVersion: v1
kind: Config
current-context: main
contexts: [{ name: main, context: { cluster: here, user: me } }, { name: other, context: { cluster: there, user: me } }]
clusters:
- name: here
  cluster: { server: "https://10.0.0.1:6443/prefix", certificate-authority-data: ${btoa("CA")}, tls-server-name: kubernetes ${cluster} }
- name: there
  cluster: { server: "https://10.0.0.2:6443", insecure-skip-tls-verify: true }
users: [{ name: me, user: { token: ${token} } }]
`;

test("a kubeconfig gives server, CA, server name and token, and is read again on refusal", async () => {
  await write("config", kubeconfig("first"));
  const connection = await connectByKubeconfig(join(folder, "config"), manualClock());
  assert.equal(connection.server.href, "https://10.0.0.1:6443/prefix");
  const { authorization, tls } = await connection.credentials();
  assert.equal(authorization, "Bearer first");
  assert.equal(tls.ca, "CA");
  assert.equal(tls.serverName, "kubernetes");
  assert.ok(!tls.insecure);
  await write("config", kubeconfig("second"));
  assert.equal(await connection.refresh(), true);
  assert.equal((await connection.credentials()).authorization, "Bearer second");
});

test("another context of a kubeconfig can be named", async () => {
  await write("config", kubeconfig("first"));
  const connection = await connectByKubeconfig(join(folder, "config"), manualClock(), "other");
  assert.equal(connection.server.hostname, "10.0.0.2");
  assert.equal((await connection.credentials()).tls.insecure, true);
});

test("a kubeconfig that cannot be used is said to be the reason", async () => {
  const file = join(folder, "config");
  const isBadConfig = (error: unknown) => error instanceof Failure && error.code === "bad-config";
  await assert.rejects(connectByKubeconfig(file, manualClock()), isBadConfig);
  await write("config", kubeconfig("t", ", proxy-url: http://proxy"));
  await assert.rejects(connectByKubeconfig(file, manualClock()), /proxy/);
  await write("config", kubeconfig("t"));
  await assert.rejects(connectByKubeconfig(file, manualClock(), "unknown"), isBadConfig);
});
