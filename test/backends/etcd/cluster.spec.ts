import { etcd } from 'nest-redis-lock/etcd';
import { askEtcd } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startEtcdCluster, type EtcdMember } from '../../support/servers/etcd-server.js';

const SESSION = 5_000;

let members: readonly EtcdMember[];
let one: LockApp;
let two: LockApp;

beforeAll(async () => {
  members = await startEtcdCluster(3);
  const start = () => startLockApp({ backend: etcd({ endpoints: urls(), ttl: SESSION }), cache: false });
  [one, two] = await Promise.all([start(), start()]);
});
afterAll(async () => {
  await Promise.all([one.close(), two.close()]);
  await Promise.all(members.map((member) => member.stop()));
});

const urls = () => members.map(({ url }) => url);

interface Status {
  readonly header: { readonly member_id: string };
  readonly leader?: string;
}

async function leader(): Promise<EtcdMember> {
  return eventually(async () => {
    for (const member of members) {
      const { header, leader: id } = await askEtcd<Status>(member.url, '/v3/maintenance/status', {});
      if (header.member_id === id) return member;
    }
    return undefined;
  });
}

async function eventuallyLocked(app: LockApp, name: string): Promise<number> {
  return eventually(async () => {
    try {
      return await app.locks.withLock(name, { wait: 1_000 }, async ({ fencingToken }) => fencingToken);
    } catch (error) {
      expect(error).toMatchObject({ code: expect.stringMatching(/^LOCK_(BACKEND|TIMEOUT|LOST)$/) });
      return undefined;
    }
  });
}

it('keeps held locks, and serves its callers, when the leader dies', async () => {
  const held = await one.locks.acquire('held');
  let inside = 0;
  let last = 0;
  let served = 0;
  const stop = new AbortController();
  const callers = [one, two, one, two].map(async ({ locks }) => {
    while (!stop.signal.aborted) {
      try {
        await locks.withLock('contended', { wait: 20_000 }, async ({ fencingToken }) => {
          expect((inside += 1)).toBe(1);
          expect(fencingToken).toBeGreaterThan(last);
          last = fencingToken;
          await new Promise((resolve) => setImmediate(resolve));
          inside -= 1;
        });
        served += 1;
      } catch (error) {
        expect(error).toMatchObject({ code: expect.stringMatching(/^LOCK_/) });
      }
    }
  });
  await eventually(() => served > 20);
  const dead = await leader();
  await dead.process.kill();
  const before = served;
  await eventually(() => served > before + 20);
  stop.abort();
  await Promise.all(callers);
  held.assertHeld();
  expect((await two.locks.inspect('held'))?.owner).toBe(held.owner);
  await held.release();
  await dead.restart();
});

it('fails in time, says why, and tells that locks are lost, while most members stand still', async () => {
  const before = await eventuallyLocked(one, 'minority');
  const held = await one.locks.acquire('minority');
  const [first, second] = members as [EtcdMember, EtcdMember];
  first.process.pause();
  second.process.pause();
  try {
    const askedAt = performance.now();
    const refused = await two.locks.acquire('another', { wait: 1_500 }).catch((error: unknown) => error);
    expect(performance.now() - askedAt).toBeLessThan(15_000);
    expect(refused).toMatchObject({ code: 'LOCK_BACKEND' });
    const causes = String((refused as Error).cause);
    expect(causes).toContain(`${first.url}: no answer within 500 ms`);
    expect(causes).toContain('most of its members do not answer');
    await eventually(() => held.signal.aborted);
    expect(held.held).toBe(false);
    expect(held.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
  } finally {
    first.process.resume();
    second.process.resume();
  }
  expect(await eventuallyLocked(two, 'minority')).toBeGreaterThan(Math.max(before, held.fencingToken));
});

it('starts while one of its members is away, and says which', async () => {
  const [first] = members as [EtcdMember];
  await first.process.kill();
  const start = () => startLockApp({ backend: etcd({ endpoints: urls() }), cache: false, failFast: true });
  // The others may have to elect a leader first.
  await using app = await eventually(() => start().catch(() => undefined));
  expect(app.logger.matching(/ECONNREFUSED/)).toHaveLength(1);
  expect(app.logger.matching(/the other 2 of 3 endpoints serve/)).toHaveLength(1);
  await app.locks.withLock('without one', async () => {});
  await first.restart();
});
