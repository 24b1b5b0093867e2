import { setTimeout as sleep } from 'node:timers/promises';
import {
  LeaderElection,
  LockConfigError,
  LockLostError,
  NotLeaderError,
  PrimitiveConfigError,
  PrimitiveKeyError,
  type CandidateOptions,
  type Leadership,
} from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { startLockApp } from '../support/lock-app.js';
import { eachLockBackend, one, options, two } from './each-lock-backend.js';

let here: LeaderElection;
let there: LeaderElection;
let count = 0;
let name: string;

/** Longer than any test: a leader is replaced because it gave up, not because its lease ended. */
const LEASE: CandidateOptions = { lease: '2m' };

/** Joins in the first application until it leads, then in the second. */
async function leaderAndFollower() {
  const leader = here.join(name, LEASE);
  await eventually(() => leader.isLeader);
  const follower = there.join(name, LEASE);
  await follower.answered;
  return { leader, follower };
}

eachLockBackend(() => {
  beforeAll(() => {
    here = one.app.get(LeaderElection);
    there = two.app.get(LeaderElection);
  });
  beforeEach(() => {
    name = `leadership-${++count}`;
  });
  afterEach(async () => {
    await Promise.all([here.candidacy(name)?.leave(), there.candidacy(name)?.leave()]);
  });

  it('elects one of two candidates', async () => {
    const { leader, follower } = await leaderAndFollower();
    expect([leader.isLeader, follower.isLeader]).toEqual([true, false]);
    expect([here.isLeader(name), there.isLeader(name), here.isLeader('another')]).toEqual([true, false, false]);
    expect([follower.term, follower.signal]).toEqual([undefined, undefined]);
    expect(leader.signal?.aborted).toBe(false);
  });

  it('hands over when the leader leaves, with a greater term', async () => {
    const { leader, follower } = await leaderAndFollower();
    const { term, signal } = leader;
    await leader.leave();
    await eventually(() => follower.isLeader);
    expect(follower.term).toBeGreaterThan(term as number);
    expect([leader.isLeader, signal?.aborted]).toEqual([false, true]);
    expect(here.candidacy(name)).toBeUndefined();
  });

  it('hands over when the leader resigns, and the leader stands again', async () => {
    const { leader, follower } = await leaderAndFollower();
    await leader.resign();
    expect(leader.isLeader).toBe(false);
    await eventually(() => follower.isLeader);
    await follower.leave();
    await eventually(() => leader.isLeader);
  });

  it('does nothing when a follower resigns', async () => {
    const { leader, follower } = await leaderAndFollower();
    await follower.resign();
    expect(leader.isLeader).toBe(true);
  });

  it('hands over when the application of the leader ends, before its locks end', async () => {
    const ending = await startLockApp(options());
    const leader = ending.app.get(LeaderElection).join(name, LEASE);
    await eventually(() => leader.isLeader);
    const follower = here.join(name, LEASE);
    await follower.answered;
    await ending.close();
    await eventually(() => follower.isLeader);
    expect(ending.logger.lines).toEqual([]);
    expect(() => ending.app.get(LeaderElection).join(name)).toThrow('The application is shutting down');
  });

  it('calls onElected with the signal and the term, and onLost when they end', async () => {
    const told: unknown[] = [];
    const candidacy = here.join(name, {
      onElected: (signal, term) => {
        told.push(['elected', term, signal.aborted]);
        signal.addEventListener('abort', () => told.push('aborted'));
      },
      onLost: (reason, term) => void told.push([reason, term]),
    });
    await eventually(() => candidacy.isLeader);
    const { term } = candidacy;
    await candidacy.resign();
    expect(told).toEqual([['elected', term, false], 'aborted', ['resigned', term]]);
  });

  it('steps down, and stands again, when its lock is taken away', async () => {
    const lost: unknown[] = [];
    const candidacy = here.join(name, { onLost: (reason) => void lost.push(reason) });
    const first = await eventually(() => candidacy.term);
    const { signal } = candidacy;
    expect(await one.locks.forceRelease(`leader:${name}`)).toBe(true);
    expect([candidacy.isLeader, signal?.aborted, lost]).toEqual([false, true, ['lost']]);
    expect(signal?.reason).toBeInstanceOf(LockLostError);
    expect(await eventually(() => candidacy.term)).toBeGreaterThan(first);
  });

  it('emits the present state and each change, and completes when the candidate leaves', async () => {
    const candidacy = here.join(name);
    const term = await eventually(() => candidacy.term);
    const states: (Leadership | 'complete')[] = [];
    candidacy.leadership.subscribe({
      next: (state) => states.push(state),
      complete: () => states.push('complete'),
    });
    await candidacy.leave();
    expect(states).toEqual([{ isLeader: true, term }, { isLeader: false, reason: 'left' }, 'complete']);
  });

  it('hands over only when onElected and the calls on the leader have ended', async () => {
    const [work, call] = [new Gate(), new Gate()];
    const leader = here.join(name, { ...LEASE, onElected: () => work.opened });
    await eventually(() => leader.isLeader);
    const called = leader.run(() => call.opened);
    const follower = there.join(name, LEASE);
    await follower.answered;
    const left = leader.leave();
    expect(leader.isLeader).toBe(false);
    call.open();
    await called;
    expect((await here.leader(name))?.owner).toBe((await there.leader(name))?.owner);
    expect(follower.isLeader).toBe(false);
    work.open();
    await left;
    await eventually(() => follower.isLeader);
  });

  it.each(['resign', 'leave'] as const)('does not wait for itself in a %s by the work of the leader', async (step) => {
    const ended: string[] = [];
    const resigning: CandidateOptions = {
      ...LEASE,
      onElected: async () => {
        await candidacy[step]();
        ended.push('onElected');
      },
      onLost: async () => {
        await candidacy[step]();
        ended.push('onLost');
      },
    };
    const candidacy = here.join(name, resigning);
    await eventually(() => ended.includes('onElected') && ended.includes('onLost'));
    await here.candidacy(name)?.leave();
    const another = here.join(name, LEASE);
    await eventually(() => another.isLeader);
    await another.run(async () => {
      await another[step]();
      ended.push('run');
    });
    expect(ended.at(-1)).toBe('run');
  });

  it('warns when the work of a term does not stop', async () => {
    await using started = await startLockApp(options());
    const work = new Gate();
    const leader = started.app.get(LeaderElection).join(name, { lease: 2_000, onElected: () => work.opened });
    await eventually(() => leader.isLeader);
    const resigned = leader.resign();
    const message = `a call on the leader of "${name}" has not settled 2000 ms after its term ended (resigned)`;
    await eventually(() => started.logger.lines.some(({ text }) => text.includes(message)));
    work.open();
    await resigned;
  });

  it('leaves at whatever step of the election', async () => {
    for (let steps = 0; steps < 60; steps++) {
      const candidacy = here.join(name);
      for (let step = 0; step < steps; step++) await Promise.resolve();
      await candidacy.leave();
      expect(candidacy.isLeader).toBe(false);
    }
    expect(await one.locks.isLocked(`leader:${name}`)).toBe(false);
  });

  it('keeps a new candidacy when the one before leaves again', async () => {
    const before = here.join(name);
    await before.leave();
    const candidacy = here.join(name);
    await before.leave();
    expect(here.candidacy(name)).toBe(candidacy);
    await eventually(() => here.isLeader(name));
  });

  it('is not limited by maxHold and minHold of the defaults', async () => {
    await using started = await startLockApp({ ...options(), defaults: { maxHold: 300, minHold: '5m' } });
    const leader = started.app.get(LeaderElection).join(name, LEASE);
    const term = await eventually(() => leader.term);
    await sleep(400);
    expect(leader.term).toBe(term);
    await leader.leave();
    expect(await one.locks.isLocked(`leader:${name}`)).toBe(false);
  });

  it('goes on to stand when callbacks throw, and logs what they threw', async () => {
    await using started = await startLockApp(options());
    let terms = 0;
    const candidacy = started.app.get(LeaderElection).join(name, {
      onElected: () => {
        terms += 1;
        if (terms === 1) throw new Error('no work today');
      },
      onLost: () => Promise.reject(new Error('cannot stop')),
    });
    await eventually(() => terms === 2 && candidacy.isLeader);
    const failures = started.logger.matching(/ of the candidate for /);
    expect(failures).toHaveLength(2);
    expect(failures[0]).toContain(`onElected of the candidate for "${name}" failed: Error: no work today`);
    expect(failures[1]).toContain(`onLost of the candidate for "${name}" failed: Error: cannot stop`);
  });

  it('takes what onElected throws because its signal aborted for no failure', async () => {
    await using started = await startLockApp(options());
    let threw = false;
    const candidacy = started.app.get(LeaderElection).join(name, {
      onElected: async (signal) => {
        await eventually(() => signal.aborted);
        threw = true;
        signal.throwIfAborted();
      },
    });
    await eventually(() => candidacy.isLeader);
    await candidacy.leave();
    expect(threw).toBe(true);
    expect(started.logger.lines).toEqual([]);
  });

  it('runs on the leader only', async () => {
    const { leader, follower } = await leaderAndFollower();
    expect(await leader.run(async (signal, term) => [signal === leader.signal, term])).toEqual([true, leader.term]);
    await expect(follower.run(async () => 'made')).rejects.toThrow(NotLeaderError);
  });

  it.each([undefined, 'body'])('refuses to run %p', async (body) => {
    const candidacy = here.join(name);
    await eventually(() => candidacy.isLeader);
    await expect(candidacy.run(body as never)).rejects.toThrow(PrimitiveConfigError);
  });

  it('rejects a call on the leader when the lease was lost in between', async () => {
    const candidacy = here.join(name);
    await eventually(() => candidacy.isLeader);
    const call = candidacy.run(async () => void (await one.locks.forceRelease(`leader:${name}`)));
    await expect(call).rejects.toThrow(LockLostError);
  });

  it('has one candidacy for each name, to which a second join adds callbacks', async () => {
    const candidacy = here.join(name, LEASE);
    await eventually(() => candidacy.isLeader);
    const elected: number[] = [];
    expect(here.join(name, { onElected: (_signal, term) => void elected.push(term) })).toBe(candidacy);
    expect(elected).toEqual([candidacy.term]);
    expect(() => here.join(name, { lease: '9s' })).toThrow(PrimitiveConfigError);
    expect(() => here.join(name, { lease: '9s' })).toThrow('Option "lease" is 9s, but this process stands for');
  });

  it('stands outside of the lock in which it joins', async () => {
    const candidacy = await one.locks.withLock(`leader:${name}`, async () => here.join(name));
    await eventually(() => candidacy.isLeader);
    await candidacy.leave();
  });

  it('names the leader to every process', async () => {
    expect(await there.leader(name)).toBeNull();
    const candidacy = here.join(name);
    await eventually(() => candidacy.isLeader);
    const known = await eventually(async () => {
      const leader = await there.leader(name);
      return leader?.label === undefined ? undefined : leader;
    });
    expect(known.label).toContain(String(process.pid));
  });

  it.each<[string, unknown, new (...args: never[]) => Error, string]>([
    ['an unknown option', { ttl: 100 }, PrimitiveConfigError, 'Unknown option of a candidate "ttl"'],
    ['a short lease', { lease: 99 }, PrimitiveConfigError, 'Option "lease" is 99'],
    ['a callback that is none', { onElected: 1 }, PrimitiveConfigError, 'Option "onElected" is 1; give a function'],
    ['an unknown backend', { backend: 'north' }, LockConfigError, 'Option "backend" is "north"'],
  ])('refuses %s', (_what, wrong, Refusal, message) => {
    const join = () => here.join(name, wrong as CandidateOptions);
    expect(join).toThrow(Refusal);
    expect(join).toThrow(message);
    expect(here.candidacy(name)).toBeUndefined();
  });

  it.each(['', null, 'shop:<0>'])('refuses %p as a name', (wrong) => {
    expect(() => here.join(wrong as string)).toThrow(PrimitiveKeyError);
  });
});
