// Whether a lock of another library and ours, on one Redis, exclude each other.
import assert from 'node:assert/strict';
import { LockService } from 'nest-redis-lock';
import { connect, startWith } from './kit.mjs';

const locks = (await startWith({})).get(LockService);
export const redis = connect();

/** `take` takes their lock that stands for ours of the name `a`, and answers how to release it. It rejects if busy. */
export async function expectExclusion(take) {
  const release = await take();
  assert.equal(await locks.tryAcquire('a'), null, 'theirs keeps ours out');
  await release();
  const ours = await locks.acquire('a', { wait: '10s' });
  await assert.rejects(take(), undefined, 'ours keeps theirs out');
  await ours.release();
  await (
    await take()
  )();
}
