import type { Lock } from 'nest-redis-lock';
import { LockLostError } from '../../../../lib/errors/lock-errors.js';
import {
  app,
  backend,
  beating,
  Call,
  clock,
  contenders,
  holding,
  joining,
  NAME,
  openChannel,
  quiet,
  requeueing,
  startContender,
  trustedUntil,
  until,
  waiting,
} from '../../../support/contender-at-backend.js';
import { busy, granted, grantMessage } from '../../../support/scripted-backend.js';

startContender();

describe('a grant of a ticket that is not current', () => {
  it('is released once (R13)', async () => {
    const { call, ticket } = await waiting();
    const stranger = `${ticket}0`;
    await backend.tell(grantMessage(stranger, NAME));
    await quiet();
    expect(backend.releases).toEqual([stranger]);
    expect(call.lock).toBeUndefined();
    await backend.tell(grantMessage(stranger, 'another'));
    expect(backend.all('release')[1]?.request).toMatchObject({ name: 'another', ticket: stranger });
  });

  it('that was released already is passed on again (R13)', async () => {
    const { lock, ticket } = await holding();
    await lock.release();
    expect(contenders()).toBe(0);
    await backend.tell(grantMessage(ticket, NAME));
    expect(backend.releases).toEqual([ticket, ticket]);
  });

  it('whose release is under way is released once more only after that, which it could overtake (R13)', async () => {
    const { lock, ticket } = await holding();
    delete backend.atOnce.release;
    const released = lock.release();
    const first = await backend.take('release');
    expect(contenders()).toBe(0);
    await backend.tell(grantMessage(ticket, NAME));
    await quiet();
    expect(backend.releases).toEqual([ticket]);
    await first.answer({ status: 'released', resent: false });
    await released;
    await (await backend.take('release')).answer({ status: 'gone', resent: false });
    expect(backend.releases).toEqual([ticket, ticket]);
  });

  it('by a message whose claim has ended does not count before the answer, which may grant it anew (R8)', async () => {
    const { call, enqueue, ticket } = await joining();
    await clock.pass(1_100);
    await backend.tell(grantMessage(ticket, NAME, { first: 5_000, claim: 1_000 }));
    await quiet();
    expect(backend.all('renew')).toEqual([]);
    await enqueue.answer(granted({ first: 9_000 }));
    expect(await call.held()).toMatchObject({ owner: ticket, fencingToken: 9_000 });
  });

  it('does not disturb the one that is (R12)', async () => {
    const { lock, ticket } = await holding();
    await backend.tell({ kind: 'wanted', ticket: `${ticket}0`, name: NAME });
    await backend.tell({ kind: 'revoked', ticket: `${ticket}0` });
    await backend.tell(grantMessage(ticket, NAME, { claim: 90_000 }));
    expect(lock.held).toBe(true);
    expect(lock.remaining()).toBeLessThan(30_000);
    expect(backend.releases).toEqual([]);
  });
});

describe('a claim that is too short when it comes', () => {
  it('is renewed before the caller enters; the clock is read after the answer (R15)', async () => {
    const { call, enqueue, ticket } = await joining({ ttl: 2_000 });
    await enqueue.answer(busy());
    await backend.tell(grantMessage(ticket, NAME, { claim: 200 }));
    const first = await backend.take('renew');
    expect(first.request).toMatchObject({ ticket, ttl: 2_000 });
    expect(call.lock).toBeUndefined();
    // Too short again when the answer comes: a quarter of the claim must be left.
    await clock.pass(1_900);
    await first.answer({ status: 'renewed', remaining: 2_000 });
    expect(call.lock).toBeUndefined();
    await (await backend.take('mint')).answer({ first: 9_000, count: 1 });
    const second = await backend.take('renew');
    await clock.pass(60);
    await second.answer({ status: 'renewed', remaining: 2_000 });
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(second, 2_000));
  });

  it('renewed after its lease had ended has other tokens: others may have had the name meanwhile', async () => {
    const { call, ticket } = await waiting({ ttl: 2_000 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 200, first: 5_000 }));
    const renew = await backend.take('renew');
    await clock.pass(250);
    await renew.answer({ status: 'renewed', remaining: 2_000 });
    const mint = await backend.take('mint');
    expect(call.lock).toBeUndefined();
    await mint.answer({ first: 9_000, count: 10 });
    expect((await call.held()).fencingToken).toBe(9_000);
  });

  it('is entered with a quarter of what the store grants, if that is less than the ttl', async () => {
    const { call, enqueue, ticket } = await joining({ ttl: 2_000 });
    await enqueue.answer(busy());
    await backend.tell(grantMessage(ticket, NAME, { claim: 100 }));
    const renew = await backend.take('renew');
    await renew.answer({ status: 'renewed', remaining: 120 });
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(renew, 120));
  });

  it('and no longer ours is no loss: a new ticket asks (R15)', async () => {
    const { call, ticket } = await waiting({ ttl: 2_000 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 200 }));
    await (await backend.take('renew')).answer({ status: 'not-owner' });
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    expect(call.error).toBeUndefined();
    expect(app.logger.lines).toEqual([]);
    await again.answer(granted({ remaining: 2_000 }));
    expect((await call.held()).owner).toBe(again.ticket);
  });

  it('is given back when the last caller gives up meanwhile; late answers are ignored', async () => {
    const { call, ticket } = await waiting({ ttl: 2_000 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 200 }));
    const renew = await backend.take('renew');
    await call.giveUp();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
    await renew.answer({ status: 'renewed', remaining: 2_000 });
    await quiet();
    expect(backend.releases).toEqual([ticket]);
    expect(backend.all('renew')).toHaveLength(1);
    expect(contenders()).toBe(0);
  });

  it('is renewed again when that fails, and given up when it ends', async () => {
    const { call, ticket } = await waiting({ ttl: 2_000 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 150 }));
    await (await backend.take('renew')).fail();
    const second = await backend.take('renew');
    expect(call.lock).toBeUndefined();
    await clock.pass(160);
    await second.fail();
    expect(backend.releases).toEqual([ticket]);
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    await again.answer(granted({ remaining: 2_000 }));
    expect((await call.held()).owner).toBe(again.ticket);
  });

  it('answered after a newer grant does not lengthen that (R12)', async () => {
    const { call, ticket } = await waiting({ ttl: 2_000 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 300 }));
    const renew = await backend.take('renew');
    await call.giveUp();
    const next = new Call({ ttl: 2_000 });
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted({ remaining: 1_000 }));
    const lock = await next.held();
    await renew.answer({ status: 'renewed', remaining: 60_000 });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 1_000));
  });
});

describe('tokens', () => {
  it('are reserved before they run out, and given to one holder each', async () => {
    const { lock, others, ticket } = await holding({ first: 10, count: 2 }, { behind: 3 });
    const mint = await backend.take('mint');
    expect(mint.request).toMatchObject({ ticket, name: NAME });
    await lock.release();
    const second = await others[0]?.held();
    await second?.release();
    // None is left: the next one waits for them.
    await quiet();
    expect(others[1]?.lock).toBeUndefined();
    expect(backend.all('mint')).toHaveLength(1);
    await mint.answer({ first: 50, count: 1 });
    const third = await others[1]?.held();
    const more = await backend.take('mint');
    await more.answer({ first: 60, count: 100 });
    await third?.release();
    const fourth = await others[2]?.held();
    expect([lock, second, third, fourth].map((each) => each?.fencingToken)).toEqual([10, 11, 50, 60]);
  });

  it('that were reserved for an earlier ticket are not used (R12)', async () => {
    const { requeue, again, others } = await requeueing({ behind: 2, count: 2 });
    const mint = await backend.take('mint');
    await backend.tell(grantMessage(again, NAME, { first: 8_000, count: 1 }));
    const lock = (await others[0]?.held()) as Lock;
    await requeue.answer(busy());
    await mint.answer({ first: 4_000, count: 64 });
    await lock.release();
    await quiet();
    expect(lock.fencingToken).toBe(8_000);
    expect(others[1]?.lock).toBeUndefined();
    const more = await backend.take('mint');
    expect(more.ticket).toBe(again);
    await more.answer({ first: 9_000, count: 1 });
    expect((await others[1]?.held())?.fencingToken).toBe(9_000);
  });

  it('of an old answer are not used, and those at hand are not stretched by it', async () => {
    const { lock, others } = await holding({ first: 100, count: 3 }, { behind: 3 });
    await (await backend.take('mint')).answer({ first: 50, count: 10 });
    await lock.release();
    const second = await others[0]?.held();
    await second?.release();
    const third = await others[1]?.held();
    await third?.release();
    await quiet();
    expect(others[2]?.lock).toBeUndefined();
    await (await backend.take('mint')).answer({ first: 500, count: 1 });
    const fourth = await others[2]?.held();
    expect([lock, second, third, fourth].map((each) => each?.fencingToken)).toEqual([100, 101, 102, 500]);
  });

  it('that are refused mean that the lock is not ours: between two holders no caller gets a loss', async () => {
    const { lock, others, ticket } = await holding({ first: 10, count: 1 }, { behind: 1 });
    const mint = await backend.take('mint');
    await lock.release();
    await mint.answer(null);
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    expect(others[0]?.error).toBeUndefined();
    await again.answer(granted());
    expect(await others[0]?.held()).toMatchObject({ owner: again.ticket });
  });

  it('that are refused while it is held mean that it is lost', async () => {
    const { lock } = await holding({ first: 10, count: 1 }, { behind: 1 });
    await (await backend.take('mint')).answer(null);
    expect(lock.held).toBe(false);
    expect(lock.signal.reason).toMatchObject({ reason: 'taken' });
    await backend.take('enqueue');
  });

  it('that are awaited when the last caller gives up leave nothing behind', async () => {
    const { lock, others, ticket } = await holding({ first: 10, count: 1 }, { behind: 1 });
    const mint = await backend.take('mint');
    await lock.release();
    await others[0]?.giveUp();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
    await mint.answer({ first: 20, count: 64 });
    await quiet();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
  });
});

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
    await backend.tell(grantMessage(again, NAME, { first: 3_000, claim: 1_000 }));
    const lock = await next.held();
    expect(lock).toMatchObject({ owner: again, fencingToken: 3_000 });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 1_000));
    expect(trustedUntil(lock)).toBeGreaterThan(until(requeue, 1_000) - 20);
  });

  it('is trusted from the send of that release: a message before the answer (R14)', async () => {
    const { requeue, again, next } = await requeueing();
    await clock.pass(60);
    await backend.tell(grantMessage(again, NAME, { claim: 1_000 }));
    const lock = await next.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 1_000));
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
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 1_000));
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
