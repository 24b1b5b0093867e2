import { setImmediate as turn } from 'node:timers/promises';
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
 * What a script answers keeps the id of its call. Returns how many there were.
 */
function insteadOf(instead: string, kinds = '*'): () => number {
  let replaced = 0;
  proxy.alterEach((reply) => {
    const id = /^\*[12]\r\n\$\d+\r\n\w{8}:\d+\r\n/.exec(reply.toString('latin1'))?.[0] ?? '';
    if (!kinds.includes(String.fromCharCode(reply[id.length] ?? 0))) return reply;
    replaced += 1;
    return Buffer.from(id.replace(/^\*1/, '*2') + instead);
  });
  return () => replaced;
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

// The reply to the first of these names is lost or doubled, so that another one than its own comes for the second.
it.each([
  ['lost', 'lock', ['busy', 'free']],
  ['lost', 'permit', ['busy', 'free']],
  ['doubled', 'lock', ['free', 'busy']],
  ['doubled', 'permit', ['free', 'busy']],
] as const)('a reply that is %s on the way grants no %s', async (how, kind, names) => {
  const take = ({ locks, app: context }: LockApp, name: string) =>
    kind === 'lock' ? locks.tryAcquire(name) : context.get(SemaphoreService).tryAcquire(name, { permits: 1 });
  const unlessFailed = (taking: ReturnType<typeof take>) => taking.catch(() => null);
  await unlessFailed(take(app, 'the script is known')).then((taken) => taken?.release());
  await using other = await startLockApp({ redis: server.url, cache: false });
  const held = await take(other, 'busy');
  const come = proxy.mixUp(how);
  proxy.hold('reply');
  const first = unlessFailed(take(app, names[0]));
  await turn();
  const second = unlessFailed(take(app, names[1]));
  await turn();
  await eventually(() => proxy.holds);
  proxy.heal();
  const taken = await Promise.all([first, second]);
  expect(taken[names.indexOf('busy')]).toBeNull();
  expect(come()).toBe(true);
  expect(held?.held).toBe(true);
  // On another connection.
  await eventually(async () =>
    unlessFailed(take(app, 'another')).then((another) => another?.release().then(() => true)),
  );
  // Nest has one logger, that of the last application.
  expect(other.logger.matching(/has lost or doubled a reply.*the connection is replaced/)).not.toHaveLength(0);
  for (const each of [...taken, held]) await each?.release();
});

// Reads alone, as where all is in the cache: no script follows that would show it.
it.each([
  ['lost', 1],
  ['doubled', 1],
  ['lost', 3],
  ['doubled', 3],
] as const)(
  'a reply that is %s on the way gives no read of %i keys at a time the values of others',
  async (how, size) => {
    const cache = app.app.get(CacheService);
    const keys = Array.from({ length: 12 }, (_, index) => `mixed:${index}`);
    for (const key of keys) await cache.set(key, `of ${key}`, { ttl: '1h' });
    const read = (some: readonly string[]) =>
      Promise.all(some.map((key) => cache.get<string>(key, { onRedisError: 'throw' }).catch(() => 'failed')));
    await read(['mixed:0', 'mixed:1', 'mixed:2']);
    proxy.hold('reply');
    const come = proxy.mixUp(how);
    const reads: Promise<(string | undefined)[]>[] = [];
    for (let begin = 0; begin < keys.length; begin += size) {
      reads.push(read(keys.slice(begin, begin + size)));
      await turn();
      await turn();
    }
    await eventually(() => proxy.holds);
    proxy.heal();
    const values = (await Promise.all(reads)).flat();
    expect(come()).toBe(true);
    expect(values.filter((value, index) => value !== `of mixed:${index}` && value !== 'failed')).toEqual([]);
    expect(values).toContain('failed');
    // On another connection.
    await eventually(async () => (await read(['mixed:7']))[0] === 'of mixed:7');
  },
);

/** Doubles the reply to the first call, so that it comes for the second one as well. */
async function twoCalls<T>(first: () => Promise<T>, second: () => Promise<T>): Promise<[T | 'failed', T | 'failed']> {
  proxy.hold('reply');
  const come = proxy.mixUp('doubled');
  const calls = [first().catch(() => 'failed' as const)];
  await turn();
  calls.push(second().catch(() => 'failed' as const));
  await turn();
  await eventually(() => proxy.holds);
  proxy.heal();
  const answers = (await Promise.all(calls)) as [T | 'failed', T | 'failed'];
  expect(come()).toBe(true);
  return answers;
}

it('a reply that is doubled on the way gives no set the members of another one', async () => {
  const { sets, expiringSet } = app.app.get(CacheService);
  for (const set of [
    (key: string) => sets.add(key, [`of ${key}`], { ttl: '1h' }),
    (key: string) => expiringSet.add(key, [key], '1h'),
  ])
    for (const key of ['one', 'two']) await set(key);
  const calls: [() => Promise<unknown>, () => Promise<unknown>, unknown, unknown][] = [
    [() => sets.members('one'), () => sets.members('two'), ['of one'], ['of two']],
    [() => sets.has('one', 'of one'), () => sets.has('two', 'of one'), true, false],
    [() => expiringSet.members('one'), () => expiringSet.members('two'), ['one'], ['two']],
    [() => sets.remove('one', 'of one'), () => sets.remove('two', 'of one'), 1, 0],
  ];
  for (const [first, second, own, other] of calls) {
    // On another connection.
    await eventually(async () =>
      second().then(
        () => true,
        () => false,
      ),
    );
    await eventually(async () =>
      first().then(
        () => true,
        () => false,
      ),
    ).then(() => sets.add('one', ['of one'], { ttl: '1h' }));
    const answers = await twoCalls(first, second);
    expect([own, 'failed']).toContainEqual(answers[0]);
    expect([other, 'failed']).toContainEqual(answers[1]);
  }
});

it('a reply that is doubled on the way gives no key the time to live of another one', async () => {
  const cache = app.app.get(CacheService);
  await cache.set('hour', 1, { ttl: '1h', jitter: 0 });
  await cache.set('minute', 1, { ttl: '1m', jitter: 0 });
  await cache.ttl('hour');
  const [, minute] = await twoCalls(
    () => cache.ttl('hour'),
    () => cache.ttl('minute'),
  );
  expect(minute === 'failed' || (minute as number) <= 60_000).toBe(true);
});
