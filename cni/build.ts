// Makes dist/cattail-ipam: the CNI executable in one file, Bun's runtime inside. `npm run build`; `npm run build -- --musl` for
// machines with musl. Needs no network after `npm ci` (--musl fetches its runtime). Does nothing when nothing has changed.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deafen } from "./deafen.ts";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const bun = join(root, "node_modules/.bin/bun");
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
/** What decides the result beside the files that the bundler reports. */
const ownInputs = ["package.json", "package-lock.json", "cni/build.ts", "cni/deafen.ts"];

build(process.argv.includes("--musl"));

function build(musl: boolean): void {
  const name = musl ? "cattail-ipam-musl" : "cattail-ipam";
  const target = join(dist, name);
  const stampPath = join(dist, `.${name}.stamp.json`);
  if (isUpToDate(target, stampPath)) return;
  mkdirSync(dist, { recursive: true });
  const work = mkdtempSync(join(dist, ".building-"));
  try {
    const output = join(work, name);
    const inputs = compile(output, work, musl ? muslRuntime(work) : undefined);
    const executable = readFileSync(output);
    const deafened = deafen(executable);
    for (const dangerous of ["BUN_BE_BUN", "BUN_OPTIONS", "BUN_INSPECT"]) {
      if (!deafened.names.includes(dangerous))
        throw new Error(`this runtime reads ${dangerous} in a way that is not known`);
    }
    writeFileSync(output, executable);
    if (!musl) mustIgnoreItsEnvironment(output, deafened.comparisons > 0);
    // Killed between the two, the next build does this work again, which is right.
    renameSync(output, target);
    writeFileSync(stampPath, JSON.stringify({ inputs, digest: digestOf(inputs) }));
    console.log(`${name}: ${Math.round(executable.length / 1e6)} MB, ${inputs.length} files compiled in`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function isUpToDate(target: string, stampPath: string): boolean {
  try {
    const { inputs, digest } = JSON.parse(readFileSync(stampPath, "utf8"));
    return existsSync(target) && digest === digestOf(inputs);
  } catch {
    return false;
  }
}

function digestOf(inputs: readonly string[]): string {
  const hash = createHash("sha256");
  for (const path of [...ownInputs, ...inputs])
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update("\0");
  return hash.digest("hex");
}

/** The files that went in, relative to the root. */
function compile(output: string, work: string, runtime: string | undefined): string[] {
  const metafile = join(work, "meta.json");
  execFileSync(
    bun,
    [
      "build",
      "cni/main.ts",
      "--compile",
      "--bytecode",
      "--format=esm",
      "--minify",
      // Where a runtime starts us, a .env or bunfig.toml may lie about that is none of our business.
      "--no-compile-autoload-dotenv",
      "--no-compile-autoload-bunfig",
      "--no-compile-autoload-tsconfig",
      "--no-compile-autoload-package-json",
      `--define=CATTAIL_VERSION=${JSON.stringify(manifest.version)}`,
      `--metafile=${metafile}`,
      `--outfile=${output}`,
      ...(runtime === undefined ? [] : [`--compile-executable-path=${runtime}`]),
    ],
    { cwd: root, stdio: ["ignore", "ignore", "inherit"] },
  );
  return Object.keys(JSON.parse(readFileSync(metafile, "utf8")).inputs).sort();
}

/** The proof of deafen.ts: with the most harmful variables set, the executable is still nothing but our executable. */
function mustIgnoreItsEnvironment(executable: string, engineToo: boolean): void {
  const planted = { BUN_BE_BUN: "1", BUN_OPTIONS: "--print 1", ...(engineToo ? { BUN_JSC_dumpOptions: "1" } : {}) };
  const run = (env: NodeJS.ProcessEnv): string =>
    execFileSync(executable, [], { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const clean = run({ CNI_COMMAND: "VERSION" });
  if (!clean.includes("supportedVersions")) throw new Error(`the executable does not work: ${clean}`);
  if (run({ CNI_COMMAND: "VERSION", ...planted }) !== clean) throw new Error("the runtime still obeys BUN_ variables");
}

/** npm installs only the runtime of the machine it runs on; the other one is fetched by npm, checked against our lock file. */
function muslRuntime(work: string): string {
  const name = `@oven/bun-linux-${process.arch === "arm64" ? "aarch64" : "x64"}-musl`;
  const locked = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")).packages[`node_modules/${name}`];
  try {
    const archive = execFileSync("npm", ["pack", `${name}@${locked.version}`, "--silent", "--pack-destination", work], {
      encoding: "utf8",
    });
    const path = join(work, archive.trim());
    const integrity = `sha512-${createHash("sha512").update(readFileSync(path)).digest("base64")}`;
    if (integrity !== locked.integrity) throw new Error("its checksum differs from package-lock.json");
    execFileSync("tar", ["-xzf", path, "-C", work]);
    return join(work, "package/bin/bun");
  } catch (cause) {
    throw new Error(`no musl build: the runtime ${name} cannot be had`, { cause });
  }
}
