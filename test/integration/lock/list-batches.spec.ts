import { memory, type LockBackend } from 'nest-redis-lock';
import { startLockApp } from '../../support/lock-app.js';

it('asks for few locks of a page at once, so that the store serves others in between', async () => {
  const backend: LockBackend = memory();
  const { inspect } = backend;
  let [underWay, most] = [0, 0];
  backend.inspect = async (request) => {
    underWay += 1;
    most = Math.max(most, underWay);
    try {
      return await inspect.call(backend, request);
    } finally {
      underWay -= 1;
    }
  };
  await using app = await startLockApp({ backend });
  const names = Array.from({ length: 260 }, (_, index) => `order:${index}`);
  const held = await Promise.all(names.map((name) => app.locks.acquire(name)));
  const { locks, cursor } = await app.locks.list('*', { limit: 1_000 });
  expect(locks.map(({ key }) => key)).toEqual(names.toSorted());
  expect(cursor).toBeUndefined();
  expect(most).toBeGreaterThan(1);
  expect(most).toBeLessThanOrEqual(10);
  for (const lock of held) await lock.release();
});
