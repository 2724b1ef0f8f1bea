// What is to be done about a file of ours on the host, by what was found in its place: put there, put back, or taken away again.
// Leaves to others: looking and doing (installer-shell.ts, exchange-shell.ts).
import { impossible } from "../../shared/kinds.ts";

export type Found =
  | "nothing"
  /** Nothing, and nothing may be put there: a network configuration is changed, never made. */
  | "no-place"
  | "current"
  /** Ours, but of another release, cut off, or not executable. */
  | "outdated"
  | "another's";

export type Plan =
  | { readonly kind: "leave" }
  /** `isRepair`: ours had been there before. */
  | { readonly kind: "put"; readonly keepsOriginal: boolean; readonly isRepair: boolean };

/** What is another's replaces the backup as well: it is what Calico's installer has brought since. Ours never does. */
export function planToPut(found: Found, wasOurs: boolean): Plan {
  switch (found) {
    case "current":
    case "no-place":
      return { kind: "leave" };
    case "outdated":
      return { kind: "put", keepsOriginal: false, isRepair: false };
    case "nothing":
      return { kind: "put", keepsOriginal: false, isRepair: wasOurs };
    case "another's":
      return { kind: "put", keepsOriginal: true, isRepair: wasOurs };
    default:
      return impossible(found);
  }
}

export type WayBack = "nothing" | "restore-backup" | "remove-ours" | "remove-backup";

export function planToRestore(found: Found, hasBackup: boolean): WayBack {
  switch (found) {
    case "current":
    case "outdated":
      return hasBackup ? "restore-backup" : "remove-ours";
    case "nothing":
      return hasBackup ? "restore-backup" : "nothing";
    case "another's": // newer than the backup, and already where it belongs
    case "no-place":
      return hasBackup ? "remove-backup" : "nothing";
    default:
      return impossible(found);
  }
}
