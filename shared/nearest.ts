// The valid word nearest to a mistyped one. Leaves to others: how the question "did you mean" is put.

/** Undefined if nothing resembles it: more than half of the letters would have to change. */
export function nearest(word: string, valid: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const candidate of valid) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance <= Math.max(word.length, candidate.length) / 2 && distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

/** "Did you mean …?" as the last sentence of an error, or nothing. */
export function suggestion(word: string, valid: Iterable<string>): string {
  const guess = nearest(word, valid);
  return guess === undefined ? "" : ` Did you mean "${guess}"?`;
}

/** Letters inserted, left out or replaced, two swapped neighbours counting once (optimal string alignment). */
function editDistance(from: string, to: string): number {
  let twoAgo: number[] = [];
  let above = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= to.length; column += 1) {
      const same = from[row - 1] === to[column - 1];
      let cost = Math.min(at(above, column) + 1, at(current, column - 1) + 1, at(above, column - 1) + (same ? 0 : 1));
      const swapped = row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1];
      if (swapped) cost = Math.min(cost, at(twoAgo, column - 2) + 1);
      current.push(cost);
    }
    twoAgo = above;
    above = current;
  }
  return at(above, to.length);
}

function at(row: readonly number[], column: number): number {
  return row[column] ?? Number.POSITIVE_INFINITY;
}
