import { SessionLocks } from '../../lib/backends/sessions/session-locks.js';
import type { StoreSession } from '../../lib/backends/sessions/session-slot.js';
import { Gate } from '../support/gate.js';

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
  const locks = new SessionLocks({ open }, ({ name }) => name, 1);
  const renew = (name: string, ticket: string) => locks.renew([{ names: [name], ticket, ...LEASE }])[0];
  const acquire = (name: string, ticket: string) => locks.acquire({ names: [name], ticket, ...LEASE });
  return { locks, calls, renew, acquire };
}

it('counts a grant of a session that ended with its reply as none, also for a later call with the same ticket', async () => {
  const { calls, renew, acquire, locks } = locksOn((session, end) => ({
    take: async () => {
      if (session === 1) end();
      return { first: 1, count: 1 };
    },
  }));
  await expect(acquire('stock', 'a:1')).rejects.toThrow('The session has ended');
  expect(locks.ownerHere({ name: 'stock' })).toBeUndefined();
  expect(await acquire('stock', 'a:1')).toMatchObject({ status: 'granted' });
  expect(calls).toEqual(['take 1', 'take 2']);
  expect(await renew('stock', 'a:2')).toEqual({ status: 'not-owner' });
});

it('tells the tickets of a session that has ended, and renews none of them on the next one', async () => {
  let end = () => {};
  const { acquire, renew, locks } = locksOn((_session, ended) => ((end = ended), {}));
  const lost: (readonly string[])[] = [];
  locks.onLost((tickets) => lost.push(tickets));
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
  const { calls, acquire, locks } = locksOn(() => ({
    take: async () => {
      await gate.opened;
      return { first: 1, count: 1 };
    },
  }));
  const waiting = ['a', 'b', 'c'].map((name) => acquire(name, `${name}:1`));
  const refused = Promise.all(waiting.map((each) => expect(each).rejects.toThrow('The backend is closed')));
  while (!calls.includes('take 1')) await Promise.resolve();
  await locks.close();
  gate.open();
  await refused;
  await expect(acquire('d', 'd:1')).rejects.toThrow('The backend is closed');
  expect(calls).toEqual(['take 1', 'close 1']);
});
