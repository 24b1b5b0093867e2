// Calls idempotency keys that other processes call, too, and gives evidence of each run and answer (see
// test/faults/duplicates/run-evidence.ts). SIGTERM ends the calls, and then the process by itself.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { IdempotencyService } from 'nest-redis-lock';
import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';
import { say, startLockApp } from './lock-app.mjs';

const CALLERS = 8;
const WAIT = 20_000;
/** The answers of a key before the next one is used. */
const ANSWERS = 10;
const ALLOWED = new Set(['LOCK_LOST', 'LOCK_BACKEND', 'PRIMITIVE_BACKEND']);

const { seed, names, lease, evidence } = JSON.parse(process.argv[3]);
const witness = new Redis({ host: '127.0.0.1', port: evidence.port, retryStrategy: null });
// The parent process is gone.
const orphaned = () => process.exit(3);
witness.on('error', () => {}).on('close', orphaned);
const { app } = await startLockApp({}, { shutdownHooks: false });
const service = app.get(IdempotencyService);
const random = xoroshiro128plus(seed);
const whole = (least, most) => uniformInt(random, least, most);

async function give(script, keys, ...args) {
  return witness.evalsha(evidence.scripts[script], 2 + keys.length, 'tally', 'findings', ...keys, ...args);
}

/** Tells of one step of a run. Only a run whose lock is lost may come too late. */
async function step(script, { key, attempt, lock }, token, run) {
  const before = lock.held;
  const accepted = await give(script, [`run:${key}`], token, run, attempt);
  if (accepted === 1) return;
  if (before && lock.held) await give('note', [], `${key}, attempt ${attempt}: overtaken while it held its lock`);
  await witness.hincrby('tally', 'overtaken', 1);
}

/** Usually quick, sometimes long enough for a renewal and for a standstill to hit it; fails now and then. */
async function body(attempt) {
  const { lock } = attempt;
  const [run, token] = [randomUUID(), lock.fencingToken];
  await step('began', attempt, token, run);
  if (whole(1, 10) === 1) await sleep(whole(1, lease * 1.5));
  if (whole(1, 20) === 1) throw new Error('failed');
  await step('ended', attempt, token, run);
  return { run, more: whole(1, 50) === 1 ? Buffer.alloc(50_000) : undefined };
}

async function call() {
  const name = names[whole(0, names.length - 1)];
  const number = (await witness.hget('numbers', name)) ?? '0';
  const key = `${name}:${number}`;
  const onRunning = whole(1, 4) === 1 ? 'throw' : 'wait';
  const started = performance.now();
  try {
    const { run } = await service.run(key, { ttl: '1h', lease, wait: WAIT, onRunning, fingerprint: key }, body);
    await give('answered', [`run:${key}`, 'numbers'], run, name, number, ANSWERS);
  } catch (error) {
    const allowed =
      ALLOWED.has(error.code) ||
      error.message === 'failed' ||
      (error.code === 'IDEMPOTENCY_RUNNING' && onRunning === 'throw') ||
      (error.code === 'IDEMPOTENCY_RESULT' && error.mayRunAgain);
    const waited = Math.round(performance.now() - started);
    if (!allowed) await give('note', [], `${key}, after ${waited} ms: ${error.stack}`);
    await witness.hincrby('tally', error.code ?? error.name, 1);
    if (error.code === 'IDEMPOTENCY_RUNNING') await sleep(5);
  }
}

const stop = new AbortController();
async function calls() {
  while (!stop.signal.aborted) await call();
}
say('ready');
const ended = Promise.all(Array.from({ length: CALLERS }, calls));
await once(process, 'SIGTERM');
stop.abort();
await ended;
await app.close();
witness.off('close', orphaned).disconnect();
say('drained');
