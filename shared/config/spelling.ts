// The other two spellings of a key: `offlineLimit` is `--offline-limit` as a flag and CATTAIL_OFFLINE_LIMIT in the environment.
// Leaves to others: which keys there are (catalogue.ts).

export const variablePrefix = "CATTAIL_";

export function flagOf(key: string): string {
  return `--${words(key).join("-")}`;
}

export function variableOf(key: string): string {
  return `${variablePrefix}${words(key).join("_").toUpperCase()}`;
}

function words(key: string): string[] {
  return key.split(".").flatMap((part) => part.split(/(?=[A-Z])/).map((word) => word.toLowerCase()));
}

/**
 * The kubelet puts these into every pod for every Service of its namespace: a Service named cattail-server gives
 * CATTAIL_SERVER_SERVICE_HOST and CATTAIL_SERVER_PORT_4480_TCP. They are nobody's mistake.
 */
export function isServiceVariable(name: string): boolean {
  return /_SERVICE_(HOST|PORT)(_\w+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$/.test(name);
}
