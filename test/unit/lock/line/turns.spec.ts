import type { Lock } from 'nest-redis-lock';
import { LockLostError } from '../../../../lib/errors/lock-errors.js';
import {
  app,
  backend,
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
import { busy, type Command, granted, grantMessage } from '../../../support/scripted-backend.js';

startContender();

describe('a grant after a wait, where the session of the process is the lease', () => {
  it('lasts for what the caller asked for, and not for a claim: its body may block the event loop (R6)', async () => {
    Object.assign(backend, { traits: { ...backend.traits, lease: 'session' } });
    await openChannel();
    const call = new Call({ ttl: 30_000 });
    const enqueue = await backend.take('enqueue');
    expect(enqueue.request.claim).toBe(30_000);
    await enqueue.answer(busy());
    await backend.tell(grantMessage(enqueue.ticket, NAME, { claim: 9_000 }));
    const lock = await call.held();
    expect(lock.remaining()).toBeGreaterThan(8_000);
    await lock.release();
  });
});

describe('a turn for which many processes wait', () => {
  it('is over after its share of the time, also where the first request to wait was slow', async () => {
    await openChannel();
    const free = new Call();
    const acquire = await backend.take('enqueue');
    await clock.pass(1);
    await acquire.answer(granted());
    await (await free.held()).release();
    const call = new Call();
    const enqueue = await backend.take('enqueue');
    await clock.pass(20);
    await enqueue.answer(busy());
    await backend.tell(grantMessage(enqueue.ticket, NAME, { waiting: 39 }));
    const lock = await call.held();
    const again = new Call();
    await clock.pass(12);
    void lock.release();
    const requeue = await backend.take('requeue');
    expect(requeue.request.ticket).toBe(enqueue.ticket);
    await requeue.answer(granted());
    await (await again.held()).release();
  });
});

describe('a holder', () => {
  const RENEWED = { ttl: 1_000, renew: { interval: 30, timeout: 500 } };

  it('trusts a renewal from its send', async () => {
    const { lock } = await holding({ remaining: 500 }, { options: RENEWED });
    const renew = await backend.take('renew');
    await clock.pass(100);
    await renew.answer({ status: 'renewed', remaining: 1_000 });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(renew, 1_000));
    expect(trustedUntil(lock)).toBeGreaterThan(until(renew, 1_000) - 20);
  });

  it('keeps its deadline when a renewal is answered with less (R7)', async () => {
    const { lock, enqueue } = await holding({ remaining: 1_000 }, { options: RENEWED });
    await (await backend.take('renew')).answer({ status: 'renewed', remaining: 500 });
    expect(trustedUntil(lock)).toBeGreaterThan(until(enqueue, 1_000) - 20);
  });

  it('that lost the lock has lost it for good, whatever answers arrive later (R16)', async () => {
    const { lock, ticket } = await holding({ remaining: 300 }, { options: RENEWED });
    const renew = await backend.take('renew');
    await clock.eventually(() => !lock.held);
    await renew.answer({ status: 'renewed', remaining: 60_000 });
    expect(lock.held).toBe(false);
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    expect(backend.releases).toEqual([ticket]);
    await expect(lock.release()).rejects.toBeInstanceOf(LockLostError);
    await clock.eventually(() => contenders() === 0);
  });

  it('loses the lock at once when it is no longer the owner; those behind it ask again (R1, R16)', async () => {
    const { lock, ticket, others } = await holding({ remaining: 1_000 }, { options: RENEWED, behind: 1 });
    await (await backend.take('renew')).answer({ status: 'not-owner' });
    expect(lock.held).toBe(false);
    expect(lock.signal.reason).toMatchObject({ reason: 'taken' });
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    await again.answer(granted({ remaining: 1_000 }));
    const next = await others[0]?.held();
    await backend.tell({ kind: 'revoked', ticket });
    await expect(lock.release()).rejects.toBeInstanceOf(LockLostError);
    expect(next?.held).toBe(true);
    expect(backend.releases).toEqual([]);
  });

  it('loses the lock at once when it was taken by force', async () => {
    const { lock, ticket } = await holding();
    await backend.tell({ kind: 'revoked', ticket });
    expect(lock.held).toBe(false);
    expect(lock.signal.reason).toMatchObject({ reason: 'taken' });
    expect(contenders()).toBe(0);
  });

  it('passes the lease on to the next caller, with the next token; a renewal of its own still counts', async () => {
    const { lock, ticket, others } = await holding({ remaining: 1_000 }, { options: RENEWED, behind: 1 });
    const renew = await backend.take('renew');
    await lock.release();
    const next = (await others[0]?.held()) as Lock;
    expect(next).toMatchObject({ owner: ticket, fencingToken: lock.fencingToken + 1 });
    await renew.answer({ status: 'renewed', remaining: 1_000 });
    expect(trustedUntil(next)).toBeGreaterThan(until(renew, 1_000) - 20);
    expect(backend.releases).toEqual([]);
    expect(lock.held).toBe(false);
  });

  it('renews a lease that is too short before it passes it on (R15)', async () => {
    const { lock, ticket, others } = await holding(
      { remaining: 500 },
      { options: { ttl: 2_000, renew: { interval: 1_300, timeout: 1_000 } }, behind: 1 },
    );
    // Sent when the holder began, and not answered.
    await backend.take('renew');
    await clock.pass(270);
    await lock.release();
    const renew = await backend.take('renew');
    expect(renew.request).toMatchObject({ ticket, ttl: 2_000 });
    await quiet();
    expect(others[0]?.lock).toBeUndefined();
    await renew.answer({ status: 'renewed', remaining: 2_000 });
    expect(await others[0]?.held()).toMatchObject({ owner: ticket });
  });

  it.each([
    ['acquire', () => app.locks.acquire(NAME)],
    ['tryAcquire', () => app.locks.tryAcquire(NAME)],
  ])('keeps the lock for the tick in which withLock ends, for an %s that comes at once', async (_, ask) => {
    await openChannel();
    const twice = app.locks
      .withLock(NAME, async ({ fencingToken }) => fencingToken)
      .then(async (token) => ({ token, soon: await ask() }));
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted({ waiting: 1 }));
    const { token, soon } = await twice;
    expect(soon).toMatchObject({ owner: enqueue.ticket, fencingToken: token + 1 });
    expect(backend.releases).toEqual([]);
    await soon?.release();
    expect(backend.releases).toEqual([enqueue.ticket]);
    expect(contenders()).toBe(0);
  });

  it('gives the lock back after that tick', async () => {
    await openChannel();
    const body = app.locks.withLock(NAME, async () => {});
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted({ waiting: 1 }));
    await body;
    await quiet();
    expect(backend.releases).toEqual([enqueue.ticket]);
    expect(contenders()).toBe(0);
  });

  it('that releases by hand has released the lock when the call resolves, even if others wait', async () => {
    const { lock, ticket } = await holding({ waiting: 1 });
    await lock.release();
    expect(backend.releases).toEqual([ticket]);
  });
});

describe('a turn', () => {
  /** Callers of this process that hold it for no time at all, one after the other. Answers how many got in. */
  function rush(calls: readonly Call[]): { entered: number } {
    const state = { entered: 0 };
    for (const call of calls) {
      void call
        .held()
        .then((lock) => {
          state.entered += 1;
          return lock.release();
        })
        .catch(() => {});
    }
    return state;
  }

  it('has no end while no other process wants the lock', async () => {
    const { lock, others, ticket } = await holding({ count: 2_000 }, { behind: 200 });
    const turn = rush(others);
    await lock.release();
    await clock.eventually(() => turn.entered === 200);
    await quiet();
    expect(backend.all('requeue')).toEqual([]);
    expect(backend.releases).toEqual([ticket]);
  });

  it('ends after 64 holders when the grant said that others wait; it is passed on once (R11)', async () => {
    const { lock, others, ticket } = await holding({ waiting: 1 }, { behind: 200 });
    const turn = rush(others);
    await lock.release();
    const requeue = await backend.take('requeue');
    expect(requeue.request).toMatchObject({ name: NAME, ticket, claim: 1_000 });
    await quiet();
    expect(turn.entered).toBe(63);
    expect(backend.all('requeue')).toHaveLength(1);
    expect(backend.releases).toEqual([]);
  });

  it('ends after 512 holders where waiters poll', async () => {
    backend.queue.pace = () => 10;
    const { lock, others } = await holding({ waiting: 1, count: 2_000 }, { behind: 600 });
    const turn = rush(others);
    await lock.release();
    await backend.take('requeue');
    await quiet();
    expect(turn.entered).toBe(511);
  });

  it('ends when further tokens come with the word that others wait', async () => {
    const { lock, others, ticket } = await holding({ count: 65 }, { behind: 200 });
    const turn = rush(others);
    await lock.release();
    const mint = await backend.take('mint');
    await clock.eventually(() => turn.entered === 64);
    await mint.answer({ first: 5_000, count: 500, waiting: 1 });
    expect((await backend.take('requeue')).ticket).toBe(ticket);
    // The one that had waited for a token.
    expect(turn.entered).toBe(65);
  });

  it.each(['a message', 'a renewal', 'the grant'])(
    'ends after 50 ms when %s says that others wait (R11)',
    async (how) => {
      const options = { ttl: 1_000, renew: { interval: 20, timeout: 500 } };
      const waits = how === 'the grant' ? 1 : 0;
      const { lock, others, ticket } = await holding({ remaining: 1_000, waiting: waits }, { options, behind: 1 });
      if (how === 'a message') await backend.tell({ kind: 'wanted', ticket, name: NAME });
      if (how === 'a renewal') {
        await (await backend.take('renew')).answer({ status: 'renewed', remaining: 1_000, waiting: 1 });
      }
      await clock.pass(60);
      const released = lock.release();
      const requeue = await backend.take('requeue');
      expect(requeue.ticket).toBe(ticket);
      expect(others[0]?.lock).toBeUndefined();
      await requeue.answer(busy());
      await released;
    },
  );

  it.each([
    // The tenth begins after 54 ms and has ended after 60; the eleventh would take until 66.
    [6, 10],
    [50, 1],
  ])('of holds of %i ms serves those that waited for it while they end within 64 ms: %i', async (hold, served) => {
    const { call, enqueue } = await joining();
    const others = Array.from({ length: 20 }, () => new Call());
    await clock.pass(5);
    await enqueue.answer(granted({ waiting: 1, count: 1_000 }));
    let entered = 0;
    for (const each of [call, ...others]) {
      await clock.pass(0);
      if (!each.lock) break;
      entered += 1;
      await clock.pass(hold);
      void each.lock.release();
    }
    expect(backend.all('requeue')).toHaveLength(1);
    expect(entered).toBe(served);
  });

  it('goes on when another ticket is wanted (R12)', async () => {
    const { lock, others, ticket } = await holding({}, { behind: 1 });
    await backend.tell({ kind: 'wanted', ticket: `${ticket}0`, name: NAME });
    await clock.pass(60);
    await lock.release();
    expect(await others[0]?.held()).toMatchObject({ owner: ticket });
    expect(backend.all('requeue')).toEqual([]);
  });

  it('asks while callers wait behind its holder, lest a lost "wanted" keep others out (R11)', async () => {
    const { lock, others, ticket } = await holding({}, { behind: 1 });
    const heldAt = performance.now();
    const check = await backend.take('renew');
    expect(check.ticket).toBe(ticket);
    // As often as a waiter of another process sends a heartbeat.
    expect(check.sentAt - heldAt).toBeLessThanOrEqual(500);
    await check.answer({ status: 'renewed', remaining: 30_000, waiting: 2 });
    void lock.release();
    await backend.take('requeue');
    expect(others[0]?.lock).toBeUndefined();
  });

  it('asks also while no caller holds the lock: with short holds, that is whenever it has time to ask (R11)', async () => {
    const { lock, others, ticket } = await holding({ count: 1 }, { behind: 2 });
    const mint = await backend.take('mint');
    await lock.release();
    const check = await backend.take('renew');
    expect(check.ticket).toBe(ticket);
    await check.answer({ status: 'renewed', remaining: 30_000, waiting: 1 });
    await mint.answer({ first: 2_000, count: 1_000 });
    const next = await others[0]?.held();
    void next?.release();
    await backend.take('requeue');
    expect(others[1]?.lock).toBeUndefined();
  });

  it('asks for the name anew when it learns, without a holder, that the name is no longer its own', async () => {
    const { lock, ticket } = await holding({ count: 1 }, { behind: 1 });
    const mint = await backend.take('mint');
    await lock.release();
    await (await backend.take('renew')).answer({ status: 'not-owner' });
    const again = await backend.take('enqueue');
    expect(again.ticket).not.toBe(ticket);
    await mint.answer(null);
    expect(backend.releases).toEqual([]);
  });

  it('that ends while no caller of this process waits is released', async () => {
    const { lock, ticket } = await holding({ waiting: 1 });
    await clock.pass(60);
    await lock.release();
    expect(backend.releases).toEqual([ticket]);
    expect(backend.all('requeue')).toEqual([]);
    expect(contenders()).toBe(0);
  });
});

/** A hold that read inside of one that wrote, which has ended; a message reported the grant to the latter. */
async function readingOn() {
  await openChannel();
  let lock: Lock | undefined;
  const written = app.locks.withLock(NAME, { wait: 10_000 }, async () => {
    lock = await app.locks.acquire(NAME, { mode: 'read' });
  });
  const enqueue = await backend.take('enqueue');
  const { ticket } = enqueue;
  await backend.tell(grantMessage(ticket, NAME, { claim: 1_000 }));
  await written;
  await backend.take('downgrade');
  return { lock: lock as Lock, ticket, enqueue };
}

/** Whether the reader has the lock until it releases it, in one request. */
async function expectUntouched({ lock, ticket }: { lock: Lock; ticket: string }): Promise<void> {
  await quiet();
  expect(backend.releases).toEqual([]);
  expect(lock.held).toBe(true);
  await lock.release();
  expect(backend.releases).toEqual([ticket]);
  expect(contenders()).toBe(0);
}

describe('a lock that its writer has left to a reader', () => {
  it.each<[string, (enqueue: Command<'enqueue'>) => Promise<void>]>([
    ['the answer to the request arrives', (enqueue) => enqueue.answer(granted({ first: 9_000 }))],
    ['the request fails', (enqueue) => enqueue.fail()],
  ])('is not released when %s after the message of the grant', async (_, arrives) => {
    const reading = await readingOn();
    await arrives(reading.enqueue);
    await expectUntouched(reading);
  });
});

describe('a queue that throws instead of answering', () => {
  const broken = () => {
    throw new Error('broken');
  };

  it('fails the calls, and the next ones are served', async () => {
    const { enqueue } = backend.queue;
    backend.queue.enqueue = broken;
    await expect(app.locks.tryAcquire(NAME)).rejects.toThrow('broken');
    const call = new Call({ wait: 500 });
    await clock.pass(600);
    expect(call.error).toHaveProperty('message', expect.stringContaining('broken'));
    expect(contenders()).toBe(0);
    expect(app.locks.backendState(undefined)).toMatchObject({ held: 0, waiting: 0 });
    backend.queue.enqueue = enqueue;
    const next = new Call({ wait: 500 });
    await (await backend.take('enqueue')).answer(granted());
    await (await next.held()).release();
  });

  it('in a heartbeat is asked again', async () => {
    const { beat } = backend.queue;
    const { call } = await waiting({}, { first: true, remaining: 5 });
    backend.queue.beat = broken;
    await clock.pass(10);
    backend.queue.beat = beat;
    await (await backend.take('beat')).answer(granted());
    expect((await call.held()).held).toBe(true);
  });
});
