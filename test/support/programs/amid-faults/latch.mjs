// Arrives at latches and waits for them: half of the callers arrive, so that somebody always does.
import { CountDownLatch } from 'nest-redis-lock';
import { app, count, give, names, note, now, oneIn, oneOf, stop, takePart, whole, witness } from './part.mjs';

const [ARRIVING, WAITING] = [3, 6];
const WAIT = 20_000;
const latches = app.get(CountDownLatch);

/** The present latch of a name, or the next one, which nobody has defined yet. */
async function latchOf(name, ahead) {
  const number = Number((await witness.hget('numbers', name)) ?? '0') + ahead;
  return { key: `${name}:${number}`, number, arrivals: 2 + (number % 7) };
}

async function arrive() {
  const { key, arrivals } = await latchOf(oneOf(names), 0);
  const arrival = String(whole(1, arrivals));
  try {
    await latches.define(key, { count: arrivals, ttl: '10m' });
    const certain = await give('arriving', [`latch:${key}`], arrival, now());
    const missing = await latches.countDown(key, arrival);
    await give('arrived', [`latch:${key}`], arrival, now(), arrivals - missing, certain, arrivals);
  } catch (error) {
    if (error.code !== 'PRIMITIVE_BACKEND') await note(`arrival at ${key}: ${error.stack}`);
    await count(error.code ?? error.name);
  }
}

async function pass() {
  const name = oneOf(names);
  const { key, number, arrivals } = await latchOf(name, oneIn(8) ? 1 : 0);
  const short = oneIn(4);
  const started = now();
  try {
    await latches.await(key, { wait: short ? whole(0, 20) : WAIT, signal: stop });
    await give('passed', [`latch:${key}`, 'numbers'], name, number, now(), arrivals);
  } catch (error) {
    if (stop.aborted) return;
    if (short && error.code === 'LATCH_TIMEOUT') await give('refused', [`latch:${key}`], started);
    else if (!short || error.code !== 'PRIMITIVE_BACKEND') {
      await note(`wait for ${key}, after ${(now() - started) / 1_000} ms: ${error.stack}`);
    }
  }
}

await takePart([...Array.from({ length: ARRIVING }, () => arrive), ...Array.from({ length: WAITING }, () => pass)]);
