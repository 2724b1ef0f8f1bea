// What follows from an answer or its absence, verb by verb; above all, that a DEL is never lost and an ADD never left hanging.
import assert from "node:assert/strict";
import test from "node:test";
import { addressOf } from "./address.ts";
import { readCall } from "./call.ts";
import { parseNetconf } from "./netconf.ts";
import { type Exchange, type Outcome, outcomeOf, undoOf } from "./outcome.ts";
import { type Question, questionFor } from "./question.ts";

function question(command: string, extra: object = {}): Question {
  const call = readCall({
    CNI_COMMAND: command,
    CNI_CONTAINERID: "c1",
    CNI_NETNS: "/n",
    CNI_IFNAME: "net1",
    CNI_PATH: "/p",
  });
  assert.ok(call.ok);
  const netconf = parseNetconf(JSON.stringify({ cniVersion: "1.1.0", name: "net", ...extra }));
  assert.ok(netconf.ok);
  const asked = questionFor(call, netconf, { request: "7f3a91c2", startedAt: 1_000, dropIn: false }, addressOf);
  assert.ok(asked.ok && asked.kind === "ask");
  return asked;
}

const outcome = (command: string, exchange: Exchange, extra: object = {}): Outcome =>
  outcomeOf(question(command, extra), exchange, false);

function codeOf(found: Outcome): number {
  assert.ok(found.kind === "refused");
  return found.refusal.code;
}

const absences: Exchange[] = [
  { kind: "unreachable", why: "/run/cattail/agent.sock does not exist" },
  { kind: "closed" },
  { kind: "undecodable" },
  { kind: "silent", waitedMs: 1000 },
  { kind: "abandoned" },
];
const refusing = (code: number): Exchange => ({ kind: "reply", reply: { ok: false, code, msg: "no" } });

test("an ADD that may have been carried out is undone, one that never left or was refused is not", () => {
  const undone = [...absences, refusing(100)].map((exchange) => {
    const found = outcome("ADD", exchange);
    return found.kind === "refused" && [found.refusal.code, found.undo !== undefined];
  });
  assert.deepEqual(undone, [
    [11, false],
    [5, true],
    [6, true],
    [11, true],
    [11, true],
    [100, false],
  ]);
});

test("an ADD answered without an address is undone", () => {
  const found = outcome("ADD", { kind: "reply", reply: { ok: true } });
  assert.ok(found.kind === "refused" && found.undo && found.refusal.code === 6);
});

test("a DEL that is not confirmed goes to the spool, whatever the reason; a lasting refusal does not", () => {
  for (const exchange of [...absences, refusing(11)]) assert.equal(outcome("DEL", exchange).kind, "spool");
  assert.equal(codeOf(outcome("DEL", refusing(7))), 7);
  assert.deepEqual(outcome("DEL", { kind: "reply", reply: { ok: true } }), { kind: "success", stdout: "" });
});

test("why a DEL is queued, and why it could not be, is what the agent said, or what kept it from saying anything", () => {
  const of = (exchange: Exchange): [why: string, otherwise: string] => {
    const found = outcome("DEL", exchange);
    assert.ok(found.kind === "spool");
    assert.equal(found.otherwise.code, 11);
    return [found.why, found.otherwise.msg];
  };
  const msg = "address not released: the agent's journal cannot be written (reason DiskFull, request 7f3a91c2)";
  assert.deepEqual(of({ kind: "reply", reply: { ok: false, code: 11, msg } }), [msg, msg]);
  const said = [
    "does not exist",
    "hung up",
    "cannot be understood",
    "not answered for 1000 ms",
    "caller of DEL is gone",
  ];
  for (const [index, exchange] of absences.entries()) {
    const [why, otherwise] = of(exchange);
    assert.ok(why.includes(said[index] ?? "?"), why);
    assert.ok(otherwise.includes(`${why}, and the release could not be queued on disk`), otherwise);
  }
});

test("STATUS knows 50 and, from the agent only, 51", () => {
  for (const exchange of [...absences, refusing(11), refusing(50)])
    assert.equal(codeOf(outcome("STATUS", exchange)), 50);
  assert.equal(codeOf(outcome("STATUS", refusing(51))), 51);
});

test("CHECK of an agent that is away is no mismatch", () => {
  const extra = { prevResult: { ips: [] } };
  assert.deepEqual(
    absences.map((exchange) => codeOf(outcome("CHECK", exchange, extra))),
    [11, 5, 6, 11, 11],
  );
  assert.equal(codeOf(outcome("CHECK", refusing(104), extra)), 104);
});

test("an undo names the ADD it takes back and nothing that is the ADD's alone", () => {
  const { request } = question("ADD");
  assert.ok(request.verb === "ADD");
  const del = undoOf(request, 5_000);
  assert.deepEqual([del.verb, del.undoes, del.startedAt, del.deadline], ["DEL", "7f3a91c2", 1_000, 5_000]);
  assert.ok(!("requested" in del) && !("pools" in del));
});

test("the first interface is eth0, or what Calico's main plugin asks for", () => {
  const first = (extra: object): boolean => {
    const { request } = question("ADD", extra);
    return request.verb === "ADD" && request.ifnameIsFirst;
  };
  assert.deepEqual([first({ type: "bridge" }), first({ type: "calico" })], [false, true]);
});
