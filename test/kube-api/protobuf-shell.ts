// Reads the protobuf bodies that kubectl sends for built-in types (`create namespace`, `create token`, `auth can-i` …) as the objects they stand for.
// Only the messages listed here; what else comes is refused as an unsupported media type. Answers are JSON, which every client takes.
import { impossible } from "../../shared/kinds.ts";
import type { JsonObject } from "./json.ts";

export const protobufMediaType = "application/vnd.kubernetes.protobuf";

/** Undefined: not protobuf of a kind that is known here. */
export function readProtobuf(bytes: Buffer): JsonObject | undefined {
  if (!bytes.subarray(0, 4).equals(magic)) return undefined;
  const envelope = fieldsOf(bytes.subarray(4));
  const type = fieldsOf(bytesIn(envelope, 1));
  const kind = bytesIn(type, 2).toString();
  const message = kinds.get(kind);
  if (message === undefined) return undefined;
  return { apiVersion: bytesIn(type, 1).toString(), kind, ...decode(bytesIn(envelope, 2), message) };
}

/** Before the envelope `runtime.Unknown`. */
const magic = Buffer.from("k8s\0");

type Shape = "text" | "integer" | "flag" | "texts" | "map" | { readonly one: Message } | { readonly many: Message };
/** Numbers and names of the fields, as in the generated.proto of k8s.io/api and k8s.io/apimachinery. */
type Message = Readonly<Record<number, readonly [string, Shape]>>;

const ownerReference: Message = {
  1: ["kind", "text"],
  3: ["name", "text"],
  4: ["uid", "text"],
  5: ["apiVersion", "text"],
  6: ["controller", "flag"],
  7: ["blockOwnerDeletion", "flag"],
};
const metadata: readonly [string, Shape] = [
  "metadata",
  {
    one: {
      1: ["name", "text"],
      2: ["generateName", "text"],
      3: ["namespace", "text"],
      5: ["uid", "text"],
      6: ["resourceVersion", "text"],
      7: ["generation", "integer"],
      11: ["labels", "map"],
      12: ["annotations", "map"],
      13: ["ownerReferences", { many: ownerReference }],
      14: ["finalizers", "texts"],
    },
  },
];
const rules: readonly [string, Shape] = [
  "rules",
  {
    many: {
      1: ["verbs", "texts"],
      2: ["apiGroups", "texts"],
      3: ["resources", "texts"],
      4: ["resourceNames", "texts"],
      5: ["nonResourceURLs", "texts"],
    },
  },
];
const subject: Message = {
  1: ["kind", "text"],
  2: ["apiGroup", "text"],
  3: ["name", "text"],
  4: ["namespace", "text"],
};
const roleRef: Message = { 1: ["apiGroup", "text"], 2: ["kind", "text"], 3: ["name", "text"] };
const binding: Message = { 1: metadata, 2: ["subjects", { many: subject }], 3: ["roleRef", { one: roleRef }] };
const boundObject: Message = {
  1: ["kind", "text"],
  2: ["apiVersion", "text"],
  3: ["name", "text"],
  4: ["uid", "text"],
};
const tokenSpec: Message = {
  1: ["audiences", "texts"],
  3: ["boundObjectRef", { one: boundObject }],
  4: ["expirationSeconds", "integer"],
};
const resourceAttributes: Message = {
  1: ["namespace", "text"],
  2: ["verb", "text"],
  3: ["group", "text"],
  4: ["version", "text"],
  5: ["resource", "text"],
  6: ["subresource", "text"],
  7: ["name", "text"],
};
const accessSpec: Message = {
  1: ["resourceAttributes", { one: resourceAttributes }],
  2: ["nonResourceAttributes", { one: { 1: ["path", "text"], 2: ["verb", "text"] } }],
};

const kinds: ReadonlyMap<string, Message> = new Map<string, Message>(
  Object.entries({
    Namespace: { 1: metadata },
    ServiceAccount: { 1: metadata },
    ConfigMap: { 1: metadata, 2: ["data", "map"], 4: ["immutable", "flag"] },
    ClusterRole: { 1: metadata, 2: rules },
    Role: { 1: metadata, 2: rules },
    ClusterRoleBinding: binding,
    RoleBinding: binding,
    TokenRequest: { 1: metadata, 2: ["spec", { one: tokenSpec }] },
    SelfSubjectAccessReview: { 1: metadata, 2: ["spec", { one: accessSpec }] },
    SelfSubjectReview: { 1: metadata },
    DeleteOptions: {
      1: ["gracePeriodSeconds", "integer"],
      2: ["preconditions", { one: { 1: ["uid", "text"], 2: ["resourceVersion", "text"] } }],
      4: ["propagationPolicy", "text"],
    },
  }),
);

type Value = bigint | Buffer;
type Fields = ReadonlyMap<number, readonly Value[]>;

function decode(bytes: Buffer, message: Message): JsonObject {
  const object: JsonObject = {};
  for (const [number, values] of fieldsOf(bytes)) {
    const known = message[number];
    if (known === undefined) continue;
    const [name, shape] = known;
    const value = fieldValue(values, shape);
    // Go's encoder writes empty texts where JSON leaves them out.
    if (value !== undefined && value !== "") object[name] = value;
  }
  return object;
}

function fieldValue(values: readonly Value[], shape: Shape): unknown {
  const last = values.at(-1) ?? 0n;
  if (typeof shape === "object") {
    if ("many" in shape) return values.map((value) => decode(asBytes(value), shape.many));
    return decode(asBytes(last), shape.one);
  }
  switch (shape) {
    case "text":
      return asBytes(last).toString();
    case "integer":
      return typeof last === "bigint" ? Number(BigInt.asIntN(64, last)) : undefined;
    case "flag":
      return last === 1n;
    case "texts":
      return values.map((value) => asBytes(value).toString());
    case "map":
      return Object.fromEntries(values.map((value) => entryOf(fieldsOf(asBytes(value)))));
    default:
      return impossible(shape);
  }
}

function entryOf(fields: Fields): [string, string] {
  return [bytesIn(fields, 1).toString(), bytesIn(fields, 2).toString()];
}

function bytesIn(fields: Fields, number: number): Buffer {
  return asBytes(fields.get(number)?.[0] ?? 0n);
}

function asBytes(value: Value): Buffer {
  return typeof value === "bigint" ? Buffer.alloc(0) : value;
}

/** Wire format: numbers (0) and byte strings (2); Kubernetes' messages have no others. Ends at the first thing it does not understand. */
function fieldsOf(bytes: Buffer): Fields {
  const fields = new Map<number, Value[]>();
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; at < bytes.length && shift < 70n; shift += 7n) {
      const byte = bytes.readUInt8(at);
      at += 1;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const wire = tag & 7;
    if (wire !== 0 && wire !== 2) break;
    let value: Value = varint();
    if (wire === 2) {
      const end = at + Number(value);
      value = bytes.subarray(at, end);
      at = end;
    }
    const number = tag >>> 3;
    const known = fields.get(number);
    if (known === undefined) fields.set(number, [value]);
    else known.push(value);
  }
  return fields;
}
