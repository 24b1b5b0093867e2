import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { eventually } from '../../support/eventually.js';
import { openCache } from '../../support/cache-instance.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp } from '../../support/lock-app.js';

let server: RedisServer;
let admin: Redis;
beforeAll(async () => {
  server = await startRedisServer();
  admin = new Redis(server.url);
});
afterAll(async () => {
  admin.disconnect();
  await server.stop();
});

async function subscribers(): Promise<number> {
  return ((await admin.call('PUBSUB', 'CHANNELS', 'lock:process:*')) as string[]).length;
}

it('is made again on a client that does not reconnect, its loss and its return are logged once, and waiters are handed the lock', async () => {
  const clients = [1, 2].map(() => new Redis(server.url, { retryStrategy: () => null }));
  await using holder = await startLockApp({ redis: clients[0] as Redis, cache: false });
  await using waiter = await startLockApp({ redis: clients[1] as Redis, cache: false });
  const contend = async () => {
    const held = await holder.locks.acquire('hot', { order: 'fifo' });
    const waiting = waiter.locks.acquire('hot', { order: 'fifo', wait: 10_000 });
    await eventually(async () => (await holder.locks.inspect('hot'))?.waiting === 1);
    await held.release();
    await (await waiting).release();
  };
  await contend();
  const logged = /messages of the locks (do not arrive|arrive again)/;
  await eventually(async () => (await subscribers()) > 0);
  await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
  // The loggers of all applications of one process are the last one's.
  await eventually(
    () => waiter.logger.matching(logged).length > 0 && waiter.logger.details.some((line) => logged.test(line)),
  );
  const lines = waiter.logger.matching(logged);
  expect(lines.filter((line) => line.includes('do not arrive'))).toHaveLength(1);
  expect(lines[0]).toContain(`Redis at 127.0.0.1:${server.port}`);
  expect(await eventually(subscribers)).toBeGreaterThan(0);
  for (let round = 0; round < 20; round++) await contend();
  for (const client of clients) client.disconnect();
});

describe('without the permission for the channel', () => {
  it('says so once with the remedy, serves waiters all the same, and frees by force', async () => {
    await admin.call('ACL', 'SETUSER', 'mute', 'reset', 'on', '>pw', '~*', '+@all', 'resetchannels');
    const redis = { host: '127.0.0.1', port: server.port, username: 'mute', password: 'pw' };
    await using one = await startLockApp({ redis, cache: false });
    await using two = await startLockApp({ redis, cache: false });
    const held = await one.locks.acquire('muted');
    const waiting = two.locks.acquire('muted', { wait: 10_000 });
    await eventually(async () => (await one.locks.inspect('muted'))?.waiting === 1);
    expect(await two.locks.forceRelease('muted')).toBe(true);
    await (await waiting).release();
    await expect(held.release()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    const told = await eventually(() => {
      const lines = two.logger.matching(/NOPERM/);
      return lines.length > 0 && lines;
    });
    expect(told).not.toHaveLength(0);
  });
});

it('leaves no rejection unhandled when the application ends while its connection for messages subscribes again', async () => {
  const rejections: unknown[] = [];
  const remember = (reason: unknown) => rejections.push(reason);
  process.on('unhandledRejection', remember);
  const proxy = await FaultProxy.start(server.port);
  const redis = { host: '127.0.0.1', port: proxy.port };
  // A reconnect takes 50 ms, and each of its answers 50 ms more: at some of these times SUBSCRIBE is unanswered.
  for (let until = 20; until <= 300; until += 20) {
    const app = await openCache({ redis });
    proxy.slow({ reply: 50 });
    proxy.reset();
    await sleep(until);
    await app.close();
    proxy.heal();
  }
  await sleep(50);
  await proxy.stop();
  process.off('unhandledRejection', remember);
  expect(rejections).toEqual([]);
});
