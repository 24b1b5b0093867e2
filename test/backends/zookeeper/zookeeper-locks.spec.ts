import { setTimeout as sleep } from 'node:timers/promises';
import { LockTimeoutError } from 'nest-redis-lock';
import { eventually } from '../../support/eventually.js';
import { appOn, oneZooKeeper, Onlooker } from './one-zookeeper.js';

oneZooKeeper();

it('excludes the callers of two processes, and serves all of them', async () => {
  const apps = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  let [inside, rounds] = [0, 0];
  const tokens: number[] = [];
  const caller = async ({ locks }: (typeof apps)[number]) => {
    for (let round = 0; round < 20; round++) {
      await locks.withLock('hot', { wait: 60_000 }, async ({ fencingToken }) => {
        inside += 1;
        expect(inside).toBe(1);
        tokens.push(fencingToken);
        await sleep(0);
        rounds += 1;
        inside -= 1;
      });
    }
  };
  await Promise.all(apps.flatMap((app) => Array.from({ length: 10 }, () => caller(app))));
  expect(rounds).toBe(400);
  expect(tokens).toEqual(tokens.toSorted((one, other) => one - other));
  expect(new Set(tokens).size).toBe(tokens.length);
});

it('wakes a waiter when the holder releases', async () => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire('passed on');
  const waiting = two.locks.acquire('passed on', { wait: 10_000 });
  await eventually(async () => ((await one.locks.inspect('passed on'))?.waiting ?? 0) > 0);
  await held.release();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(held.fencingToken);
  await next.release();
  expect(await one.locks.isLocked('passed on')).toBe(false);
});

it('refuses a busy name to those who do not wait, and leaves no node of theirs', async () => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire('busy');
  expect(await two.locks.tryAcquire('busy')).toBeNull();
  await expect(two.locks.acquire('busy', { wait: 100 })).rejects.toBeInstanceOf(LockTimeoutError);
  const onlooker = await Onlooker.open();
  await eventually(async () => (await onlooker.children('/locks/busy'))?.length === 1);
  await held.release();
});

it.each([
  'a/b',
  '.',
  '..',
  '~',
  '~home',
  'nul\0byte',
  '\u{1f512} lock',
  'trailing  ',
  'Case',
  'case',
  'x'.repeat(3_000),
  '%2F',
])('locks the name %j', async (name) => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire(name);
  expect(await two.locks.tryAcquire(name)).toBeNull();
  const similar = await two.locks.acquire(`${name.slice(0, -1)}!`);
  expect((await two.locks.inspect(name))?.owner).toBe(held.owner);
  await similar.release();
  await held.release();
});

it('shows owner, label, tokens and waiters, and frees by force', async () => {
  const [one, two] = await Promise.all([appOn({ sessionTimeout: 10_000 }), appOn({ sessionTimeout: 10_000 })]);
  const held = await one.locks.acquire('shown');
  const waiting = two.locks.acquire('shown', { wait: 10_000 });
  const state = await eventually(async () => {
    const found = await two.locks.inspect('shown');
    return found?.waiting === 1 ? found : undefined;
  });
  expect(state).toMatchObject({ owner: held.owner, label: expect.stringMatching(/:\d+$/), ttl: 10_000 });
  expect(state.fencingToken).toBeGreaterThanOrEqual(held.fencingToken);
  expect(await two.locks.forceRelease('shown')).toBe(true);
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(state.fencingToken as number);
  await eventually(() => held.signal.aborted);
  expect(held.held).toBe(false);
  await next.release();
  expect(await two.locks.forceRelease('shown')).toBe(false);
});
