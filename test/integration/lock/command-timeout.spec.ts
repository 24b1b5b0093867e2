import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  DistributedLock,
  fixedDelay,
  limitedRetries,
  LockConfigError,
  memory,
  redis,
  RedisLockModule,
  type LockBackend,
  type LockOptions,
} from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { startLockApp } from '../../support/lock-app.js';

let server: RedisServer;

beforeAll(async () => (server = await startRedisServer()));
afterAll(() => server.stop());

/** A backend that never answers who asks for a lock. */
function silent(backend: LockBackend): LockBackend {
  const never = () => new Promise<never>(() => {});
  if (backend.queue) Object.assign(backend.queue, { enqueue: never });
  return Object.assign(backend, { acquire: never });
}
const silentRedis = () => silent(redis(server.url));
const silentMemory = () => silent(memory());

const SHORT = 30;
/** The time limit of the module's options, longer than any test here waits. */
const LONG = '1h';

describe('commandTimeout of a call', () => {
  const paths: [string, LockOptions, () => LockBackend][] = [
    ['in the queue of the backend', {}, silentRedis],
    ['in strict order', { order: 'fifo' }, silentRedis],
    ['with a retry strategy', { retry: limitedRetries(2, fixedDelay(1)) }, silentRedis],
    ['in memory', {}, silentMemory],
  ];

  it.each(paths)(
    'ends an unanswered try, whatever the commandTimeout of the module: %s',
    async (_, options, backend) => {
      await using instance = await startLockApp({ backend: backend(), commandTimeout: LONG });
      const { locks } = instance;
      const given = { ...options, commandTimeout: SHORT };
      const failure = { code: 'LOCK_BACKEND', message: expect.stringMatching(/no answer within \d\d ms/) };
      await expect(locks.tryAcquire('n', given)).rejects.toMatchObject(failure);
      await expect(locks.acquire('n', { ...given, wait: 50 })).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
      await expect(locks.withLock(['a', 'b'], { ...given, wait: 50 }, async () => 1)).rejects.toMatchObject({
        code: 'LOCK_BACKEND',
      });
    },
  );

  it('is taken from the defaults, as a duration, and by decorators', async () => {
    @Injectable()
    class Jobs {
      @DistributedLock('job', { wait: 0, commandTimeout: '30ms' })
      async run(): Promise<void> {}
    }
    const options = { backend: silentMemory(), commandTimeout: LONG } as const;
    const module = { module: Jobs, imports: [RedisLockModule.forRoot(options)], providers: [Jobs] };
    const decorated = await NestFactory.createApplicationContext(module, { logger: false });
    await expect(decorated.get(Jobs).run()).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
    await decorated.close();
    await using defaulted = await startLockApp({
      ...options,
      backend: silentRedis(),
      defaults: { commandTimeout: SHORT },
    });
    await expect(defaulted.locks.tryAcquire('n')).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  });

  it.each([0, -1, NaN, 'soon', Infinity])('is refused if it is invalid: %p', async (commandTimeout) => {
    await using instance = await startLockApp({ backend: memory() });
    const refused = instance.locks.acquire('n', { commandTimeout: commandTimeout as number });
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(/commandTimeout/);
  });
});
