import { lockKey } from '../../../../lib/backends/postgres/lease-table/lease-table.js';
import {
  db,
  expire,
  heardAll,
  leaseLeft,
  name,
  owner,
  ownerAndWaiter,
  peer,
  queued,
  silence,
  silentPeer,
  startLeaseTable,
} from '../../../support/lease-table-queue.js';
import { asBusy, asGranted, CLAIM, TTL } from '../../../support/queue-peer.js';

// The rules R1 to R17 stand in docs/protocol.md.
startLeaseTable();

describe('enqueue', () => {
  it('grants a free name for its full ttl, and keeps no queue', async () => {
    const a = await peer();
    expect(asGranted(await a.enqueue(name, a.ticket()))).toMatchObject({ remaining: TTL, waiting: 0 });
    expect(await leaseLeft()).toBeGreaterThan(TTL - 1_000);
    expect(await queued()).toEqual([]);
  });

  it('sent again by the owner is granted again, before those who wait, and changes no lease (R3, R5)', async () => {
    const { a1, b, b1 } = await ownerAndWaiter();
    await expire(2_000);
    const again = asGranted(await b.enqueue(name, b1));
    expect(again.waiting).toBe(1);
    expect(again.remaining).toBeLessThanOrEqual(2_000);
    expect(await leaseLeft()).toBeLessThanOrEqual(2_000);
    expect(await queued()).toEqual([a1]);
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
  });

  it('without a claim neither queues nor passes those who wait', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    const b2 = b.ticket();
    asBusy(await b.tryOnce(name, b2));
    expect(await queued()).toEqual([a1]);
    await expire();
    expect(asBusy(await b.tryOnce(name, b2)).owner).toBe(a1);
    expect(await a.granted(a1)).toMatchObject({ name, claim: CLAIM });
    expect(await queued()).toEqual([]);
  });

  it('hands a free name to the first who waits, and queues behind (R17)', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    await expire();
    const b2 = b.ticket();
    expect(asBusy(await b.enqueue(name, b2))).toMatchObject({ owner: a1, first: true });
    expect(await owner()).toBe(a1);
    expect(await a.granted(a1)).toMatchObject({ ticket: a1, name, claim: CLAIM });
    expect(await queued()).toEqual([b2]);
    await heardAll(a);
    expect(a.wanted(a1)).toHaveLength(1);
  });

  it('drops a waiter of which nothing was heard for 5 s, and passes over one that is silent for less', async () => {
    const { a1, b } = await ownerAndWaiter();
    const c1 = b.ticket();
    asBusy(await b.enqueue(name, c1));
    await silence(a1, 6_000);
    await silence(c1, 2_000);
    await expire();
    const b2 = b.ticket();
    expect(asGranted(await b.enqueue(name, b2))).toMatchObject({ remaining: TTL, waiting: 1 });
    expect(await owner()).toBe(b2);
    expect(await queued()).toEqual([c1]);
  });

  it('tells the owner that it is wanted (R11)', async () => {
    const { b, b1 } = await ownerAndWaiter();
    await heardAll(b);
    expect(b.wanted(b1)).toEqual([{ kind: 'wanted', ticket: b1, name }]);
  });

  it('of many callers in one statement answers each of them', async () => {
    const [a, b] = [await peer(), await peer()];
    const names = Array.from({ length: 150 }, (_, index) => `${name}:${index}`);
    const taken = names[77] as string;
    const b1 = b.ticket();
    asGranted(await b.enqueue(taken, b1));
    const tickets = names.map(() => a.ticket());
    const answers = await Promise.all(names.map((each, index) => a.enqueue(each, tickets[index] as string)));
    expect(answers.map(({ status }) => status)).toEqual(names.map((each) => (each === taken ? 'busy' : 'granted')));
    const owners = await Promise.all(names.map((each) => owner(each)));
    expect(owners).toEqual(names.map((each, index) => (each === taken ? b1 : tickets[index])));
    const released = await Promise.all(names.map((each, index) => a.release(each, tickets[index] as string)));
    expect(released.map(({ status }) => status)).toEqual(names.map((each) => (each === taken ? 'taken' : 'released')));
  });
});

describe('beat', () => {
  it('never queues a ticket, and takes nothing for it (R2)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    expect(await a.beat(name, a.ticket())).toEqual({ status: 'gone' });
    expect(await a.beat(`${name}:free`, a.ticket())).toEqual({ status: 'gone' });
    await b.release(name, b1);
    await expire();
    const b2 = b.ticket();
    asGranted(await b.enqueue(name, b2));
    expect(await a.beat(name, a1)).toEqual({ status: 'gone' });
    expect(await queued()).toEqual([]);
    expect(await owner()).toBe(b2);
  });

  it('of the owner is granted again with what the lease has left, and later tokens (R5)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await b.release(name, b1);
    const message = await a.granted(a1);
    await expire(1_500);
    const again = asGranted(await a.beat(name, a1));
    expect(again.remaining).toBeLessThanOrEqual(1_500);
    expect(again.tokens.first).toBeGreaterThanOrEqual(message.tokens.first + message.tokens.count);
  });

  it('takes a name that has fallen free, as a claim, without a message (R6, R17)', async () => {
    const { a, a1 } = await ownerAndWaiter();
    await expire();
    const granted = asGranted(await a.beat(name, a1));
    expect(granted.remaining).toBeLessThanOrEqual(CLAIM);
    expect(granted.tokens.count).toBeGreaterThan(1);
    expect(await owner()).toBe(a1);
    await heardAll(a);
    expect(a.grants(a1)).toEqual([]);
  });

  it('hands a free name on to the first who waits (R17)', async () => {
    const { a, a1, b } = await ownerAndWaiter();
    const b2 = b.ticket();
    await b.enqueue(name, b2);
    await expire();
    expect(asBusy(await b.beat(name, b2))).toMatchObject({ owner: a1, first: true });
    expect(await a.granted(a1)).toMatchObject({ waiting: 1, claim: CLAIM });
  });

  it('tells the owner each time that it is wanted (R11), and keeps the waiter in the queue', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    await silence(a1, 4_000);
    await a.beat(name, a1);
    await a.beat(name, a1);
    await heardAll(b);
    expect(b.wanted(b1)).toHaveLength(3);
    await b.release(name, b1);
    expect(await owner()).toBe(a1);
  });

  it('says which token comes next, so that a late message is known as such (R8)', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const range = await b.mint(name, b1);
    await expire(1_000);
    const busy = asBusy(await a.beat(name, a1));
    expect(busy).toMatchObject({ owner: b1, first: true, unissued: (range?.first ?? 0) + (range?.count ?? 0) });
    expect(busy.remaining).toBeLessThanOrEqual(1_000);
    expect(busy.remaining).toBeGreaterThan(0);
  });

  it('tells a waiter that no message reaches to ask often', async () => {
    const b = await peer();
    asGranted(await b.enqueue(name, b.ticket()));
    const a = silentPeer();
    const a1 = a.ticket();
    expect(asBusy(await a.enqueue(name, a1)).unreached).toBe(true);
    expect(asBusy((await a.beat(name, a1)) as never).unreached).toBe(true);
  });
});

describe('release', () => {
  it('hands the name to the first who waits, in the same step, with later tokens', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const mine = await b.mint(name, b1);
    expect(await b.release(name, b1)).toMatchObject({ status: 'released' });
    expect(await owner()).toBe(a1);
    const message = await a.granted(a1);
    expect(message.tokens.first).toBeGreaterThanOrEqual((mine?.first ?? Infinity) + (mine?.count ?? 0));
    expect(await b.release(name, b1)).toMatchObject({ status: 'taken' });
    expect(await owner()).toBe(a1);
  });

  it('of a waiter takes it out of the queue, and frees nothing', async () => {
    const { a, a1, b1 } = await ownerAndWaiter();
    expect(await a.release(name, a1)).toMatchObject({ status: 'taken' });
    expect(await queued()).toEqual([]);
    expect(await owner()).toBe(b1);
  });

  it('that another release of the ticket may have overtaken says so', async () => {
    const b = await peer();
    const b1 = b.ticket();
    asGranted(await b.enqueue(name, b1));
    const answers = await Promise.all([b.release(name, b1), b.release(name, b1)]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual(['gone', 'released']);
    expect(answers.find(({ status }) => status === 'gone')?.resent).toBe(true);
    expect(await b.release(name, b1)).toEqual({ status: 'gone', resent: false });
  });

  it('of what nobody owns answers gone', async () => {
    const a = await peer();
    const a1 = a.ticket();
    expect(await a.release(name, a1)).toMatchObject({ status: 'gone' });
    asGranted(await a.enqueue(name, a1));
    expect(await a.release(name, a1)).toMatchObject({ status: 'released' });
    expect(await a.release(name, a1)).toMatchObject({ status: 'gone' });
  });

  it('sees a waiter who queues while the release waits for the row', async () => {
    const b = await peer();
    const b1 = b.ticket();
    asGranted(await b.enqueue(name, b1));
    const a = await peer();
    const a1 = a.ticket();
    const client = await db.connect();
    try {
      await client.query('BEGIN');
      await client.query('SELECT nest_redis_lock.enqueue_v1($1, $2, $3, $4, $5)', [
        lockKey(undefined, name),
        a1,
        TTL,
        CLAIM,
        JSON.stringify(name),
      ]);
      const released = b.release(name, b1);
      await new Promise((resolve) => setTimeout(resolve, 100));
      await client.query('COMMIT');
      expect(await released).toMatchObject({ status: 'released' });
    } finally {
      client.release();
    }
    expect(await owner()).toBe(a1);
    expect(await a.granted(a1)).toMatchObject({ name });
  });
});

describe('requeue', () => {
  it('gives the name to the first who waits, and queues the next ticket behind', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const b2 = b.ticket();
    expect(asBusy(await b.requeue(name, b1, b2))).toMatchObject({ owner: a1, first: true });
    expect(await owner()).toBe(a1);
    expect(await queued()).toEqual([b2]);
    expect(await a.granted(a1)).toMatchObject({ waiting: 1 });
    expect(await b.requeue(name, b1, b.ticket())).toEqual({ status: 'not-owner', resent: false });
    expect(await queued()).toEqual([b2]);
  });

  it('is granted at once where nobody else waits', async () => {
    const b = await peer();
    const [b1, b2] = [b.ticket(), b.ticket()];
    const first = asGranted(await b.enqueue(name, b1));
    const next = asGranted(await b.requeue(name, b1, b2));
    expect(next.tokens.first).toBeGreaterThan(first.tokens.first);
    expect(next).toMatchObject({ remaining: CLAIM, waiting: 0 });
    expect(await owner()).toBe(b2);
  });
});

describe('renew, keep, mint and forceRelease', () => {
  it('renew never shortens a lease (R7), tells how many wait, and refuses what another owns', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    expect(await b.renew(name, b1, 1_000)).toMatchObject({ status: 'renewed', waiting: 1 });
    expect(await leaseLeft()).toBeGreaterThan(TTL - 5_000);
    expect(await b.renew(name, b1, 2 * TTL)).toMatchObject({ remaining: 2 * TTL });
    expect(await a.renew(name, a1, TTL)).toEqual({ status: 'not-owner' });
    await expire();
    expect(await b.renew(name, b1, TTL)).toEqual({ status: 'not-owner' });
  });

  it('keep cuts the lease, never lengthens it, and tells the first who waits', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    const keep = (rest: number, ticket = b1) => b.backend.keep?.({ name, ticket, rest });
    expect(await keep(2_000)).toMatchObject({ status: 'released' });
    expect(await keep(9_000)).toMatchObject({ status: 'released' });
    expect(await leaseLeft()).toBeLessThanOrEqual(2_000);
    expect(await keep(1, a1)).toMatchObject({ status: 'taken' });
    await heardAll(a);
    expect(a.messages.filter(({ kind }) => kind === 'ends')[0]).toMatchObject({ ticket: a1, name });
    await expire();
    expect(await keep(1)).toMatchObject({ status: 'gone' });
  });

  it('mint reserves tokens above all before, and above those asked for', async () => {
    const b = await peer();
    const b1 = b.ticket();
    const first = asGranted(await b.enqueue(name, b1));
    const more = await b.mint(name, b1);
    expect(more?.first).toBeGreaterThanOrEqual(first.tokens.first + first.tokens.count);
    const far = await b.mint(name, b1, 9e15);
    expect(far).toEqual({ first: 9e15, count: 1 });
    expect(await b.mint(name, b.ticket())).toBeNull();
  });

  it('forceRelease tells the owner, and hands the name on', async () => {
    const { a, a1, b, b1 } = await ownerAndWaiter();
    expect(await a.backend.forceRelease?.({ name })).toBe(b1);
    expect(await owner()).toBe(a1);
    await heardAll(b);
    expect(b.messages).toContainEqual({ kind: 'revoked', ticket: b1 });
    expect(await a.backend.forceRelease?.({ name: `${name}:free` })).toBeNull();
  });
});

describe('several names', () => {
  it('takes all or none, never passes a waiter, and mints one token above all theirs', async () => {
    const { a1, b, b1 } = await ownerAndWaiter();
    const other = `${name}:other`;
    const c1 = b.ticket();
    const acquire = () => b.backend.acquireSeveral?.({ names: [name, other].toSorted(), ticket: c1, ttl: TTL });
    expect(await acquire()).toMatchObject({ status: 'busy', name, owner: b1 });
    expect(await owner(other)).toBeNull();
    await expire();
    expect(await acquire()).toMatchObject({ status: 'busy', name, owner: a1 });
    await b.release(name, a1);
    const range = await (async () => {
      asGranted(await b.enqueue(other, b1));
      const minted = await b.mint(other, b1, 9e15);
      await b.release(other, b1);
      return minted;
    })();
    const granted = await acquire();
    expect(granted).toMatchObject({ status: 'granted', tokens: { first: (range?.first ?? 0) + 1, count: 1 } });
    expect(await acquire()).toMatchObject({ status: 'granted' });
    expect([await owner(), await owner(other)]).toEqual([c1, c1]);
    for (const each of [name, other]) expect(await b.release(each, c1)).toMatchObject({ status: 'released' });
    expect([await owner(), await owner(other)]).toEqual([null, null]);
  });
});
