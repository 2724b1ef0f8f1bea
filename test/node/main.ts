// `npm run test:node`: runs each test file of this folder on a machine of its own, made of the kernel's namespaces (processes, mounts, network).
// However they end, the kernel ends every process, mount and interface in it; what it does not (cgroups, folders) is removed here.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { type Part, realPart } from "../real/parts.ts";
import { insideMark, machineAddress } from "./inside.ts";

const parts: readonly Part[] = ["etcd", "kube-apiserver", "kubelet"];
/** Debian's package by a file that it brings. */
const packages = {
  "/usr/bin/containerd": "containerd",
  "/usr/sbin/runc": "runc",
  "/usr/lib/cni/ptp": "containernetworking-plugins",
  "/bin/busybox": "busybox-static",
  "/sbin/ip": "iproute2",
  "/usr/bin/unshare": "util-linux",
} as const;
/** Where kubelet, containerd and its CNI library write whatever their configuration says. */
const ownFolders = ["/run", "/etc/cni", "/opt/cni", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"];
const namespaces = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"];
const temporary = "/run/tmp";
/** Process 1 of the machine; it stays, because somebody must reap the shims that containerd leaves to it. */
const boot = `
set -e
ip link set lo up
ip link add eth0 type veth peer name nowhere
ip link set eth0 up
ip link set nowhere up
ip addr add ${machineAddress}/24 dev eth0
ip route add default dev eth0
${ownFolders.map((folder) => `mount -t tmpfs -o mode=755 none ${folder}`).join("\n")}
mkdir ${temporary}
touch ${insideMark}
status=0
"$@" || status=$?
exit $status
`;

const missing = missingHere();
if (missing.length > 0) {
  console.error(`test:node cannot run on this machine: ${missing.join("; ")}`);
  process.exit(1);
}
for (const part of parts) await realPart(part);
const given = process.argv.slice(2);
const files = given.length > 0 ? given : globSync(join(import.meta.dirname, "*.test.ts")).sort();
for (const file of files) if ((await runInMachine(file)) !== 0) process.exitCode = 1;

/** Each in words, with what to do. */
function missingHere(): string[] {
  if (process.getuid?.() !== 0) return ["it starts containers, which takes root: run it as root"];
  const absent = Object.entries(packages).filter(([file]) => !existsSync(file));
  if (absent.length > 0) {
    const names = absent.map(([, name]) => name);
    return [`there is no ${absent.map(([file]) => file).join(", ")}: apt-get install ${names.join(" ")}`];
  }
  const tried = spawnSync("unshare", [...namespaces, "ip", "link", "set", "lo", "up"], { encoding: "utf8" });
  if (tried.status === 0) return [];
  return [`namespaces cannot be made and configured (CAP_SYS_ADMIN, CAP_NET_ADMIN): ${tried.stderr.trim()}`];
}

async function runInMachine(testFile: string): Promise<number> {
  const made = ownFolders.filter((folder) => mkdirSync(folder, { recursive: true }) !== undefined);
  const command = [process.execPath, "--test", "--test-force-exit", "--test-timeout=300000", testFile];
  try {
    // The kernel ends the machine with us, even if we are killed.
    const args = ["--pdeathsig", "KILL", "unshare", ...namespaces, "sh", "-c", boot, "sh", ...command];
    const machine = spawn("setpriv", args, { stdio: "inherit", env: { ...process.env, TMPDIR: temporary } });
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => machine.kill("SIGKILL"));
    const [code] = await once(machine, "close");
    return code ?? 1;
  } finally {
    removeCgroups();
    for (const folder of made) rmdirSync(folder);
  }
}

/** containerd's name for its part of the tree; what still has a process in it is not ours and stays. */
function removeCgroups(): void {
  const folders = globSync("/sys/fs/cgroup/{k8s.io,*/k8s.io}{,/**}");
  for (const folder of folders.sort().reverse()) {
    try {
      rmdirSync(folder);
    } catch {
      // A file, or in use.
    }
  }
}
