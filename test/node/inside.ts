// What main.ts gives the machine that it makes for a test, for those who are inside.

/** A file on the machine's own /run, so that it exists nowhere else. */
export const insideMark = "/run/cattail-test-machine";

/** Of its one interface, which leads nowhere: kubelet takes no loopback address for its node's. */
export const machineAddress = "192.0.2.1";
