import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { TokenRange } from 'nest-redis-lock/backend';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { startLockApp } from '../../../support/lock-app.js';
import {
  expire,
  foreign,
  leaseLeft,
  name,
  owner,
  ownerAndWaiter,
  peer,
  plain,
  queued,
  server,
  startQueueOnRedis,
  unreachable,
  waiters,
} from '../../../support/queue-on-redis.js';
import { asBusy, asGranted, CLAIM, QueuePeer, TTL } from '../../../support/queue-peer.js';

startQueueOnRedis();

describe('RELEASE', () => {
  it('whose late copy runs does not free a later owner of the same process (R1)', async () => {
    const a = await peer();
    const [a1, a2] = [a.ticket(), a.ticket()];
    await a.enqueue(name, a1);
    await a.release(name, a1);
    await a.enqueue(name, a2);
    expect(await a.release(name, a1)).toMatchObject({ status: 'taken' });
    expect(await owner()).toBe(a2);
  });

  it('of another ticket frees nothing, even if tickets wait', async () => {
    const { a1, b, b1 } = await ownerAndWaiter();
    expect(await b.release(name, b.ticket())).toMatchObject({ status: 'taken' });
    expect(await owner()).toBe(b1);
    expect(await queued()).toEqual([a1]);
  });

  it('of a waiting ticket takes it out of the queue, and no other', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const c = await peer();
    const c1 = c.ticket();
    await c.enqueue(name, c1);
    expect(await a.release(name, a1)).toMatchObject({ status: 'taken' });
    expect(await queued()).toEqual([c1]);
    expect(await waiters()).toEqual([c1]);
    expect(await owner()).toBe(b1);
    await b.release(name, b1);
    await c.granted(c1);
    await a.heardAll(plain);
    expect(a.grants(a1)).toEqual([]);
  });

  it('of a ticket that was granted meanwhile passes the lock on at once (R17)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const c = await peer();
    const c1 = c.ticket();
    await c.enqueue(name, c1);
    // A gives up at the moment at which it is granted.
    await b.release(name, b1);
    expect(await a.release(name, a1)).toMatchObject({ status: 'released' });
    expect(await c.granted(c1)).toMatchObject({ waiting: 0 });
    expect(await owner()).toBe(c1);
  });

  it('hands on a lock that has become free, whichever ticket sends it (R17)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await expire();
    expect(await b.release(name, b1)).toMatchObject({ status: 'gone' });
    expect(await a.granted(a1)).toMatchObject({ claim: CLAIM });
    expect(await owner()).toBe(a1);
  });

  it('sent twice hands on once', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const c = await peer();
    const c1 = c.ticket();
    await c.enqueue(name, c1);
    const answers = await Promise.all([b.release(name, b1), b.release(name, b1)]);
    expect(answers.map(({ status }) => status)).toEqual(['released', 'taken']);
    await a.granted(a1);
    expect(await owner()).toBe(a1);
    expect(await queued()).toEqual([c1]);
  });

  it('leaves nothing behind but the fence when nobody waits', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.release(name, b1);
    await a.granted(a1);
    await a.release(name, a1);
    expect(await plain.keys(`*${name}*`)).toEqual([`lock:{${name}}:fence`]);
  });
});

describe('RENEW', () => {
  it('never shortens a lease (R7)', async () => {
    const a = await peer();
    const a1 = a.ticket();
    await a.enqueue(name, a1);
    const answer = await a.renew(name, a1, 1_000);
    expect(answer).toMatchObject({ status: 'renewed', waiting: 0 });
    expect(answer.status === 'renewed' && answer.remaining).toBeGreaterThan(TTL - 2_000);
    expect(await leaseLeft()).toBeGreaterThan(TTL - 2_000);
  });

  it('lengthens a claim, and says how many wait (R11)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.requeue(name, b1, b.ticket());
    expect(await a.renew(name, a1, TTL)).toEqual({ status: 'renewed', remaining: TTL, waiting: 1 });
    expect(await leaseLeft()).toBeGreaterThan(CLAIM);
  });

  it('brings nothing back, and lengthens the lease of nobody else', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.release(name, b1);
    await a.granted(a1);
    expect(await b.renew(name, b1, TTL)).toEqual({ status: 'not-owner' });
    expect(await leaseLeft()).toBeLessThanOrEqual(CLAIM);
    await expire();
    expect(await a.renew(name, a1, TTL)).toEqual({ status: 'not-owner' });
    expect(await owner()).toBeNull();
  });
});

describe('REQUEUE', () => {
  it('hands over to the first, and queues the new ticket behind the others', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const [b2, c] = [b.ticket(), await peer()];
    const c1 = c.ticket();
    await c.enqueue(name, c1);
    const busy = asBusy(await b.requeue(name, b1, b2));
    const message = await a.granted(a1);
    expect(message).toMatchObject({ waiting: 2, claim: CLAIM });
    expect(busy).toMatchObject({ owner: a1, first: false, unissued: message.tokens.first + message.tokens.count });
    expect(await queued()).toEqual([c1, b2]);
  });

  it('of a ticket that is not the owner queues nothing, and frees nothing', async () => {
    const { a1, b, b1 } = await ownerAndWaiter();
    expect(await b.requeue(name, b.ticket(), b.ticket())).toEqual({ status: 'not-owner', resent: false });
    expect(await owner()).toBe(b1);
    expect(await queued()).toEqual([a1]);
  });

  it('when nobody else waits is granted again, as a claim, with a token of its own', async () => {
    const b = await peer();
    const [b1, b2] = [b.ticket(), b.ticket()];
    const first = asGranted(await b.enqueue(name, b1));
    const again = asGranted(await b.requeue(name, b1, b2));
    expect(again.remaining).toBeLessThanOrEqual(CLAIM);
    expect(again).toMatchObject({ waiting: 0 });
    expect(again.tokens.first).toBeGreaterThan(first.tokens.first);
    expect(await owner()).toBe(b2);
    expect(await queued()).toEqual([]);
    await b.heardAll(plain);
    expect(b.grants(b2)).toEqual([]);
  });

  it('sent twice hands over once, and queues the new ticket once', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const b2 = b.ticket();
    asBusy(await b.requeue(name, b1, b2));
    expect(await b.requeue(name, b1, b2)).toMatchObject({ status: 'not-owner' });
    await a.granted(a1);
    expect(await owner()).toBe(a1);
    expect(await queued()).toEqual([b2]);
  });
});

describe('FORCE RELEASE', () => {
  it('tells the owner, and hands on', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    expect(await a.backend.forceRelease?.({ name })).toBe(b1);
    expect(await a.granted(a1)).toMatchObject({ claim: CLAIM });
    await b.heardAll(plain);
    expect(b.messages).toContainEqual({ kind: 'revoked', ticket: b1 });
    expect(await owner()).toBe(a1);
    expect(await b.release(name, b1)).toMatchObject({ status: 'taken' });
  });
});

describe('a caller that gives up in the turn in which it asked', () => {
  it('leaves nobody in the queue, though its release is sent before its request', async () => {
    await using app = await startLockApp({ redis: server.url });
    const a = await peer();
    await a.enqueue(name, a.ticket());
    // From here on messages come, and callers queue with their first request.
    await expect(app.locks.acquire(name, { wait: 50 })).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    const busyClient = app.locks.acquire(`${name}:other`);
    const controller = new AbortController();
    const waiting = app.locks.acquire(name, { signal: controller.signal });
    controller.abort(new Error('given up'));
    await expect(waiting).rejects.toThrow('given up');
    await (await busyClient).release();
    await eventually(async () => (await queued()).length === 0, { within: 1_000 });
    // The release came after what it undoes, or again.
    await sleep(50);
    expect(await queued()).toEqual([]);
  });
});

describe('tokens', () => {
  const endOf = ({ first, count }: TokenRange) => first + count;

  it('are never issued twice, and rise with every range of whatever size', async () => {
    const [a, b] = [await peer(), await peer()];
    const ranges: TokenRange[] = [];
    let mine = a.ticket();
    ranges.push(asGranted(await a.enqueue(name, mine)).tokens);
    for (let round = 0; round < 5; round++) {
      for (const extra of await Promise.all([a.mint(name, mine), a.mint(name, mine)])) ranges.push(extra as TokenRange);
      ranges.push(asGranted(await a.enqueue(name, mine)).tokens);
      ranges.push(asGranted(await a.beat(name, mine)).tokens);
      const theirs = b.ticket();
      await b.enqueue(name, theirs);
      const next = a.ticket();
      await a.requeue(name, mine, next);
      ranges.push((await b.granted(theirs)).tokens);
      await b.release(name, theirs);
      ranges.push((await a.granted(next)).tokens);
      await a.release(name, next);
      mine = a.ticket();
      ranges.push(asGranted(await a.enqueue(name, mine)).tokens);
    }
    for (const [index, range] of ranges.entries()) {
      expect(range.count).toBeGreaterThanOrEqual(1);
      const before = ranges[index - 1];
      if (before) expect(range.first).toBeGreaterThanOrEqual(endOf(before));
    }
    expect(Math.max(...ranges.map(({ count }) => count))).toBeGreaterThan(100);
  });

  it('rise even after the data set was lost in the middle of a burst', async () => {
    const a = await peer();
    let last = 0;
    for (let round = 0; round < 10; round++) {
      const a1 = a.ticket();
      last = Math.max(last, endOf(asGranted(await a.enqueue(name, a1)).tokens));
      const burst = await Promise.all(Array.from({ length: 20 }, () => a.mint(name, a1)));
      for (const range of burst) last = Math.max(last, endOf(range as TokenRange));
      await plain.flushall();
      // They may be ahead of the clock by one range, and that long (µs) it takes to catch up.
      await sleep(2);
      const next = a.ticket();
      const { tokens } = asGranted(await a.enqueue(name, next));
      expect(tokens.first).toBeGreaterThanOrEqual(last);
      last = endOf(tokens);
      await plain.flushall();
    }
  });

  it('are no more than microseconds have passed, so that they never run ahead of the clock', async () => {
    const a = await peer();
    const a1 = a.ticket();
    await a.enqueue(name, a1);
    const burst = await Promise.all(Array.from({ length: 200 }, () => a.mint(name, a1)));
    const [seconds, micros] = await plain.time();
    // One range may reach ahead, and each one after it by one token until the clock has caught up.
    const ahead = 1_024 + burst.length;
    expect(endOf(burst.at(-1) as TokenRange)).toBeLessThanOrEqual(Number(seconds) * 1_000_000 + Number(micros) + ahead);
  });

  it('rise above a fence that is ahead of the clock, by every way to a grant', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    let unissued = Date.now() * 1_000 + 3_600_000_000;
    const fence = () => plain.get(`lock:{${name}}:fence`).then(Number);
    await plain.set(`lock:{${name}}:fence`, unissued, 'PX', 60_000);
    await b.release(name, b1);
    const check = async ({ first, count }: TokenRange) => {
      expect(first).toBe(unissued);
      unissued = first + count;
      expect(await fence()).toBe(unissued);
    };
    await check((await a.granted(a1)).tokens);
    await check((await a.mint(name, a1)) as TokenRange);
    await check(asGranted(await a.beat(name, a1)).tokens);
    await check(asGranted(await a.enqueue(name, a1)).tokens);
    const a2 = a.ticket();
    await check(asGranted(await a.requeue(name, a1, a2)).tokens);
    await a.release(name, a2);
    await check(asGranted(await a.enqueue(name, a.ticket())).tokens);
  });

  it('are reserved for the owner only, and as high as it asks for', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    expect(await a.mint(name, a1)).toBeNull();
    const least = Date.now() * 1_000 + 5_000_000;
    const range = (await b.mint(name, b1, least)) as TokenRange;
    expect(range.first).toBeGreaterThanOrEqual(least);
    expect((await b.mint(name, b1))?.first).toBeGreaterThanOrEqual(endOf(range));
  });
});

it('gives a name that was freed by force to nobody whom no message reaches (R10)', async () => {
  const b = await peer();
  asGranted(await b.enqueue(name, b.ticket()));
  const mute = unreachable();
  const third = mute.ticket();
  asBusy(await mute.enqueue(name, third));
  await b.backend.forceRelease?.({ name });
  expect(await owner()).toBeNull();
  expect(await queued()).toEqual([third]);
});

describe('a server out of memory', () => {
  const memory = async (limit: string, work: () => Promise<unknown>) => {
    await plain.config('SET', 'maxmemory-policy', 'noeviction');
    await plain.config('SET', 'maxmemory', limit);
    try {
      await work();
    } finally {
      await plain.config('SET', 'maxmemory', '0');
    }
  };

  it('grants nothing that it cannot write (R9)', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    await expire();
    const b2 = b.ticket();
    await memory('1', async () => {
      for (const ask of [
        () => a.backend.acquire({ name, ticket: b2, ttl: TTL }),
        () => a.beat(name, a1),
        () => b.enqueue(name, b2),
        () => b.tryOnce(name, b2),
      ]) {
        await expect(ask()).rejects.toThrow(/OOM|maxmemory/);
        expect(await owner()).toBeNull();
      }
    });
    await a.heardAll(plain);
    expect(a.grants(a1)).toEqual([]);
    expect(await queued()).toEqual([a1]);
    // And goes on where it was.
    asGranted(await a.beat(name, a1));
  });

  it('still lets an owner release, and reports only a grant that it wrote (R9)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await memory('1', async () => {
      await b.release(name, b1);
      await a.heardAll(plain);
      const told = a.grants(a1).length === 1;
      expect(await owner()).toBe(told ? a1 : null);
    });
    expect(await owner()).not.toBe(b1);
  });
});

describe('a foreign owner', () => {
  it.each(['somebody', '', 'with space:1', 'a:b', ':7', 'ü🔒:12:x'])('%j is waited for (R17)', async (value) => {
    const a = await peer();
    const a1 = a.ticket();
    await plain.set(`lock:{${name}}`, value, 'PX', 10_000);
    const busy = asBusy(await a.enqueue(name, a1));
    expect(busy).toMatchObject({ owner: value, first: true, unissued: 0 });
    expect(busy.remaining).toBeGreaterThan(9_000);
    expect(asBusy(await a.beat(name, a1)).owner).toBe(value);
    expect(await a.release(name, a.ticket())).toMatchObject({ status: 'taken' });
    expect(await a.requeue(name, a.ticket(), a.ticket())).toMatchObject({ status: 'not-owner' });
    expect(await owner()).toBe(value);
    await plain.del(`lock:{${name}}`);
    asGranted(await a.beat(name, a1));
    await a.heardAll(plain);
    expect(a.messages.filter(({ kind }) => kind === 'wanted')).toEqual([]);
  });

  it('without an expiry is waited for, and never given one', async () => {
    const a = await peer();
    const a1 = a.ticket();
    foreign.push(`lock:{${name}}`);
    await plain.set(`lock:{${name}}`, 'for ever');
    expect(asBusy(await a.enqueue(name, a1)).remaining).toBe(Infinity);
    expect(asBusy(await a.beat(name, a1)).remaining).toBe(Infinity);
    expect(await leaseLeft()).toBe(-1);
    expect(await a.backend.forceRelease?.({ name })).toBe('for ever');
    await a.granted(a1);
    expect(await leaseLeft()).toBeGreaterThan(0);
  });
});

describe('an answer that is lost', () => {
  let proxy: FaultProxy;
  let client: Redis;
  let fragile: QueuePeer;

  beforeEach(async () => {
    proxy = await FaultProxy.start(server.port);
    client = new Redis({ host: '127.0.0.1', port: proxy.port, retryStrategy: () => 10, maxRetriesPerRequest: null });
    client.on('error', () => {});
    fragile = new QueuePeer(client);
    await fragile.enqueue('warm', fragile.ticket());
  });
  afterEach(async () => {
    await fragile.backend.close();
    client.disconnect();
    await proxy.stop();
  });

  it('is given again when ioredis repeats the request: ENQUEUE (R3)', async () => {
    const ticket = fragile.ticket();
    const lost = proxy.lose(name, true);
    const answer = asGranted(await fragile.enqueue(name, ticket));
    await lost;
    expect(answer.remaining).toBeLessThanOrEqual(TTL);
    expect(await owner()).toBe(ticket);
    expect(await queued()).toEqual([]);
  });

  it('is given again when ioredis repeats the request: RELEASE (R1)', async () => {
    const [a, ticket] = [await peer(), fragile.ticket()];
    const a1 = a.ticket();
    await fragile.enqueue(name, ticket);
    await a.enqueue(name, a1);
    const lost = proxy.lose(name, true);
    expect(await fragile.release(name, ticket)).toEqual({ status: 'taken', resent: true });
    await lost;
    expect(await owner()).toBe(a1);
    await a.heardAll(plain);
    expect(a.grants(a1)).toHaveLength(1);
  });

  it('says that it may be the effect of the first send: REQUEUE', async () => {
    const [a, ticket, again] = [await peer(), fragile.ticket(), fragile.ticket()];
    const a1 = a.ticket();
    await fragile.enqueue(name, ticket);
    await a.enqueue(name, a1);
    const lost = proxy.lose(name, true);
    expect(await fragile.requeue(name, ticket, again)).toEqual({ status: 'not-owner', resent: true });
    await lost;
    expect(await owner()).toBe(a1);
    expect(await queued()).toEqual([again]);
  });
});
