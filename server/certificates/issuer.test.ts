// The issuer at the embedded API server, and what it issues in TLS handshakes of Node.
import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { connect, createServer } from "node:tls";
import type { UnixMs } from "../../shared/kinds.ts";
import { createLog } from "../../shared/log.ts";
import { directApi } from "../../test/direct-api.ts";
import { manualClock, seededRandom } from "../../test/manual-world.ts";
import { authorityLifeMs, backdateMs, settleMs, successorBeforeMs } from "./authority.ts";
import { authorityName, Issuer, roundMs } from "./issuer-shell.ts";
import { newAuthority, newServerCertificate } from "./x509-shell.ts";

const namespace = "cattail-system";
const name = "cattail-server.cattail-system.svc";
const path = (resource: string) => `/api/v1/namespaces/${namespace}/${resource}/${authorityName}`;

async function world(objects: readonly string[] = ["Secret", "ConfigMap"]) {
  const clock = manualClock();
  const random = seededRandom(1);
  const api = directApi(clock, random);
  api.server.seed([
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    ...objects.map((kind) => ({ apiVersion: "v1", kind, metadata: { name: authorityName, namespace } })),
  ]);
  const lines: string[] = [];
  const { logger } = createLog({ level: "debug", format: "json", clock, write: (line) => lines.push(line) });
  const ends = new Map<string, number>();
  const issuer = (): Issuer => {
    const expires = (use: string, at: UnixMs): void => void ends.set(use, at);
    const made = new Issuer({ api, clock, random, logger, namespace, name, expires });
    made.start();
    return made;
  };
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 200; turn++) await new Promise(setImmediate);
  };
  /** One look of every issuer at the end of it. */
  const pass = async (ms: number): Promise<void> => {
    clock.advance(ms);
    await settle();
    clock.advance(2 * roundMs);
    await settle();
  };
  const bundle = async (): Promise<string> => {
    const config = (await api.get(path("configmaps"))) as { data?: Record<string, string> };
    return config.data?.["ca.crt"] ?? "";
  };
  return { api, clock, lines, ends, issuer, settle, pass, bundle };
}

/** What a client says that trusts `ca` and expects `expected`; undefined: it is content. */
async function refusal(pair: { cert: string; key: string }, ca: string, expected: string): Promise<string | undefined> {
  const server = createServer({ ...pair, minVersion: "TLSv1.3" }, (socket) => socket.end());
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const socket = connect({ host: "127.0.0.1", port, ca, servername: expected });
  try {
    await once(socket, "secureConnect");
    return undefined;
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : String(error);
  } finally {
    socket.destroy();
    server.close();
  }
}

test("a client that trusts the authority is content with the name it expects, and with nothing else", async () => {
  const now = Date.now();
  const validity = { from: (now - 60_000) as UnixMs, until: (now + 3_600_000) as UnixMs };
  const [ours, other] = [newAuthority("authority a", validity), newAuthority("authority b", validity)];
  const pair = newServerCertificate([name, "127.0.0.1"], validity, ours);
  assert.equal(await refusal(pair, ours.cert, name), undefined);
  assert.equal(await refusal(pair, other.cert + ours.cert, name), undefined);
  assert.equal(await refusal(pair, ours.cert, "another.svc"), "ERR_TLS_CERT_ALTNAME_INVALID");
  assert.match(String(await refusal(pair, other.cert, name)), /UNABLE_TO|SELF_SIGNED/);
  const late = newServerCertificate([name], { ...validity, until: (now - 1000) as UnixMs }, ours);
  assert.equal(await refusal(late, ours.cert, name), "CERT_HAS_EXPIRED");
  assert.equal(new X509Certificate(pair.cert).ca, false);
  assert.equal(new X509Certificate(pair.cert).subjectAltName, `DNS:${name}, IP Address:127.0.0.1`);
});

test("the end of a certificate is what was asked for, before and after 2050", () => {
  for (const end of ["2049-12-31T23:59:59Z", "2050-01-01T00:00:00Z", "2061-07-08T09:10:11Z"]) {
    const until = Date.parse(end) as UnixMs;
    const { cert } = newAuthority("a", { from: 0 as UnixMs, until });
    assert.equal(new X509Certificate(cert).validToDate.getTime(), until);
  }
});

test("given two servers that start at once, then they share one authority, agents are told of it, and keys stay in the Secret", async () => {
  const { api, issuer, settle, bundle, ends, lines } = await world();
  const both = [issuer(), issuer()];
  assert.equal(both[0]?.problem, "no certificate has been issued yet");
  await settle();
  const published = await bundle();
  assert.equal(published.match(/BEGIN CERTIFICATE/g)?.length, 1);
  assert.doesNotMatch(published, /PRIVATE/);
  const authority = new X509Certificate(published);
  for (const each of both) {
    assert.equal(each.problem, undefined);
    assert.ok(new X509Certificate(each.current()?.cert ?? "").verify(authority.publicKey));
    await each.stop();
  }
  assert.equal(ends.get("ca"), authority.validToDate.getTime());
  assert.equal(ends.get("server"), both[1]?.current()?.expiry);
  const { data } = (await api.get(path("secrets"))) as { data: Record<string, string> };
  const key = Buffer.from(data["ca.key"] ?? "", "base64").toString();
  assert.match(key, /BEGIN PRIVATE KEY/);
  const secrets = [...key.split("\n"), ...both.flatMap((each) => each.current()?.key.split("\n") ?? [])];
  const planted = secrets.filter((line) => line.length > 20 && !line.startsWith("-----"));
  assert.ok(planted.every((line) => !lines.join("\n").includes(line)));
});

test("given years, then certificates are renewed and the authority gets a successor that is published a day before it signs", async () => {
  const { issuer, settle, pass, bundle, clock } = await world();
  const server = issuer();
  await settle();
  const shown: string[] = [server.current()?.cert ?? ""];
  server.onChange((certificate) => void shown.push(certificate?.cert ?? ""));
  const first = await bundle();
  await pass(authorityLifeMs - successorBeforeMs - roundMs);
  const both = await bundle();
  assert.ok(both.startsWith(first) && both.length > first.length);
  const [old, next] = [first, both.slice(first.length)].map((cert) => new X509Certificate(cert).publicKey);
  assert.ok(old !== undefined && next !== undefined);
  assert.equal(shown.length, 2, "it was renewed at the first look after its time");
  assert.ok(new X509Certificate(shown[1] ?? "").verify(old));
  await pass(settleMs + backdateMs);
  assert.equal(shown.length, 3);
  assert.ok(new X509Certificate(shown[2] ?? "").verify(next));
  await pass(successorBeforeMs);
  assert.equal(await bundle(), both.slice(first.length), "one that has ended is not trusted any more");
  assert.ok(server.current()?.expiry ?? 0 > clock.wall());
  await server.stop();
  assert.equal(clock.pending(), 0);
});

test("given a server that starts again, then the authority stays", async () => {
  const { issuer, settle, bundle } = await world();
  const first = issuer();
  await settle();
  const before = await bundle();
  await first.stop();
  const second = issuer();
  await settle();
  assert.equal(await bundle(), before);
  assert.notEqual(second.current()?.key, first.current()?.key);
  await second.stop();
});

for (const missing of ["Secret", "ConfigMap"]) {
  test(`given no ${missing}, then it says what to do, shows no certificate, and goes on once it is there`, async () => {
    const { api, issuer, settle, pass } = await world(["Secret", "ConfigMap"].filter((kind) => kind !== missing));
    const server = issuer();
    await settle();
    assert.equal(server.current(), undefined);
    assert.match(server.problem ?? "", new RegExp(`there is no ${missing} cattail-authority. Apply the chart again`));
    api.server.seed([{ apiVersion: "v1", kind: missing, metadata: { name: authorityName, namespace } }]);
    await pass(0);
    assert.equal(server.problem, undefined);
    await server.stop();
  });
}

test("given a Secret with something else in it, then nothing is written over it", async () => {
  const { api, issuer, settle } = await world();
  const data = {
    "ca.crt": Buffer.from("mine").toString("base64"),
    "ca.key": Buffer.from(newAuthority("a", { from: 0 as UnixMs, until: 1e12 as UnixMs }).key).toString("base64"),
  };
  const { metadata } = (await api.get(path("secrets"))) as { metadata: { resourceVersion: string } };
  await api.patch(path("secrets"), { metadata: { resourceVersion: metadata.resourceVersion }, data });
  const server = issuer();
  await settle();
  assert.match(server.problem ?? "", /the Secret cattail-authority cannot be used: .*Remove ca.crt and ca.key from it/);
  assert.deepEqual(((await api.get(path("secrets"))) as { data: unknown }).data, data);
  await server.stop();
});
