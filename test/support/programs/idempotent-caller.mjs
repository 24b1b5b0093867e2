// Calls one idempotency key `calls` times at once, and tells each run of the method and the answers.
// Arguments: port, key, calls, lease in ms, and what the method does: "quick", "hang", or "freeze" (it ends at SIGUSR2,
// which a process that stands still gets as soon as it goes on).
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { IdempotencyService } from 'nest-redis-lock';
import { say, startLockApp } from './lock-app.mjs';

const [, , , key, calls, lease, how] = process.argv;
// Of 1,000 calls at once, the first answers may be late on a busy machine.
const { app } = await startLockApp({ commandTimeout: 10_000 });
const service = app.get(IdempotencyService);

async function body({ attempt }) {
  const result = { id: randomUUID(), attempt };
  say('ran', result);
  if (how === 'quick') await sleep(100);
  if (how === 'hang') await sleep(600_000);
  if (how === 'freeze') await once(process, 'SIGUSR2');
  return result;
}

const options = { lease: Number(lease), wait: 60_000 };
const settled = await Promise.allSettled(Array.from({ length: Number(calls) }, () => service.run(key, options, body)));
const answers = new Map();
for (const { status, value, reason } of settled) {
  const answer = status === 'fulfilled' ? JSON.stringify(value) : reason.name;
  answers.set(answer, (answers.get(answer) ?? 0) + 1);
}
say('answered', [...answers]);
await app.close();
