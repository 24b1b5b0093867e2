import type { LockBackend } from 'nest-redis-lock';
import { eventually } from './eventually.js';
import { startLockApp, type LockApp } from './lock-app.js';

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
