// Signs and verifies the JSON Web Tokens of service accounts, and publishes the key as a real API server does.
// RS256, as kubeadm clusters have it. The key is made at first need, since that takes a moment.
import { createHash, createSign, createVerify, generateKeyPairSync, type KeyObject } from "node:crypto";
import { isObject, type JsonObject } from "./json.ts";
import type { Signer } from "./reviews.ts";

export function tokenSigner(): Signer {
  let pair: { publicKey: KeyObject; privateKey: KeyObject; id: string } | undefined;
  const keys = () => {
    if (pair === undefined) {
      const made = generateKeyPairSync("rsa", { modulusLength: 2048 });
      const id = createHash("sha256")
        .update(made.publicKey.export({ type: "spki", format: "der" }))
        .digest("base64url");
      pair = { ...made, id };
    }
    return pair;
  };
  return {
    sign(claims) {
      const { privateKey, id } = keys();
      const signed = `${encode({ alg: "RS256", kid: id })}.${encode(claims)}`;
      return `${signed}.${createSign("sha256").update(signed).sign(privateKey, "base64url")}`;
    },
    verify(token) {
      const [header = "", claims = "", signature = "", ...more] = token.split(".");
      if (pair === undefined || signature === "" || more.length > 0 || decode(header)?.alg !== "RS256")
        return undefined;
      const good = createVerify("sha256").update(`${header}.${claims}`).verify(pair.publicKey, signature, "base64url");
      return good ? decode(claims) : undefined;
    },
    jwks() {
      const { publicKey, id } = keys();
      return { keys: [{ use: "sig", kid: id, alg: "RS256", ...publicKey.export({ format: "jwk" }) }] };
    },
  };
}

function encode(value: JsonObject): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

function decode(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(text, "base64url").toString());
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
