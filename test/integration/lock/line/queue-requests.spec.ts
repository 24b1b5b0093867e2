import { randomUUID } from 'node:crypto';
import type { AcquireAnswer } from 'nest-redis-lock/backend';
import {
  expire,
  foreign,
  leaseLeft,
  name,
  outlive,
  owner,
  ownerAndWaiter,
  peer,
  plain,
  queued,
  startQueueOnRedis,
  unreachable,
  waiters,
} from '../../../support/queue-on-redis.js';
import { asBusy, asGranted, CLAIM, QueuePeer, TTL } from '../../../support/queue-peer.js';

startQueueOnRedis();

describe('ENQUEUE', () => {
  it('grants a free lock for its full ttl, and keeps no queue', async () => {
    const a = await peer();
    const granted = asGranted(await a.enqueue(name, a.ticket()));
    expect(granted).toMatchObject({ remaining: TTL, waiting: 0 });
    expect(await leaseLeft()).toBeGreaterThan(TTL - 1_000);
    expect(await queued()).toEqual([]);
    expect(await waiters()).toEqual([]);
  });

  it('sent again by the owner is granted again, and changes no TTL (R3, R5)', async () => {
    const a = await peer();
    const a1 = a.ticket();
    const first = asGranted(await a.enqueue(name, a1));
    await plain.pexpire(`lock:{${name}}`, 2_000);
    const second = asGranted(await a.enqueue(name, a1));
    expect(second.remaining).toBeLessThanOrEqual(2_000);
    expect(second.remaining).toBeGreaterThan(1_000);
    expect(await leaseLeft()).toBeLessThanOrEqual(2_000);
    expect(second.tokens.first).toBeGreaterThanOrEqual(first.tokens.first + first.tokens.count);
    expect(await queued()).toEqual([]);
    expect(await a.release(name, a1)).toMatchObject({ status: 'released' });
    expect(await owner()).toBeNull();
  });

  it('sent again by the owner is granted again ahead of waiters (R3)', async () => {
    const { a1, b, b1 } = await ownerAndWaiter();
    expect(asGranted(await b.enqueue(name, b1))).toMatchObject({ waiting: 1 });
    expect(await queued()).toEqual([a1]);
  });

  it('sent again after a hand-over by message does not renew the claim (R5)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.release(name, b1);
    await a.granted(a1);
    await plain.pexpire(`lock:{${name}}`, 1_000);
    expect(asGranted(await a.enqueue(name, a1)).remaining).toBeLessThanOrEqual(1_000);
    expect(await leaseLeft()).toBeLessThanOrEqual(1_000);
  });

  it('never queues a ticket twice, which keeps its place (R4)', async () => {
    const { a, a1 } = await ownerAndWaiter();
    const c = await peer();
    const c1 = c.ticket();
    await c.enqueue(name, c1);
    for (const answer of await Promise.all([a.enqueue(name, a1), a.enqueue(name, a1), c.enqueue(name, c1)]))
      asBusy(answer);
    expect(asBusy(await a.enqueue(name, a1)).first).toBe(true);
    expect(asBusy(await c.enqueue(name, c1)).first).toBe(false);
    expect(await queued()).toEqual([a1, c1]);
    expect((await waiters()).toSorted()).toEqual([a1, c1].toSorted());
  });

  it('once, without a claim, neither queues nor overtakes waiters', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    const b2 = b.ticket();
    asBusy(await b.tryOnce(name, b2));
    expect(await queued()).toEqual([a1]);
    await expire();
    expect(asBusy(await b.tryOnce(name, b2)).owner).toBe(a1);
    expect(await a.granted(a1)).toMatchObject({ name, claim: CLAIM });
    expect(await queued()).toEqual([]);
  });

  it('hands a free lock to the first waiter, and queues behind (R17)', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    await expire();
    const b2 = b.ticket();
    expect(asBusy(await b.enqueue(name, b2))).toMatchObject({ owner: a1, first: true });
    expect(await owner()).toBe(a1);
    expect(await a.granted(a1)).toMatchObject({ ticket: a1, name, claim: CLAIM });
    expect(await queued()).toEqual([b2]);
    await a.heardAll(plain);
    expect(a.wanted(a1)).toHaveLength(1);
  });

  it('drops waiters that have sent no heartbeat for too long', async () => {
    const { a1, b } = await ownerAndWaiter();
    await outlive(a1);
    await expire();
    const b2 = b.ticket();
    asGranted(await b.enqueue(name, b2));
    expect(await owner()).toBe(b2);
    expect(await queued()).toEqual([]);
    expect(await waiters()).toEqual([]);
  });

  it('tells the owner that it is wanted (R11)', async () => {
    const { b, b1 } = await ownerAndWaiter();
    await b.heardAll(plain);
    expect(b.wanted(b1)).toEqual([{ kind: 'wanted', ticket: b1, name }]);
  });
});

describe('BEAT', () => {
  it('never queues a ticket (R2)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    expect(await a.beat(name, a.ticket())).toEqual({ status: 'gone' });
    expect(await queued()).toEqual([a1]);
    // A heartbeat that was long under way: meanwhile A1 was granted, its claim ran out, and B2 came.
    await b.release(name, b1);
    await expire();
    const b2 = b.ticket();
    asGranted(await b.enqueue(name, b2));
    expect(await a.beat(name, a1)).toEqual({ status: 'gone' });
    expect(await queued()).toEqual([]);
    expect(await waiters()).toEqual([]);
    expect(await owner()).toBe(b2);
  });

  it('of a ticket that left does not bring it back (R2)', async () => {
    const { a, a1 } = await ownerAndWaiter();
    await a.release(name, a1);
    expect(await a.beat(name, a1)).toEqual({ status: 'gone' });
    expect(await queued()).toEqual([]);
  });

  it('does not take a free lock for a ticket that does not wait (R2)', async () => {
    const a = await peer();
    expect(await a.beat(name, a.ticket())).toEqual({ status: 'gone' });
    expect(await owner()).toBeNull();
  });

  it('of the owner is granted again with what the lease has left, and changes no TTL (R5)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.release(name, b1);
    const message = await a.granted(a1);
    await plain.pexpire(`lock:{${name}}`, 1_500);
    const again = asGranted(await a.beat(name, a1));
    expect(again.remaining).toBeLessThanOrEqual(1_500);
    expect(await leaseLeft()).toBeLessThanOrEqual(1_500);
    expect(again.tokens.first).toBeGreaterThanOrEqual(message.tokens.first + message.tokens.count);
  });

  it('takes a lock that has become free, as a claim (R6, R17)', async () => {
    const { a, a1 } = await ownerAndWaiter();
    await expire();
    const granted = asGranted(await a.beat(name, a1));
    expect(granted.remaining).toBeLessThanOrEqual(CLAIM);
    expect(granted.tokens.count).toBeGreaterThan(1);
    expect(await owner()).toBe(a1);
    expect(await queued()).toEqual([]);
    await a.heardAll(plain);
    expect(a.grants(a1)).toEqual([]);
  });

  it('hands a free lock on to the first ticket (R17)', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    const b2 = b.ticket();
    await b.enqueue(name, b2);
    await expire();
    expect(asBusy(await b.beat(name, b2))).toMatchObject({ owner: a1, first: true });
    expect(await a.granted(a1)).toMatchObject({ waiting: 1, claim: CLAIM });
    expect(await owner()).toBe(a1);
  });

  it('tells the owner each time that it is wanted (R11)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await a.beat(name, a1);
    await a.beat(name, a1);
    await b.heardAll(plain);
    expect(b.wanted(b1)).toHaveLength(3);
  });

  it('keeps a waiter alive', async () => {
    const { a, a1 } = await ownerAndWaiter();
    await plain.hset(`lock:{${name}}:waiters`, a1, `1:1:${CLAIM}:${name}`);
    await a.beat(name, a1);
    const [alive, ...rest] = (await plain.hget(`lock:{${name}}:waiters`, a1))?.split(':') ?? [];
    expect(Number(alive)).toBeGreaterThan(Date.now());
    expect(rest.join(':')).toBe(`0:${CLAIM}:${name}`);
  });

  it('says what the waiter needs to recognise stale messages, and when the lease of the owner ends (R8)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const range = await b.mint(name, b1);
    await plain.pexpire(`lock:{${name}}`, 1_000);
    const busy = asBusy(await a.beat(name, a1));
    expect(busy).toMatchObject({ owner: b1, first: true, unissued: (range?.first ?? 0) + (range?.count ?? 0) });
    expect(busy.remaining).toBeLessThanOrEqual(1_000);
    expect(busy.remaining).toBeGreaterThan(0);
  });
});

describe('a message of a grant', () => {
  it('comes with the name, the claim, tokens and how many wait behind; the key is written before (R6, R9)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const c = await peer();
    await c.enqueue(name, c.ticket());
    await b.release(name, b1);
    expect(await owner()).toBe(a1);
    expect(await leaseLeft()).toBeLessThanOrEqual(CLAIM);
    expect(await leaseLeft()).toBeGreaterThan(CLAIM - 1_000);
    const message = await a.granted(a1);
    expect(message).toMatchObject({ kind: 'grant', ticket: a1, name, claim: CLAIM, waiting: 1 });
    expect(message.tokens.count).toBeGreaterThan(1);
    expect(await plain.get(`lock:{${name}}:fence`)).toBe(String(message.tokens.first + message.tokens.count));
  });

  it('is stale by its token when its ticket was queued anew after it (R8)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.release(name, b1);
    const stale = await a.granted(a1);
    // The claim runs out, B2 comes, and only then a copy of the request runs that queued A1.
    await expire();
    const b2 = b.ticket();
    asGranted(await b.enqueue(name, b2));
    const busy = asBusy(await a.enqueue(name, a1));
    expect(stale.tokens.first).toBeLessThan(busy.unissued ?? 0);
    // The grant that is its own one passes.
    await b.release(name, b2);
    const fresh = (await a.heardAll(plain), a.grants(a1)[1]);
    expect(fresh?.tokens.first).toBeGreaterThanOrEqual(busy.unissued ?? 0);
  });

  it('goes to the channel behind the prefix', async () => {
    const [a, b] = [await peer('shop'), await peer('shop')];
    const [a1, b1] = [a.ticket(), b.ticket()];
    await b.enqueue(name, b1);
    await a.enqueue(name, a1);
    await b.release(name, b1);
    expect(await a.granted(a1)).toMatchObject({ name });
    await b.heardAll(plain);
    expect(b.wanted(b1)).toHaveLength(1);
    expect(await plain.get(`shop:lock:{${name}}`)).toBe(a1);
  });

  it.each([
    'two  spaces and one behind ',
    'a:b:5000:c',
    '{tag}:x}{',
    '}x',
    'größe 🔒 ',
    'line\nbreak "quoted"',
    '7',
    'grant x:1 2 3 4 5',
    '%d+',
  ])('carries the name %j as it is', async (special) => {
    const [a, b] = [await peer(), await peer()];
    const [a1, b1] = [a.ticket(), b.ticket()];
    await b.enqueue(special, b1);
    await a.enqueue(special, a1);
    await b.heardAll(plain);
    expect(b.wanted(b1)).toEqual([{ kind: 'wanted', ticket: b1, name: special }]);
    const b2 = b.ticket();
    asBusy(await b.requeue(special, b1, b2));
    expect(await a.granted(a1)).toMatchObject({ name: special, claim: CLAIM, waiting: 1 });
    await a.release(special, a1);
    expect(await b.granted(b2)).toMatchObject({ name: special, claim: CLAIM, waiting: 0 });
  });
});

describe('ACQUIRE', () => {
  const acquire = async (by: QueuePeer, names: string[], ticket: string): Promise<AcquireAnswer> => {
    const [only = '', ...others] = names;
    if (others.length === 0) return by.backend.acquire({ name: only, ticket, ttl: TTL });
    return by.backend.acquireSeveral!({ names, ticket, ttl: TTL });
  };

  it('overtakes no waiter, and hands a free lock on (R17)', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    await expire();
    const other = randomUUID();
    const b2 = b.ticket();
    expect(await acquire(b, [name, other], b2)).toMatchObject({ status: 'busy', name, owner: a1 });
    expect(await a.granted(a1)).toMatchObject({ claim: CLAIM });
    expect(await owner()).toBe(a1);
    expect(await owner(other)).toBeNull();
    expect(await queued()).toEqual([]);
  });

  it('passes over a waiter that cannot be reached, which keeps its place (R10)', async () => {
    const [u, w] = [unreachable(), await peer()];
    const [u1, w1, w2] = [u.ticket(), w.ticket(), w.ticket()];
    await w.enqueue(name, w1);
    await u.enqueue(name, u1);
    await expire();
    expect(await acquire(w, [name], w2)).toMatchObject({ status: 'granted' });
    expect(await owner()).toBe(w2);
    expect(await queued()).toEqual([u1]);
  });

  it('sent again by the owner is granted again, with a higher token (R3)', async () => {
    const [a, other] = [await peer(), randomUUID()];
    const a1 = a.ticket();
    const answers = [await acquire(a, [name, other], a1), await acquire(a, [name, other], a1)];
    const tokens = answers.map((answer) => (answer.status === 'granted' ? answer.tokens.first : 0));
    expect(tokens[1]).toBeGreaterThan(tokens[0] as number);
    expect(asGranted(await a.beat(other, a1)).tokens.first).toBeGreaterThan(tokens[1] as number);
    expect(await a.release(name, a1)).toMatchObject({ status: 'released' });
    expect(await owner(other)).toBe(a1);
  });
});

async function readersAndWriter() {
  const [one, two, writer] = [await peer(), await peer(), await peer()];
  const [first, second, waiting] = [one.readTicket(), two.readTicket(), writer.ticket()];
  asGranted(await one.enqueue(name, first));
  asGranted(await two.enqueue(name, second));
  asBusy(await writer.enqueue(name, waiting));
  return { one, first, two, second, writer, waiting };
}

describe('readers', () => {
  it('are the value of the lock, which lasts as long as the longest of them', async () => {
    const [one, two] = [await peer(), await peer()];
    const [first, second] = [one.readTicket(), two.readTicket()];
    const { tokens } = asGranted(await one.enqueue(name, first, { ttl: 10_000 }));
    expect(asGranted(await two.enqueue(name, second)).tokens).toEqual(tokens);
    expect(await owner()).toMatch(new RegExp(`^readers ${tokens.first} ${first}=\\d+ ${second}=\\d+$`));
    expect(await leaseLeft()).toBeGreaterThan(20_000);
    expect(await plain.set(`lock:{${name}}`, 'foreign', 'PX', 1_000, 'NX')).toBeNull();
    await two.release(name, second);
    expect(await leaseLeft()).toBeLessThanOrEqual(10_000);
    await one.release(name, first);
    expect(await owner()).toBeNull();
  });

  it('are granted what is left when their request is sent twice', async () => {
    const one = await peer();
    const first = one.readTicket();
    asGranted(await one.enqueue(name, first, { ttl: 10_000 }));
    const again = asGranted(await one.enqueue(name, first));
    expect(again.remaining).toBeLessThanOrEqual(10_000);
    expect(await leaseLeft()).toBeLessThanOrEqual(10_000);
    await one.release(name, first);
    expect((await one.release(name, first)).status).toBe('gone');
    expect(await owner()).toBeNull();
  });

  it('that are late neither end nor renew the lock of a writer', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    await one.release(name, first);
    await two.release(name, second);
    await writer.granted(waiting);
    expect((await one.release(name, first)).status).toBe('taken');
    expect((await one.renew(name, first, TTL)).status).toBe('not-owner');
    expect(await one.mint(name, first)).toBeNull();
    await one.backend.downgrade?.({ name, ticket: first, ttl: TTL });
    expect(await owner()).toBe(waiting);
  });

  it('of which the last leaves hand the lock to the writer that waits', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    await one.heardAll(plain);
    expect(one.wanted(first)).toHaveLength(1);
    await one.release(name, first);
    await writer.heardAll(plain);
    expect(writer.grants(waiting)).toEqual([]);
    await two.release(name, second);
    expect((await writer.granted(waiting)).claim).toBe(CLAIM);
  });

  it('that leave early tell the first writer when the lock ends now', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    await one.renew(name, first, 2 * TTL);
    await one.release(name, first);
    await writer.heardAll(plain);
    expect(writer.messages.filter(({ kind }) => kind === 'ends')).toMatchObject([{ ticket: waiting }]);
    await two.release(name, second);
  });

  it('wait behind a live writer, and come in together after it, before the next writer', async () => {
    const { one, first, two, second, writer, waiting } = await readersAndWriter();
    const next = writer.ticket();
    asBusy(await writer.enqueue(name, next));
    const [third, fourth] = [one.readTicket(), two.readTicket()];
    asBusy(await one.enqueue(name, third));
    asBusy(await two.enqueue(name, fourth));
    expect(await queued()).toEqual([waiting, third, fourth, next]);
    await one.release(name, first);
    await two.release(name, second);
    const { tokens } = await writer.granted(waiting);
    const fifth = one.readTicket();
    asBusy(await one.enqueue(name, fifth));
    await writer.release(name, waiting);
    for (const [of, ticket] of [
      [one, third],
      [two, fourth],
      [one, fifth],
    ] as const) {
      expect((await of.granted(ticket)).tokens.first).toBeGreaterThanOrEqual(tokens.first + tokens.count);
    }
    expect(await queued()).toEqual([next]);
    for (const [of, ticket] of [
      [one, third],
      [two, fourth],
      [one, fifth],
    ] as const)
      await of.release(name, ticket);
    await writer.granted(next);
  });

  it('come in past a writer that is dead, or has given up', async () => {
    const { one, first, writer, waiting } = await readersAndWriter();
    await outlive(waiting);
    asGranted(await one.enqueue(name, one.readTicket()));
    const [again, third] = [writer.ticket(), one.readTicket()];
    asBusy(await writer.enqueue(name, again));
    asBusy(await one.enqueue(name, third));
    await writer.release(name, again);
    await one.granted(third);
    expect((await one.renew(name, first, TTL)).status).toBe('renewed');
  });

  it('wait behind the first live writer, although a dead one is before it', async () => {
    const { one, writer, waiting } = await readersAndWriter();
    const dead = (await peer()).ticket();
    await plain.lpush(`lock:{${name}}:queue`, dead);
    await plain.hset(`lock:{${name}}:waiters`, dead, `${Date.now() + 2_000}:0:${CLAIM}:${name}`);
    const third = one.readTicket();
    asBusy(await one.enqueue(name, third));
    expect(await queued()).toEqual([dead, waiting, third]);
    await writer.beat(name, waiting);
    await one.heardAll(plain);
    expect(one.grants(third)).toEqual([]);
  });

  it('that no message reaches keep their place, and the others come in', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await a.release(name, a1);
    const mute = unreachable();
    const [third, fourth] = [mute.readTicket(), a.readTicket()];
    asBusy(await mute.enqueue(name, third));
    asBusy(await a.enqueue(name, fourth));
    await b.release(name, b1);
    await a.granted(fourth);
    expect(await owner()).not.toContain(third);
    expect(await queued()).toEqual([third]);
    await a.release(name, fourth);
    expect(asGranted(await mute.beat(name, third)).remaining).toBeLessThanOrEqual(CLAIM);
  });

  it('learn by a heartbeat of a grant whose message was lost', async () => {
    const { a, b, b1 } = await ownerAndWaiter();
    const third = a.readTicket();
    asBusy(await a.enqueue(name, third));
    await a.release(name, (await queued())[1] as string);
    await b.release(name, b1);
    const { tokens } = await a.granted(third);
    expect(asGranted(await a.beat(name, third)).tokens).toEqual(tokens);
    await a.release(name, third);
    expect(await a.beat(name, third)).toEqual({ status: 'gone' });
  });

  it('find a name taken whose value only looks like readers', async () => {
    const one = await peer();
    foreign.push(`lock:{${name}}`);
    await plain.set(`lock:{${name}}`, 'readers of the news', 'PX', TTL);
    asBusy(await one.enqueue(name, one.readTicket()));
    expect((await one.backend.inspect({ name }))?.owner).toBe('readers of the news');
  });
});

describe('DOWNGRADE', () => {
  it('lets in the readers that wait before the next writer', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const [third, fourth] = [a.readTicket(), b.readTicket()];
    asBusy(await a.enqueue(name, third));
    const { tokens } = asGranted(await b.enqueue(name, b1));
    await b.backend.downgrade?.({ name, ticket: b1, ttl: TTL });
    expect((await a.granted(third)).tokens.first).toBeGreaterThanOrEqual(tokens.first + tokens.count);
    asBusy(await b.enqueue(name, fourth));
    expect(await queued()).toEqual([a1, fourth]);
    expect((await b.renew(name, b1, TTL)).status).toBe('renewed');
    await b.release(name, b1);
    await a.release(name, third);
    await a.granted(a1);
  });
});
