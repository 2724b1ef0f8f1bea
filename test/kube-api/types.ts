// The resource types that are served: the built-in ones and those that CustomResourceDefinitions add.
// Says what a type is called and which rules its objects follow; applying the rules is left to writes.ts.
import { asObject, asText, isObject, type JsonObject } from "./json.ts";
import type { Schema } from "./schema.ts";

export interface Column {
  readonly name: string;
  readonly type: string;
  readonly jsonPath: string;
  readonly wide: boolean;
}

export interface ResourceType {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
  readonly shortNames: readonly string[];
  readonly namespaced: boolean;
  readonly verbs: readonly string[];
  /** `/status` is written apart from the rest. */
  readonly status: boolean;
  /** `metadata.generation` counts changes of anything but metadata (and status, where that is a subresource). */
  readonly generation: boolean;
  /** An update may leave out resourceVersion and then wins over whatever is there. */
  readonly unconditionalUpdate: boolean;
  readonly names: "subdomain" | "label" | "path";
  /** Fields of field selectors besides metadata.name and metadata.namespace. */
  readonly fields: readonly string[];
  readonly columns: readonly Column[];
  /** Only custom resources: what their CustomResourceDefinition demands of them. */
  readonly schema: Schema | undefined;
  readonly custom: boolean;
}

const allVerbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

interface BuiltIn extends Partial<Omit<ResourceType, "group" | "version">> {
  readonly plural: string;
  readonly kind: string;
}

function builtIn(groupVersion: string, types: readonly BuiltIn[]): ResourceType[] {
  const [version = "", group = ""] = groupVersion.split("/").reverse();
  return types.map((type) => ({
    singular: type.kind.toLowerCase(),
    shortNames: [],
    namespaced: false,
    verbs: allVerbs,
    status: false,
    generation: false,
    unconditionalUpdate: true,
    names: "subdomain",
    fields: [],
    columns: [],
    schema: undefined,
    custom: false,
    group,
    version,
    ...type,
  }));
}

/** Reviews are answered and not stored. */
const review = ["create"];

const columnsOfPods: Column[] = [
  { name: "Status", type: "string", jsonPath: ".status.phase", wide: false },
  { name: "IP", type: "string", jsonPath: ".status.podIP", wide: false },
  { name: "Node", type: "string", jsonPath: ".spec.nodeName", wide: false },
];

export const builtInTypes: readonly ResourceType[] = [
  ...builtIn("v1", [
    {
      plural: "namespaces",
      kind: "Namespace",
      shortNames: ["ns"],
      names: "label",
      status: true,
      fields: ["status.phase"],
      columns: [{ name: "Status", type: "string", jsonPath: ".status.phase", wide: false }],
    },
    { plural: "nodes", kind: "Node", shortNames: ["no"], status: true, fields: ["spec.unschedulable"] },
    {
      plural: "pods",
      kind: "Pod",
      shortNames: ["po"],
      namespaced: true,
      status: true,
      generation: true,
      fields: ["spec.nodeName", "status.phase"],
      columns: columnsOfPods,
    },
    { plural: "serviceaccounts", kind: "ServiceAccount", shortNames: ["sa"], namespaced: true },
    { plural: "configmaps", kind: "ConfigMap", shortNames: ["cm"], namespaced: true },
    { plural: "secrets", kind: "Secret", namespaced: true, fields: ["type"] },
    { plural: "services", kind: "Service", shortNames: ["svc"], namespaced: true, status: true },
    {
      plural: "events",
      kind: "Event",
      shortNames: ["ev"],
      namespaced: true,
      fields: [
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
      ],
    },
  ]),
  ...builtIn("events.k8s.io/v1", [
    { plural: "events", kind: "Event", shortNames: ["ev"], namespaced: true, fields: ["reason", "type"] },
  ]),
  ...builtIn("coordination.k8s.io/v1", [
    {
      plural: "leases",
      kind: "Lease",
      unconditionalUpdate: false,
      namespaced: true,
      columns: [{ name: "Holder", type: "string", jsonPath: ".spec.holderIdentity", wide: false }],
    },
  ]),
  ...builtIn("apps/v1", [
    {
      plural: "deployments",
      kind: "Deployment",
      shortNames: ["deploy"],
      namespaced: true,
      status: true,
      generation: true,
    },
    { plural: "daemonsets", kind: "DaemonSet", shortNames: ["ds"], namespaced: true, status: true, generation: true },
  ]),
  ...builtIn("policy/v1", [
    {
      plural: "poddisruptionbudgets",
      kind: "PodDisruptionBudget",
      shortNames: ["pdb"],
      namespaced: true,
      status: true,
      generation: true,
    },
  ]),
  ...builtIn("authentication.k8s.io/v1", [
    { plural: "tokenreviews", kind: "TokenReview", verbs: review },
    { plural: "selfsubjectreviews", kind: "SelfSubjectReview", verbs: review },
  ]),
  ...builtIn("authorization.k8s.io/v1", [
    { plural: "selfsubjectaccessreviews", kind: "SelfSubjectAccessReview", verbs: review },
    { plural: "subjectaccessreviews", kind: "SubjectAccessReview", verbs: review },
  ]),
  ...builtIn("rbac.authorization.k8s.io/v1", [
    { plural: "clusterroles", kind: "ClusterRole", names: "path" },
    { plural: "clusterrolebindings", kind: "ClusterRoleBinding", names: "path" },
    { plural: "roles", kind: "Role", namespaced: true, names: "path" },
    { plural: "rolebindings", kind: "RoleBinding", namespaced: true, names: "path" },
  ]),
  ...builtIn("flowcontrol.apiserver.k8s.io/v1", [
    { plural: "flowschemas", kind: "FlowSchema", status: true, generation: true },
    { plural: "prioritylevelconfigurations", kind: "PriorityLevelConfiguration", status: true, generation: true },
  ]),
  ...builtIn("apiextensions.k8s.io/v1", [
    {
      plural: "customresourcedefinitions",
      kind: "CustomResourceDefinition",
      unconditionalUpdate: false,
      shortNames: ["crd", "crds"],
      status: true,
      generation: true,
    },
  ]),
];

export const crdCollection = "apiextensions.k8s.io/customresourcedefinitions";

/** The same objects of core and events.k8s.io Events are one collection in etcd; here the group is enough, nobody mixes them. */
export function collectionOf(type: ResourceType): string {
  return type.group === "" ? type.plural : `${type.group}/${type.plural}`;
}

export function keyOf(type: ResourceType, namespace: string, name: string): string {
  return type.namespaced ? `${namespace}/${name}` : name;
}

export function apiVersionOf(type: ResourceType): string {
  return type.group === "" ? type.version : `${type.group}/${type.version}`;
}

/** What a definition serves: its storage version only, since ours have one version each. */
export function customType(definition: JsonObject): ResourceType | undefined {
  const spec = asObject(definition.spec);
  const names = asObject(spec.names);
  const version = (Array.isArray(spec.versions) ? spec.versions : []).find(
    (item) => isObject(item) && item.storage === true && item.served === true,
  );
  if (!isObject(version)) return undefined;
  const columns = Array.isArray(version.additionalPrinterColumns)
    ? version.additionalPrinterColumns.filter(isObject)
    : [];
  const selectable = Array.isArray(version.selectableFields) ? version.selectableFields.filter(isObject) : [];
  return {
    group: asText(spec.group),
    version: asText(version.name),
    plural: asText(names.plural),
    singular: asText(names.singular) || asText(names.kind).toLowerCase(),
    kind: asText(names.kind),
    shortNames: Array.isArray(names.shortNames) ? names.shortNames.map(asText) : [],
    namespaced: spec.scope === "Namespaced",
    verbs: allVerbs,
    status: isObject(asObject(version.subresources).status),
    generation: true,
    unconditionalUpdate: false,
    names: "subdomain",
    fields: selectable.map((field) => asText(field.jsonPath).replace(/^\./, "")),
    columns: columns.map((column) => ({
      name: asText(column.name),
      type: asText(column.type),
      jsonPath: asText(column.jsonPath),
      wide: Number(column.priority ?? 0) > 0,
    })),
    schema: asObject(asObject(version.schema).openAPIV3Schema) as Schema,
    custom: true,
  };
}

/** All types of one server, by group and plural. */
export class Types {
  readonly #types = new Map<string, ResourceType>();

  constructor() {
    for (const type of builtInTypes) this.#types.set(collectionOf(type), type);
  }

  find(group: string, version: string, plural: string): ResourceType | undefined {
    const type = this.#types.get(group === "" ? plural : `${group}/${plural}`);
    return type?.version === version ? type : undefined;
  }

  named(group: string, plural: string): ResourceType | undefined {
    return this.#types.get(group === "" ? plural : `${group}/${plural}`);
  }

  ofKind(apiVersion: string, kind: string): ResourceType | undefined {
    return [...this.#types.values()].find((type) => type.kind === kind && apiVersionOf(type) === apiVersion);
  }

  all(): readonly ResourceType[] {
    return [...this.#types.values()];
  }

  add(type: ResourceType): void {
    this.#types.set(collectionOf(type), type);
  }

  remove(type: ResourceType): void {
    this.#types.delete(collectionOf(type));
  }
}
