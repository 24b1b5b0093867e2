// Takes permits of one semaphore and gives them back with several callers.
import { setTimeout as sleep } from 'node:timers/promises';
import { SemaphoreService } from 'nest-redis-lock';
import { app, count, give, id, names, note, oneIn, takePart, whole } from './part.mjs';

const [CALLERS, PERMITS, WAIT] = [8, 5, 40_000];
const [name] = names;
const semaphores = app.get(SemaphoreService);
let holds = 0;
/** The last fencing token of each grant of late: callers of this process hold a grant one after another. */
const tokens = new Map();

/** Shows until when this process trusts the permit: by then its count is inside, and not longer. */
async function show(holder, permit, begins) {
  const until = Math.floor(Date.now() + permit.remaining());
  await give('enter', ['inside'], name, holder, until, permit.count, begins);
}

/** Usually short, sometimes long enough that all permits are held at once, rarely so that it is renewed. */
function holdTime() {
  if (oneIn(400)) return whole(10, 1_500);
  return oneIn(4) ? whole(5, 30) : whole(0, 3);
}

/** Counts the permits that were passed on within this process. */
async function noteToken({ owner, fencingToken }) {
  const last = tokens.get(owner);
  tokens.set(owner, fencingToken);
  if (tokens.size > 100) tokens.delete(tokens.keys().next().value);
  if (last === undefined) return;
  await count('passed on');
  if (fencingToken <= last) await note(`token ${fencingToken} of ${owner} after ${last}`);
}

async function cycle() {
  const permits = oneIn(8) ? whole(2, PERMITS) : 1;
  const hold = holdTime();
  const started = performance.now();
  // Calls with the same options pass permits on to each other.
  const ttl = oneIn(4) ? whole(500, 1_000) : 700;
  const options = { permits: PERMITS, count: permits, wait: WAIT, ttl };
  try {
    await semaphores.withPermit(name, options, async (permit) => {
      const holder = `${id}-${(holds += 1)}:${permits}`;
      await show(holder, permit, 1);
      await noteToken(permit);
      if (hold > 0) await sleep(hold);
      if (permit.held) await show(holder, permit, 0);
      await give('leave', ['inside'], holder);
    });
  } catch (error) {
    if (error.code !== 'PERMIT_LOST') await note(`after ${Math.round(performance.now() - started)} ms: ${error.stack}`);
    await count(error.code ?? error.name);
  }
}

await takePart(Array.from({ length: CALLERS }, () => cycle));
