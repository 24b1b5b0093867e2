import {
  LeaderElection,
  type LockBackend,
  PrimitiveConfigError,
  ScheduledJobs,
  type ScheduleOptions,
} from 'nest-redis-lock';
import { type Backend, startStore } from '../faults/chaos/stores.js';
import { Child } from './child.js';
import { eventually } from './eventually.js';
import { Gate } from './gate.js';
import { type LockApp, startLockApp } from './lock-app.js';

/** Runs jobs and elects leaders in two applications that share a store, each with a backend of its own. */
export async function expectJobsAndLeaders(
  open: () => LockBackend,
  { keepsNames }: { keepsNames: boolean },
): Promise<void> {
  await using one = await startLockApp({ backend: open(), cache: false });
  await using two = await startLockApp({ backend: open(), cache: false });

  const leader = one.app.get(LeaderElection).join('restock');
  const term = await eventually(() => leader.term);
  const follower = two.app.get(LeaderElection).join('restock');
  await follower.answered;
  expect(follower.isLeader).toBe(false);
  await leader.leave();
  expect(await eventually(() => follower.term)).toBeGreaterThan(term);

  const [here, there] = [one.app.get(ScheduledJobs), two.app.get(ScheduledJobs)];
  const kept: ScheduleOptions = { atMostFor: '5m', atLeastFor: '1m' };
  const options: ScheduleOptions = keepsNames ? kept : { ...kept, atLeastFor: 0 };
  const [gate, begun] = [new Gate(), new Gate()];
  const running = here.run('nightly', options, async () => {
    begun.open();
    await gate.opened;
    return 'made';
  });
  await begun.opened;
  expect(await there.run('nightly', options, async () => 'made twice')).toBeUndefined();
  gate.open();
  expect(await running).toBe('made');
  const next = there.run('nightly', options, async () => 'made next');
  expect(await next).toBe(keepsNames ? undefined : 'made next');
  if (!keepsNames) {
    const refused = here.run('nightly', kept, async () => 'made');
    await expect(refused).rejects.toThrow(PrimitiveConfigError);
    await expect(refused).rejects.toThrow('Option "atLeastFor" is 60000; give 0: backend ');
  }
  await expect(here.lastRun('nightly')).rejects.toThrow(PrimitiveConfigError);
}

/** Two processes wait for a lock that a third one holds. Each opens the store for itself. */
export async function expectWaitersInOrder(open: () => LockBackend): Promise<void> {
  const apps: LockApp[] = [];
  try {
    for (const label of ['one', 'two', 'three']) apps.push(await startLockApp({ backend: open(), label }));
    const [one, two, three] = apps.map(({ locks }) => locks) as [LockApp['locks'], LockApp['locks'], LockApp['locks']];
    const lock = await one.acquire('order:7', { ttl: '1m' });
    expect((await three.inspect('order:7'))?.waiters).toEqual([]);
    const waits = [];
    for (const [index, locks] of [three, two].entries()) {
      waits.push(locks.acquire('order:7', { wait: '2m', ttl: '1m' }));
      await eventually(async () => (await one.inspect('order:7'))?.waiters?.length === index + 1);
    }
    const owner = expect.stringMatching(/^.+:\d+$/) as string;
    await eventually(async () => (await one.inspect('order:7'))?.waiters?.every(({ label }) => label !== undefined));
    expect(await one.inspect('order:7')).toMatchObject({
      owner: lock.owner,
      label: 'one',
      waiters: [
        { owner, label: 'three', mode: 'write' },
        { owner, label: 'two', mode: 'write' },
      ],
    });
    await lock.release();
    for (const wait of waits) await (await wait).release();
  } finally {
    await Promise.all(apps.map((app) => app.close()));
  }
}

const PROCESSES = 2;
const LEAST_HOLDS = 3_000;
/** 1 where all got the same, 1/n where one got everything. */
const LEAST_JAIN = 0.9;

/** Has processes want one key whose holders await nothing; resolves when each was served about as often. */
export async function processesTakeTurns(backend: Backend): Promise<void> {
  await using store = await startStore(backend);
  const { ports } = store;
  const crew = Array.from({ length: PROCESSES }, () =>
    Child.start('hot-key.mjs', [String(ports[0]), JSON.stringify({ backend, ports })]),
  );
  let asked = 0;
  const served = async () => {
    asked += 1;
    for (const child of crew) child.signal('SIGUSR2');
    return Promise.all(crew.map((child) => child.says<number>(`served:${asked};`)));
  };
  try {
    await Promise.all(crew.map((child) => child.says('ready')));
    const before = await eventually(async () => {
      const counts = await served();
      return counts.every((count) => count > 0) ? counts : undefined;
    });
    await eventually(async () => {
      const counts = (await served()).map((count, index) => count - (before[index] ?? 0));
      return sumOf(counts) > LEAST_HOLDS && jainIndex(counts) >= LEAST_JAIN;
    });
  } finally {
    await Promise.all(crew.map((child) => child.kill()));
  }
}

function jainIndex(counts: readonly number[]): number {
  return sumOf(counts) ** 2 / (counts.length * sumOf(counts.map((count) => count * count)));
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
