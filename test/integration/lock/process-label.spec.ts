import { hostname } from 'node:os';
import { Redis } from 'ioredis';
import { LockKeyError, memory } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { startLockApp } from '../../support/lock-app.js';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedisServer();
});
afterAll(() => server.stop());

describe.each(['redis', 'memory'] as const)('the label of an application on %s', (kind) => {
  const shared = memory();
  const start = (label?: string, prefix?: string) =>
    startLockApp({
      ...(kind === 'redis' ? { redis: server.url } : { backend: shared }),
      ...(label !== undefined && { label }),
      ...(prefix !== undefined && { prefix }),
    });

  it('is shown for any holder, here and elsewhere', async () => {
    await using checkout = await start('checkout @ eu-1');
    await using other = await start();
    const lock = await checkout.locks.acquire('labelled');
    for (const { locks } of [checkout, other]) {
      expect(await locks.inspect('labelled')).toMatchObject({ owner: lock.owner, label: 'checkout @ eu-1' });
    }
    await expect(other.locks.release('labelled')).rejects.toThrow(`${lock.owner} (checkout @ eu-1)`);
    await expect(other.locks.release('labelled')).rejects.toBeInstanceOf(LockKeyError);
    await lock.release();
    await using _ = await other.locks.acquire('labelled');
    expect((await checkout.locks.inspect('labelled'))?.label).toBe(`${hostname()}:${process.pid}`);
  });

  it('is kept behind the prefix', async () => {
    await using one = await start('one', 'shop');
    await using two = await start('two', 'shop');
    await using _ = await one.locks.acquire('prefixed');
    expect((await two.locks.inspect('prefixed'))?.label).toBe('one');
  });
});

it('is absent for a foreign client, expires after a process that died, and is removed by one that closes', async () => {
  const plain = new Redis(server.url);
  await plain.set('lock:{foreign}', 'somebody:7', 'PX', 60_000);
  await plain.set('lock:{nameless}', 'somebody', 'PX', 60_000);
  {
    await using app = await startLockApp({ redis: server.url, label: 'mine' });
    expect(await app.locks.inspect('foreign')).not.toHaveProperty('label');
    expect(await app.locks.inspect('nameless')).not.toHaveProperty('label');
    await app.locks.withLock('own', async ({ owner }) => expect(await plain.get('lock:{own}')).toBe(owner));
    const [key = ''] = await plain.keys('*:label');
    expect(await plain.get(key)).toBe('mine');
    expect(await plain.pttl(key)).toBeGreaterThan(0);
  }
  expect(await plain.keys('*:label')).toEqual([]);
  plain.disconnect();
});

it.each([[''], [7]])('is refused when it is no text: %j', async (label) => {
  await expect(startLockApp({ backend: memory(), label: label as string })).rejects.toThrow(/"label" is .*; give/);
});
