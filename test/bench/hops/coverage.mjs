import { existsSync, readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { SourceMap } from 'node:module';
import { dirname, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const BUILD = new URL('../../../dist/', import.meta.url).href;
const LIB = fileURLToPath(new URL('../../../lib', import.meta.url));

/**
 * The functions of the library that one call runs, by their file in lib:
 * `Map { 'lock/lock.service.ts' => ['withLock', ...] }`.
 *
 * What `prepare` does is not counted; its result is given to the call.
 *
 * Timers and messages may come in between: of `calls` calls, the one that ran the fewest functions counts.
 */
export async function functionsOf(call, { prepare = async () => undefined, warmUp = 200, calls = 40 } = {}) {
  for (let done = 0; done < warmUp; done++) await call(await prepare());
  const session = new Session();
  session.connect();
  try {
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    let fewest;
    for (let done = 0; done < calls; done++) {
      const given = await prepare();
      // Also sets all counts back to 0.
      await session.post('Profiler.takePreciseCoverage');
      await call(given);
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
    if (!url.startsWith(BUILD)) continue;
    for (const { functionName, ranges } of functions) {
      if (ranges[0].count === 0) continue;
      const file = fileInLib(fileURLToPath(url), ranges[0].startOffset);
      files.set(file, [...(files.get(file) ?? []), functionName || '(anonymous)']);
    }
  }
  return new Map([...files].toSorted(([one], [other]) => (one < other ? -1 : 1)));
}

/** By path: the starts of the lines of a script, and its source map. */
const scripts = new Map();

/** @throws Error for code that no source map leads back to lib */
function fileInLib(path, offset) {
  if (!scripts.has(path)) scripts.set(path, scriptAt(path));
  const { lines, map } = scripts.get(path);
  const line = lines.findLastIndex((start) => start <= offset);
  const { originalSource } = map?.findEntry(line, offset - lines[line]) ?? {};
  const file = originalSource && relative(LIB, resolve(dirname(path), originalSource));
  if (file && !file.startsWith('..')) return file;
  throw new Error(`${path}:${line + 1} ran, and no source map leads from there to lib`);
}

function scriptAt(path) {
  const text = readFileSync(path, 'utf8');
  const lines = [0, ...Array.from(text.matchAll(/\n/g), ({ index }) => index + 1)];
  const map = existsSync(`${path}.map`) && new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')));
  return { lines, map };
}
