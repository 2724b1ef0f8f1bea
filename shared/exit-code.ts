// How an executable says what became of it (ux 9).
export const exitCode = {
  ok: 0,
  findings: 1,
  usage: 2,
  unreachable: 3,
  forbidden: 4,
  timeout: 5,
  refused: 6,
  bug: 70,
} as const;
