// Finds or builds the executables of a real control plane: Go tools pinned in parts/, kept in a cache outside the repository.
// How they are run is left to control-plane.ts. Run as a program it only sees to it that they are there.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { access, constants, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

export type Part = "etcd" | "kube-apiserver";
export type Parts = Readonly<Record<Part, string>>;

/** Paths of the executables. KUBEBUILDER_ASSETS, when set, must hold them; else they are built once per version (minutes, with Go 1.25 or later). */
export async function realParts(): Promise<Parts> {
  const given = process.env.KUBEBUILDER_ASSETS;
  if (given) {
    if (await complete(given)) return partsIn(given);
    throw new Error(
      `KUBEBUILDER_ASSETS=${given} does not hold the executables ${partNames.join(" and ")}: add them or unset it`,
    );
  }
  const recipes = await readRecipes();
  const folder = join(cacheFolder(), recipes.key);
  if (!(await complete(folder))) await buildOnce(folder, recipes);
  return partsIn(folder);
}

const partNames: readonly Part[] = ["etcd", "kube-apiserver"];
const source = join(import.meta.dirname, "parts");

function partsIn(folder: string): Parts {
  return { etcd: join(folder, "etcd"), "kube-apiserver": join(folder, "kube-apiserver") };
}

async function complete(folder: string): Promise<boolean> {
  const found = Object.values(partsIn(folder)).map((path) => access(path, constants.X_OK));
  return (await Promise.allSettled(found)).every((outcome) => outcome.status === "fulfilled");
}

function cacheFolder(): string {
  return process.env.CATTAIL_PARTS || join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "cattail", "parts");
}

interface Recipe {
  readonly module: string;
  readonly package: string;
  readonly ldflags: string;
}

interface Recipes {
  /** Name of the cache's folder: changes with whatever the executables are made from. */
  readonly key: string;
  readonly of: Readonly<Record<Part, Recipe>>;
}

async function readRecipes(): Promise<Recipes> {
  const files = ["etcd/go.mod", "etcd/go.sum", "kubernetes/go.mod", "kubernetes/go.sum"];
  const texts = await Promise.all(files.map((file) => readFile(join(source, file), "utf8")));
  const version = /^\tk8s\.io\/kubernetes (v(\d+)\.(\d+)\.\d+)/m.exec(texts.join("\n"));
  if (version === null) throw new Error("parts/kubernetes/go.mod names no version of k8s.io/kubernetes");
  const [, gitVersion, major, minor] = version;
  // Kubernetes' own build sets these; without them it reports v0.0.0 and every version check of a client goes wrong.
  const variables = { gitVersion, gitMajor: major, gitMinor: minor };
  const versionFlags = Object.entries(variables).map(
    ([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`,
  );
  const of = {
    etcd: { module: "etcd", package: "go.etcd.io/etcd/server/v3", ldflags: "-s -w" },
    "kube-apiserver": {
      module: "kubernetes",
      package: "k8s.io/kubernetes/cmd/kube-apiserver",
      ldflags: ["-s -w", ...versionFlags].join(" "),
    },
  };
  const hash = createHash("sha256").update(JSON.stringify([process.platform, process.arch, of, texts]));
  return { key: `kubernetes-${gitVersion}-${hash.digest("hex").slice(0, 12)}`, of };
}

async function buildOnce(folder: string, recipes: Recipes): Promise<void> {
  await mkdir(cacheFolder(), { recursive: true });
  const unlock = await lock(join(cacheFolder(), "lock"));
  try {
    if (await complete(folder)) return;
    const unfinished = await mkdtemp(`${folder}.`);
    try {
      for (const name of partNames) await build(recipes.of[name], join(unfinished, name));
      await rm(folder, { recursive: true, force: true });
      await rename(unfinished, folder);
    } finally {
      await rm(unfinished, { recursive: true, force: true });
    }
  } finally {
    unlock();
  }
}

async function build(recipe: Recipe, output: string): Promise<void> {
  console.error(`building ${recipe.package} (minutes when Go's own cache is cold)`);
  const started = performance.now();
  const args = ["build", "-trimpath", "-buildvcs=false", "-ldflags", recipe.ldflags, "-o", output, recipe.package];
  // Not the empty string: Go takes that for "unset" and reads the user's own default instead.
  const environment = { ...process.env, CGO_ENABLED: "0", GOFLAGS: "-mod=readonly", GOWORK: "off" };
  const go = spawn("go", args, { cwd: join(source, recipe.module), env: environment, stdio: ["ignore", 2, 2] });
  const [code] = await once(go, "close").catch((cause: unknown) => {
    throw new Error("cannot run go: test:real needs Go 1.25 or later, or KUBEBUILDER_ASSETS", { cause });
  });
  if (code !== 0) throw new Error(`go build ${recipe.package} ended with ${code}`);
  console.error(`built ${recipe.package} in ${((performance.now() - started) / 1000).toFixed(0)} s`);
}

/** An flock(2), which the kernel gives up for us however we end. Node has none of its own, so a child holds it while its stdin is open. */
async function lock(path: string): Promise<() => void> {
  const holder = spawn("flock", [path, "sh", "-c", "echo held; cat"], { stdio: ["pipe", "pipe", "inherit"] });
  const outcome = await Promise.race([once(holder.stdout, "data"), once(holder, "close")]);
  if (!String(outcome[0]).startsWith("held")) throw new Error(`flock ${path} ended with ${outcome[0]}`);
  return () => holder.stdin.end();
}

if (import.meta.main) console.log(Object.values(await realParts()).join("\n"));
