// Calls idempotency keys that other processes call, too; some of the calls are other requests with the same key.
import { setTimeout as sleep } from 'node:timers/promises';
import { IdempotencyService } from 'nest-redis-lock';
import { app, count, FencedHold, give, names, note, oneIn, oneOf, takePart, whole, witness } from './part.mjs';

const CALLERS = 8;
const WAIT = 20_000;
const ALLOWED = new Set(['LOCK_LOST', 'LOCK_BACKEND', 'PRIMITIVE_BACKEND']);
const service = app.get(IdempotencyService);

/**
 * Usually quick, sometimes long enough for a renewal and for a standstill to hit it, and more often while an earlier
 * attempt may still run; fails now and then.
 */
async function body({ key, attempt, lock }, lease, fingerprint) {
  const run = new FencedHold(`run:${key}`, lock.fencingToken, () => lock.held);
  await run.step('began', attempt, fingerprint);
  if (oneIn(attempt > 1 ? 2 : 10)) await run.last(whole(1, lease * 1.5));
  if (oneIn(20)) throw new Error('failed');
  await run.step('ended');
  return { run: run.holder, more: oneIn(50) ? Buffer.alloc(50_000) : undefined };
}

async function call() {
  const name = oneOf(names);
  const number = (await witness.hget('numbers', name)) ?? '0';
  const key = `${name}:${number}`;
  const evidence = [`run:${key}`, 'numbers'];
  const fingerprint = oneIn(20) ? 'other' : 'usual';
  const onRunning = oneIn(4) ? 'throw' : 'wait';
  const lease = whole(500, 1_000);
  const started = performance.now();
  try {
    const options = { ttl: '10m', lease, wait: WAIT, onRunning, fingerprint };
    const { run } = await service.run(key, options, (attempt) => body(attempt, lease, fingerprint));
    await give('answered', evidence, run, name, number, fingerprint);
  } catch (error) {
    if (error.code === 'IDEMPOTENCY_CONFLICT') {
      await give('conflicted', evidence, fingerprint, name, number);
      return;
    }
    const allowed =
      ALLOWED.has(error.code) ||
      error.message === 'failed' ||
      (error.code === 'IDEMPOTENCY_RUNNING' && onRunning === 'throw') ||
      (error.code === 'IDEMPOTENCY_RESULT' && error.mayRunAgain);
    const waited = Math.round(performance.now() - started);
    if (!allowed) await note(`${key}, after ${waited} ms: ${error.stack}`);
    await count(error.code ?? error.name);
    if (error.code === 'IDEMPOTENCY_RUNNING') await sleep(5);
  }
}

await takePart(Array.from({ length: CALLERS }, () => call));
