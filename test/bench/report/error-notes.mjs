/** What went wrong first, for each row with errors. */
export function errorNotes(rows) {
  return rows.flatMap(errorNote);
}

function errorNote({ name, rounds }) {
  const message = rounds.find(({ firstError }) => firstError !== undefined)?.firstError;
  return message === undefined ? [] : [`${name}, the first of its errors: ${message}`];
}
