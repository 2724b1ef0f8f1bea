// A certificate for loopback, made on the spot: Node can make keys but no certificates, so the few DER structures are written here.
// Self-signed, P-256; good for a test server and for nothing else.
import { createSign, generateKeyPairSync, randomBytes } from "node:crypto";

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

/** Valid for `localhost`, 127.0.0.1 and ::1, for ten years from `now`. */
export function loopbackCertificate(now = new Date()): Certificate {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const name = sequence(set(sequence(oid(commonName), utf8("cattail embedded API server"))));
  const until = new Date(now.getTime() + 10 * 365 * 86_400_000);
  const toBeSigned = sequence(
    tagged(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    name,
    sequence(time(now), time(until)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    tagged(0xa3, sequence(extension(basicConstraints, sequence(boolean)), extension(subjectAltName, alternativeNames))),
  );
  const signature = createSign("sha256").update(toBeSigned).sign(privateKey);
  const certificate = sequence(toBeSigned, ecdsaWithSha256, tagged(0x03, Buffer.concat([Buffer.from([0]), signature])));
  const lines = certificate.toString("base64").match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`,
  };
}

// Object identifiers, DER-encoded: X.520 commonName, RFC 5280 basicConstraints and subjectAltName, RFC 5758 ecdsa-with-SHA256.
const commonName = Buffer.from("550403", "hex");
const basicConstraints = Buffer.from("551d13", "hex");
const subjectAltName = Buffer.from("551d11", "hex");
const ecdsaWithSha256 = sequence(oid(Buffer.from("2a8648ce3d040302", "hex")));
const boolean = tagged(0x01, Buffer.from([0xff]));
const alternativeNames = sequence(
  tagged(0x82, Buffer.from("localhost")),
  tagged(0x87, Buffer.from([127, 0, 0, 1])),
  tagged(0x87, Buffer.from([...Array<number>(15).fill(0), 1])),
);

function tagged(tag: number, content: Buffer): Buffer {
  const size = content.length;
  const length = size < 128 ? [size] : size < 256 ? [0x81, size] : [0x82, size >> 8, size & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

function set(part: Buffer): Buffer {
  return tagged(0x31, part);
}

function oid(encoded: Buffer): Buffer {
  return tagged(0x06, encoded);
}

function integer(bytes: Buffer): Buffer {
  return tagged(0x02, bytes);
}

function utf8(text: string): Buffer {
  return tagged(0x0c, Buffer.from(text));
}

/** UTCTime, which is right until 2049. */
function time(at: Date): Buffer {
  return tagged(0x17, Buffer.from(`${at.toISOString().slice(2, 19).replace(/[-:T]/g, "")}Z`));
}

function extension(id: Buffer, value: Buffer): Buffer {
  return sequence(oid(id), boolean, tagged(0x04, value));
}
