import { setTimeout as sleep } from 'node:timers/promises';
import type { Lock } from '../../lib/lock/hold/lock.js';
import type { LockService } from '../../lib/lock/lock.service.js';
import { StandingCandidacy } from '../../lib/primitives/leader/standing-candidacy.js';

/** Grants of the lock that arrive when something else has just happened in this process. */

/** Grants the lock at `grant`, even after the wait was aborted: as if the grant had been on its way. */
class LateLocks {
  attempts = 0;
  grant: (lock: Lock) => void = () => {};
  fail: (error: Error) => void = () => {};

  withLock<T>(_name: string, _options: object, body: (lock: Lock) => Promise<T>): Promise<T> {
    this.attempts += 1;
    return new Promise((resolve, reject) => {
      this.fail = reject;
      this.grant = (lock) => resolve(body(lock));
    });
  }
}

const warnings: string[] = [];
const logger = { log() {}, warn: (text: string) => void warnings.push(text), error() {} };

function stand(lease = 10_000) {
  const locks = new LateLocks();
  const settings = { lease, backend: undefined };
  const source = { backend: 'scripted', label: 'test' };
  const lockService = locks as unknown as LockService;
  const candidacy = new StandingCandidacy('restock', settings, lockService, logger, () => {}, source);
  const terms: number[] = [];
  candidacy.listen({ onElected: (_signal, term) => void terms.push(term) });
  return { locks, candidacy, terms };
}

const lock = (signal: AbortSignal) => ({ fencingToken: 7, signal, held: !signal.aborted }) as Lock;

it('elects nobody when the lock is granted to a candidate that has left', async () => {
  const { locks, candidacy, terms } = stand();
  const left = candidacy.leave();
  locks.grant(lock(new AbortController().signal));
  await left;
  expect(terms).toEqual([]);
  expect(candidacy.isLeader).toBe(false);
});

it('elects nobody when the lease ended before the term could begin, and stands again', async () => {
  const { locks, candidacy, terms } = stand();
  locks.grant(lock(AbortSignal.abort(new Error('the lease ended'))));
  await candidacy.answered;
  for (let step = 0; step < 20; step++) await Promise.resolve();
  expect(terms).toEqual([]);
  expect(locks.attempts).toBe(2);
});

it('knows that it does not lead as soon as the first attempt has failed', async () => {
  const { locks, candidacy } = stand();
  let answered = false;
  void candidacy.answered.then(() => (answered = true));
  locks.fail(new Error('the store is away'));
  for (let step = 0; step < 20; step++) await Promise.resolve();
  expect([answered, candidacy.isLeader]).toEqual([true, false]);
  await candidacy.leave();
});

it('warns of no work that has stopped with its term', async () => {
  const { locks, candidacy } = stand(20);
  locks.grant(lock(new AbortController().signal));
  await candidacy.answered;
  await candidacy.resign();
  await sleep(100);
  expect(warnings.filter((text) => text.includes('has not settled'))).toEqual([]);
  await candidacy.leave();
});
