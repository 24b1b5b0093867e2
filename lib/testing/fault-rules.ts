import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockService } from '../lock/lock.service.js';
import { granted } from './grant-rules.js';
import { ruleUnder, ProtectedResource, type Rule, type Stage } from './stage.js';

/** What holds while the store fails. */
export const FAULT_RULES: readonly Rule[] = [
  ruleUnder(
    ['pause'],
    'says that a lock is lost at its deadline, while the store does not answer',
    async (stage, faults) => {
      const backend = await stage.backend();
      const locks = await stage.locks();
      const ttl = Math.max(500, backend.traits.leastLease);
      const held = await locks.acquire(stage.name, { ttl });
      const trusted = performance.now() + held.remaining();
      const resume = await faults.pause();
      try {
        await stage.until('the signal is aborted', () => held.signal.aborted);
        assert.equal(held.held, false);
        assert(trusted > 0);
      } finally {
        await resume();
      }
      const next = await eventuallyLocked(stage, locks);
      assert(next > held.fencingToken);
    },
  ),

  ruleUnder(
    ['pause'],
    'answers each call in time while the store does not, and serves again after it',
    async (stage, faults) => {
      const locks = await stage.locks();
      await locks.withLock(stage.name, async () => {});
      const resume = await faults.pause();
      try {
        await assert.rejects(locks.acquire(stage.name, { wait: 500 }), { code: 'LOCK_BACKEND' });
        await assert.rejects(locks.tryAcquire(stage.name), { code: 'LOCK_BACKEND' });
      } finally {
        await resume();
      }
      await eventuallyLocked(stage, locks);
    },
  ),

  ruleUnder(['cut'], 'serves its callers again after every connection was cut', async (stage, faults) => {
    const [one, two] = [await stage.locks(), await stage.locks()];
    const resource = new ProtectedResource();
    const callers = [one, two, one, two].map(async (locks) => {
      for (let round = 0; round < 10; round++) {
        try {
          await locks.withLock(stage.name, { wait: 20_000 }, async (lock) => {
            await resource.use(lock, () => sleep(5));
          });
        } catch (error) {
          requireLockError(error);
        }
      }
    });
    for (let times = 0; times < 3; times++) {
      await sleep(40);
      await faults.cut();
    }
    await Promise.all(callers);
    assert(resource.uses > 0);
    await eventuallyLocked(stage, one);
    await eventuallyLocked(stage, two);
  }),

  ruleUnder(['restart'], 'issues higher tokens after the store has restarted', async (stage, faults) => {
    const locks = await stage.locks();
    const before = await eventuallyLocked(stage, locks);
    await faults.restart();
    const after = await eventuallyLocked(stage, locks);
    assert(after > before, `token ${after} after ${before}`);
  }),

  ruleUnder(['restart'], 'tells the holder that it lost a lock which the store lost', async (stage, faults) => {
    const backend = await stage.backend();
    const [one, two] = [await stage.locks(backend), await stage.locks()];
    const held = await one.acquire(stage.name, { ttl: Math.max(2_000, backend.traits.leastLease) });
    await faults.restart();
    let left = held.remaining();
    await stage.until('the lock is lost, or renewed', () => {
      const before = left;
      left = held.remaining();
      return !held.held || left > before;
    });
    if (held.held) await held.release();
    assert((await eventuallyLocked(stage, two)) > held.fencingToken);
  }),

  ruleUnder(
    ['loseData'],
    'tells holders of a loss of data, and issues higher tokens after it, to new processes, too',
    async (stage, faults) => {
      // Cases before this one may have asked for tokens of which no process that begins later can know.
      await faults.loseData();
      const locks = await stage.locks();
      await eventuallyLocked(stage, locks);
      const held = await locks.acquire(stage.name);
      await faults.loseData();
      await stage.until('the signal is aborted', () => held.signal.aborted);
      let last = held.fencingToken;
      for (const each of [await stage.locks(), locks, await stage.locks()]) {
        const token = await eventuallyLocked(stage, each);
        assert(token > last, `token ${token} after ${last}`);
        last = token;
      }
    },
  ),

  ruleUnder(['loseReplies'], 'frees what a lost reply had granted', async (stage, faults) => {
    const [one, two] = [await stage.locks(), await stage.locks()];
    await one.withLock(stage.name, async () => {});
    const found = await faults.loseReplies();
    await assert.rejects(one.acquire(stage.name, { wait: 0, ttl: 20_000 }), { code: 'LOCK_BACKEND' });
    await found();
    await eventuallyLocked(stage, two);
  }),

  ruleUnder(
    ['loseReplies'],
    'does no harm when a request is sent again whose first answer was lost with its connection',
    async (stage, faults) => {
      const [one, other] = [await stage.client(), await stage.client()];
      const lost = async (send: () => Promise<unknown>) => {
        const found = await faults.loseReplies();
        const first = send().catch(() => {});
        await sleep(200);
        await found();
        await first;
      };
      const again = async <T>(send: () => Promise<T>, fits: (answer: T) => boolean = () => true): Promise<T> => {
        let answer: T | undefined;
        await stage.until('the second send is answered', async () => {
          answer = await send().catch(() => undefined);
          return answer !== undefined && fits(answer);
        });
        return answer as T;
      };
      // The members of a store that do not answer yet count for the owner; its lease would outlast this wait.
      const isFree = (): Promise<string> =>
        again(
          async () => (await other.ownerOf(stage.name)) ?? 'nobody',
          (owner) => owner === 'nobody',
        );
      const first = one.ticket();
      await granted(one, stage.name, first);
      await one.release(stage.name, first);

      const ticket = one.ticket();
      const acquire = () => one.acquire(stage.name, ticket);
      await lost(acquire);
      // Until what the first send got is given back, the name may be busy.
      await again(acquire, ({ status }) => status === 'granted');
      const release = () => one.release(stage.name, ticket);
      await lost(release);
      await again(release);
      await isFree();

      if (!one.backend.queue || one.backend.queue.pace) return;
      await Promise.all([one.listen(), other.listen()]);
      const [holder, requeued, next] = [one.ticket(), one.ticket(), other.ticket()];
      await again(() => one.acquire(stage.name, holder));
      const enqueue = () => other.enqueue(stage.name, next);
      await again(enqueue);
      const requeue = () => one.requeue(stage.name, holder, requeued);
      await lost(requeue);
      await again(requeue);
      // A ticket of which nobody knows must not have the name, nor get it later.
      const { status } = await again(() => one.beat(stage.name, requeued));
      if (status !== 'gone') await again(() => one.release(stage.name, requeued));
      await again(enqueue, (answer) => answer.status === 'granted');
      await again(() => other.release(stage.name, next));
      await isFree();
    },
  ),

  ruleUnder(
    ['killSession'],
    'says that its locks are lost when the store ends their session',
    async (stage, faults) => {
      const backend = await stage.backend();
      const locks = await stage.locks(backend);
      const [held, also] = [await locks.acquire(stage.name), await locks.acquire(`${stage.name}:also`)];
      const killedAt = performance.now();
      await faults.killSession(backend);
      await stage.until('both signals are aborted', () => held.signal.aborted && also.signal.aborted);
      const after = performance.now() - killedAt;
      assert(after < 10_000, `the signals were aborted after ${after} ms`);
      const other = await stage.locks();
      assert((await eventuallyLocked(stage, other)) > held.fencingToken);
      await eventuallyLocked(stage, locks);
    },
  ),
];

/** Takes the lock as soon as the backend serves again; answers its token. */
async function eventuallyLocked(stage: Stage, locks: LockService): Promise<number> {
  let token = 0;
  await stage.until('the lock is granted again', async () => {
    try {
      await locks.withLock(stage.name, { wait: 1_000 }, async (lock) => {
        token = lock.fencingToken;
      });
    } catch (error) {
      requireLockError(error);
    }
    return token > 0;
  });
  return token;
}

/** Under a fault, a call may fail with one of the errors of locks, and with no other. */
function requireLockError(error: unknown): void {
  const { code } = error as { code?: unknown };
  if (typeof code !== 'string' || !code.startsWith('LOCK_')) throw error;
}
