// How a test knows that it is inside the machine that main.ts makes for it.

/** On the machine's own /run, so that it exists nowhere else. */
export const insideMark = "/run/cattail-test-machine";
