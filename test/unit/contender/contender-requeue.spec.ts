import type { Lock } from 'nest-redis-lock';
import { LockLostError } from '../../../lib/errors/lock-errors.js';
import { busy, granted, grantMessage } from '../../support/scripted-backend.js';
import {
  startContender,
  NAME,
  clock,
  backend,
  Call,
  openChannel,
  joining,
  beating,
  holding,
  contenders,
  until,
  trustedUntil,
  quiet,
  requeueing,
} from '../../support/contender-at-backend.js';

startContender();

describe('a ticket that is queued with a release', () => {
  it('is trusted from the send of that release: a message after the answer (R14)', async () => {
    const { requeue, again, next, released, outcome } = await requeueing();
    await clock.pass(60);
    await requeue.answer(busy({ unissued: 3_000 }));
    await released;
    expect(outcome.released).toBe(true);
    await clock.pass(60);
    await backend.tell(grantMessage(again, NAME, { first: 2_999 }));
    expect(next.lock).toBeUndefined();
    await backend.tell(grantMessage(again, NAME, { first: 3_000, claim: 5_000 }));
    const lock = await next.held();
    expect(lock).toMatchObject({ owner: again, fencingToken: 3_000 });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 5_000));
    expect(trustedUntil(lock)).toBeGreaterThan(until(requeue, 5_000) - 20);
  });

  it('is trusted from the send of that release: a message before the answer (R14)', async () => {
    const { requeue, again, next } = await requeueing();
    await clock.pass(60);
    await backend.tell(grantMessage(again, NAME, { claim: 5_000 }));
    const lock = await next.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 5_000));
    await requeue.answer(busy({ unissued: 90_000, first: true, remaining: 1 }));
    await quiet();
    expect(lock.held).toBe(true);
    expect(backend.all('beat')).toEqual([]);
  });

  it('is granted again if no other process waited after all', async () => {
    const { requeue, again, next } = await requeueing();
    await clock.pass(60);
    await requeue.answer(granted({ first: 8_000, remaining: 5_000 }));
    const lock = await next.held();
    expect(lock).toMatchObject({ owner: again, fencingToken: 8_000 });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 5_000));
  });

  it('is not queued if the lock was no longer ours: a new one asks, and the holder loses the lock', async () => {
    const { requeue, again, next, outcome, released } = await requeueing();
    await requeue.answer({ status: 'not-owner', resent: false });
    await released;
    expect(outcome.error).toMatchObject({ code: 'LOCK_LOST', reason: 'taken' });
    const enqueue = await backend.take('enqueue');
    expect(enqueue.ticket).not.toBe(again);
    await enqueue.answer(granted());
    expect(await next.held()).toMatchObject({ owner: enqueue.ticket });
    expect(backend.releases).toEqual([]);
  });

  it.each(['busy', 'granted'] as const)(
    'stays queued where a late answer to the ticket before, "%s", arrives: that one is released after the requeue',
    async (status) => {
      const waits = await beating();
      const others = [new Call()];
      await backend.tell(grantMessage(waits.ticket, NAME, { waiting: 1 }));
      const lock = await waits.call.held();
      await clock.pass(55);
      const released = lock.release();
      const requeue = await backend.take('requeue');
      await waits.beat.answer(status === 'busy' ? busy() : granted());
      await quiet();
      expect(backend.releases).toEqual([]);
      await requeue.answer(busy());
      await released;
      await quiet();
      expect(backend.releases).toEqual([waits.ticket]);
      await backend.tell(grantMessage(requeue.request.again, NAME, { first: 5_000 }));
      expect(await others[0]?.held()).toMatchObject({ owner: requeue.request.again });
    },
  );

  it('may be queued if the request was sent twice: it is removed, and no caller gets a loss', async () => {
    const { requeue, again, next, outcome, released } = await requeueing();
    await requeue.answer({ status: 'not-owner', resent: true });
    await released;
    expect(outcome).toEqual({ released: true, error: undefined });
    expect(backend.releases).toEqual([again]);
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted());
    expect(await next.held()).toMatchObject({ owner: enqueue.ticket });
  });

  it.each([true, false])(
    'and was granted by a message before the answer to a repeated request stays granted (resent: %s)',
    async (resent) => {
      const { requeue, again, next, outcome, released } = await requeueing();
      await backend.tell(grantMessage(again, NAME));
      const lock = await next.held();
      await requeue.answer({ status: 'not-owner', resent });
      await released;
      await quiet();
      expect(lock.held).toBe(true);
      expect(backend.releases).toEqual([]);
      expect(outcome).toEqual({ released: true, error: undefined });
    },
  );

  it('is given up when the request is not answered: the old one is released until that is confirmed (R1)', async () => {
    const { requeue, ticket, again, next, released } = await requeueing();
    await requeue.fail();
    await released;
    expect(backend.releases.toSorted()).toEqual([ticket, again].toSorted());
    const enqueue = await backend.take('enqueue');
    expect([ticket, again]).not.toContain(enqueue.ticket);
    // The request was carried out all the same, and its ticket comes to be granted.
    await backend.tell(grantMessage(again, NAME));
    expect(backend.releases.filter((each) => each === again)).toHaveLength(2);
    await enqueue.answer(granted());
    expect(await next.held()).toMatchObject({ owner: enqueue.ticket });
  });

  it('leaves with its last caller; a late grant is given back (R13)', async () => {
    const { requeue, again, next } = await requeueing();
    await next.giveUp();
    expect(backend.releases).toEqual([again]);
    expect(contenders()).toBe(0);
    await requeue.answer(granted());
    expect(backend.releases).toEqual([again, again]);
    expect(contenders()).toBe(0);
  });

  it('is not lengthened by a renewal of the ticket before it (R12)', async () => {
    const options = { ttl: 1_000, renew: { interval: 20, timeout: 900 } };
    const { lock, ticket, others } = await holding({ remaining: 1_000, waiting: 1 }, { behind: 1, options });
    const renewal = await backend.take('renew');
    const extension = lock.extend(60_000).catch((error: unknown) => error);
    const extend = await backend.take('renew');
    expect([renewal.ticket, extend.ticket]).toEqual([ticket, ticket]);
    await clock.pass(60);
    void lock.release();
    const requeue = await backend.take('requeue');
    await backend.tell(grantMessage(requeue.request.again, NAME, { claim: 400 }));
    const next = (await others[0]?.held()) as Lock;
    await renewal.answer({ status: 'renewed', remaining: 60_000 });
    await extend.answer({ status: 'renewed', remaining: 60_000 });
    await requeue.answer(busy());
    expect(trustedUntil(next)).toBeLessThanOrEqual(until(requeue, 400));
    expect(await extension).toBeInstanceOf(LockLostError);
    // Nor is it lost with an old "not the owner".
    expect(next.held).toBe(true);
    await clock.eventually(() => !next.held);
    expect(next.signal.reason).toMatchObject({ reason: 'expired' });
  });

  it('is not lost with "not the owner" of a renewal of the ticket before it (R12)', async () => {
    const options = { ttl: 1_000, renew: { interval: 20, timeout: 900 } };
    const { lock, others } = await holding({ remaining: 1_000, waiting: 1 }, { behind: 1, options });
    const renewal = await backend.take('renew');
    await clock.pass(60);
    void lock.release();
    const requeue = await backend.take('requeue');
    await backend.tell(grantMessage(requeue.request.again, NAME, { claim: 900 }));
    const next = (await others[0]?.held()) as Lock;
    await renewal.answer({ status: 'not-owner' });
    expect(next.held).toBe(true);
    expect(next.signal.aborted).toBe(false);
  });
});

describe('a caller that gives up', () => {
  it('in the first try leaves nothing behind, and a late grant is given back (R13)', async () => {
    const call = new Call();
    const enqueue = await backend.take('enqueue');
    expect(enqueue.request.claim).toBeUndefined();
    await call.giveUp();
    expect(contenders()).toBe(0);
    await enqueue.answer(granted());
    expect(backend.releases).toEqual([enqueue.ticket, enqueue.ticket]);
    expect(contenders()).toBe(0);
  });

  it('while the channel is opened leaves nothing behind, and does not queue', async () => {
    delete backend.atOnce.listen;
    const call = new Call();
    await (await backend.take('enqueue')).answer(busy());
    const listen = await backend.take('listen');
    await call.giveUp();
    expect(contenders()).toBe(0);
    await listen.answer();
    await quiet();
    expect(backend.all('enqueue')).toHaveLength(1);
    expect(contenders()).toBe(0);
  });

  it('between two tries leaves nothing behind', async () => {
    const { call, enqueue } = await joining();
    await enqueue.fail();
    await call.giveUp();
    expect(contenders()).toBe(0);
    await clock.pass(60);
    expect(backend.all('enqueue')).toHaveLength(1);
    expect(contenders()).toBe(0);
  });

  it('behind a holder does not disturb the holder', async () => {
    const { lock, others, ticket } = await holding({}, { behind: 1 });
    await others[0]?.giveUp();
    expect(lock.held).toBe(true);
    expect(backend.releases).toEqual([]);
    await lock.release();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
  });

  it('behind a holder that was lost leaves nothing behind', async () => {
    const { others, ticket } = await holding({}, { behind: 1 });
    await backend.tell({ kind: 'revoked', ticket });
    const enqueue = await backend.take('enqueue');
    await others[0]?.giveUp();
    expect(backend.releases).toEqual([enqueue.ticket]);
    expect(contenders()).toBe(0);
  });

  it('with order: fifo takes its own ticket along', async () => {
    await openChannel();
    const calls = [new Call({ order: 'fifo' }), new Call({ order: 'fifo' })] as const;
    const [first, second] = [await backend.take('enqueue'), await backend.take('enqueue')];
    await first.answer(busy());
    await second.answer(busy());
    expect(contenders()).toBe(2);
    await calls[0].giveUp();
    expect(backend.releases).toEqual([first.ticket]);
    expect(contenders()).toBe(1);
    await backend.tell(grantMessage(first.ticket, NAME));
    expect(backend.releases).toEqual([first.ticket, first.ticket]);
    await backend.tell(grantMessage(second.ticket, NAME));
    await (await calls[1].held()).release();
    expect(backend.releases).toEqual([first.ticket, first.ticket, second.ticket]);
    expect(contenders()).toBe(0);
  });
});
