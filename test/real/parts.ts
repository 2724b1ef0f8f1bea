// Finds or builds the executables of real Kubernetes, and Helm: Go tools pinned in parts/, each kept in a cache outside the repository.
// How they are run is left to others. Run as a program with names of parts it only sees to it that they are there.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { access, constants, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

/** Which module of parts/ an executable is built in, from which package. */
const tools = {
  etcd: { module: "etcd", package: "go.etcd.io/etcd/server/v3" },
  "kube-apiserver": { module: "kubernetes", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
  kubelet: { module: "kubernetes", package: "k8s.io/kubernetes/cmd/kubelet" },
  helm: { module: "helm", package: "helm.sh/helm/v3/cmd/helm" },
} as const;
export type Part = keyof typeof tools;
/** What a folder of envtest holds, which KUBEBUILDER_ASSETS names. */
const envtest: readonly Part[] = ["etcd", "kube-apiserver"];

/** Path of the executable. Taken from KUBEBUILDER_ASSETS if that is set; else built once per version (minutes, with Go 1.26 or later). */
export async function realPart(part: Part): Promise<string> {
  const given = process.env.KUBEBUILDER_ASSETS;
  if (given && envtest.includes(part)) {
    const path = join(given, part);
    if (await isExecutable(path)) return path;
    throw new Error(`KUBEBUILDER_ASSETS=${given} does not hold the executable ${part}: add it or unset it`);
  }
  const recipe = await recipeOf(part);
  const path = join(cacheFolder(), recipe.key, part);
  if (!(await isExecutable(path))) await buildOnce(path, recipe);
  return path;
}

const source = join(import.meta.dirname, "parts");

function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

function cacheFolder(): string {
  return process.env.CATTAIL_PARTS || join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "cattail", "parts");
}

interface Recipe {
  readonly module: string;
  readonly package: string;
  readonly ldflags: string;
  /** Name of its folder in the cache: changes with whatever the executable is made from. */
  readonly key: string;
}

async function recipeOf(part: Part): Promise<Recipe> {
  const tool = tools[part];
  const files = ["go.mod", "go.sum"].map((file) => readFile(join(source, tool.module, file), "utf8"));
  const texts = await Promise.all(files);
  const ldflags = ["-s -w", ...versionFlags[tool.module](texts.join("\n"))].join(" ");
  const made = [process.platform, process.arch, tool, ldflags, texts];
  const hash = createHash("sha256").update(JSON.stringify(made)).digest("hex");
  return { ...tool, ldflags, key: `${part}-${hash.slice(0, 12)}` };
}

/** What the projects' own builds set; without it Kubernetes reports v0.0.0, Helm takes every cluster for 1.20, and checks of versions go wrong. */
const versionFlags: Readonly<Record<(typeof tools)[Part]["module"], (goMod: string) => string[]>> = {
  etcd: () => [],
  kubernetes: (goMod) => {
    const [gitVersion, gitMajor, gitMinor] = versionIn(goMod, "k8s.io/kubernetes");
    return variables("k8s.io/component-base/version", { gitVersion, gitMajor, gitMinor });
  },
  helm: (goMod) => {
    const [, , k8sVersionMinor] = versionIn(goMod, "k8s.io/client-go");
    const numbers = { k8sVersionMajor: "1", k8sVersionMinor };
    return ["chartutil", "lint/rules"].flatMap((name) => variables(`helm.sh/helm/v3/pkg/${name}`, numbers));
  },
};

/** The whole, major and minor. */
function versionIn(goMod: string, module: string): [string, string, string] {
  const found = new RegExp(`^\\t${module} (v(\\d+)\\.(\\d+)\\.\\d+)`, "m").exec(goMod);
  if (found === null) throw new Error(`go.mod names no version of ${module}`);
  const [, whole = "", major = "", minor = ""] = found;
  return [whole, major, minor];
}

function variables(inPackage: string, values: Readonly<Record<string, string>>): string[] {
  return Object.entries(values).map(([name, value]) => `-X ${inPackage}.${name}=${value}`);
}

async function buildOnce(path: string, recipe: Recipe): Promise<void> {
  await mkdir(cacheFolder(), { recursive: true });
  const unlock = await lock(join(cacheFolder(), "lock"));
  try {
    if (await isExecutable(path)) return;
    const unfinished = await mkdtemp(join(cacheFolder(), "unfinished-"));
    try {
      await build(recipe, join(unfinished, "executable"));
      await mkdir(join(cacheFolder(), recipe.key), { recursive: true });
      await rename(join(unfinished, "executable"), path);
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
    throw new Error("cannot run go: the real parts need Go 1.26 or later", { cause });
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

if (import.meta.main) {
  for (const name of process.argv.slice(2)) {
    if (!(name in tools)) throw new Error(`there is no part ${name}, only ${Object.keys(tools).join(", ")}`);
    console.log(await realPart(name as Part)); // checked in the line before
  }
}
