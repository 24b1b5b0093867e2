import { jest } from '@jest/globals';
import type { Lock, LockOptions } from 'nest-redis-lock';
import { LockConfigError, LockTimeoutError } from '../../../../lib/errors/lock-errors.js';
import {
  app,
  backend,
  Call,
  clock,
  contenders,
  holding,
  NAME,
  openChannel,
  quiet,
  startContender,
} from '../../../support/contender-at-backend.js';
import { busy, granted, grantMessage } from '../../../support/scripted-backend.js';

startContender();

const LINGER: LockOptions = { linger: 10_000 };

/** The name has been released, and lingers. */
async function lingering(
  answer: Parameters<typeof granted>[0] = {},
  options: LockOptions = LINGER,
): Promise<{ ended: Lock; ticket: string }> {
  const { lock, ticket } = await holding(answer, { options });
  await lock.release();
  await quiet();
  expect(lock.held).toBe(false);
  expect(backend.releases).toEqual([]);
  return { ended: lock, ticket };
}

/** What the process has asked of the store. */
function requests(): number {
  return backend.sent.length;
}

it('goes to the next call without a request, with a greater fencing token', async () => {
  const { ended, ticket } = await lingering();
  const before = requests();
  let token = ended.fencingToken;
  for (const options of [{ ...LINGER }, { ...LINGER, wait: 0 }, LINGER, LINGER]) {
    const lock = await new Call(options).held();
    expect(lock).toMatchObject({ owner: ticket, held: true });
    expect(lock.fencingToken).toBeGreaterThan(token);
    token = lock.fencingToken;
    await lock.release();
    await quiet();
  }
  expect(requests()).toBe(before);
});

it('is released when it is over, counted from the last release', async () => {
  const { ticket } = await lingering();
  await clock.pass(9_900);
  const lock = await new Call(LINGER).held();
  await lock.release();
  await clock.pass(9_900);
  expect(backend.releases).not.toContain(ticket);
  await clock.pass(200);
  expect(backend.releases).toContain(ticket);
  expect(contenders()).toBe(0);
});

it('is released with a hold that does not linger', async () => {
  const { ticket } = await lingering();
  await (await new Call().held()).release();
  expect(backend.releases).toEqual([ticket]);
});

it('is handed over at the message that another process waits', async () => {
  const { ticket } = await lingering();
  await backend.tell({ kind: 'wanted', ticket: 'other:1', name: NAME });
  expect(backend.releases).toEqual([]);
  await backend.tell({ kind: 'wanted', ticket, name: NAME });
  expect(backend.releases).toEqual([ticket]);
  expect(contenders()).toBe(0);
});

it('does not begin where another process waits', async () => {
  const first = await holding({ waiting: 1 }, { options: LINGER });
  await first.lock.release();
  await quiet();
  expect(backend.releases).toEqual([first.ticket]);
});

it('does not begin where a message has told that another process waits', async () => {
  const { lock, ticket } = await holding({}, { options: LINGER });
  await backend.tell({ kind: 'wanted', ticket, name: NAME });
  await lock.release();
  await quiet();
  expect(backend.releases).toEqual([ticket]);
});

it('lets another process in after one turn at most, however many callers of this one come', async () => {
  const { ticket } = await lingering();
  const lock = await new Call(LINGER).held();
  await clock.pass(60);
  await backend.tell({ kind: 'wanted', ticket, name: NAME });
  const next = new Call(LINGER);
  void lock.release();
  const requeue = await backend.take('requeue');
  expect(requeue.request.ticket).toBe(ticket);
  expect(next.lock).toBeUndefined();
  await requeue.answer(granted());
  await next.held();
});

it('does not begin unless the channel was open before the name was asked for', async () => {
  const call = new Call(LINGER);
  const first = await backend.take('enqueue');
  await clock.pass(5);
  await first.answer(granted());
  const lock = await call.held();
  await backend.take('listen');
  await lock.release();
  await quiet();
  expect(backend.releases).toEqual([first.ticket]);
});

it('does not begin where the channel was interrupted meanwhile', async () => {
  const { lock, ticket } = await holding({}, { options: LINGER });
  await clock.pass(5);
  await backend.reconnect();
  await lock.release();
  expect(backend.releases).toEqual([ticket]);
});

it('is never renewed, and looked at as any hold', async () => {
  const { ticket } = await lingering({}, { linger: 20_000, ttl: 30_000 });
  const { request } = await backend.take('renew');
  expect(request).toMatchObject({ ticket, ttl: 1 });
});

it('ends with what is left of the lease', async () => {
  const { ticket } = await lingering({ remaining: 2_000 }, { linger: 60_000, ttl: 2_000, renew: false });
  await clock.pass(1_600);
  expect(backend.releases).not.toContain(ticket);
  await clock.pass(200);
  expect(backend.releases).toContain(ticket);
  const call = new Call({ linger: 60_000, ttl: 2_000 });
  const enqueue = await backend.take('enqueue');
  expect(enqueue.ticket).not.toBe(ticket);
  await enqueue.answer(granted({ remaining: 2_000 }));
  await (await call.held()).release();
});

it('does not outlast its lease, also where the process stood still', async () => {
  const { ticket } = await lingering({ remaining: 2_000 }, { linger: 60_000, ttl: 2_000, renew: false });
  jest.setSystemTime(Date.now() + 5_000);
  const call = new Call(LINGER);
  const enqueue = await backend.take('enqueue');
  expect(enqueue.ticket).not.toBe(ticket);
  expect(backend.all('renew')).toEqual([]);
  await enqueue.answer(granted());
  await (await call.held()).release();
});

it.each([
  ['was released by force', (ticket: string) => backend.tell({ kind: 'revoked', ticket })],
  [
    'is gone by the answer to a renewal',
    async () => {
      backend.atOnce.renew = () => ({ status: 'not-owner' });
      await clock.eventually(() => contenders() === 0);
      delete backend.atOnce.renew;
    },
  ],
])('is not used again if it %s, and nobody has lost a lock', async (_, lose) => {
  const { ticket } = await lingering({}, { linger: 25_000 });
  await lose(ticket);
  expect(contenders()).toBe(0);
  const call = new Call(LINGER);
  const enqueue = await backend.take('enqueue');
  expect(enqueue.ticket).not.toBe(ticket);
  await enqueue.answer(granted());
  await (await call.held()).release();
  expect(backend.releases).not.toContain(ticket);
  expect(app.logger.lines).toEqual([]);
});

it('is handed back when the channel has been interrupted', async () => {
  const { ticket } = await lingering();
  await backend.reconnect();
  expect(backend.releases).toEqual([ticket]);
});

it('is handed back when the channel is interrupted, and does not begin until it is open again', async () => {
  const { ticket } = await lingering();
  await backend.interrupt();
  expect(backend.releases).toEqual([ticket]);
  const hold = async () => {
    await clock.pass(5);
    const call = new Call(LINGER);
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted());
    await (await call.held()).release();
    await quiet();
    return enqueue.ticket;
  };
  const deaf = await hold();
  expect(backend.releases).toEqual([ticket, deaf]);
  await backend.reconnect();
  await hold();
  expect(backend.releases).toEqual([ticket, deaf]);
});

it('has tokens for the next calls, which are reserved while the first holds', async () => {
  await openChannel();
  const call = new Call(LINGER);
  await (await backend.take('enqueue')).answer(granted({ first: 5_000, count: 1 }));
  const lock = await call.held();
  const mint = await backend.take('mint');
  await lock.release();
  await mint.answer({ first: 6_000, count: 100 });
  expect(backend.releases).toEqual([]);
  expect((await new Call(LINGER).held()).fencingToken).toBe(6_000);
});

it('warns of no tokens that are reserved too late: a message has told of a later grant', async () => {
  await openChannel();
  const call = new Call(LINGER);
  const enqueue = await backend.take('enqueue');
  await enqueue.answer(granted({ first: 5_000, count: 1 }));
  const lock = await call.held();
  const mint = await backend.take('mint');
  await backend.tell({ kind: 'wanted', ticket: enqueue.ticket, name: NAME });
  await lock.release();
  const next = new Call(LINGER);
  const again = await backend.take('enqueue');
  await again.answer(busy({ unissued: 7_000 }));
  await backend.tell(grantMessage(again.ticket, NAME, { first: 7_000, count: 100, claim: 1_000 }));
  expect((await next.held()).fencingToken).toBe(7_000);
  await mint.answer({ first: 6_000, count: 100 });
  expect(app.logger.lines).toEqual([]);
});

it('waits for tokens where none are left, and is given up if the backend has none', async () => {
  await openChannel();
  const call = new Call(LINGER);
  const { ticket } = await (async () => {
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted({ count: 1 }));
    return enqueue;
  })();
  await (await call.held()).release();
  const next = new Call(LINGER);
  await (await backend.take('mint')).answer(null);
  const again = await backend.take('enqueue');
  expect(again.ticket).not.toBe(ticket);
  await again.answer(granted());
  await (await next.held()).release();
});

it.each<[string, LockOptions]>([
  ['order: fifo', { order: 'fifo' }],
  ['a reader', { mode: 'read' }],
])('is handed back before a call that cannot use it: %s', async (_, options) => {
  const { ticket } = await lingering();
  const call = new Call(options);
  const enqueue = await backend.take('enqueue');
  expect(enqueue.ticket).not.toBe(ticket);
  expect(backend.releases).toEqual([ticket]);
  await enqueue.answer(granted());
  await (await call.held()).release();
});

it('is handed back before a call for several names', async () => {
  const { ticket } = await lingering();
  const call = app.locks.acquire([NAME, 'other']);
  const acquire = await backend.take('acquire');
  expect(backend.releases).toEqual([ticket]);
  await acquire.answer({ status: 'granted', tokens: { first: 90_000, count: 1 }, remaining: 30_000, waiting: 0 });
  await (await call).release();
});

it('counts maxHold of each hold from its own begin', async () => {
  await lingering({}, { ...LINGER, maxHold: 1_000 });
  await clock.pass(2_000);
  const lock = await new Call({ ...LINGER, maxHold: 1_000 }).held();
  await clock.pass(900);
  expect(lock.held).toBe(true);
  await clock.pass(200);
  expect(lock.signal.reason).toMatchObject({ reason: 'maxHold' });
});

it('ends at once when the application shuts down', async () => {
  const { ticket } = await lingering();
  const close = app.close();
  expect(backend.releases).toEqual([ticket]);
  await clock.settle(close);
});

it('does not begin while the application shuts down', async () => {
  const { lock, ticket } = await holding({}, { options: LINGER });
  const close = app.close();
  await lock.release().catch(() => {});
  await clock.settle(close);
  expect(backend.releases).toContain(ticket);
});

it.each<[LockOptions, string | string[], string]>([
  [{ mode: 'read' }, NAME, '"mode" is "read"'],
  [{ order: 'fifo' }, NAME, '"order" is "fifo"'],
  [{ retry: () => [1][Symbol.iterator]() }, NAME, '"retry" polls'],
  [{}, ['a', 'b'], 'the call takes 2 names'],
])('is refused with %o', async (options, names, why) => {
  const call = app.locks.acquire(names, { ...options, linger: '10s' });
  await expect(call).rejects.toThrow(LockConfigError);
  await expect(call).rejects.toThrow(`Option "linger" is 10000, but ${why}`);
});

it('is handed back before a call that is refused because others have the name by then', async () => {
  await lingering();
  const other = new Call({ order: 'fifo', wait: 0 });
  // The release was under way with the first of them.
  for (const _ of [1, 2]) await (await backend.take('enqueue')).answer(busy({ owner: 'other:1' }));
  await expect(other.held()).rejects.toBeInstanceOf(LockTimeoutError);
});
