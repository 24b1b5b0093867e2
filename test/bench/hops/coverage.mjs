import { Session } from 'node:inspector/promises';

const LIBRARY = new URL('../../../dist/', import.meta.url).href;

/**
 * The functions of the library that one call runs, by file: `Map { 'lock/lock.service.js' => ['withLock', ...] }`.
 *
 * Timers and messages may come in between: of `calls` calls, the one that ran the fewest functions counts.
 */
export async function functionsOf(call, { warmUp = 100, calls = 20 } = {}) {
  for (let done = 0; done < warmUp; done++) await call();
  const session = new Session();
  session.connect();
  try {
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    let fewest;
    for (let done = 0; done < calls; done++) {
      // Also sets all counts back to 0.
      await session.post('Profiler.takePreciseCoverage');
      await call();
      const { result } = await session.post('Profiler.takePreciseCoverage');
      const files = executedIn(result);
      if (!fewest || countOf(files) < countOf(fewest)) fewest = files;
    }
    return fewest;
  } finally {
    session.disconnect();
  }
}

export function countOf(files) {
  return [...files.values()].reduce((total, functions) => total + functions.length, 0);
}

function executedIn(scripts) {
  const files = new Map();
  for (const { url, functions } of scripts) {
    if (!url.startsWith(LIBRARY)) continue;
    const executed = functions.filter(({ ranges: [whole] }) => whole.count > 0);
    if (executed.length > 0) files.set(url.slice(LIBRARY.length), executed.map(nameOf));
  }
  return new Map([...files].toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

function nameOf({ functionName }) {
  return functionName || '(anonymous)';
}
