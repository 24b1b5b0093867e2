import {
  LeaderElection,
  PrimitiveConfigError,
  ScheduledJobs,
  type LockBackend,
  type ScheduleOptions,
} from 'nest-redis-lock';
import { eventually } from './eventually.js';
import { Gate } from './gate.js';
import { startLockApp } from './lock-app.js';

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
