import { CacheService, SemaphoreService } from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { RENEWED_OFTEN, renewedAgain } from '../../../support/renewals.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;
let proxy: FaultProxy;
let app: LockApp;
beforeAll(async () => {
  server = await startRedisServer();
  proxy = await FaultProxy.start(server.port);
});
afterAll(async () => {
  await proxy.stop();
  await server.stop();
});
beforeEach(async () => {
  app = await startLockApp({ redis: `redis://127.0.0.1:${proxy.port}` });
  // What is sent at the start is answered by now.
  await app.locks.withLock('start', async () => {});
});
afterEach(async () => {
  proxy.alterReplies((reply) => reply);
  await app.close();
});

/**
 * Answers `instead` of each list, or of replies of other kinds, as a proxy or a client that has mixed up the answers.
 * Returns how many there were.
 */
function insteadOf(instead: string, kinds = '*'): () => number {
  let lists = 0;
  proxy.alterReplies((reply) => {
    const parts: Buffer[] = [];
    for (let at = 0; at < reply.length;) {
      const end = endOf(reply, at);
      const isList = kinds.includes(String.fromCharCode(reply[at] ?? 0));
      if (isList) lists += 1;
      parts.push(isList ? Buffer.from(instead) : reply.subarray(at, end));
      at = end;
    }
    return Buffer.concat(parts);
  });
  return () => lists;
}

/** Where the reply ends that begins at `at`. */
function endOf(replies: Buffer, at: number): number {
  const end = replies.indexOf('\r\n', at) + 2;
  const kind = String.fromCharCode(replies[at] ?? 0);
  const length = Number(replies.toString('latin1', at + 1, end - 2));
  if (kind === '$') return length < 0 ? end : end + length + 2;
  let next = end;
  if (kind === '*') for (let element = 0; element < length; element++) next = endOf(replies, next);
  return next;
}

it.each(['+OK\r\n', '*1\r\n:5000\r\n', '*0\r\n'])('a renewal that is answered %j is sent again', async (instead) => {
  const lock = await app.locks.acquire('renewed', RENEWED_OFTEN);
  const lists = insteadOf(instead);
  await eventually(() => lists() >= 2);
  expect(lock.held).toBe(true);
  proxy.alterReplies((reply) => reply);
  await renewedAgain(lock);
  await lock.release();
});

it.each(['+OK\r\n', ':1\r\n', '*1\r\n:1\r\n'])('requests that are answered %j together fail alone', async (instead) => {
  const lists = insteadOf(instead);
  const [first, ...others] = await Promise.allSettled(['a', 'b', 'c'].map((name) => app.locks.tryAcquire(name)));
  expect(lists()).toBeGreaterThan(0);
  expect(others.map((each) => each.status === 'rejected' && (each.reason as { code: string }).code)).toEqual([
    'LOCK_BACKEND',
    'LOCK_BACKEND',
  ]);
  proxy.alterReplies((reply) => reply);
  if (first?.status === 'fulfilled') await first.value?.release();
  await app.locks.withLock(['a', 'b', 'c'], { wait: '20s' }, async () => {});
});

it.each(['*1\r\n:1\r\n', '*2\r\n:1\r\n$1\r\nx\r\n'])('%j grants no lock of several names', async (instead) => {
  insteadOf(instead);
  await expect(app.locks.tryAcquire(['one', 'two'])).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
});

it.each(['*1\r\n:1\r\n', '*3\r\n:1\r\n:7\r\n$1\r\nx\r\n'])('%j grants no permit', async (instead) => {
  insteadOf(instead);
  const taking = app.app.get(SemaphoreService).tryAcquire('few', { permits: 1 });
  await expect(taking).rejects.toMatchObject({ code: 'PRIMITIVE_BACKEND' });
});

it.each(['+OK\r\n', '*1\r\n$1\r\nx\r\n', '*2\r\n:1\r\n:2\r\n'])('%j is no answer to reads', async (instead) => {
  insteadOf(instead);
  const reading = app.app.get(CacheService).mget(['a', 'b', 'c'], { onRedisError: 'throw' });
  await expect(reading).rejects.toMatchObject({ code: 'CACHE_BACKEND' });
});

it('a number is no value: it is loaded', async () => {
  const cache = app.app.get(CacheService);
  insteadOf(':1\r\n', '_$');
  const loading = cache.getOrSet('k', () => 'loaded', { lock: false });
  expect(await loading).toBe('loaded');
});
