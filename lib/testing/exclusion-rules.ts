import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { assertAbove } from './grant-rules.js';
import { rule, ProtectedResource, type Rule } from './stage.js';

/** What callers see of the backend through `LockService`. */
export const EXCLUSION_RULES: readonly Rule[] = [
  rule('lets one caller in at a time, of all processes, with rising tokens', async (stage) => {
    const services = [await stage.locks(), await stage.locks(), await stage.locks()];
    const resource = new ProtectedResource();
    const callers = services.flatMap((locks) =>
      Array.from({ length: 5 }, async () => {
        for (let round = 0; round < 10; round++) {
          await locks.withLock(stage.name, { wait: 60_000 }, (lock) =>
            resource.use(lock, () => (round % 2 ? sleep(1) : Promise.resolve())),
          );
        }
      }),
    );
    await Promise.all(callers);
    assert.equal(resource.uses, 150);
  }),

  rule('serves the callers of a process in order of arrival', async (stage) => {
    const locks = await stage.locks();
    const order: number[] = [];
    const held = await locks.acquire(stage.name);
    const waiting = Array.from({ length: 20 }, (_, caller) =>
      locks.withLock(stage.name, { wait: 60_000 }, async () => void order.push(caller)),
    );
    await held.release();
    await Promise.all(waiting);
    assert.deepEqual(
      order,
      order.map((_, caller) => caller),
    );
  }),

  rule('serves every caller about equally often on a key that all want', async (stage) => {
    const locks = await stage.locks();
    const other = await stage.locks();
    const counts = Array.from({ length: 20 }, () => 0);
    let cycles = 0;
    const callers = counts.map(async (_, caller) => {
      while (cycles < 1_000) {
        await locks.withLock(stage.name, { wait: 60_000 }, async () => void (counts[caller]! += 1));
        cycles += 1;
      }
    });
    await other.withLock(stage.name, { wait: 60_000 }, async () => {});
    await Promise.all(callers);
    const fairness = jainIndex(counts);
    assert(fairness >= 0.95, `Jain's index is ${fairness}: ${counts.join(' ')}`);
  }),

  rule('lets a waiter of another process in when the holder releases', async (stage) => {
    const [one, two] = [await stage.locks(), await stage.locks()];
    for (let round = 0; round < 5; round++) {
      const held = await one.acquire(stage.name);
      const waiting = two.acquire(stage.name, { wait: 60_000 });
      await sleep(20);
      await held.release();
      const next = await waiting;
      assertAbove(next.fencingToken, held.fencingToken);
      await next.release();
    }
  }),

  rule('answers a busy name at once to a caller that does not wait', async (stage) => {
    const [one, two] = [await stage.locks(), await stage.locks()];
    const held = await one.acquire(stage.name);
    assert.equal(await two.tryAcquire(stage.name), null);
    assert.equal(await one.tryAcquire(stage.name), null);
    await assert.rejects(two.acquire(stage.name, { wait: 100 }), { code: 'LOCK_TIMEOUT' });
    assert.equal(await two.isLocked(stage.name), true);
    await held.release();
    await stage.until('the name is free', async () => !(await two.isLocked(stage.name)));
  }),

  rule('is free for the next call of a process that releases in the background', async (stage) => {
    const locks = await stage.locks();
    for (let round = 0; round < 30; round++) {
      const first = await locks.withLock(stage.name, { release: 'background' }, async (lock) => lock.fencingToken);
      const next = await locks.tryAcquire(stage.name);
      assert(next, `busy in round ${round}`);
      assertAbove(next.fencingToken, first);
      await next.release();
    }
  }),

  rule('is not delayed by a waiter that gave up', async (stage) => {
    const [one, two, three] = [await stage.locks(), await stage.locks(), await stage.locks()];
    const held = await one.acquire(stage.name);
    const abort = new AbortController();
    const waiting = two.acquire(stage.name, { wait: 60_000, signal: abort.signal });
    await sleep(50);
    abort.abort(new Error('no longer wanted'));
    await assert.rejects(waiting, { message: 'no longer wanted' });
    await held.release();
    const next = await three.acquire(stage.name, { wait: 60_000 });
    await next.release();
    await stage.until('the name is free', async () => !(await one.isLocked(stage.name)));
  }),

  rule('takes several names together, and gives them back when one is busy', async (stage) => {
    const [one, two] = [await stage.locks(), await stage.locks()];
    const [a, b, c] = [`{${stage.name}}:a`, `{${stage.name}}:b`, `{${stage.name}}:c`];
    const held = await one.acquire([b, a]);
    assert.deepEqual(held.keys, [a, b]);
    assert.equal(await two.tryAcquire([c, b]), null);
    await assert.rejects(two.acquire([b, c], { wait: 100 }), { code: 'LOCK_TIMEOUT' });
    assert.equal(await one.isLocked(c), false);
    const waiting = two.acquire([b, c], { wait: 60_000 });
    await sleep(20);
    await held.release();
    const next = await waiting;
    assertAbove(next.fencingToken, held.fencingToken);
    await next.release();
  }),

  rule('serves callers that want overlapping names without a deadlock', async (stage) => {
    const services = [await stage.locks(), await stage.locks()];
    const names = ['a', 'b', 'c', 'd'].map((end) => `{${stage.name}}:${end}`);
    const resources = new Map(names.map((name) => [name, new ProtectedResource()]));
    const callers = Array.from({ length: 8 }, async (_, caller) => {
      for (let round = 0; round < 5; round++) {
        const wanted = [names[(caller + round) % 4]!, names[(caller * 3 + round + 1) % 4]!];
        await services[caller % 2]!.withLock(wanted, { wait: 60_000 }, async (lock) => {
          await Promise.all(lock.keys.map((name) => resources.get(name)!.use(lock, () => sleep(1))));
        });
      }
    });
    await Promise.all(callers);
  }),

  rule('keeps a lock for as long as its holder runs, by renewals', async (stage) => {
    const backend = await stage.backend();
    const [one, two] = [await stage.locks(), await stage.locks()];
    const ttl = Math.max(3_000, backend.traits.leastLease);
    const held = await one.acquire(stage.name, { ttl });
    const end = performance.now() + 1.5 * ttl;
    while (performance.now() < end) {
      assert.equal(await two.tryAcquire(stage.name), null);
      await sleep(50);
    }
    held.assertHeld();
    await held.release();
  }),

  rule('ends a lock without renewal after its ttl, and lets the next one in', async (stage) => {
    const backend = await stage.backend();
    const [one, two] = [await stage.locks(), await stage.locks()];
    const ttl = Math.max(400, backend.traits.leastLease);
    const held = await one.acquire(stage.name, { ttl, renew: false });
    const aborted = new Promise((resolve) => held.signal.addEventListener('abort', resolve));
    const next = await two.acquire(stage.name, { wait: 60_000 });
    assert.equal(held.held, false);
    await aborted;
    assertAbove(next.fencingToken, held.fencingToken);
    await assert.rejects(held.release(), { code: 'LOCK_LOST' });
    next.assertHeld();
    await next.release();
  }),

  rule('leaves nothing locked when its application ends', async (stage) => {
    const backend = await stage.backend();
    const two = await stage.locks();
    const one = await stage.locks(backend);
    await one.acquire(stage.name);
    const waiting = two.acquire(stage.name, { wait: 60_000 });
    await one.onApplicationShutdown();
    await (await waiting).release();
  }),
];

/** Jain's fairness index: 1 where all got the same, 1/n where one got everything. */
function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return (sum * sum) / (counts.length * squares);
}
