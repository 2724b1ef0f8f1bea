// DELETE, of one object or of many: preconditions, finalizers, and the time that a pod is given.
// What goes down with a namespace or a definition is left to api-server.ts.
import { parseOr } from "./bodies.ts";
import { commit, commitRemoval, existing, finalizersOf, type WriteContext, type Written } from "./commits.ts";
import { asObject, asText, type JsonObject, parseJson } from "./json.ts";
import { type ObjectEntry, timestamp } from "./objects.ts";
import type { ApiRequest, ResourceTarget } from "./request.ts";
import { badRequest, conflict, Refusal } from "./status.ts";
import { collectionOf, type ResourceType } from "./types.ts";

export function deleteObject(
  context: WriteContext,
  type: ResourceType,
  target: ResourceTarget,
  request: ApiRequest,
): Written {
  const options = deleteOptions(request);
  const entry = existing(context, type, target);
  checkPreconditions(type, entry, options);
  return { code: 200, body: deleteEntry(context, type, entry, options, request), warnings: [] };
}

/** Deletes what is listed, in its order, until one refuses; the caller has selected. */
export function deleteAll(
  context: WriteContext,
  type: ResourceType,
  entries: readonly ObjectEntry[],
  request: ApiRequest,
): void {
  const options = deleteOptions(request);
  for (const entry of entries) {
    checkPreconditions(type, entry, options);
    deleteEntry(context, type, entry, options, request);
  }
}

export function checkDeletable(type: ResourceType, target: ResourceTarget): void {
  if (
    type.plural === "namespaces" &&
    type.group === "" &&
    ["default", "kube-system", "kube-public"].includes(target.name)
  ) {
    throw new Refusal(403, "Forbidden", `namespaces "${target.name}" is forbidden: this namespace may not be deleted`, {
      details: { name: target.name, kind: "namespaces" },
    });
  }
}

interface DeleteOptions {
  readonly uid: string | undefined;
  readonly resourceVersion: string | undefined;
  readonly gracePeriodSeconds: number | undefined;
}

function deleteOptions(request: ApiRequest): DeleteOptions {
  const body = request.body.trim() === "" ? {} : asObject(parseOr(request.body, (why) => badRequest(why)));
  if (body.kind !== undefined && body.kind !== "DeleteOptions") {
    throw badRequest(`no kind ${JSON.stringify(body.kind)} is registered for version "v1": expected DeleteOptions`);
  }
  const preconditions = asObject(body.preconditions);
  const grace = body.gracePeriodSeconds ?? request.query.get("gracePeriodSeconds");
  return {
    uid: asText(preconditions.uid) || undefined,
    resourceVersion: asText(preconditions.resourceVersion) || undefined,
    gracePeriodSeconds: grace === undefined || grace === null ? undefined : Number(grace),
  };
}

function checkPreconditions(type: ResourceType, entry: ObjectEntry, options: DeleteOptions): void {
  // The Kind, not the plural: these refusals are worded elsewhere in the real server.
  const subject = { name: entry.name, group: type.group, kind: type.kind };
  const { uid, resourceVersion } = options;
  if (uid !== undefined && uid !== entry.uid) {
    throw conflict(
      subject,
      `the UID in the precondition (${uid}) does not match the UID in record (${entry.uid}). The object might have been deleted and then recreated`,
    );
  }
  if (resourceVersion !== undefined && resourceVersion !== String(entry.version)) {
    throw conflict(
      subject,
      `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${entry.version}). The object might have been modified`,
    );
  }
}

function deleteEntry(
  context: WriteContext,
  type: ResourceType,
  entry: ObjectEntry,
  options: DeleteOptions,
  request: ApiRequest,
): string {
  const object = asObject(parseJson(entry.text));
  const metadata = asObject(object.metadata);
  const graceSeconds = graceOf(type, object, options);
  if (finalizersOf(object).length === 0 && graceSeconds === 0) {
    const gone = commitRemoval(context, type, lastState(context, type, object), request);
    return returnsObject.has(collectionOf(type)) ? gone.text : deletedStatus(type, entry);
  }
  const known = metadata.deletionTimestamp !== undefined;
  if (known && graceSeconds >= Number(metadata.deletionGracePeriodSeconds ?? 0)) return entry.text;
  return commit(context, type, markedForDeletion(context, type, object, graceSeconds), request).text;
}

function markedForDeletion(
  context: WriteContext,
  type: ResourceType,
  object: JsonObject,
  graceSeconds: number,
): JsonObject {
  const metadata = asObject(object.metadata);
  const generation =
    type.generation && metadata.deletionTimestamp === undefined
      ? { generation: Number(metadata.generation ?? 0) + 1 }
      : {};
  return {
    ...object,
    metadata: {
      ...metadata,
      ...generation,
      deletionTimestamp: timestamp(context.clock, graceSeconds),
      deletionGracePeriodSeconds: graceSeconds,
    },
  };
}

/** A pod says even in its last state that it was deleted; other objects just go. */
function lastState(context: WriteContext, type: ResourceType, object: JsonObject): JsonObject {
  return collectionOf(type) === "pods" ? markedForDeletion(context, type, object, 0) : object;
}

/** Only a pod that a kubelet may be running is given time. */
function graceOf(type: ResourceType, object: JsonObject, options: DeleteOptions): number {
  if (collectionOf(type) !== "pods") return 0;
  const spec = asObject(object.spec);
  const phase = asObject(object.status).phase;
  if (asText(spec.nodeName) === "" || phase === "Succeeded" || phase === "Failed") return 0;
  return options.gracePeriodSeconds ?? Number(spec.terminationGracePeriodSeconds ?? 30);
}

const returnsObject: ReadonlySet<string> = new Set(["pods", "namespaces", "serviceaccounts", "services"]);

function deletedStatus(type: ResourceType, entry: ObjectEntry): string {
  return JSON.stringify({
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Success",
    details: { name: entry.name, ...(type.group ? { group: type.group } : {}), kind: type.plural, uid: entry.uid },
  });
}
