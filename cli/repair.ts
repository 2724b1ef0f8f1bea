// Repairs findings one by one: each is looked at again right before its write, which is compare-and-swap. A live pod's address is never released.
// Leaves to others: what may be repaired (findings.ts) and who agreed to it (check.ts).
import { bump, holderOf, isEmpty, release } from "../shared/calico/block.ts";
import { blockPatch, readBlock, readConfig, readHandle } from "../shared/calico/codec.ts";
import { apiPath, blockName, handleName } from "../shared/calico/names.ts";
import { type ApiGroup, type Block, defaultIpamConfig, type IpamConfig } from "../shared/calico/resources.ts";
import { exitCode } from "../shared/exit-code.ts";
import { ordinalOf } from "../shared/ip/cidr.ts";
import { type Address, type BlockCidr, Failure, type HandleId } from "../shared/kinds.ts";
import type { Api } from "../shared/kube/api.ts";
import { messageOf } from "../shared/log.ts";
import type { Session } from "./command.ts";
import type { Finding } from "./findings.ts";
import { readPod } from "./pods.ts";

/** Other writers of a busy block come in between that often at most. */
const maxTries = 5;

interface Reach {
  readonly api: Api;
  readonly group: ApiGroup;
  readonly session: Session;
}

export async function repair(session: Session, findings: readonly Finding[]): Promise<number> {
  const reach = { ...(await session.sources.api()), session };
  const cluster = await session.sources.fresh("cluster");
  if (cluster.objects.find(({ name }) => name === "default")?.datastoreReady !== true) {
    session.say(
      "nothing was done: the datastore is locked (reason DatastoreLocked). Set datastoreReady in ClusterInformation default to true",
    );
    return exitCode.refused;
  }
  let failed = 0;
  for (const finding of findings) {
    const left = await outcome(reach, finding).catch((error: unknown) => messageOf(error));
    if (left !== undefined) failed += 1;
    session.say(`${finding.address ?? finding.handle}: ${left === undefined ? "repaired" : `left alone, ${left}`}`);
  }
  return failed === 0 ? exitCode.ok : exitCode.findings;
}

/** Undefined: repaired. */
async function outcome(reach: Reach, finding: Finding): Promise<string | undefined> {
  const { address, block, handle } = finding;
  if (finding.reason === "HandleOrphan" && handle !== undefined) return deleteHandle(reach, handle as HandleId);
  if (finding.reason !== "AddressLeaked" || address === undefined || block === undefined)
    return "there is no repair for it";
  for (let tries = 0; tries < maxTries; tries += 1) {
    try {
      return await releaseAddress(reach, finding, address as Address, block as BlockCidr);
    } catch (error) {
      if (!(error instanceof Failure) || error.code !== "api-conflict") throw error;
    }
  }
  return `another writer was faster ${maxTries} times`;
}

async function releaseAddress(
  { api, group, session }: Reach,
  finding: Finding,
  address: Address,
  cidr: BlockCidr,
): Promise<string | undefined> {
  const path = apiPath(group, "block", blockName(cidr));
  const block = await blockAt(api, group, path);
  const ordinal = ordinalOf(cidr, address);
  const holder = block === undefined || ordinal === undefined ? undefined : holderOf(block, ordinal);
  if (block === undefined || ordinal === undefined || holder === undefined) return "it is not held any more";
  if (holder.handle !== finding.handle || String(holder.sequence) !== finding.sequence)
    return "it has another owner by now";
  const user = await userOf(api, address, finding.pod);
  if (user !== undefined) return user;
  const now = session.clock.wall();
  const { ipCooldownSeconds: cooldownSeconds } = await configOf(api, group);
  const after = release(block, [ordinal], { now, cooldownSeconds });
  if (block.affinity === undefined && isEmpty(after)) {
    // The last one out takes a block without an owner along, as Calico does (spec 3.2).
    await api.remove(path, { uid: block.uid, resourceVersion: block.resourceVersion });
    return undefined;
  }
  await api.patch(path, blockPatch(group, block, bump(after)));
  return undefined;
}

async function blockAt(api: Api, group: ApiGroup, path: string): Promise<Block | undefined> {
  const read = readBlock(await orMissing(api.get(path)), group);
  return read.ok ? read.object : undefined;
}

/** Whoever else took the address since would have made another owner of it in the block: only this pod has to be asked after. */
async function userOf(api: Api, address: Address, pod = ""): Promise<string | undefined> {
  const [namespace, name] = pod.split("/");
  if (!namespace || !name) return "no pod is named";
  const raw = await orMissing(api.get(`/api/v1/namespaces/${namespace}/pods/${name}`));
  if (raw === undefined) return undefined;
  const read = readPod(raw);
  if (!read.ok) return `pod ${pod} cannot be read`;
  const { isFinished, addresses } = read.object;
  const mayHaveIt = !isFinished && (addresses.length === 0 || addresses.includes(address));
  return mayHaveIt ? `pod ${pod} may have it` : undefined;
}

async function configOf(api: Api, group: ApiGroup): Promise<IpamConfig> {
  const raw = await orMissing(api.get(apiPath(group, "config", "default")));
  const read = raw === undefined ? undefined : readConfig(raw, group);
  return read?.ok ? read.object : defaultIpamConfig;
}

/** With the version it was read in: whoever takes an address under it meanwhile has raised that. */
async function deleteHandle({ api, group, session }: Reach, handleId: HandleId): Promise<string | undefined> {
  const path = apiPath(group, "handle", handleName(handleId));
  const read = readHandle(await orMissing(api.get(path)), group);
  if (!read.ok) return "it is not there any more";
  const { uid, resourceVersion } = read.object;
  const blocks = await session.sources.fresh("block");
  if (blocks.unread.length > 0)
    return `block ${blocks.unread[0]?.name} cannot be read, and may hold an address under it`;
  const holds = blocks.objects.some((block) => block.attributes.some(({ handle_id }) => handle_id === handleId));
  if (holds) return "a block has an address under it by now";
  await api.remove(path, { uid, resourceVersion });
  return undefined;
}

async function orMissing(asked: Promise<unknown>): Promise<unknown> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Failure && error.code === "api-missing") return undefined;
    throw error;
  }
}
