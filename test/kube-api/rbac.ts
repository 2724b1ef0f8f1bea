// Who may do what: evaluates the stored Role, ClusterRole and binding objects, as the real RBAC authorizer does.
// Decides on one request at a time and keeps nothing.
import { asObject, asText, isObject, type JsonObject, parseJson } from "./json.ts";
import type { ObjectEntry } from "./objects.ts";
import type { Target, User } from "./request.ts";
import type { Store } from "./store.ts";

/** Members of this group are asked nothing. */
export const mastersGroup = "system:masters";

export function isAllowed(store: Store<ObjectEntry>, user: User, target: Target): boolean {
  if (user.groups.includes(mastersGroup)) return true;
  const namespaces = target.kind === "resource" && target.namespace !== "" ? [target.namespace] : [];
  return rulesFor(store, user, namespaces).some((rule) => covers(rule, target));
}

const group = "rbac.authorization.k8s.io";

function* rulesFrom(store: Store<ObjectEntry>, plural: string, user: User, namespace: string): Generator<JsonObject> {
  for (const entry of store.collection(`${group}/${plural}`).list()) {
    if (entry.namespace !== namespace) continue;
    const binding = asObject(parseJson(entry.text));
    const subjects = Array.isArray(binding.subjects) ? binding.subjects.filter(isObject) : [];
    if (!subjects.some((subject) => isMeant(subject, user, namespace))) continue;
    const ref = asObject(binding.roleRef);
    const key = ref.kind === "Role" ? `${namespace}/${asText(ref.name)}` : asText(ref.name);
    const role = store.collection(`${group}/${ref.kind === "Role" ? "roles" : "clusterroles"}`).get(key);
    if (role === undefined) continue;
    const rules = asObject(parseJson(role.text)).rules;
    if (Array.isArray(rules)) yield* rules.filter(isObject);
  }
}

function rulesFor(store: Store<ObjectEntry>, user: User, namespaces: readonly string[]): JsonObject[] {
  return [
    ...rulesFrom(store, "clusterrolebindings", user, ""),
    ...namespaces.flatMap((namespace) => [...rulesFrom(store, "rolebindings", user, namespace)]),
  ];
}

function isMeant(subject: JsonObject, user: User, namespace: string): boolean {
  switch (subject.kind) {
    case "User":
      return subject.name === user.username;
    case "Group":
      return user.groups.includes(asText(subject.name));
    case "ServiceAccount":
      return (
        user.username === `system:serviceaccount:${asText(subject.namespace) || namespace}:${asText(subject.name)}`
      );
    default:
      return false;
  }
}

function covers(rule: JsonObject, target: Target): boolean {
  if (!listed(rule.verbs, target.verb)) return false;
  if (target.kind === "path") return pathListed(rule.nonResourceURLs, target.path);
  const resource = target.subresource === "" ? target.resource : `${target.resource}/${target.subresource}`;
  const names = Array.isArray(rule.resourceNames) ? rule.resourceNames : [];
  return (
    listed(rule.apiGroups, target.group) &&
    (listed(rule.resources, resource) ||
      (target.subresource !== "" && listed(rule.resources, `*/${target.subresource}`))) &&
    (names.length === 0 || names.includes(target.name))
  );
}

function listed(list: unknown, item: string): boolean {
  return Array.isArray(list) && (list.includes(item) || list.includes("*"));
}

function pathListed(list: unknown, path: string): boolean {
  if (!Array.isArray(list)) return false;
  return list
    .map(asText)
    .some((known) => known === path || (known.endsWith("*") && path.startsWith(known.slice(0, -1))));
}

/** The roles that every cluster has and that ours relies on. */
export const bootstrapRoles: readonly JsonObject[] = [
  role("cluster-admin", [
    { apiGroups: ["*"], resources: ["*"], verbs: ["*"] },
    { nonResourceURLs: ["*"], verbs: ["*"] },
  ]),
  role("system:discovery", [
    {
      nonResourceURLs: [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
      ],
      verbs: ["get"],
    },
  ]),
  role("system:public-info-viewer", [
    { nonResourceURLs: ["/healthz", "/livez", "/readyz", "/version", "/version/"], verbs: ["get"] },
  ]),
  role("system:service-account-issuer-discovery", [
    {
      nonResourceURLs: [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
      ],
      verbs: ["get"],
    },
  ]),
  role("system:basic-user", [
    {
      apiGroups: ["authorization.k8s.io"],
      resources: ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
      verbs: ["create"],
    },
    { apiGroups: ["authentication.k8s.io"], resources: ["selfsubjectreviews"], verbs: ["create"] },
  ]),
  role("system:auth-delegator", [
    { apiGroups: ["authentication.k8s.io"], resources: ["tokenreviews"], verbs: ["create"] },
    { apiGroups: ["authorization.k8s.io"], resources: ["subjectaccessreviews"], verbs: ["create"] },
  ]),
  binding("system:discovery", ["system:authenticated"]),
  binding("system:basic-user", ["system:authenticated"]),
  binding("system:public-info-viewer", ["system:authenticated", "system:unauthenticated"]),
  binding("system:service-account-issuer-discovery", ["system:serviceaccounts"]),
];

function role(name: string, rules: readonly JsonObject[]): JsonObject {
  return { apiVersion: `${group}/v1`, kind: "ClusterRole", metadata: { name }, rules };
}

function binding(name: string, groups: readonly string[]): JsonObject {
  return {
    apiVersion: `${group}/v1`,
    kind: "ClusterRoleBinding",
    metadata: { name },
    roleRef: { apiGroup: group, kind: "ClusterRole", name },
    subjects: groups.map((name) => ({ apiGroup: group, kind: "Group", name })),
  };
}
