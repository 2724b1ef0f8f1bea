// Makes X.509 certificates (RFC 5280): Node can make keys but no certificates, so the few DER structures are written here.
// ECDSA on P-256 only. Leaves to others: who signs, for how long, and where keys are kept (authority.ts, issuer-shell.ts).
import { createHash, createSign, generateKeyPairSync, randomBytes, X509Certificate } from "node:crypto";
import { bitsOf, type IpAddress, parseAddress } from "../../shared/ip/address.ts";
import type { UnixMs } from "../../shared/kinds.ts";

/** A certificate and its private key, PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

export interface Validity {
  readonly from: UnixMs;
  readonly until: UnixMs;
}

/** One that signs others, signed by itself. Authorities that are trusted side by side must differ in their name. */
export function newAuthority(commonName: string, validity: Validity): KeyPair {
  const name = nameOf(commonName);
  const usage = extension(oids.keyUsage, critical, bits(1, 0b0000_0110)); // keyCertSign, cRLSign
  return make(name, validity, { name }, [isAuthority, usage]);
}

/** A server's that its clients trust by itself. */
export function newSelfSigned(commonName: string, names: readonly string[], validity: Validity): KeyPair {
  const name = nameOf(commonName);
  return make(name, validity, { name }, [isAuthority, alternativeNames(names)]);
}

/** For a TLS server that is reached under these DNS names and IP addresses. */
export function newServerCertificate(names: readonly string[], validity: Validity, authority: KeyPair): KeyPair {
  const [commonName = ""] = names;
  const issuer = {
    name: nameOf(commonNameOf(authority.cert)),
    key: authority.key,
    keyId: keyIdOf(new X509Certificate(authority.cert).publicKey.export({ type: "spki", format: "der" })),
  };
  return make(nameOf(commonName), validity, issuer, [
    extension(oids.keyUsage, critical, bits(7, 0b1000_0000)), // digitalSignature
    extension(oids.extendedKeyUsage, sequence(oid(oids.serverAuth))),
    alternativeNames(names),
  ]);
}

interface Issuer {
  readonly name: Buffer;
  /** Both undefined: the certificate signs itself. */
  readonly key?: string;
  readonly keyId?: Buffer;
}

function make(subject: Buffer, validity: Validity, issuer: Issuer, extensions: readonly Buffer[]): KeyPair {
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const keyId = keyIdOf(spki);
  const keys = [
    extension(oids.subjectKeyIdentifier, tagged(0x04, keyId)),
    extension(oids.authorityKeyIdentifier, sequence(tagged(0x80, issuer.keyId ?? keyId))),
  ];
  const toBeSigned = sequence(
    tagged(0xa0, integer(Buffer.from([2]))), // version 3
    integer(Buffer.concat([Buffer.from([1]), randomBytes(15)])), // serial number: positive whatever is drawn
    ecdsaWithSha256,
    issuer.name,
    sequence(time(validity.from), time(validity.until)),
    subject,
    spki,
    tagged(0xa3, sequence(...extensions, ...keys)),
  );
  const signature = createSign("sha256")
    .update(toBeSigned)
    .sign(issuer.key ?? privateKey);
  const certificate = sequence(toBeSigned, ecdsaWithSha256, tagged(0x03, Buffer.concat([Buffer.from([0]), signature])));
  const lines = certificate.toString("base64").match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`,
  };
}

/** Encoded without their tag. X.520; RFC 5280, section 4.2; RFC 5758. */
const oids = {
  commonName: "550403",
  subjectKeyIdentifier: "551d0e",
  keyUsage: "551d0f",
  subjectAltName: "551d11",
  basicConstraints: "551d13",
  authorityKeyIdentifier: "551d23",
  extendedKeyUsage: "551d25",
  serverAuth: "2b06010505070301",
  ecdsaWithSha256: "2a8648ce3d040302",
};
const ecdsaWithSha256 = sequence(oid(oids.ecdsaWithSha256));
const critical = boolean(true);
const isAuthority = extension(oids.basicConstraints, critical, sequence(boolean(true)));

function nameOf(commonName: string): Buffer {
  return sequence(tagged(0x31, sequence(oid(oids.commonName), tagged(0x0c, Buffer.from(commonName)))));
}

function commonNameOf(cert: string): string {
  return /^CN=(.*)$/m.exec(new X509Certificate(cert).subject)?.[1] ?? "";
}

/** SHA-1 of the public key's bits: the last 65 bytes of a P-256 key (RFC 5280, 4.2.1.2). A name, no security. */
function keyIdOf(spki: Buffer): Buffer {
  return createHash("sha1").update(spki.subarray(-65)).digest();
}

function alternativeNames(names: readonly string[]): Buffer {
  const one = (name: string): Buffer => {
    const address = parseAddress(name);
    return address === undefined ? tagged(0x82, Buffer.from(name)) : tagged(0x87, octetsOf(address));
  };
  return extension(oids.subjectAltName, sequence(...names.map(one)));
}

function octetsOf({ family, value }: IpAddress): Buffer {
  return Buffer.from(value.toString(16).padStart(bitsOf(family) / 4, "0"), "hex");
}

/** UTCTime until 2049, GeneralizedTime from then on. */
function time(at: UnixMs): Buffer {
  const digits = new Date(at).toISOString().slice(0, 19).replace(/[-:T]/g, "");
  return digits < "2050" ? tagged(0x17, Buffer.from(`${digits.slice(2)}Z`)) : tagged(0x18, Buffer.from(`${digits}Z`));
}

function extension(id: string, ...parts: readonly [...Buffer[], Buffer]): Buffer {
  const value = parts[parts.length - 1] ?? Buffer.alloc(0);
  return sequence(oid(id), ...parts.slice(0, -1), tagged(0x04, value));
}

function tagged(tag: number, content: Buffer): Buffer {
  const size = content.length;
  const length = size < 128 ? [size] : size < 256 ? [0x81, size] : [0x82, size >> 8, size & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

function oid(encoded: string): Buffer {
  return tagged(0x06, Buffer.from(encoded, "hex"));
}

function integer(bytes: Buffer): Buffer {
  return tagged(0x02, bytes);
}

function boolean(value: boolean): Buffer {
  return tagged(0x01, Buffer.from([value ? 0xff : 0]));
}

function bits(unused: number, byte: number): Buffer {
  return tagged(0x03, Buffer.from([unused, byte]));
}
