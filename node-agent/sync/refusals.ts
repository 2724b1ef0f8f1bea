// Why a server does not want us, for whoever reads the agent's log or its readiness: the server's own sentence, and what to do.
// Leaves the connection to client-shell.ts. Any port may answer: what is no sentence of a cache server is made fit to print.

/** A cache server's sentences are much shorter; something else on the port may send a whole page. */
export const maxRefusalBytes = 1024;
const maxTextChars = 512;

/** Instead of the upgrade that was asked for. */
export function handshakeRefusal(code: number, body: string, hasToken: boolean): string {
  return sentence(`${code} ${tidy(body)}`, nextAfterStatus(code, hasToken));
}

/** Close codes 4400 to 4499 are a cache server's, as HTTP's. Undefined: it is no refusal. */
export function closingRefusal(code: number, said: string): string | undefined {
  return code >= 4400 && code < 4500 ? sentence(`${code} ${tidy(said)}`, nextAfterClose(code)) : undefined;
}

/** On one line, with nothing that a terminal would obey. */
export function tidy(text: string): string {
  const plain = text
    .replace(/[\p{C}\s]+/gu, " ")
    .trim()
    .slice(0, maxTextChars);
  return plain === "" ? "without a word" : plain;
}

function sentence(said: string, next: string | undefined): string {
  return next === undefined ? said : `${said}. ${next}`;
}

const checkToken = "Check tokenFile: it must hold a ServiceAccount token that is projected for the server's audience";
const checkNode =
  "Check nodeName against the node this pod runs on (spec.nodeName), and the server's auth.agents against its ServiceAccount";
const checkServer = "Check that server leads to a cattail-server of the same release";

function nextAfterStatus(code: number, hasToken: boolean): string | undefined {
  if (code === 401) return hasToken ? checkToken : `No token was sent. ${checkToken}`;
  if (code === 403) return checkNode;
  return code === 503 || code === 429 ? undefined : checkServer; // an overload passes
}

function nextAfterClose(code: number): string | undefined {
  switch (code) {
    case 4400:
      return checkServer;
    case 4401:
      return checkToken;
    case 4403:
      return checkNode;
    case 4409:
      return "Check that one agent runs on this node, and no other with its nodeName";
    default:
      return undefined;
  }
}
