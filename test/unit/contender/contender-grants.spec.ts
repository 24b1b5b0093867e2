import { type Lock } from 'nest-redis-lock';
import { busy, granted, grantMessage } from '../../support/scripted-backend.js';
import {
  startContender,
  NAME,
  clock,
  backend,
  app,
  Call,
  joining,
  waiting,
  holding,
  contenders,
  until,
  trustedUntil,
  quiet,
  requeueing,
} from '../../support/contender-at-backend.js';

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
    expect(backend.all('release')[1]?.request).toMatchObject({ names: ['another'], ticket: stranger });
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
    const second = await backend.take('renew');
    await clock.pass(60);
    await second.answer({ status: 'renewed', remaining: 2_000 });
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(second, 2_000));
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
