import type { NameRequest } from 'nest-redis-lock/backend';
import { LockBackendError, LockTimeoutError } from '../../../../lib/errors/lock-errors.js';
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
  startContender,
  trustedUntil,
  until,
  waiting,
} from '../../../support/contender-at-backend.js';
import { busy, granted, grantMessage } from '../../../support/scripted-backend.js';

startContender();

describe('a ticket that joins', () => {
  it('is granted by an answer: trusted from the send of the request, with a margin (R5)', async () => {
    const { call, enqueue } = await joining({ ttl: 1_000 });
    await clock.pass(120);
    await enqueue.answer(granted({ remaining: 1_000, first: 77 }));
    const lock = await call.held();
    expect(lock.fencingToken).toBe(77);
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 1_000));
    expect(trustedUntil(lock)).toBeGreaterThan(until(enqueue, 1_000) - 20);
  });

  it('is granted what is left of the lease, not what was requested (R5)', async () => {
    const { call, enqueue } = await joining({ ttl: 1_000 });
    await enqueue.answer(granted({ remaining: 600 }));
    expect(trustedUntil(await call.held())).toBeLessThanOrEqual(until(enqueue, 600));
  });

  it('is granted by a message before the answer: from the send of the request; the answer is ignored', async () => {
    const { call, enqueue, ticket } = await joining();
    await clock.pass(120);
    await backend.tell(grantMessage(ticket, NAME, { claim: 1_000, first: 7 }));
    const lock = await call.held();
    expect(lock).toMatchObject({ fencingToken: 7, owner: ticket });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 1_000));
    await enqueue.answer(busy({ unissued: 900, first: true, remaining: 1 }));
    await quiet();
    expect(lock.held).toBe(true);
    expect(backend.all('beat')).toEqual([]);
    expect(backend.releases).toEqual([]);
    await lock.release();
    expect(backend.releases).toEqual([ticket]);
  });

  it('granted by a message keeps the lock when its request fails or is never answered', async () => {
    const { call, enqueue, ticket } = await joining();
    await backend.tell(grantMessage(ticket, NAME));
    const lock = await call.held();
    await enqueue.fail();
    await quiet();
    expect(backend.releases).toEqual([]);
    expect(lock.held).toBe(true);
    await lock.release();
  });

  it('granted twice, by a message and by its answer, is entered once', async () => {
    const { call, enqueue, ticket } = await joining();
    const second = new Call();
    await backend.tell(grantMessage(ticket, NAME, { claim: 1_000, first: 7, count: 500 }));
    const lock = await call.held();
    await enqueue.answer(granted({ remaining: 60_000, first: 9_000 }));
    await backend.tell(grantMessage(ticket, NAME, { claim: 60_000, first: 9_000 }));
    await quiet();
    expect(second.lock).toBeUndefined();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 1_000));
    expect(backend.releases).toEqual([]);
    await lock.release();
    expect((await second.held()).fencingToken).toBe(8);
  });

  it('is given up with its last caller, and a later grant is given back (R12, R13)', async () => {
    const { call, enqueue, ticket } = await joining();
    await call.giveUp();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
    await enqueue.answer(granted());
    expect(backend.releases).toEqual([ticket, ticket]);
    await backend.tell(grantMessage(ticket, NAME));
    expect(backend.releases).toEqual([ticket, ticket, ticket]);
    expect(contenders()).toBe(0);
  });

  it('is given up with its last caller, and leaves the queue even if the release overtook the request', async () => {
    const { call, enqueue, ticket } = await joining();
    await call.giveUp();
    expect(backend.releases).toEqual([ticket]);
    await enqueue.answer(busy());
    expect(backend.releases).toEqual([ticket, ticket]);
    expect(contenders()).toBe(0);
  });

  it('stays while another caller waits', async () => {
    const { call, enqueue, ticket } = await joining();
    const second = new Call();
    await call.giveUp();
    expect(backend.releases).toEqual([]);
    await enqueue.answer(granted());
    expect((await second.held()).owner).toBe(ticket);
  });

  it('that is not answered in time is given up, and a new one asks (R1, R13)', async () => {
    const { call, enqueue, ticket } = await joining();
    await enqueue.fail();
    expect(backend.releases).toEqual([ticket]);
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    await again.answer(granted());
    expect((await call.held()).owner).toBe(again.ticket);
  });
});

describe('a ticket that waits', () => {
  it('is granted by a message: trusted from the send of the last request answered "it waits" (R5)', async () => {
    const { call, beat, ticket, enqueue } = await beating({}, { remaining: 60 });
    await clock.pass(60);
    await beat.answer(busy());
    await clock.pass(60);
    await backend.tell(grantMessage(ticket, NAME, { claim: 1_000 }));
    const lock = await call.held();
    expect(beat.sentAt).toBeGreaterThan(enqueue.sentAt + 50);
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(beat, 1_000));
    expect(trustedUntil(lock)).toBeGreaterThan(until(beat, 1_000) - 20);
  });

  it('does not count a message from a heartbeat that is not answered (R5)', async () => {
    const { call, beat, ticket, enqueue } = await beating({}, { remaining: 60 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 1_000 }));
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 1_000));
    expect(beat.sentAt).toBeGreaterThan(enqueue.sentAt + 50);
  });

  it('granted by the answer to a heartbeat has what is left of the lease; a message adds nothing (R5)', async () => {
    const { call, beat, ticket } = await beating();
    await clock.pass(60);
    await beat.answer(granted({ remaining: 4_000 }));
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(beat, 4_000));
    await backend.tell(grantMessage(ticket, NAME, { claim: 1_000 }));
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(beat, 4_000));
  });

  it('granted by a message and by the answer to a heartbeat is entered once', async () => {
    const { call, beat, ticket, enqueue } = await beating();
    const second = new Call();
    await backend.tell(grantMessage(ticket, NAME, { first: 7, claim: 1_000 }));
    const lock = await call.held();
    await beat.answer(granted({ remaining: 60_000, first: 9_000 }));
    await quiet();
    expect(second.lock).toBeUndefined();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 1_000));
    expect(backend.releases).toEqual([]);
    await lock.release();
    expect((await second.held()).fencingToken).toBe(8);
  });

  it.each(['busy', 'gone'] as const)('and holds ignores "%s" from an old heartbeat (R12)', async (status) => {
    const { call, beat, ticket } = await beating();
    await backend.tell(grantMessage(ticket, NAME));
    const lock = await call.held();
    await beat.answer(status === 'gone' ? { status } : busy({ first: true, remaining: 1 }));
    await quiet();
    expect(lock.held).toBe(true);
    expect(backend.all('enqueue')).toHaveLength(1);
    expect(backend.all('beat')).toHaveLength(1);
  });

  it('drops a message with a token that had been issued when it was queued (R8)', async () => {
    const { call, ticket } = await waiting({}, { unissued: 1_000 });
    await backend.tell(grantMessage(ticket, NAME, { first: 999 }));
    await quiet();
    expect(call.lock).toBeUndefined();
    expect(backend.releases).toEqual([]);
    await backend.tell(grantMessage(ticket, NAME, { first: 1_000 }));
    expect((await call.held()).fencingToken).toBe(1_000);
  });

  it('drops messages below what the last heartbeat said was issued (R8)', async () => {
    const { call, beat, ticket } = await beating({}, { unissued: 1_000 });
    await beat.answer(busy({ unissued: 2_000 }));
    await backend.tell(grantMessage(ticket, NAME, { first: 1_500 }));
    await quiet();
    expect(call.lock).toBeUndefined();
    await backend.tell(grantMessage(ticket, NAME, { first: 2_000 }));
    expect((await call.held()).fencingToken).toBe(2_000);
  });

  it('that is gone is replaced by a new one; old messages are given back (R2, R13)', async () => {
    const { call, beat, ticket } = await beating();
    await beat.answer({ status: 'gone' });
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    await backend.tell(grantMessage(ticket, NAME));
    expect(call.lock).toBeUndefined();
    expect(backend.releases).toEqual([ticket]);
    await again.answer(granted());
    expect((await call.held()).owner).toBe(again.ticket);
  });

  it('sends one heartbeat at a time, even after one failed', async () => {
    const { beat, ticket } = await beating({ ttl: 200 });
    await clock.pass(120);
    expect(backend.all('beat')).toHaveLength(1);
    await beat.fail();
    const second = await backend.take('beat');
    await second.answer(busy());
    const third = await backend.take('beat');
    expect(new Set([second.ticket, third.ticket])).toEqual(new Set([ticket]));
    // Half of the claim.
    expect(third.sentAt - second.sentAt).toBeGreaterThan(95);
  });

  it('beats when the lease of the owner ends, if it is the first (R17)', async () => {
    await waiting({}, { first: true, remaining: 40 });
    const answeredAt = performance.now();
    await backend.take('beat');
    expect(performance.now() - answeredAt).toBeLessThan(400);
  });

  it('beats when the lease of the owner ends, and not just before: that of a dead one would cost a heartbeat more', async () => {
    const { enqueue } = await waiting({ ttl: 10_000 }, { remaining: 515 });
    const beat = await backend.take('beat');
    expect(beat.sentAt - enqueue.sentAt).toBeGreaterThanOrEqual(515);
    await beat.answer(busy({ remaining: 1_000 }));
    expect((await backend.take('beat')).sentAt - beat.sentAt).toBeLessThan(515);
  });

  it('asks often if no message reaches it, and seldom if its turn is far', async () => {
    const { beat, ticket } = await beating({ ttl: 1_000 }, { first: true, remaining: 30_000 });
    await beat.answer(busy({ first: true, unreached: true, remaining: 30_000 }));
    const often = await backend.take('beat');
    expect(often.sentAt - beat.sentAt).toBeLessThan(300);
    await often.answer(busy({ far: true, remaining: 10 }));
    const seldom = await backend.take('beat');
    expect(seldom.sentAt - often.sentAt).toBeGreaterThan(900);
    expect(seldom.ticket).toBe(ticket);
  });

  it('no longer beats once it is granted', async () => {
    const { call, ticket } = await waiting({}, { first: true, remaining: 40 });
    await backend.tell(grantMessage(ticket, NAME));
    await call.held();
    await clock.pass(80);
    expect(backend.all('beat')).toEqual([]);
  });

  it('beats at once when messages may have been lost', async () => {
    await waiting();
    await backend.reconnect();
    expect(backend.all('beat')).toHaveLength(1);
    await backend.reconnect();
    expect(backend.all('beat')).toHaveLength(1);
  });

  it('leaves with its last caller, and a grant meanwhile is given back (R13)', async () => {
    const { call, beat, ticket } = await beating();
    await call.giveUp();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
    await beat.answer(granted());
    expect(backend.releases).toEqual([ticket, ticket]);
    expect(backend.all('beat')).toHaveLength(1);
  });

  it('leaves when the wait of its last caller is over, and says who holds the name', async () => {
    const { call, ticket } = await waiting({ wait: 60 }, { owner: 'other:7' });
    await expect(clock.settle(call.held())).rejects.toMatchObject({
      code: 'LOCK_TIMEOUT',
      message: expect.stringMatching(/held by other:7/),
    });
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
    await clock.pass(60);
    expect(backend.all('beat')).toEqual([]);
  });

  it('leaves when the application ends', async () => {
    const { call, ticket } = await waiting();
    await clock.settle(app.close());
    await expect(call.held()).rejects.toThrow(/shut/i);
    expect(backend.releases).toEqual([ticket]);
  });
});

describe('several names', () => {
  it('are given up when the wait is cancelled while one of them is given back', async () => {
    delete backend.atOnce.release;
    const controller = new AbortController();
    const taking = app.locks.acquire(['a', 'b'], { wait: 20_000, signal: controller.signal });
    const outcome = taking.catch((error: unknown) => error);
    await (await backend.take('acquire')).answer({ status: 'busy', name: 'a', owner: 'x', remaining: 5_000 });
    await (await backend.take('enqueue')).answer(granted());
    await (await backend.take('acquire')).answer({ status: 'busy', name: 'b', owner: 'x', remaining: 5_000 });
    const release = await backend.take('release');
    controller.abort(new Error('given up'));
    await release.answer({ status: 'released', resent: false });
    expect(await outcome).toEqual(new Error('given up'));
    expect(contenders()).toBe(0);
  });
});

describe('one try', () => {
  it('is refused by a holder of this process, without a request', async () => {
    const { lock } = await holding();
    expect(await app.locks.tryAcquire(NAME)).toBeNull();
    expect(lock.held).toBe(true);
    expect(backend.all('acquire')).toEqual([]);
    expect(backend.all('enqueue')).toHaveLength(1);
  });

  it('never queues, and a late grant is given back (R13)', async () => {
    await openChannel();
    const call = new Call({ wait: 0 });
    const enqueue = await backend.take('enqueue');
    expect(enqueue.request.claim).toBeUndefined();
    await enqueue.answer(busy({ owner: 'other:3' }));
    await expect(call.held()).rejects.toBeInstanceOf(LockTimeoutError);
    expect(contenders()).toBe(0);
    const late = new Call({ wait: 0 });
    const again = await backend.take('enqueue');
    await late.giveUp();
    await again.answer(granted());
    expect(backend.releases.at(-1)).toBe(again.ticket);
    expect(contenders()).toBe(0);
  });

  it('asks once more after a release in the background, within the limit of one request', async () => {
    const { lock } = await holding({}, { options: { release: 'background' } });
    delete backend.atOnce.release;
    await lock.release();
    const release = await backend.take('release');
    const call = new Call({ wait: 0 });
    const enqueue = await backend.take('enqueue');
    await clock.pass(2_000);
    await enqueue.answer(busy());
    await release.answer({ status: 'released', resent: false });
    await backend.take('enqueue');
    await clock.pass(1_100);
    expect(call.error).toBeInstanceOf(LockBackendError);
  });
});

describe('where waiters poll', () => {
  let waysGiven: NameRequest[];
  beforeEach(() => {
    waysGiven = [];
    backend.queue.pace = () => 50;
    backend.queue.giveWay = (request) => void waysGiven.push(request);
  });

  describe('where waiters poll, a turn', () => {
    it.each([
      ['another caller of this process', 1],
      ['no other caller of this process', 0],
    ])('that ends before %s gives way to other processes that wait', async (_who, behind) => {
      const { lock } = await holding({ waiting: 1 }, { behind });
      await clock.pass(60);
      const released = lock.release();
      if (behind > 0) await (await backend.take('requeue')).answer(busy());
      await released;
      expect(waysGiven).toEqual([{ prefix: undefined, name: NAME }]);
    });

    it.each([
      ['that is not over', 1, 10],
      ['of a process that waits alone', 0, 60],
    ])('%s gives no way', async (_which, others, time) => {
      const { lock } = await holding({ waiting: others });
      await clock.pass(time);
      await lock.release();
      expect(waysGiven).toEqual([]);
    });

    it('of which nobody knows whether others wait gives no way', async () => {
      const { call, enqueue } = await joining();
      await enqueue.answer({
        status: 'granted',
        tokens: { first: 1, count: 9 },
        remaining: 30_000,
        waiting: undefined,
      });
      const lock = await call.held();
      await clock.pass(60);
      await lock.release();
      expect(waysGiven).toEqual([]);
    });
  });

  describe('where waiters poll, a caller', () => {
    it('asks at the pace for its name', async () => {
      const asked: NameRequest[] = [];
      backend.queue.pace = (request) => {
        asked.push(request);
        return 40;
      };
      const { enqueue } = await waiting({ wait: 10_000 }, { remaining: 60_000 });
      const beat = await backend.take('beat');
      expect(asked).toEqual([{ prefix: undefined, name: NAME }]);
      expect(beat.sentAt - enqueue.sentAt).toBeGreaterThanOrEqual(35);
    });

    it('asks before its wait is over, also where the pace is longer', async () => {
      backend.queue.pace = () => 5_000;
      const { enqueue } = await waiting({ wait: 200 }, { remaining: 60_000 });
      const beat = await backend.take('beat');
      expect(beat.sentAt - enqueue.sentAt).toBeLessThan(150);
    });

    it('asks 5 ms after an answer at the earliest, however soon its wait is over', async () => {
      backend.queue.pace = () => 5_000;
      backend.atOnce.beat = () => busy({ remaining: 60_000 });
      const { call, enqueue } = await waiting({ wait: 200 }, { remaining: 60_000 });
      await clock.pass(250);
      expect(call.error).toBeInstanceOf(LockTimeoutError);
      const sent = [enqueue, ...backend.all('beat')].map(({ sentAt }) => sentAt);
      const pauses = sent.slice(1).map((at, index) => at - (sent[index] as number));
      expect(pauses.length).toBeGreaterThan(3);
      expect(Math.min(...pauses)).toBeGreaterThanOrEqual(5);
    });

    it.each([
      [10, false],
      [200, false],
      [201, true],
    ])('that waits for %d ms can let other processes ask first: %s', async (wait, patient) => {
      const { enqueue } = await joining({ wait });
      expect(enqueue.request.patient).toBe(patient);
    });
  });
});
