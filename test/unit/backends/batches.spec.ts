import { setImmediate as turn } from 'node:timers/promises';
import type { Notice } from 'nest-redis-lock/backend';
import { BatchedCall, type Lanes, TurnBatch } from '../../../lib/backends/batch.js';
import { Listeners } from '../../../lib/backends/listeners.js';
import { sessionLocks, SessionSlots } from '../../../lib/backends/sessions/session-locks.js';
import type { StoreSession } from '../../../lib/backends/sessions/session-slot.js';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { contextOf } from '../../support/open-backend.js';

interface Sent {
  readonly requests: readonly number[];
  answer(): void;
  fail(error: Error): void;
}

function batchOf({ most = 100, ...lanes }: Lanes & { most?: number } = {}) {
  const sent: Sent[] = [];
  const answers: (number | string)[] = [];
  const batch = new TurnBatch<number, number>(
    (requests, answered, failed) => {
      sent.push({ requests, answer: () => answered(requests.map((request) => 10 * request)), fail: failed });
    },
    most,
    lanes,
  );
  const add = (...requests: number[]) => {
    for (const request of requests) {
      batch.add(request).then(
        (answer) => answers.push(answer),
        (error) => answers.push(String(error)),
      );
    }
  };
  return { add, answers, sent, requests: () => sent.map((each) => each.requests) };
}

it('sends a single request at once, and those of one turn together', async () => {
  const { add, requests } = batchOf();
  add(1);
  expect(requests()).toEqual([[1]]);
  add(2, 3);
  expect(requests()).toEqual([[1]]);
  await turn();
  expect(requests()).toEqual([[1], [2, 3]]);
});

it('sends the first request of a turn with the others while several come at a time', async () => {
  const { add, sent, requests } = batchOf();
  add(1);
  add(2, 3);
  await turn();
  sent.splice(0).forEach(({ answer }) => answer());
  add(4, 5);
  expect(requests()).toEqual([]);
  await turn();
  expect(requests()).toEqual([[4, 5]]);
  sent.splice(0).forEach(({ answer }) => answer());
  add(6);
  await turn();
  sent.splice(0).forEach(({ answer }) => answer());
  add(7);
  expect(requests()).toEqual([[7]]);
});

it('sends no more requests together than the most', async () => {
  const { add, requests } = batchOf({ most: 2 });
  add(1, 2, 3, 4);
  expect(requests()).toEqual([[1], [2, 3]]);
  await turn();
  expect(requests()).toEqual([[1], [2, 3], [4]]);
});

it('gathers the requests of several turns while all lanes are in use', async () => {
  const { add, sent, requests, answers } = batchOf({ lanes: 1, longestHold: 60_000 });
  add(1);
  add(2);
  await turn();
  add(3);
  expect(requests()).toEqual([[1]]);
  sent[0]?.answer();
  await turn();
  expect(requests()).toEqual([[1], [2, 3]]);
  sent[1]?.answer();
  expect(answers).toEqual([10, 20, 30]);
});

it('sends without an answer after a moment: the one before may wait for long', async () => {
  const { add, requests } = batchOf({ lanes: 1, longestHold: 1 });
  add(1);
  add(2);
  await eventually(() => requests().length === 2);
  expect(requests()).toEqual([[1], [2]]);
});

it('fails all requests of a batch that failed, and goes on', async () => {
  const { add, sent, answers } = batchOf({ lanes: 1, longestHold: 60_000 });
  add(1);
  add(2, 3);
  sent[0]?.fail(new Error('no'));
  await turn();
  sent[1]?.answer();
  expect(answers).toEqual(['Error: no', 20, 30]);
});

describe('a call of a batch', () => {
  const told: string[] = [];
  const listen = (call: BatchedCall<number>, who: string) =>
    call.then(
      (answer) => told.push(`${who}: ${answer}`),
      (error) => told.push(`${who}: ${String(error)}`),
    );
  beforeEach(() => told.splice(0));

  it.each([
    ['answer', (call: BatchedCall<number>) => call.settle(7), '7'],
    ['failure', (call: BatchedCall<number>) => call.fail(new Error('no')), 'Error: no'],
    ['error among the answers', (call: BatchedCall<number>) => call.settle(new Error('no')), 'Error: no'],
  ])('keeps its %s for each who asks, before or after, once', async (_what, settle, outcome) => {
    const call = new BatchedCall(Number);
    listen(call, 'first');
    listen(call, 'second');
    settle(call);
    listen(call, 'later');
    expect(told).toEqual([`first: ${outcome}`]);
    await turn();
    call.settle(8);
    listen(call, 'last');
    await turn();
    expect(told).toEqual(['first', 'second', 'later', 'last'].map((who) => `${who}: ${outcome}`));
  });

  it('is awaited in any turn', async () => {
    const call = new BatchedCall(Number);
    call.settle(7);
    await turn();
    expect(await call).toBe(7);
    const failed = new BatchedCall(Number);
    failed.fail(new Error('no'));
    await turn();
    await expect(Promise.resolve(failed)).rejects.toThrow('no');
  });

  it('tells the others although the first one throws', async () => {
    const call = new BatchedCall(Number);
    call.then(
      () => {
        throw new Error('of the listener');
      },
      () => {},
    );
    listen(call, 'second');
    expect(() => call.settle(7)).toThrow('of the listener');
    await turn();
    expect(told).toEqual(['second: 7']);
  });
});

const NOTICE: Notice = { level: 'warn', message: 'messages do not arrive' };

function moduleOf(listeners: Listeners) {
  const notices: Notice[] = [];
  const told: string[] = [];
  const module = contextOf({
    report: (notice) => void notices.push(notice),
    connected: () => void told.push('connected'),
    lost: (tickets, _why, reason = 'expired') => void told.push(`${tickets.join()} ${reason}`),
  });
  return { notices, told, module, stop: listeners.add(module) };
}

it('tells each module that has not stopped', () => {
  const listeners = new Listeners();
  const [first, second] = [moduleOf(listeners), moduleOf(listeners)];
  const tell = () => {
    listeners.report(NOTICE);
    listeners.connected();
    listeners.lost(['a:1', 'a:2'], new Error('the session has ended'));
    listeners.lost([], new Error('the session has ended'));
  };
  tell();
  first.stop();
  tell();
  expect(first.notices).toEqual([NOTICE]);
  expect(second.notices).toEqual([NOTICE, NOTICE]);
  expect(first.told).toEqual(['connected', 'a:1,a:2 expired']);
  expect(second.told).toEqual([...first.told, ...first.told]);
});

it('reports once to a module whose locks and cache share the connection', () => {
  const listeners = new Listeners();
  const { notices, told, module, stop } = moduleOf(listeners);
  const stopCache = listeners.add({ commandTimeout: 50, report: module.report });
  listeners.report(NOTICE);
  listeners.connected();
  expect(notices).toEqual([NOTICE]);
  expect(told).toEqual(['connected']);
  stop();
  listeners.report(NOTICE);
  expect(notices).toEqual([NOTICE, NOTICE]);
  stopCache();
  listeners.report(NOTICE);
  expect(notices).toHaveLength(2);
});

const LEASE = { ttl: 30_000 };

/** A store whose sessions note their calls; `replace` scripts a session by its number, from 1 on. */
function locksOn(replace: (session: number, end: () => void) => Partial<StoreSession> = () => ({})) {
  const calls: string[] = [];
  let opened = 0;
  const open = async (ended: (why: Error) => void): Promise<StoreSession> => {
    opened += 1;
    const session = opened;
    const note = (call: string) => calls.push(`${call} ${session}`);
    const scripted = replace(session, () => ended(new Error('killed')));
    return {
      take: async () => (note('take'), (await scripted.take?.('', '')) ?? { first: 1, count: 1 }),
      mint: async () => (note('mint'), { first: 2, count: 1 }),
      free: async () => void note('free'),
      check: async () => (note('check'), scripted.check?.()),
      close: async () => void note('close'),
    };
  };
  const lost: (readonly string[])[] = [];
  const slots = new SessionSlots(open, 1, (tickets) => lost.push(tickets));
  const locks = sessionLocks(
    slots,
    (name) => name,
    async () => null,
  );
  const renew = (name: string, ticket: string) => locks.renew([{ name, ticket, ...LEASE }])[0];
  const acquire = (name: string, ticket: string) => locks.acquire({ name, ticket, ...LEASE });
  return { slots, lost, calls, renew, acquire };
}

it('counts a grant of a session that ended with its reply as none, also for a later call with the same ticket', async () => {
  const { calls, renew, acquire, slots } = locksOn((session, end) => ({
    take: async () => {
      if (session === 1) end();
      return { first: 1, count: 1 };
    },
  }));
  await expect(acquire('stock', 'a:1')).rejects.toThrow('The session has ended');
  expect(slots.of('stock').holds.size).toBe(0);
  expect(await acquire('stock', 'a:1')).toMatchObject({ status: 'granted' });
  expect(calls).toEqual(['take 1', 'take 2']);
  expect(await renew('stock', 'a:2')).toEqual({ status: 'not-owner' });
});

it('tells the tickets of a session that has ended, and renews none of them on the next one', async () => {
  let end = () => {};
  const { acquire, renew, lost } = locksOn((_session, ended) => ((end = ended), {}));
  await Promise.all([acquire('stock', 'a:1'), acquire('price', 'a:2')]);
  end();
  expect(lost).toEqual([['a:1', 'a:2']]);
  expect(await renew('stock', 'a:1')).toEqual({ status: 'not-owner' });
});

it('asks the session again for a renewal that comes while a question is under way', async () => {
  const gate = new Gate();
  const { calls, acquire, renew } = locksOn(() => ({ check: () => gate.opened }));
  await acquire('stock', 'a:1');
  const first = renew('stock', 'a:1');
  while (!calls.includes('check 1')) await Promise.resolve();
  const later = [renew('stock', 'a:1'), renew('stock', 'a:1')];
  gate.open();
  expect(await Promise.all([first, ...later])).toHaveLength(3);
  expect(calls).toEqual(['take 1', 'check 1', 'check 1']);
});

it('opens no session for calls that wait when it is closed, or come later', async () => {
  const gate = new Gate();
  const { calls, acquire, slots } = locksOn(() => ({
    take: async () => {
      await gate.opened;
      return { first: 1, count: 1 };
    },
  }));
  const waiting = ['a', 'b', 'c'].map((name) => acquire(name, `${name}:1`));
  const refused = Promise.all(waiting.map((each) => expect(each).rejects.toThrow('The backend is closed')));
  while (!calls.includes('take 1')) await Promise.resolve();
  await slots.close();
  gate.open();
  await refused;
  await expect(acquire('d', 'd:1')).rejects.toThrow('The backend is closed');
  expect(calls).toEqual(['take 1', 'close 1']);
});
