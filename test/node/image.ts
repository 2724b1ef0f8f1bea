// The one image that test pods and their sandboxes run: Debian's static busybox in one layer, as the archive that `ctr images import` takes.
// Made here so that no registry is asked.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";

export const imageName = "docker.io/local/pause:1";
const commands = ["sh", "sleep", "ping", "ip"];

export async function imageArchive(busybox: string): Promise<Buffer> {
  const executable = { name: "bin/busybox", content: await readFile(busybox) };
  const links = commands.map((command) => ({ name: `bin/${command}`, linkTo: "busybox" }));
  const folders = ["bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"].map((name) => ({ name }));
  const layer = tar([...folders, executable, ...links]);
  const blobs: TarEntry[] = [];
  const keep = (mediaType: string, content: Buffer) => {
    const hex = createHash("sha256").update(content).digest("hex");
    blobs.push({ name: `blobs/sha256/${hex}`, content });
    return { mediaType: `application/vnd.oci.image.${mediaType}`, digest: `sha256:${hex}`, size: content.length };
  };
  const layerRef = keep("layer.v1.tar", layer);
  const architecture = process.arch === "x64" ? "amd64" : process.arch;
  const config = {
    architecture,
    os: "linux",
    // A sandbox's container runs the image's own command; it ends by SIGKILL only.
    config: { Entrypoint: ["/bin/sleep", "2147483647"], Env: ["PATH=/bin"] },
    rootfs: { type: "layers", diff_ids: [layerRef.digest] },
  };
  const configRef = keep("config.v1+json", json(config));
  const manifestRef = keep("manifest.v1+json", json({ schemaVersion: 2, config: configRef, layers: [layerRef] }));
  const named = { ...manifestRef, annotations: { "io.containerd.image.name": imageName } };
  return tar([
    { name: "oci-layout", content: json({ imageLayoutVersion: "1.0.0" }) },
    { name: "index.json", content: json({ schemaVersion: 2, manifests: [named] }) },
    ...blobs,
  ]);
}

function json(value: object): Buffer {
  return Buffer.from(JSON.stringify(value));
}

/** A name that ends in a slash is a folder's. */
interface TarEntry {
  readonly name: string;
  readonly content?: Buffer;
  readonly linkTo?: string;
}

const recordBytes = 512;

function tar(entries: readonly TarEntry[]): Buffer {
  const end = Buffer.alloc(2 * recordBytes);
  return Buffer.concat([...entries.flatMap((entry) => [header(entry), padded(entry.content ?? Buffer.alloc(0))]), end]);
}

/** POSIX ustar; owner root and time 0, so that the same image always has the same digest. */
function header({ name, content, linkTo }: TarEntry): Buffer {
  const bytes = Buffer.alloc(recordBytes);
  const octal = (value: number, at: number, digits: number) => bytes.write(value.toString(8).padStart(digits, "0"), at);
  bytes.write(name, 0);
  octal(0o755, 100, 7);
  octal(0, 108, 7);
  octal(0, 116, 7);
  octal(content?.length ?? 0, 124, 11);
  octal(0, 136, 11);
  bytes.write("        ", 148); // the checksum counts its own field as spaces
  bytes.write(linkTo !== undefined ? "2" : name.endsWith("/") ? "5" : "0", 156);
  bytes.write(linkTo ?? "", 157);
  bytes.write("ustar\0" + "00", 257);
  octal(
    bytes.reduce((sum, byte) => sum + byte, 0),
    148,
    6,
  );
  bytes.write("\0 ", 154);
  return bytes;
}

function padded(content: Buffer): Buffer {
  return Buffer.concat([content, Buffer.alloc((recordBytes - (content.length % recordBytes)) % recordBytes)]);
}
