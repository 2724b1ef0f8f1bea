// One byte of each name and of the engine's comparison changes, in their sections and nowhere else.
import assert from "node:assert/strict";
import test from "node:test";
import { deafen } from "./deafen.ts";

/** The least that is an ELF file: a header, sections, their table, and the names. */
function elf(sections: { readonly [name: string]: Buffer }): Buffer {
  const names = Buffer.from(`\0${[...Object.keys(sections), ".shstrtab"].join("\0")}\0`);
  const contents = [...Object.entries(sections), [".shstrtab", names] as const];
  const header = Buffer.alloc(64);
  header.writeUInt32BE(0x7f454c46);
  let offset = header.length;
  const table = contents.map(([name, bytes]) => {
    const entry = Buffer.alloc(64);
    entry.writeUInt32LE(names.indexOf(`\0${name}\0`) + 1, 0);
    entry.writeBigUInt64LE(BigInt(offset), 0x18);
    entry.writeBigUInt64LE(BigInt(bytes.length), 0x20);
    offset += bytes.length;
    return entry;
  });
  header.writeBigUInt64LE(BigInt(offset), 0x28);
  header.writeUInt16LE(64, 0x3a);
  header.writeUInt16LE(table.length, 0x3c);
  header.writeUInt16LE(table.length - 1, 0x3e);
  return Buffer.concat([header, ...contents.map(([, bytes]) => bytes), ...table]);
}

const compare = (register: number[], letters: string): number[] =>
  [...letters].flatMap((letter, index) => [...register, 0x80, 0x7e, index, letter.charCodeAt(0), 0x75, 0xe5 - index]);

test("names in read-only data lose their underscore, names elsewhere keep it", () => {
  const file = elf({
    ".rodata": Buffer.from("x\0BUN_BE_BUN\0aBUN_OPTIONSBUN_\0BUN_x"),
    ".text": Buffer.alloc(0),
    ".bun": Buffer.from("BUN_BE_BUN"),
  });
  assert.deepEqual(deafen(file), { names: ["BUN_BE_BUN", "BUN_OPTIONSBUN_"], comparisons: 0 });
  const text = file.toString("latin1");
  assert.ok(text.includes("x\0BUN$BE_BUN\0aBUN$OPTIONSBUN_\0BUN_x") && text.includes("BUN_BE_BUN"));
});

test("the engine's comparison is found with and without an extended register", () => {
  for (const register of [[], [0x41]]) {
    const file = elf({
      ".rodata": Buffer.alloc(0),
      ".text": Buffer.from([0x90, ...compare(register, "BUN_JSC_"), 0x90]),
    });
    assert.equal(deafen(file).comparisons, 1);
    assert.equal(file.includes(Buffer.from([...register, 0x80, 0x7e, 3, 0x24, 0x75])), true);
  }
});

test("what is no ELF file is refused", () => {
  assert.throws(() => deafen(Buffer.alloc(100)), /not an ELF file/);
});
