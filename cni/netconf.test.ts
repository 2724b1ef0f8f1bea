// The configuration's common part: Go's reading of keys, and which mistake has which code.
import assert from "node:assert/strict";
import test from "node:test";
import { field, isAtLeast, parseNetconf } from "./netconf.ts";

test("keys match whatever their case, the last one that is not null counts", () => {
  assert.equal(field({ Name: "a", NAME: "b" }, "name"), "b");
  assert.equal(field({ name: "a", NAME: null }, "name"), "a");
  assert.equal(field({ "a\u017f\u017fign_ipv4": "false" }, "assign_ipv4"), "false");
  assert.equal(field({ names: "a" }, "name"), undefined);
});

test("a key that only an object's prototype has is not there", () => {
  assert.equal(field({}, "constructor"), undefined);
});

test("what every verb needs is read", () => {
  const netconf = parseNetconf('{"CNIVersion":"0.4.0","Name":"n.1","type":"bridge","ipam":null}');
  assert.ok(netconf.ok);
  assert.deepEqual([netconf.cniVersion, netconf.name, netconf.mainPlugin], ["0.4.0", "n.1", "bridge"]);
});

test("a version that is missing, empty or null is 0.1.0", () => {
  for (const version of ["", ',"cniVersion":""', ',"cniVersion":null']) {
    const netconf = parseNetconf(`{"name":"n"${version}}`);
    assert.equal(netconf.ok && netconf.cniVersion, "0.1.0");
  }
});

test("each mistake has its code", () => {
  const mistakes: [string, number][] = [
    ["", 6],
    ["{", 6],
    ["[]", 6],
    ["7", 6],
    ['{"name":"n"} x', 6],
    ['\ufeff{"name":"n"}', 6],
    ['{"name":7}', 6],
    ['{"name":"n","cniVersion":1}', 6],
    ["null", 7],
    ["{}", 7],
    ['{"name":""}', 7],
    ['{"name":"a/b"}', 7],
    [`{"name":"${"n".repeat(5000)}"}`, 7],
  ];
  for (const [text, code] of mistakes) {
    const netconf = parseNetconf(text);
    assert.equal(netconf.ok || netconf.code, code, text.slice(0, 40));
  }
});

test("versions are ordered as they were published", () => {
  assert.ok(isAtLeast("1.0.0", "0.4.0") && isAtLeast("0.3.1", "0.3.1") && !isAtLeast("0.3.1", "0.4.0"));
});
