import { LockLostError, LockTimeoutError, type Lock, type LockOptions } from 'nest-redis-lock';
import { driftOf } from '../../lib/lock/lease/lease-clock.js';
import { LockBackends } from '../../lib/lock/backend/lock-backends.js';
import { DrivenClock } from '../support/driven-clock.js';
import { startLockApp, type LockApp } from '../support/lock-app.js';
import { busy, granted, grantMessage, ScriptedBackend, type Command } from '../support/scripted-backend.js';

/**
 * The process side of the hand-over: answers and messages are delivered by hand, late, twice and in any order. R1 to
 * R17 are the rules of docs/protocol.md, "Why it is safe".
 */

const NAME = 'job';

const clock = new DrivenClock();
let backend: ScriptedBackend;
let app: LockApp;

beforeEach(async () => {
  clock.start();
  backend = new ScriptedBackend(clock);
  app = await startLockApp({ backend, commandTimeout: 3_000, shutdownGrace: 0 });
});
afterEach(async () => {
  backend.giveUp();
  await clock.settle(app.close());
  clock.stop();
});

/** One call of `acquire`, and what became of it. */
class Call {
  lock: Lock | undefined;
  error: unknown;
  private readonly controller = new AbortController();
  private readonly settled: Promise<void>;

  constructor(options: LockOptions = {}) {
    const { signal } = this.controller;
    this.settled = app.locks.acquire(NAME, { wait: 10_000, signal, ...options }).then(
      (lock) => void (this.lock = lock),
      (error: unknown) => void (this.error = error),
    );
  }

  async held(): Promise<Lock> {
    await this.settled;
    if (!this.lock) throw this.error;
    return this.lock;
  }

  async giveUp(): Promise<void> {
    this.controller.abort(new Error('given up'));
    await this.settled;
  }
}

/** Has the channel open and nothing else, so that the next call queues with its first request. */
async function openChannel(): Promise<void> {
  const first = new Call();
  await (await backend.take('enqueue')).answer(busy());
  await backend.take('listen');
  await backend.take('enqueue');
  await first.giveUp();
  backend.sent.length = 0;
}

/** A call whose request to queue is under way. */
async function joining(
  options: LockOptions = {},
): Promise<{ call: Call; enqueue: Command<'enqueue'>; ticket: string }> {
  await openChannel();
  const call = new Call(options);
  const enqueue = await backend.take('enqueue');
  expect(enqueue.request.claim).toBe(Math.min(1_000, Number(options.ttl ?? 30_000)));
  return { call, enqueue, ticket: enqueue.ticket };
}

/** A call whose ticket waits. */
async function waiting(options: LockOptions = {}, answer: Parameters<typeof busy>[0] = {}) {
  const joined = await joining(options);
  await joined.enqueue.answer(busy(answer));
  return joined;
}

/** A waiting call whose heartbeat is under way. */
async function beating(options: LockOptions = {}, answer: Parameters<typeof busy>[0] = {}) {
  const waits = await waiting(options, { first: true, remaining: 5, ...answer });
  return { ...waits, beat: await backend.take('beat') };
}

/** A call that holds, and others of this process that wait behind it. */
async function holding(
  answer: Parameters<typeof granted>[0] = {},
  { options = {}, behind = 0 }: { options?: LockOptions; behind?: number } = {},
) {
  const { call, enqueue, ticket } = await joining(options);
  const others = Array.from({ length: behind }, () => new Call(options));
  await enqueue.answer(granted(answer));
  return { lock: await call.held(), ticket, others, enqueue };
}

/** How many names the process has in memory, because a caller wants them. */
function contenders(): number {
  return app.app.get(LockBackends).main.contenders?.size ?? 0;
}

/** The latest instant until which a lease of so many ms may be trusted whose request was sent then. */
function until({ sentAt }: { sentAt: number }, lease: number): number {
  return sentAt + lease - driftOf(lease);
}

/** Until when the holder trusts it. */
function trustedUntil(lock: Lock): number {
  return performance.now() + lock.remaining();
}

/** Nothing happens any more that was set off by what was delivered. */
const quiet = () => clock.pass(30);

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

  it('is granted what the lease has left, and not what was asked for (R5)', async () => {
    const { call, enqueue } = await joining({ ttl: 1_000 });
    await enqueue.answer(granted({ remaining: 600 }));
    expect(trustedUntil(await call.held())).toBeLessThanOrEqual(until(enqueue, 600));
  });

  it('is granted by a message before the answer: from the send of the request; the answer is ignored', async () => {
    const { call, enqueue, ticket } = await joining();
    await clock.pass(120);
    await backend.tell(grantMessage(ticket, NAME, { claim: 5_000, first: 7 }));
    const lock = await call.held();
    expect(lock).toMatchObject({ fencingToken: 7, owner: ticket });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 5_000));
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
    await backend.tell(grantMessage(ticket, NAME, { claim: 5_000, first: 7, count: 500 }));
    const lock = await call.held();
    await enqueue.answer(granted({ remaining: 60_000, first: 9_000 }));
    await backend.tell(grantMessage(ticket, NAME, { claim: 60_000, first: 9_000 }));
    await quiet();
    expect(second.lock).toBeUndefined();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 5_000));
    expect(backend.releases).toEqual([]);
    await lock.release();
    expect((await second.held()).fencingToken).toBe(8);
  });

  it('is given up with its last caller, and what is granted later is given back (R12, R13)', async () => {
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

  it('is given up with its last caller, and leaves the queue also where the release overtook the request', async () => {
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
    await backend.tell(grantMessage(ticket, NAME, { claim: 5_000 }));
    const lock = await call.held();
    expect(beat.sentAt).toBeGreaterThan(enqueue.sentAt + 50);
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(beat, 5_000));
    expect(trustedUntil(lock)).toBeGreaterThan(until(beat, 5_000) - 20);
  });

  it('does not count a message from a heartbeat that is not answered (R5)', async () => {
    const { call, beat, ticket, enqueue } = await beating({}, { remaining: 60 });
    await backend.tell(grantMessage(ticket, NAME, { claim: 5_000 }));
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 5_000));
    expect(beat.sentAt).toBeGreaterThan(enqueue.sentAt + 50);
  });

  it('granted by the answer to a heartbeat has what the lease has left; a message adds nothing (R5)', async () => {
    const { call, beat, ticket } = await beating();
    await clock.pass(60);
    await beat.answer(granted({ remaining: 4_000 }));
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(beat, 4_000));
    await backend.tell(grantMessage(ticket, NAME, { claim: 5_000 }));
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(beat, 4_000));
  });

  it('granted by a message and by the answer to a heartbeat is entered once', async () => {
    const { call, beat, ticket, enqueue } = await beating();
    const second = new Call();
    await backend.tell(grantMessage(ticket, NAME, { first: 7, claim: 5_000 }));
    const lock = await call.held();
    await beat.answer(granted({ remaining: 60_000, first: 9_000 }));
    await quiet();
    expect(second.lock).toBeUndefined();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(enqueue, 5_000));
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

  it('goes by what the last heartbeat said was issued (R8)', async () => {
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

  it('says that it lives, one heartbeat at a time, also when one fails', async () => {
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

  it('beats when the lease of the owner ends, where it is the first (R17)', async () => {
    await waiting({}, { first: true, remaining: 40 });
    const answeredAt = performance.now();
    await backend.take('beat');
    expect(performance.now() - answeredAt).toBeLessThan(400);
  });

  it('asks often where no message reaches it, and seldom where its turn is far', async () => {
    const { beat, ticket } = await beating({ ttl: 1_000 }, { first: true, remaining: 30_000 });
    await beat.answer(busy({ first: true, unreached: true, remaining: 30_000 }));
    const often = await backend.take('beat');
    expect(often.sentAt - beat.sentAt).toBeLessThan(300);
    await often.answer(busy({ far: true, remaining: 10 }));
    const seldom = await backend.take('beat');
    expect(seldom.sentAt - often.sentAt).toBeGreaterThan(900);
    expect(seldom.ticket).toBe(ticket);
  });

  it('does not beat any more once it is granted', async () => {
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

  it('leaves with its last caller, and what is granted meanwhile is given back (R13)', async () => {
    const { call, beat, ticket } = await beating();
    await call.giveUp();
    expect(backend.releases).toEqual([ticket]);
    expect(contenders()).toBe(0);
    await beat.answer(granted());
    expect(backend.releases).toEqual([ticket, ticket]);
    expect(backend.all('beat')).toHaveLength(1);
  });

  it('leaves when the time of its last caller is over, and says who holds it', async () => {
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
    // Still too short: a quarter of the claim must be left.
    await first.answer({ status: 'renewed', remaining: 240 });
    expect(call.lock).toBeUndefined();
    const second = await backend.take('renew');
    await clock.pass(60);
    await second.answer({ status: 'renewed', remaining: 2_000 });
    const lock = await call.held();
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(second, 2_000));
  });

  it('and is not ours any more is no loss: a new ticket asks (R15)', async () => {
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

  it('trusts what it had when a renewal is answered with less (R7)', async () => {
    const { lock, enqueue } = await holding({ remaining: 1_000 }, { options: RENEWED });
    await (await backend.take('renew')).answer({ status: 'renewed', remaining: 500 });
    expect(trustedUntil(lock)).toBeGreaterThan(until(enqueue, 1_000) - 20);
  });

  it('that lost it has lost it for good, whatever is answered later (R16)', async () => {
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

  it('is told at once that it is not the owner any more; those behind it ask anew (R1, R16)', async () => {
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

  it('is told at once that its lock was taken by force', async () => {
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

  it('does not pass on a lease that is too short for the next caller (R15)', async () => {
    const { lock, ticket, others } = await holding(
      { remaining: 500 },
      { options: { ttl: 2_000, renew: { interval: 1_300 } }, behind: 1 },
    );
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

  it('that releases by hand has given the lock back when it is told so, whoever waits', async () => {
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

  it('has no end while nobody else wants the lock', async () => {
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
    const check = await backend.take('renew');
    expect(check.ticket).toBe(ticket);
    await check.answer({ status: 'renewed', remaining: 30_000, waiting: 2 });
    void lock.release();
    await backend.take('requeue');
    expect(others[0]?.lock).toBeUndefined();
  });

  it('that ends with nobody here waiting is released', async () => {
    const { lock, ticket } = await holding({ waiting: 1 });
    await clock.pass(60);
    await lock.release();
    expect(backend.releases).toEqual([ticket]);
    expect(backend.all('requeue')).toEqual([]);
    expect(contenders()).toBe(0);
  });
});

/** A holder whose turn is over, with others of this process behind it: the lock is being passed on. */
async function requeueing({ behind = 1, count = 1_000 } = {}) {
  const { lock, ticket, others } = await holding({ waiting: 1, count }, { behind });
  await clock.pass(55);
  const outcome = { released: false, error: undefined as unknown };
  const released = lock.release().then(
    () => void (outcome.released = true),
    (error: unknown) => void (outcome.error = error),
  );
  const requeue = await backend.take('requeue');
  const { again } = requeue.request;
  expect(new Set([ticket, again]).size).toBe(2);
  return { lock, ticket, requeue, again, others, outcome, released, next: others[0] as Call };
}

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

  it('is granted again where nobody else waited after all', async () => {
    const { requeue, again, next } = await requeueing();
    await clock.pass(60);
    await requeue.answer(granted({ first: 8_000, remaining: 5_000 }));
    const lock = await next.held();
    expect(lock).toMatchObject({ owner: again, fencingToken: 8_000 });
    expect(trustedUntil(lock)).toBeLessThanOrEqual(until(requeue, 5_000));
  });

  it('is not queued where the lock was not ours any more: a new one asks, and the holder hears of it', async () => {
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

  it('may be queued where the request was sent twice: it is taken out, and nobody is told of a loss', async () => {
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

  it('that are refused mean that the lock is not ours: between two holders no caller hears of a loss', async () => {
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

describe('whoever gives up', () => {
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

  it('behind a holder leaves that one alone', async () => {
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

  it('does so alone with order: fifo: each caller has a ticket, which it takes along', async () => {
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

describe('several names', () => {
  it('are given up when the wait is cancelled while one of them is given back', async () => {
    delete backend.atOnce.release;
    const controller = new AbortController();
    const taking = app.locks.acquire(['a', 'b'], { wait: 20_000, signal: controller.signal });
    const outcome = taking.catch((error: unknown) => error);
    await (await backend.take('acquire')).answer({ granted: false, name: 'a', owner: 'x', remaining: 5_000 });
    await (await backend.take('enqueue')).answer(granted());
    await (await backend.take('acquire')).answer({ granted: false, name: 'b', owner: 'x', remaining: 5_000 });
    const release = await backend.take('release');
    controller.abort(new Error('given up'));
    await release.answer({ status: 'released', resent: false });
    expect(await outcome).toEqual(new Error('given up'));
    expect(contenders()).toBe(0);
  });
});

describe('one try', () => {
  it('is refused by whoever holds it here, without asking', async () => {
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
});
