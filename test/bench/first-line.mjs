/** What went wrong, on one line: what follows are stacks and paths of this machine. */
export function firstLine(error) {
  return String(error?.message ?? error).split('\n', 1)[0];
}
