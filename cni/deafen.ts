// Makes an executable with Bun's runtime inside deaf to Bun's own environment variables: BUN_BE_BUN would turn it into the `bun`
// command, BUN_OPTIONS would preload files, BUN_INSPECT would open a port. The runtime offers no switch for it.
// A change of one byte in each name: nobody sets a variable called `BUN$BE_BUN`.

export interface Deafened {
  /** The variables that can no longer be set, each once. */
  readonly names: readonly string[];
  /** Places where the engine compares its prefix `BUN_JSC_` letter by letter in code (x86-64 only). */
  readonly comparisons: number;
}

/** Legal in an identifier, since some of the names are also used as `process.env.<name>`. */
const dollar = charCode("$");

/** Changes `executable` in place. Only read-only data is searched for names: what was compiled in stands elsewhere. */
export function deafen(executable: Uint8Array): Deafened {
  const data = sectionOf(executable, ".rodata");
  const names = new Set<string>();
  for (const at of occurrences(data, [..."BUN_"].map(charCode))) {
    const name = textAt(data, at, (code) => /[A-Z0-9_]/.test(String.fromCharCode(code)));
    if (name === "BUN_") continue;
    names.add(name);
    data[at + 3] = dollar;
  }
  const code = sectionOf(executable, ".text");
  const comparisons = occurrences(code, comparison("_JSC")).concat(
    occurrences(code, comparison("_JSC", extendedRegister)),
  );
  for (const at of comparisons) code[at + comparedByte] = dollar;
  return { names: [...names].sort(), comparisons: comparisons.length };
}

/** `cmpb $letter,offset(%reg); jne somewhere` for each letter, from the fourth on; the register and the distance may be any. */
function comparison(letters: string, prefix: readonly number[] = []): Pattern {
  return [...letters]
    .flatMap((letter, index) => [...prefix, 0x80, any, 3 + index, charCode(letter), 0x75, any])
    .slice(prefix.length);
}
const extendedRegister = [0x41];
const comparedByte = 3;

type Pattern = readonly (number | undefined)[];
const any = undefined;

function occurrences(bytes: Uint8Array, pattern: Pattern): number[] {
  const found: number[] = [];
  const [first] = pattern;
  if (first === undefined) return found;
  for (let at = bytes.indexOf(first); at >= 0; at = bytes.indexOf(first, at + 1)) {
    if (pattern.every((byte, offset) => byte === any || byte === bytes[at + offset])) found.push(at);
  }
  return found;
}

/** A view into a 64-bit little-endian ELF file, by section name. */
function sectionOf(elf: Uint8Array, wanted: string): Uint8Array {
  const view = new DataView(elf.buffer, elf.byteOffset, elf.byteLength);
  if (elf.byteLength < 64 || view.getUint32(0) !== 0x7f454c46) throw new Error("not an ELF file");
  const table = Number(view.getBigUint64(0x28, true));
  const entrySize = view.getUint16(0x3a, true);
  const contents = (index: number): Uint8Array => {
    const offset = Number(view.getBigUint64(table + index * entrySize + 0x18, true));
    return elf.subarray(offset, offset + Number(view.getBigUint64(table + index * entrySize + 0x20, true)));
  };
  const names = contents(view.getUint16(0x3e, true));
  for (let index = 0; index < view.getUint16(0x3c, true); index += 1) {
    const name = textAt(names, view.getUint32(table + index * entrySize, true), (code) => code !== 0);
    if (name === wanted) return contents(index);
  }
  throw new Error(`the ELF file has no section ${wanted}`);
}

function textAt(bytes: Uint8Array, start: number, belongs: (code: number) => boolean): string {
  let text = "";
  for (let at = start; at < bytes.length && belongs(bytes[at] ?? 0); at += 1)
    text += String.fromCharCode(bytes[at] ?? 0);
  return text;
}

function charCode(character: string): number {
  return character.charCodeAt(0);
}
