import { firstLine } from './first-line.mjs';

/** How often each row of a scenario has its turn: once a round unless the scenario says otherwise. */
export function turnsOf(scenario, { rounds, ms }) {
  return scenario.turns?.({ rounds, ms }) ?? rounds;
}

/**
 * Runs a scenario: rounds in which every row has its turn (A B C, A B C), so that a slow spell of the machine hits all.
 * A row whose round fails takes no part in further rounds.
 *
 * Each turn begins on an empty server, unless the scenario has `open`: what that prepares for a row, in its first turn,
 * is given to all of its turns, and ended after the last.
 */
export async function runScenario(scenario, peers, context) {
  const results = scenario.rowsFor(peers).map((name) => ({ name, rounds: [] }));
  const opened = new Map();
  await context.control.empty();
  try {
    for (let turn = 1; turn <= turnsOf(scenario, context); turn++) {
      for (const result of results) {
        context.signal.throwIfAborted();
        context.onRound(`${scenario.title}: ${result.name}`);
        if (result.failure !== undefined) continue;
        try {
          result.rounds.push(await takeTurn(scenario, result.name, context, opened));
        } catch (error) {
          context.signal.throwIfAborted();
          result.failure = firstLine(error);
        }
      }
    }
  } finally {
    await Promise.all([...opened.values()].map((each) => each.end()));
  }
  return results;
}

async function takeTurn(scenario, name, context, opened) {
  if (!scenario.open) {
    await context.control.empty();
    return scenario.round(name, context);
  }
  if (!opened.has(name)) opened.set(name, await scenario.open(name, context));
  return scenario.round(name, { ...context, opened: opened.get(name) });
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
