// By which words the agent's installer tells the CNI executable of any release of ours from everybody else's.

/** Said in the executable's help and so among its bytes, in every release. A changed one would make the old releases another's. */
export const executableMark = "Cattail's CNI IPAM plugin";
