import type { LockBackend } from 'nest-redis-lock';
import { memory } from '../../lib/backends/memory/memory-lock-backend.js';
import { MemoryRateLimitStore } from '../../lib/backends/memory/memory-primitives.js';
import { IdempotencyService } from '../../lib/primitives/idempotency/idempotency.service.js';
import { CountDownLatch } from '../../lib/primitives/latch/count-down-latch.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { RateLimiter } from '../../lib/primitives/rate-limit/rate-limiter.js';
import { SemaphoreService } from '../../lib/primitives/semaphore/semaphore.service.js';
import { startLockServices } from '../support/lock-services.js';

/** A backend that keeps locks and nothing else. */
function locksAlone(): LockBackend {
  const inner = memory();
  return {
    name: 'a table',
    traits: inner.traits,
    acquire: (request) => inner.acquire(request),
    renew: (requests) => inner.renew(requests),
    release: (request) => inner.release(request),
    mint: (request) => inner.mint(request),
    inspect: (request) => inner.inspect(request),
    ping: () => inner.ping(),
    close: () => inner.close(),
  };
}

it('refuses what needs a store of its own on a backend that keeps locks alone, and names the remedy', async () => {
  await using app = await startLockServices({ backend: locksAlone(), backends: { memory: memory() } });
  const runtime = new PrimitiveRuntime(app.backends);
  const [semaphores, latches] = [new SemaphoreService(runtime), new CountDownLatch(runtime)];
  const limiter = new RateLimiter(runtime, () => new MemoryRateLimitStore());
  const once = new IdempotencyService(runtime, app.locks);
  const remedy = 'and "a table" does not; give RedisLockModule the option "redis" or "backend: memory()"';
  const refusal = (primitive: string) => ({
    code: 'PRIMITIVE_CONFIG',
    message: expect.stringContaining(`${primitive} need a backend that keeps them, ${remedy}`),
  });
  await expect(semaphores.acquire('a', { permits: 1 })).rejects.toMatchObject(refusal('Semaphores'));
  await expect(semaphores.available('a')).rejects.toMatchObject(refusal('Semaphores'));
  await expect(latches.define('a', { count: 1, ttl: '1m' })).rejects.toMatchObject(refusal('Latches'));
  await expect(latches.await('a')).rejects.toMatchObject(refusal('Latches'));
  for (const onFailure of ['open', 'closed', 'local'] as const) {
    const taken = limiter.take('a', { limit: 1, per: '1s', onFailure });
    await expect(taken).rejects.toMatchObject(refusal('Rate limits'));
    const counted = limiter.throttlerStorage({ onFailure }).increment('a', 1_000, 1, 1_000, 'default');
    await expect(counted).rejects.toMatchObject(refusal('Rate limits'));
  }
  let ran = false;
  const body = async () => void (ran = true);
  await expect(once.run('a', { ttl: '1m' }, body)).rejects.toMatchObject(refusal('Idempotent methods'));
  expect(ran).toBe(false);
  const named = { backend: 'memory' };
  expect(await limiter.take('a', { limit: 1, per: '1s', ...named })).toMatchObject({ decidedBy: 'store' });
  await once.run('a', { ttl: '1m', ...named }, body);
  expect(ran).toBe(true);
  expect(await semaphores.available('a', { permits: 2, backend: 'memory' })).toBe(2);
  await expect(semaphores.acquire('a', { permits: 1, backend: 'none' })).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
});
