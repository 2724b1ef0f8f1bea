// Holds the rules of dependency that ARCHITECTURE.md states: which folder may import which, and what a core may not touch.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "..");
const folders = ["shared", "server", "node-agent", "cni", "cli", "test", "bench"];

/** Pure packages: no I/O, no clock. Cores may use these and nothing else from outside. */
const corePackages = new Set(["valibot", "@noble/hashes", "ip-num", "lru-cache"]);
const packagesOf: Record<string, Set<string>> = {
  shared: new Set([...corePackages, "yaml", "prom-client", "@kubernetes/client-node"]),
  server: new Set([...corePackages, "ws", "prom-client"]),
  "node-agent": new Set([...corePackages, "ws", "prom-client"]),
  cni: new Set(["valibot", "bun"]),
  cli: new Set([...corePackages, "yaml"]),
};

interface Import {
  readonly file: string;
  readonly target: string;
}

function sources(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)));
}

function imports(file: string): Import[] {
  const text = readFileSync(join(root, file), "utf8");
  const found = text.matchAll(
    /^\s*(?:import|export)\b[^"'`;]*?from\s+"([^"]+)"|^\s*import\s+"([^"]+)"|\bimport\(\s*"([^"]+)"/gm,
  );
  return [...found].map((match) => ({ file, target: match[1] ?? match[2] ?? match[3] ?? "" }));
}

/** shared/process is the one place in shared/ with I/O; elsewhere a shell says so in its name. */
function isShell(file: string): boolean {
  return /(^|\/)([\w-]+-)?shell\.ts$|\/(main|build|bench)\.ts$|\.test\.ts$|^shared\/process\/|^(test|bench)\//.test(
    file,
  );
}

function packageOf(target: string): string {
  return target
    .split("/")
    .slice(0, target.startsWith("@") ? 2 : 1)
    .join("/");
}

const all = folders.flatMap(sources).flatMap(imports);

test("the import scan sees the code: every folder has files and imports", () => {
  for (const folder of folders)
    assert.ok(
      all.some((entry) => entry.file.startsWith(`${folder}/`)),
      folder,
    );
});

test("cni, cli, node-agent and server import shared and themselves only; shared imports itself only", () => {
  const wrong = all.filter(({ file, target }) => {
    if (!target.startsWith(".") || /^(test|bench)\//.test(file)) return false;
    const from = file.split("/")[0] ?? "";
    const to = relative(root, join(root, dirname(file), target)).split("/")[0] ?? "";
    if (to === "package.json") return false; // which version this is
    if (file.endsWith(".test.ts") && to === "test") return false;
    return to !== from && to !== "shared";
  });
  assert.deepEqual(wrong, []);
});

test("each folder uses only the packages it is meant to", () => {
  const wrong = all.filter(({ file, target }) => {
    if (target.startsWith(".") || target.startsWith("node:") || file.endsWith(".test.ts")) return false;
    return packagesOf[file.split("/")[0] ?? ""]?.has(packageOf(target)) === false;
  });
  assert.deepEqual(wrong, []);
});

test("a core imports no I/O: no node: module, no package but the pure ones, no shell", () => {
  const wrong = all.filter(({ file, target }) => {
    if (isShell(file)) return false;
    if (target.startsWith("node:")) return true;
    if (target.startsWith(".")) return isShell(relative(root, join(root, dirname(file), target)));
    return !corePackages.has(packageOf(target)) && packageOf(target) !== "yaml";
  });
  assert.deepEqual(wrong, []);
});

test("tsconfig.cores.json compiles exactly the cores, without Node's types", () => {
  const config = JSON.parse(readFileSync(join(root, "tsconfig.cores.json"), "utf8")) as {
    compilerOptions: { types: string[] };
    include: string[];
    exclude: string[];
  };
  assert.deepEqual(config.compilerOptions.types, []);
  assert.deepEqual(config.include, [
    "shared/**/*.ts",
    "server/**/*.ts",
    "node-agent/**/*.ts",
    "cni/**/*.ts",
    "cli/**/*.ts",
  ]);
  assert.deepEqual(config.exclude, [
    "**/*.test.ts",
    "**/shell.ts",
    "**/*-shell.ts",
    "**/main.ts",
    "**/build.ts",
    "**/bench.ts",
    "shared/process/**",
  ]);
});
