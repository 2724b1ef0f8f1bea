// A small text file that is there whole or not at all. Leaves to its users what stands in it.
import { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import type { TextFile } from "./view-file.ts";

export function textFile(path: string): TextFile {
  return {
    path,
    read() {
      try {
        return readFileSync(path, "utf8");
      } catch (error) {
        if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
        throw error;
      }
    },
    write(text) {
      const temporary = `${path}.new`;
      writeFileSync(temporary, text, { mode: 0o600 });
      const file = openSync(temporary, "r");
      fsyncSync(file);
      closeSync(file);
      renameSync(temporary, path);
    },
  };
}
