import { setTimeout as sleep } from 'node:timers/promises';
import { microseconds } from '../../clock.mjs';
import { firstLine } from '../../first-line.mjs';
import { WaitRecorder } from '../../waits.mjs';
import { NEW, rowOf, TTL } from '../rows.mjs';
import { HangError, within } from '../within.mjs';

/** At one moment, by the clock of the machine, all callers want one key that is not there. */
export async function stampede(cache, { key, callers, loaderMs, at, patience }) {
  const figures = { loads: 0, errors: 0, hangs: 0, firstError: undefined };
  const recorder = new WaitRecorder();
  const loader = async () => {
    figures.loads += 1;
    await sleep(loaderMs);
    return rowOf('hot', NEW);
  };
  await sleep(Math.max(0, (at - microseconds()) / 1_000));
  const call = async () => {
    const begin = microseconds();
    try {
      const row = await within(patience, cache.getOrSet(key, loader, { ttl: TTL }));
      if (row?.id !== 'hot') throw new Error(`the answer was ${JSON.stringify(row)}`);
      recorder.record(microseconds() - begin);
    } catch (error) {
      figures[error instanceof HangError ? 'hangs' : 'errors'] += 1;
      figures.firstError ??= firstLine(error);
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  return { ...figures, waits: recorder.encoded() };
}
