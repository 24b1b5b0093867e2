import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockService } from '../lock/lock.service.js';
import { assertAbove, granted } from './grant-rules.js';
import { ruleUnder, ProtectedResource, type Rule, type Stage, type StoreFaults } from './stage.js';
import type { Told, Wanted } from './wire.js';

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
      assertAbove(next, held.fencingToken);
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
    assertAbove(after, before, 'tokens rise after a restart, too');
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
    assertAbove(await eventuallyLocked(stage, two), held.fencingToken, 'tokens rise after a restart, too');
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
        assertAbove(token, last, 'after a loss of data, a new process gets higher tokens, too');
        last = token;
      }
    },
  ),

  connectsAgain('cut'),
  connectsAgain('restart'),
  connectsAgain('loseData'),

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

      if (!one.store.queue || one.store.queue.pace) return;
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
      assertAbove(
        await eventuallyLocked(stage, other),
        held.fencingToken,
        'tokens rise after a session has ended, too',
      );
      await eventuallyLocked(stage, locks);
    },
  ),

  ruleUnder(['fork'], 'keeps its locks where other processes find them', async (stage, faults) => {
    const locks = await stage.locks();
    const other = await Other.start(faults.fork);
    try {
      const held = await locks.acquire(stage.name);
      assert.equal(await other.take(stage.name, { wait: 0 }), null, 'two processes hold the name');
      await held.release();
      const token = await other.take(stage.name);
      assertAbove(token ?? undefined, held.fencingToken, 'tokens rise from process to process, too');
      assert.equal(await locks.tryAcquire(stage.name), null, 'two processes hold the name');
    } finally {
      await other.kill();
    }
  }),

  {
    ...ruleUnder(
      ['fork'],
      'renews a short lease before its next holder runs, who may block the event loop',
      async (stage, faults) => {
        const backend = await stage.backend();
        const locks = await stage.locks(backend);
        // This process may be on the way to the store, as a proxy: another one stands still.
        const other = await Other.start(faults.fork);
        try {
          const blocking = other.take(stage.name, { ttl: Math.max(1_500, backend.traits.leastLease), blocks: true });
          await Promise.race([blocking, stage.until('the name is taken', () => locks.isLocked(stage.name))]);
          const next = await locks.acquire(stage.name, { wait: 60_000 });
          assertAbove(next.fencingToken, (await blocking) ?? Infinity, 'tokens rise from process to process, too');
          await next.release();
        } finally {
          await other.kill();
        }
      },
    ),
    roles: ['ttl'],
  },

  ruleUnder(['fork'], 'frees what a killed process held, and lets nobody wait for one', async (stage, faults) => {
    const backend = await stage.backend();
    const [holder, waiter] = await Promise.all([Other.start(faults.fork), Other.start(faults.fork)]);
    try {
      const token = await holder.take(stage.name, { ttl: Math.max(1_500, backend.traits.leastLease) });
      waiter.take(stage.name).catch(() => {});
      const locks = await stage.locks();
      const { queue } = (await stage.client()).store;
      if (queue && !queue.pace) {
        await stage.until('a caller waits', async () => ((await locks.inspect(stage.name))?.waiting ?? 0) > 0);
      }
      await stage.until('a caller gets in after the killed ones', async () => {
        const waiting = locks.acquire(stage.name, { wait: 1_000 });
        await Promise.all([holder.kill(), waiter.kill()]);
        const next = await waiting.catch(() => undefined);
        if (next) assertAbove(next.fencingToken, token ?? Infinity);
        await next?.release();
        return next !== undefined;
      });
    } finally {
      await Promise.all([holder.kill(), waiter.kill()]);
    }
  }),
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

/**
 * Where grants are rows or keys, the store may have lost them: each connection that opens is a reason to ask for them.
 * A store inside of the process is opened again by a request alone.
 */
function connectsAgain(fault: 'cut' | 'restart' | 'loseData'): Rule {
  const body = async (stage: Stage, faults: Pick<StoreFaults, typeof fault>): Promise<void> => {
    const client = await stage.client();
    await client.ownerOf(stage.name);
    client.connections = 0;
    await faults[fault]();
    await stage.until('the backend says that it is connected again', async () => {
      await Promise.race([client.ownerOf(stage.name).catch(() => {}), sleep(200)]);
      return client.connections > 0;
    });
  };
  return { ...ruleUnder([fault], `says that it is connected again (${fault})`, body), roles: ['ttl'] };
}

/** Under a fault, a call may fail with one of the errors of locks, and with no other. */
function requireLockError(error: unknown): void {
  const { code } = error as { code?: unknown };
  if (typeof code !== 'string' || !code.startsWith('LOCK_')) throw error;
}

/** A process in which `answerCases` runs. */
class Other {
  private constructor(private readonly child: ChildProcess) {}

  static async start(fork: () => ChildProcess | Promise<ChildProcess>): Promise<Other> {
    const child = await fork();
    const ended = once(child, 'exit').then(() => assert.fail('the program of `fork` ended: it calls `answerCases`'));
    await Promise.race([once(child, 'message'), ended]);
    ended.catch(() => {});
    return new Other(child);
  }

  /** Resolves to the token, or to `null` where the name was busy. */
  async take(name: string, options: Omit<Wanted, 'name'> = {}): Promise<number | null> {
    this.child.send({ name, wait: 60_000, ...options } satisfies Wanted);
    const [told] = (await once(this.child, 'message')) as [Told];
    if ('failed' in told) assert.fail(told.failed);
    return told.token;
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await ended;
  }
}
