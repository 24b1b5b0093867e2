import { firstLine } from './first-line.mjs';

/**
 * Runs a scenario: rounds in which every row has its turn (A B C, A B C), so that a slow spell of the machine hits all.
 * A row whose round fails takes no part in further rounds.
 */
export async function runScenario(scenario, peers, context) {
  const results = scenario.rowsFor(peers).map((name) => ({ name, rounds: [] }));
  for (let round = 1; round <= context.rounds; round++) {
    for (const result of results) {
      context.signal.throwIfAborted();
      context.onRound(`${scenario.title}: ${result.name}`);
      if (result.failure !== undefined) continue;
      try {
        await context.control.empty();
        result.rounds.push(await scenario.round(result.name, context));
      } catch (error) {
        context.signal.throwIfAborted();
        result.failure = firstLine(error);
      }
    }
  }
  return results;
}

export function tableOf(scenario, results) {
  const { columns, rows, notes } = scenario.table(results);
  return {
    title: scenario.title,
    note: scenario.note,
    columns,
    rows: rows.map((cells, index) => (results[index].rounds.length > 0 ? cells : [results[index].name, 'failed'])),
    notes: [...notes, ...results.filter(({ failure }) => failure !== undefined).map(failureNote)],
  };
}

function failureNote({ name, rounds, failure }) {
  return `${name} failed in round ${rounds.length + 1}: ${failure}`;
}
