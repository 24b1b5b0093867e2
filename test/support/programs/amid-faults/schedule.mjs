// Offers ticks of jobs at the same times as other processes do, up to a difference of their clocks.
import { setTimeout as sleep } from 'node:timers/promises';
import { ScheduledJobs } from 'nest-redis-lock';
import { app, count, FencedHold, names, note, now, oneIn, takePart, whole } from './part.mjs';

/** In ms. */
const [PERIOD, SHIFT, AT_LEAST, AT_MOST] = [60, 20, 40, 1_000];
const ALLOWED = new Set(['LOCK_LOST', 'LOCK_BACKEND']);
const jobs = app.get(ScheduledJobs);

async function tick(name) {
  await sleep(PERIOD - ((now() / 1_000) % PERIOD) + whole(0, SHIFT));
  const asked = now();
  try {
    const ran = await jobs.run(name, { atMostFor: AT_MOST, atLeastFor: AT_LEAST }, async (lock) => {
      const began = now();
      const run = new FencedHold(`job:${name}`, lock.fencingToken, () => lock.held);
      if (!(await run.step('began', asked, began, AT_LEAST * 1_000))) return true;
      if (await run.last(oneIn(60) ? whole(10, AT_MOST * 1.5) : whole(0, 3))) await run.step('ended', name);
      return true;
    });
    if (!ran) await count('skipped');
  } catch (error) {
    if (!ALLOWED.has(error.code)) await note(`${name}: ${error.stack}`);
    await count(error.code ?? error.name);
  }
}

await takePart(names.map((name) => () => tick(name)));
