import { Redis } from 'ioredis';
import { redis } from 'nest-redis-lock';
import { RedisLink } from '../../../../lib/backends/redis/connection/redis-link.js';
import { RedisPrimitiveChannel } from '../../../../lib/backends/redis/primitives/redis-primitive-channel.js';
import type {
  AcquirePermitsAnswer,
  PermitReleaseAnswer,
  PermitsGranted,
  PrimitiveStoreProvider,
  PrimitiveStores,
} from '../../../../lib/contracts/primitive-stores.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { server, startRedis } from '../../../support/one-redis.js';

startRedis();

it('tells those who wait the last token, keeps leases, and frees what reaches nobody', async () => {
  const backend = redis(server.url);
  const stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  const { semaphores, latches } = stores;
  const admin = new Redis(server.url);
  const acquire = (ticket: string) =>
    semaphores.acquire({ name: 'name', ticket, count: 1, permits: 1, ttl: 60_000, queues: true });
  try {
    const granted = await acquire('holder:1');
    const { fencingToken, tokens } = granted as PermitsGranted;
    const lastToken = fencingToken + tokens - 1;
    expect(tokens).toBeGreaterThan(1);
    expect(await acquire('deaf:1')).toMatchObject({ status: 'busy', lastToken });
    const waiters = [{ ticket: 'deaf:1', count: 1 }];
    const beat = await semaphores.beat({ name: 'name', process: 'deaf', permits: 1, waiters });
    expect(beat).toMatchObject({ states: [{ status: 'waiting' }], lastToken });
    const renewal = { name: 'name', ticket: 'holder:1', count: 1, ttl: 1_000 };
    expect(await semaphores.renew(renewal)).toBeGreaterThan(30_000);
    expect(await semaphores.release({ name: 'name', ticket: 'holder:1', count: 1 })).toMatchObject({ live: true });
    // No process listens to the message for the waiter.
    expect(await semaphores.use('name')).toEqual({ permits: 1, taken: 0 });
    await latches.define({ name: 'name', count: 2, ttl: 60_000 });
    await latches.arrive({ name: 'name', arrival: 'one' });
    await latches.look('name', 'process');
    const keys = await admin.keys('*');
    expect(keys.filter((key) => key.startsWith('latch:'))).toHaveLength(3);
    for (const key of keys) expect([key, await admin.pttl(key)]).not.toEqual([key, -1]);
  } finally {
    admin.disconnect();
    await stores.close();
    await backend.close();
  }
});

it('looks at few of the waiters of a dead process at a time, and drops them in the end', async () => {
  const backend = redis(server.url);
  const stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  const { semaphores } = stores;
  const admin = new Redis(server.url);
  const acquire = (ticket: string) =>
    semaphores.acquire({ name: 'dead', ticket, count: 1, permits: 1, ttl: 60_000, queues: true });
  const beat = async () => {
    const waiters = [{ ticket: 'alive:1', count: 1 }];
    const { states } = await semaphores.beat({ name: 'dead', process: 'alive', permits: 1, waiters });
    return states[0]?.status;
  };
  const heardOfLast = async (ms: number) => {
    const [seconds] = await admin.time();
    await admin.zadd('semaphore:{dead}:processes', 'XX', String(2 * (Number(seconds) * 1_000 - ms)), 'dead');
  };
  const reads = async () => {
    const stats = await admin.info('commandstats');
    const calls = Array.from(stats.matchAll(/cmdstat_z(?:range|score):calls=(\d+)/g), ([, count]) => Number(count));
    return calls.reduce((sum, each) => sum + each, 0);
  };
  try {
    await acquire('holder:1');
    await Promise.all(Array.from({ length: 3_500 }, (_, number) => acquire(`dead:${number}`)));
    await acquire('alive:1');
    await heardOfLast(2_000);
    const before = await reads();
    await semaphores.release({ name: 'dead', ticket: 'holder:1', count: 1 });
    expect((await reads()) - before).toBeLessThan(100);
    expect(await beat()).toBe('waiting');
    await heardOfLast(10_000);
    const statuses: unknown[] = [];
    for (let time = 1; time <= 4; time++) statuses.push(await beat());
    expect(statuses).toEqual(['waiting', 'waiting', 'waiting', 'granted']);
    expect(await admin.zcard('semaphore:{dead}:queue')).toBe(0);
  } finally {
    admin.disconnect();
    await stores.close();
    await backend.close();
  }
});

describe('the permits of a semaphore at Redis', () => {
  let admin: Redis;
  let backend: ReturnType<typeof redis>;
  let stores: PrimitiveStores;
  beforeAll(() => {
    admin = new Redis(server.url);
    backend = redis(server.url);
    stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  });
  afterAll(async () => {
    admin.disconnect();
    await stores.close();
    await backend.close();
  });
  const request = (name: string, ticket: string, { permits = 5, ttl = 60_000, count = 1, queues = true } = {}) =>
    new Promise<AcquirePermitsAnswer>((resolve, reject) => {
      stores.semaphores.acquire({ name, ticket, count, permits, ttl, queues }).then(resolve, reject);
    });
  const release = (name: string, ticket: string) =>
    new Promise<PermitReleaseAnswer>((resolve, reject) => {
      stores.semaphores.release({ name, ticket, count: 1 }).then(resolve, reject);
    });
  const runs = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1]);

  it('are kept for the longest of their leases, also when the last one was given back meanwhile', async () => {
    await request('kept', 'a:1', { ttl: 1_000 });
    await request('kept', 'a:2', { ttl: 3_600_000 });
    expect(await admin.pttl('semaphore:{kept}')).toBeGreaterThan(3_590_000);
    await release('kept', 'a:1');
    await release('kept', 'a:2');
    expect(await admin.exists('semaphore:{kept}')).toBe(0);
    await request('kept', 'a:3', { ttl: 1_000 });
    expect(await admin.pttl('semaphore:{kept}')).toBeGreaterThan(900);
    await request('kept', 'a:4', { ttl: 7_200_000 });
    expect(await admin.pttl('semaphore:{kept}')).toBeGreaterThan(7_190_000);
    await admin.del('semaphore:{kept}:state');
    await request('kept', 'a:5', { ttl: 1_000 });
    expect(await admin.pttl('semaphore:{kept}')).toBeGreaterThan(7_190_000);
    expect(await admin.pttl('semaphore:{kept}:state')).toBeGreaterThan(1_000);
  });

  it('are waited for in a queue that expires, also when it is made anew right after a heartbeat', async () => {
    await request('anew', 'a:1', { permits: 1 });
    await request('anew', 'b:1', { permits: 1 });
    await release('anew', 'b:1');
    expect(await admin.exists('semaphore:{anew}:queue')).toBe(0);
    await request('anew', 'b:2', { permits: 1 });
    expect(await admin.pttl('semaphore:{anew}:queue')).toBeGreaterThan(10_000);
  });

  it('are refused by a server without memory, which still renews them and takes them back', async () => {
    await request('full', 'a:1', { permits: 2 });
    await admin.config('SET', 'maxmemory', '1');
    try {
      await expect(request('full', 'b:1', { permits: 2 })).rejects.toThrow('OOM');
      const renewal = { name: 'full', ticket: 'a:1', count: 1, ttl: 600_000 };
      expect(await stores.semaphores.renew(renewal)).toBe(600_000);
      expect(await release('full', 'a:1')).toMatchObject({ live: true });
    } finally {
      await admin.config('SET', 'maxmemory', '0');
    }
  });

  it('whose leases have ended are not counted, belong to nobody, and are removed by the next call', async () => {
    await request('ended', 'a:1', { permits: 2 });
    await admin.zadd('semaphore:{ended}', 1, 'dead:1:1', 1, 'dead:2:1', 1, 'dead:3:1');
    expect(await stores.semaphores.use('ended')).toEqual({ permits: 2, taken: 1 });
    // All but the first in one run. The lease of one who asks again has ended, too.
    const asking = ['first', 'dead:1', 'b:1', 'b:2'].map((ticket) =>
      request(ticket === 'first' ? 'other' : 'ended', ticket, { permits: 2 }),
    );
    const answers = (await Promise.all(asking)).slice(1);
    expect(answers.map(({ status }) => status)).toEqual(['granted', 'busy', 'busy']);
    expect(answers[1]).toMatchObject({ nextEnd: expect.any(Number) as unknown });
    expect(await release('ended', 'dead:2')).toMatchObject({ live: false });
    expect(await admin.zrange('semaphore:{ended}', '0', '-1')).toEqual(['a:1:1', 'dead:1:1']);
  });

  it('that many calls of one run take have tokens that rise, also over runs, and are never too many', async () => {
    const tokens: number[] = [];
    let last = 0;
    for (let run = 0; run < 20; run++) {
      const tickets = Array.from({ length: 12 }, (_, index) => `a:${100 * run + index}`);
      const answers = await Promise.all(
        tickets.map((ticket) => request('many', ticket, { permits: 5, queues: false })),
      );
      const granted = answers.filter((answer) => answer.status === 'granted');
      expect(granted).toHaveLength(5);
      tokens.push(...granted.map(({ fencingToken }) => fencingToken));
      // Each grant has a range to itself.
      for (const grant of granted) {
        expect(grant.fencingToken).toBeGreaterThan(last);
        last = grant.fencingToken + grant.tokens - 1;
      }
      await Promise.all(tickets.map((ticket) => release('many', ticket)));
    }
    expect(tokens).toEqual([...new Set(tokens)].toSorted((one, other) => one - other));
  });

  it('are taken and given back in one run, of several semaphores, as if one call came after the other', async () => {
    for (const ticket of ['a:1', 'a:2']) await request('mixed', ticket, { permits: 1 });
    await request('beside', 'b:1', { permits: 1 });
    const before = await runs();
    const answers = await Promise.all([
      request('alone', 'a:9', { permits: 1 }),
      // The last one of the queue leaves it, and another one enters.
      release('mixed', 'a:2'),
      request('mixed', 'a:3', { permits: 1 }),
      release('beside', 'b:1'),
      request('beside', 'b:2', { permits: 1 }),
      // The permit goes to the one that entered the queue in this run.
      release('mixed', 'a:1'),
      request('mixed', 'a:4', { permits: 1 }),
      request('mixed', 'a:5', { permits: 1 }),
    ]);
    expect((await runs()) - before).toBe(2);
    const outcomes = answers.map((answer) => ('status' in answer ? answer.status : answer.live));
    expect(outcomes).toEqual(['granted', false, 'busy', true, 'granted', true, 'busy', 'busy']);
    expect(await admin.zrange('semaphore:{mixed}', '0', '-1')).toEqual(['a:3:1']);
    expect(await admin.zrange('semaphore:{mixed}:queue', '0', '-1')).toEqual(['a:4:1', 'a:5:1']);
    expect(await admin.zrange('semaphore:{beside}', '0', '-1')).toEqual(['b:2:1']);
  });

  it('that were given back before are not counted as taken, though other requests are under way', async () => {
    await request('used', 'a:1', { permits: 2 });
    const busy = request('other', 'a:2');
    const released = release('used', 'a:1');
    expect(await stores.semaphores.use('used')).toEqual({ permits: 2, taken: 0 });
    await Promise.all([busy, released]);
  });

  it('of one semaphore stay right where the call before, in the same run, has failed', async () => {
    await admin.set('semaphore:{broken}:queue', 'no queue');
    const requests = [
      request('fine', 'a:1', { permits: 1 }),
      request('broken', 'a:2'),
      request('fine', 'a:3', { permits: 1 }),
    ];
    const outcomes = await Promise.allSettled([request('first', 'a:0'), ...requests]);
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
    expect(outcomes[3]).toMatchObject({ value: { status: 'busy' } });
  });

  it('reach those who wait behind something else in the queue', async () => {
    await request('foreign', 'a:1', { permits: 1 });
    await admin.zadd('semaphore:{foreign}:queue', 0, 'no ticket');
    await request('foreign', 'b:1', { permits: 1 });
    await release('foreign', 'a:1');
    const waiters = [{ ticket: 'b:1', count: 1 }];
    const beat = stores.semaphores.beat({ name: 'foreign', process: 'b', permits: 1, waiters });
    expect(await beat).toMatchObject({ states: [{ status: 'granted' }] });
  });

  it('are granted with one token by the message of an earlier version, which reserves no more', async () => {
    const grants: unknown[] = [];
    stores.semaphores.listen({
      process: 'told',
      onGrant: (...grant) => void grants.push(grant),
      onConnected: () => {},
    });
    const told = async (text: string) => {
      await eventually(async () => (await admin.publish('primitive:process:told', text)) > 0);
      return eventually(() => grants.pop());
    };
    const grant = { fencingToken: 7, remaining: 2_000 };
    expect(await told('semaphore told:1:1 7 2000')).toEqual(['told:1', { ...grant, tokens: 1 }]);
    expect(await told('semaphore told:1:1 7 2000 32')).toEqual(['told:1', { ...grant, tokens: 32 }]);
    stores.semaphores.unlisten('told');
  });

  it('are granted to waiters of the process that gives one back by the answer, to others by a message', async () => {
    const grants: unknown[] = [];
    stores.semaphores.listen({
      process: 'own',
      onGrant: (ticket, { fencingToken, remaining }) => grants.push([ticket, fencingToken > 0, remaining]),
      onConnected: () => {},
    });
    for (const ticket of ['own:1', 'own:2', 'deaf:1', 'own:3']) await request('answered', ticket, { permits: 1 });
    // As if no message had reached the process.
    const [seconds] = await admin.time();
    await admin.zadd('semaphore:{answered}:processes', 'XX', String(2 * Number(seconds) * 1_000 + 1), 'own');
    expect(await release('answered', 'own:1')).toMatchObject({ live: true });
    expect(grants).toEqual([['own:2', true, 2_000]]);
    // The one who waits before the last of its own has no process that a message would reach.
    expect(await release('answered', 'own:2')).toMatchObject({ live: true });
    expect(grants[1]).toEqual(['own:3', true, 2_000]);
    expect(await admin.zrange('semaphore:{answered}:queue', '0', '-1')).toEqual(['deaf:1:1']);
    // A second copy of the request tells of no grant again.
    expect(await release('answered', 'own:2')).toMatchObject({ live: false });
    expect(grants).toHaveLength(2);
    stores.semaphores.unlisten('own');
  });
});

it('a request that is sent again does not shorten the claim that its first copy was granted by message', async () => {
  const backend = redis(server.url);
  const stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  const { semaphores } = stores;
  const told: string[] = [];
  semaphores.listen({ process: 'twice', onGrant: (ticket) => told.push(ticket), onConnected() {} });
  const acquire = (ticket: string, ttl = 200) =>
    semaphores.acquire({ name: 'twice', ticket, count: 1, permits: 2, ttl, queues: true });
  const admin = new Redis(server.url);
  const lease = async () => {
    const [, end] = await admin.zrange('semaphore:{twice}', '0', '-1', 'WITHSCORES');
    return Number(end) - Date.now();
  };
  try {
    for (const holder of ['holder:1', 'holder:2']) await acquire(holder, 60_000);
    await eventually(async () => ((await admin.pubsub('CHANNELS')) as string[]).length > 0);
    expect(await acquire('twice:1')).toMatchObject({ status: 'busy' });
    for (const ticket of ['holder:1', 'holder:2']) await semaphores.release({ name: 'twice', ticket, count: 1 });
    await eventually(() => told.length === 1);
    expect(await lease()).toBeGreaterThan(1_000);
    expect(await acquire('twice:1')).toMatchObject({ status: 'granted' });
    expect(await lease()).toBeGreaterThan(1_000);
  } finally {
    admin.disconnect();
    await stores.close();
    await backend.close();
  }
});

it('a semaphore that has lost its state counts on from the least token, also for those who wait', async () => {
  const backend = redis(server.url);
  const stores = (backend as typeof backend & PrimitiveStoreProvider).openPrimitiveStores(undefined);
  const { semaphores } = stores;
  const admin = new Redis(server.url);
  const acquire = (ticket: string, leastToken?: number) =>
    semaphores.acquire({
      name: 'lost',
      ticket,
      count: 1,
      permits: 1,
      ttl: 60_000,
      queues: true,
      ...(leastToken !== undefined && { leastToken }),
    });
  const seen = 2 * Date.now() * 1_000;
  try {
    expect(await acquire('holder:1')).toMatchObject({ status: 'granted' });
    expect(await acquire('waiter:1', seen)).toMatchObject({ status: 'busy', lastToken: seen - 1 });
    await semaphores.release({ name: 'lost', ticket: 'holder:1', count: 1 });
    const waiters = [{ ticket: 'waiter:1', count: 1 }];
    const { states } = await semaphores.beat({ name: 'lost', process: 'waiter', permits: 1, waiters });
    expect((states[0] as PermitsGranted).fencingToken).toBeGreaterThanOrEqual(seen);
    await admin.flushall();
    const { fencingToken } = (await acquire('holder:2', 2 * seen)) as PermitsGranted;
    expect(fencingToken).toBeGreaterThanOrEqual(2 * seen);
    for (const key of await admin.keys('*')) expect([key, await admin.pttl(key)]).not.toEqual([key, -1]);
  } finally {
    admin.disconnect();
    await stores.close();
    await backend.close();
  }
});

it('delivers to a listener that came while the connection was being made', async () => {
  const link = new RedisLink(server.url, { name: 'redis', ConfigError: Error });
  const admin = new Redis(server.url);
  const heartbeats = new Gate();
  const command = link.scripts.command.bind(link.scripts);
  link.scripts.command = async (use) => {
    await heartbeats.opened;
    return command(use);
  };
  const channel = new RedisPrimitiveChannel(link, 'test:');
  const messages: string[] = [];
  const connected: string[] = [];
  const listener = (name: string) => ({
    onMessage: (text: string) => void messages.push(`${name} ${text}`),
    onConnected: () => void connected.push(name),
  });
  try {
    channel.listen('semaphore', 'one', listener('one'));
    await eventually(async () => ((await admin.call('PUBSUB', 'CHANNELS', 'test:one')) as string[]).length === 1);
    channel.listen('latch', 'two', listener('two'));
    heartbeats.open();
    await eventually(() => connected.includes('one') && connected.includes('two'));
    expect(await admin.publish('test:two', 'semaphore x')).toBe(1);
    expect(await admin.publish('test:two', 'latch y')).toBe(1);
    await eventually(() => messages.length > 0);
    expect(messages).toEqual(['two y']);
  } finally {
    channel.close();
    link.close();
    admin.disconnect();
  }
});
