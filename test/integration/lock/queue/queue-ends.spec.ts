import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../../../support/eventually.js';
import { startLockApp } from '../../../support/lock-app.js';
import { asBusy, asGranted, CLAIM, TTL } from '../../../support/queue-peer.js';
import {
  startQueueOnRedis,
  server,
  plain,
  name,
  peer,
  owner,
  leaseLeft,
  queued,
  waiters,
  expire,
  ownerAndWaiter,
} from '../../../support/queue-on-redis.js';

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
